// The table of jobs: their next times, and their last runs as bars.

import { Repeater, get, session } from "./api.js";
import { $, cells, el, keyed, show, text } from "./dom.js";
import { counted, number } from "./format.js";
import { JobForm } from "./job_form.js";
import { HistoryBars, countdown, jobAddress, jobPill } from "./job_parts.js";

const EVERY_MS = 3000;
const TICK_MS = 1000;
const SEARCH_AFTER_MS = 250;
const BARS = 20;
const HEADERS = ["Job", "User", "State", "When", "Next", "Last runs", "#Running", "#Failed"];

export function jobsView() {
  const [search, limit] = [$("jobs-search"), $("jobs-limit")];
  let pages = [""]; // cursors of the pages that led here
  let following = "";
  let shown = [];
  const body = el("tbody");
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
    following = found.next;
    shown = found.jobs;
    draw();
  }, EVERY_MS);
  const ticker = new Repeater(async () => tick(), TICK_MS);

  function query() {
    const asked = new URLSearchParams({ limit: limit.value, rows: BARS });
    if (search.value.trim()) asked.set("match", search.value.trim());
    if (pages.at(-1)) asked.set("after", pages.at(-1));
    return asked;
  }

  function draw() {
    const wanted = search.value.trim();
    keyed(body, shown, (job) => `${job.user}/${job.name}`, make, fill);
    tick();
    show($("jobs-empty"), !shown.length);
    text(
      $("jobs-empty"),
      !wanted ? "No job yet." : following ? "None here; the next page may have some." : `No job contains "${wanted}".`,
    );
    show($("jobs-paging"), Boolean(following) || pages.length > 1);
    $("jobs-next").disabled = !following;
    $("jobs-back").disabled = $("jobs-first").disabled = pages.length === 1;
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

  function begin() {
    pages = [""];
    repeater.again();
  }

  function turn(next) {
    pages = next;
    repeater.again();
    $("jobs-table").closest(".scroll").scrollTop = 0;
  }

  let timer = 0;
  search.addEventListener("input", () => {
    clearTimeout(timer);
    timer = setTimeout(begin, SEARCH_AFTER_MS);
  });
  limit.addEventListener("change", begin);
  $("jobs-form").addEventListener("submit", (event) => event.preventDefault());
  $("jobs-first").addEventListener("click", () => turn([""]));
  $("jobs-back").addEventListener("click", () => turn(pages.slice(0, -1)));
  $("jobs-next").addEventListener("click", () => turn([...pages, following]));
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
