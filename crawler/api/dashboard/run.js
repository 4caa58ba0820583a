// One run of a job: what became of it, and what it ran with.

import { ApiError, Repeater, get } from "./api.js";
import { $, facts, show, text } from "./dom.js";
import { counted, duration, moment, number, rate, size } from "./format.js";
import { became, definitionFacts, jobAddress, kindOf, secondsOf, tookS } from "./job_parts.js";

const EVERY_MS = 2000;
const LEAST_S = 1; // a rate over less tells nothing

const at = (iso) => (iso ? moment(secondsOf(iso)) : "");

/** Of a run that goes on: "12 pages, 0.4 pages/s, 30 URLs pending, for 42 s" */
export function liveText({ row, counts }) {
  const parts = [`for ${duration(Math.round(tookS(row)))}`];
  if (counts) {
    const pages = `${counted(counts.pages, "page")}${perS(counts.pages, row)}`;
    parts.unshift(pages, `${counted(counts.pending, "URL")} pending`);
  }
  return parts.join(", ");
}

const perS = (pages, row) => (tookS(row) >= LEAST_S ? `, ${rate(pages / tookS(row))} pages/s` : "");

export function runView() {
  let name = "";
  const repeater = new Repeater(look, EVERY_MS);

  async function look(signal) {
    let run;
    try {
      run = await get(`/v1/runs/${encodeURIComponent(name)}`, signal);
    } catch (error) {
      if (!(error instanceof ApiError) || !error.status || error.status >= 500) throw error;
      text($("run-sentence"), `${error.message}.`);
      show($("run-body"), false);
      show($("run-state"), false);
      return;
    }
    if (!signal.aborted) draw(run);
  }

  function draw(run) {
    const { row } = run;
    ["run-body", "run-state"].forEach((id) => show($(id), true));
    text($("run-state"), became(row));
    $("run-state").dataset.state = kindOf(row);
    $("run-job").href = jobAddress({ user: run.user, name: run.job });
    text($("run-job"), `${run.job}, of user ${run.user}`);
    text($("run-sentence"), row.outcome === "running" ? `It is running: ${liveText(run)}.` : endText(row));
    facts($("run-facts"), [...times(row), ...(run.counts ? live(run) : figures(row)), ["Reason", row.reason ?? ""]]);
    const gone = [["Definition", "not kept: the job has changed a hundred times since"]];
    facts($("run-definition"), run.definition ? definitionFacts(run.definition) : gone);
  }

  return {
    start(argument) {
      if (argument !== name) {
        name = argument;
        text($("t-run"), name);
        text($("run-sentence"), "Reading ...");
        text($("run-job"), "");
        ["run-body", "run-state"].forEach((id) => show($(id), false));
      }
      repeater.start();
    },
    stop: () => repeater.stop(),
  };
}

function endText(row) {
  const took = tookS(row) ? ` in ${duration(Math.round(tookS(row)))}` : "";
  const what = {
    finished: "It finished", limited: "It has as much as it may", failed: "It failed", retrying: "It failed, and is repeated",
    unknown: "The engine lost how it ended",
  }[row.outcome];
  return `${what ?? became(row)}: ${counted(row.pages ?? 0, "page")}${took}${row.reason ? `; ${row.reason}` : ""}.`;
}

function times(row) {
  return [
    ["Scheduled for", at(row.nominal)],
    ["Manual", row.manual ? "yes" : ""],
    ["Picked", at(row.picked_at)],
    ["Started", at(row.started_at)],
    ["Completed", at(row.completed_at)],
    ["Failed", at(row.failed_at)],
    ["Repeated", at(row.retry_at)],
    ["Attempt", row.attempts > 1 ? number(row.attempts) : ""],
    ["Revision of the job", number(row.revision)],
  ];
}

function figures(row) {
  return [
    ["Pages", `${number(row.pages ?? 0)}${perS(row.pages ?? 0, row)}`],
    ["Errors", number(row.errors ?? 0)],
    ["Size", size(row.bytes ?? 0)],
  ];
}

/** Counts of a run that goes on. */
function live({ row, counts: c }) {
  const statuses = Object.entries(c.statuses).map(([status, n]) => `${status}xx ${number(n)}`);
  return [
    ["Pages", `${number(c.pages)}${statuses.length ? ` (${statuses.join(", ")})` : ""}${perS(c.pages, row)}`],
    ["URLs", `${number(c.added)}, of them ${number(c.pending)} pending`],
    ["Refused", number(c.refused)],
    ["Dead letters", number(c.dead)],
    ["Deferred", c.deferred ? number(c.deferred) : ""],
    ["Retries", number(c.retries)],
    ["Size", size(c.bytes)],
    ["Items", c.items ? number(c.items) : ""],
  ];
}
