// The table of jobs: their next times, and their last runs as bars.

import { Repeater, get, session } from "./api.js";
import { $, cells, el, keyed, reading, show, text } from "./dom.js";
import { counted, number } from "./format.js";
import { JobForm } from "./job_form.js";
import { HistoryBars, countdown, jobAddress, jobPill } from "./job_parts.js";
import { Pages } from "./pages.js";

const EVERY_MS = 3000;
const TICK_MS = 1000;
const BARS = 20;
const HEADERS = ["Job", "User", "State", "When", "Next", "Last runs", "#Running", "#Failed"];

export function jobsView() {
  let shown = [];
  const body = el("tbody", {}, reading(HEADERS.length));
  const styleOf = (header) => (header.startsWith("#") ? "n" : header === "When" ? "long" : null);
  const heads = HEADERS.map((h) => el("th", { scope: "col", class: styleOf(h) }, h.replace("#", "")));
  $("jobs-table").append(
    el("caption", { class: "visually-hidden" }, "Jobs"),
    el("thead", {}, el("tr", {}, heads)),
    body,
  );
  const form = new JobForm($("jobs-form-panel"), (job) => {
    location.hash = jobAddress(job);
  });
  const repeater = new Repeater(async (signal) => {
    const found = await get(`/v1/jobs?${query()}`, signal);
    if (signal.aborted) return;
    pages.came(found.next);
    shown = found.jobs;
    draw();
  }, EVERY_MS);
  const ticker = new Repeater(async () => tick(), TICK_MS);
  const pages = new Pages("jobs", () => repeater.again());

  function query() {
    const asked = new URLSearchParams({ limit: $("jobs-limit").value, rows: BARS });
    if (pages.wanted) asked.set("match", pages.wanted);
    if (pages.after) asked.set("after", pages.after);
    return asked;
  }

  function draw() {
    const wanted = pages.wanted;
    keyed(body, shown, (job) => `${job.user}/${job.name}`, make, fill);
    tick();
    show($("jobs-empty"), !shown.length);
    text(
      $("jobs-empty"),
      !wanted ? "No job yet." : pages.following ? "None here; the next page may have some." : `No job contains "${wanted}".`,
    );
    $("jobs-table").caption.textContent = wanted ? `${counted(shown.length, "job")} found` : "Jobs";
  }

  function make(job) {
    const pill = el("span", { class: "pill" });
    const bars = new HistoryBars(BARS);
    const next = el("span");
    const link = el("a", { href: jobAddress(job) }, job.name);
    const row = el(
      "tr",
      {},
      el("th", { scope: "row" }, link),
      HEADERS.slice(1).map((h) => el("td", { class: styleOf(h) })),
    );
    return Object.assign(row, { pill, bars, next, link });
  }

  function fill(row, job) {
    jobPill(row.pill, job);
    row.bars.update(job.lastRows);
    row.classList.toggle("stopped", job.state !== "active");
    const running = job.running.length ? number(job.running.length) : "-";
    const failed = job.failed ? number(job.failed) : "-";
    cells(row, [row.link, job.user, row.pill, job.schedule, row.next, row.bars.element, running, failed]);
    row.cells[3].title = job.schedule;
  }

  function tick() {
    shown.forEach((job, n) => body.rows[n] && countdown(body.rows[n].next, job.next));
  }

  $("jobs-new").addEventListener("click", () => form.open(null));
  return {
    start() {
      repeater.start();
      ticker.start();
    },
    stop() {
      repeater.stop();
      ticker.stop();
    },
    session: () => session.current || form.close(),
  };
}
