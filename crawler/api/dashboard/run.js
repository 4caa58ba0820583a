// One run of a job: what became of it, and what it ran with.

import { ApiError, Repeater, get } from "./api.js";
import { $, facts, show, text } from "./dom.js";
import { counted, duration, moment, number, rate, size } from "./format.js";
import { became, definitionFacts, jobAddress, kindOf, secondsOf, tookS } from "./job_parts.js";

const EVERY_MS = 2000;
const LEAST_S = 1; // a rate over less tells nothing

const at = (iso) => (iso ? moment(secondsOf(iso)) : "");

/** "12 pages, 0.4 pages/s, for 30 s" */
export function liveText({ row }) {
  return `for ${duration(Math.round(tookS(row)))}`;
}

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
    text($("run-sentence"), row.outcome === "running" ? `It has been running ${liveText(run)}.` : endText(row));
    facts($("run-facts"), figures(row));
    facts($("run-definition"), definitionFacts(run.definition));
  }

  return {
    start(argument) {
      if (argument !== name) {
        name = argument;
        text($("t-run"), name);
        ["run-sentence", "run-job"].forEach((id) => text($(id), ""));
        ["run-body", "run-state"].forEach((id) => show($(id), false));
      }
      repeater.start();
    },
    stop: () => repeater.stop(),
  };
}

function endText(row) {
  const took = tookS(row) ? ` in ${duration(Math.round(tookS(row)))}` : "";
  const what = { finished: "It finished", failed: "It failed", retrying: "It failed, and is repeated" }[row.outcome];
  return `${what ?? became(row)}: ${counted(row.pages ?? 0, "page")}${took}${row.reason ? `; ${row.reason}` : ""}.`;
}

function figures(row) {
  const isEnded = row.outcome !== "running";
  const perS = tookS(row) >= LEAST_S ? `, ${rate((row.pages ?? 0) / tookS(row))} pages/s` : "";
  return [
    ["For the time", at(row.nominal)],
    ["By hand", row.manual ? "yes" : ""],
    ["Triggered", at(row.triggered)],
    ["Started", at(row.started)],
    ["Ended", at(row.ended)],
    ["Attempt", row.attempts > 1 ? number(row.attempts) : ""],
    ["Pages", isEnded ? `${number(row.pages ?? 0)}${perS}` : ""],
    ["Errors", isEnded ? number(row.errors ?? 0) : ""],
    ["Size", isEnded ? size(row.bytes ?? 0) : ""],
    ["Why", row.reason ?? ""],
    ["Revision of the job", number(row.revision)],
  ];
}
