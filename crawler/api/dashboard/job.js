// One job: what it does, when next, what became of its times, and what its owner can do.

import { ApiError, Repeater, get, session } from "./api.js";
import { command } from "./dialog.js";
import { $, el, facts, keyed, show, table, tell, text } from "./dom.js";
import { counted, moment, number } from "./format.js";
import { JobForm } from "./job_form.js";
import {
  HistoryBars,
  endedAt,
  fillTimes,
  historyTable,
  jobPath,
  jobPill,
  runLink,
  secondsOf,
  tookS,
} from "./job_parts.js";

const EVERY_MS = 2000;
const ROWS = 30; // of a page of the history, and bars
const TIMES = 10;
const RUNS_SHOWN = 10; // of those that have not ended

export function jobView() {
  let wanted = null; // {user, name}
  let job = null;
  let pages = [""]; // cursors of the pages of the history that led here
  let following = "";
  let drawnRows = "";
  let previewed = ""; // what the next times were read for
  const bars = new HistoryBars(ROWS + 2, { isLeft: true });
  $("job-bars").append(bars.element);
  const form = new JobForm($("job-form-panel"), () => again());
  const repeater = new Repeater(look, EVERY_MS);

  async function look(signal) {
    try {
      job = await get(jobPath(wanted), signal);
    } catch (error) {
      if (!(error instanceof ApiError) || !error.status || error.status >= 500) throw error;
      missing(error.message);
      return;
    }
    if (signal.aborted) return;
    draw();
    await Promise.all([history(signal), nextTimes(signal), running(signal), failed(signal)]);
  }

  function missing(message) {
    job = null;
    text($("job-sentence"), message.endsWith(".") ? message : `${message}.`);
    show($("job-body"), false);
    show($("job-state"), false);
    $("job-actions").replaceChildren();
    form.close();
  }

  function draw() {
    show($("job-body"), true);
    show($("job-state"), true);
    jobPill($("job-state"), job);
    text($("job-user"), `of user ${job.user}`);
    facts($("job-definition"), job.facts);
    tell($("job-sentence"), job.sentence);
    buttons();
  }

  async function history(signal) {
    const after = pages.at(-1) ? `&after=${pages.at(-1)}` : "";
    const found = await get(`${jobPath(wanted)}/history?limit=${ROWS}${after}`, signal);
    if (signal.aborted) return;
    following = found.next;
    if (pages.length === 1) bars.update(found.rows);
    show($("job-paging"), Boolean(following) || pages.length > 1);
    $("job-older").disabled = !following;
    $("job-newest").disabled = pages.length === 1;
    const lasting = found.rows.filter((row) => row.outcome === "running").map((row) => Math.round(tookS(row)));
    const shape = JSON.stringify([found.rows, lasting]);
    const box = $("job-history");
    if (shape === drawnRows || box.contains(document.activeElement)) return; // unchanged, or somebody is in there
    drawnRows = shape;
    const [headers, cells] = historyTable(found.rows);
    const none = el("p", { class: "muted" }, "No scheduled time has passed yet.");
    box.replaceChildren(cells.length ? table("History, newest first", headers, cells) : none);
  }

  async function nextTimes(signal) {
    const of = `${job.revision} ${job.state} ${job.next}`;
    if (of === previewed) return;
    const found = await get(`${jobPath(wanted)}/preview?times=${TIMES}`, signal);
    if (signal.aborted) return;
    previewed = of;
    fillTimes($("job-times"), found.times);
  }

  async function running(signal) {
    const read = (run) => get(`/v1/runs/${run}`, signal).catch(() => null); // it may end meanwhile
    const runs = await Promise.all(job.running.slice(0, RUNS_SHOWN).map(read));
    if (signal.aborted) return;
    show($("job-running-panel"), job.running.length > 0);
    const none = job.running.length - RUNS_SHOWN;
    text($("job-running-more"), none > 0 ? `and ${number(none)} more` : "");
    keyed(
      $("job-running"),
      runs.filter(Boolean),
      (run) => run.run,
      (run) => el("li", {}, runLink(run.run), el("span")),
      (line, run) => text(line.lastChild, ` ${run.sentence}`),
    );
  }

  /** Runs that used up their retries, until somebody repeats or dismisses them. */
  async function failed(signal) {
    const rows = job.failed ? (await get(`${jobPath(wanted)}/failed`, signal)).failed : [];
    if (signal.aborted) return;
    show($("job-failed-panel"), rows.length > 0);
    const more = rows.length - RUNS_SHOWN;
    text($("job-failed-more"), more > 0 ? `${number(rows.length)}, the last ${RUNS_SHOWN} here` : "");
    keyed(
      $("job-failed"),
      rows.slice(0, RUNS_SHOWN),
      (row) => row.run,
      (row) => el("li", {}, runLink(row.run), el("span"), el("span", { class: "actions" })),
      (line, row) => {
        const tries = row.attempts > 1 ? `after ${number(row.attempts)} attempts` : "";
        text(line.childNodes[1], ` ${[moment(secondsOf(endedAt(row))), tries, row.reason].filter(Boolean).join(", ")} `);
        settleButtons(line.lastChild, row.run, { runs: [row.run] });
      },
    );
    settleButtons($("job-failed-actions"), "all failed runs", rows.length > 1 && { all: true });
  }

  /** Buttons that repeat or dismiss failed runs: those of `body`, if there are any. */
  function settleButtons(box, what, body) {
    show(box, Boolean(session.current && body));
    const all = body.all ? " all" : "";
    const verbs = [
      ["retry", `Retry${all}`, "It is repeated now, with the current definition of the job.", "repeated"],
      ["dismiss", `Dismiss${all}`, "It is removed from this list. The history keeps it.", "dismissed"],
    ];
    keyed(
      box,
      verbs,
      ([verb]) => verb,
      ([verb]) => el("button", { type: "button", "data-verb": verb }),
      (button, [verb, label, question, done]) => {
        text(button, label);
        button.onclick = async () => {
          const asked = { title: `${label}: ${what}?`, question, button: label };
          const options = { body: () => body, done: ({ runs }) => `${counted(runs, "run")} ${done}.` };
          if (await command(asked, `${jobPath(wanted)}/failed/${verb}`, options)) again();
        };
      },
    );
  }

  function again() {
    drawnRows = previewed = "";
    repeater.again();
  }

  function buttons() {
    show($("job-actions"), Boolean(session.current));
    if (!session.current) return;
    const isPaused = job.state === "paused";
    const pause = isPaused
      ? act("resume", "Resume", "The job is triggered again. Times during the pause become one row of its history.")
      : act("pause", "Pause", "The job is not triggered until it is resumed. Active runs continue.");
    const actions = [
      act("run", "Run now", "A run starts as soon as an instance is running, regardless of the schedule."),
      pause,
      { verb: "edit", label: "Edit…", press: () => form.open(job) },
      { verb: "remove", label: "Remove", press: remove },
    ];
    keyed(
      $("job-actions"),
      actions,
      (one) => one.verb.replace(/^resume$/, "pause"), // the same button, and so the focus
      () => el("button", { type: "button" }),
      (button, one) => {
        button.dataset.verb = one.verb;
        text(button, one.label);
        button.onclick = one.press;
      },
    );
  }

  function act(verb, label, question) {
    const done = { run: "A run was requested.", pause: "The job is paused.", resume: "The job is resumed." }[verb];
    const press = async () => {
      const title = `${label}: ${wanted.name}?`;
      const asked = { title, question, button: label };
      if (await command(asked, `${jobPath(wanted)}/${verb}`, { done: () => done })) again();
    };
    return { verb, label, press };
  }

  async function remove() {
    const question = "Its history is removed, and active runs end. Fetched pages stay in the archive.";
    const asked = { title: `Remove ${wanted.name}?`, question, button: "Remove", isHarsh: true };
    const done = () => `${wanted.name} is removed.`;
    if (await command(asked, jobPath(wanted), { method: "DELETE", done })) location.hash = "#/jobs";
  }

  function turn(next) {
    pages = next;
    drawnRows = "";
    repeater.again();
  }

  $("job-older").addEventListener("click", () => turn([...pages, following]));
  $("job-newest").addEventListener("click", () => turn([""]));

  return {
    start(argument) {
      const [user, name = ""] = argument.split("/");
      if (!wanted || wanted.user !== user || wanted.name !== name) {
        wanted = { user, name };
        job = null;
        pages = [""];
        drawnRows = previewed = "";
        text($("t-job"), name);
        text($("job-sentence"), "Reading ...");
        text($("job-user"), "");
        ["job-body", "job-state", "job-running-panel", "job-failed-panel"].forEach((id) => show($(id), false));
        ["job-actions", "job-failed"].forEach((id) => $(id).replaceChildren());
        $("job-history").replaceChildren(el("p", { class: "muted" }, "Reading ..."));
        $("job-times").replaceChildren(el("li", { class: "muted" }, "Reading ..."));
        form.close();
      }
      repeater.start();
    },
    stop() {
      repeater.stop();
    },
    session() {
      if (job) {
        buttons();
        repeater.again();
      }
      if (!session.current) form.close();
    },
  };
}
