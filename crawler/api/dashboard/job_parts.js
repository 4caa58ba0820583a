// What the views of jobs share: addresses, and what became of a job's times as bars and as a table.

import { el, svg, text } from "./dom.js";
import { counted, duration, moment, nowS, number, size } from "./format.js";

const BAR = { width: 6, gap: 1, height: 30, least: 4, missed: 5 };

const STATES = {
  running: "a run has not ended",
  active: "waits for its next time",
  paused: "not triggered until it is resumed",
  done: "no further time",
};

export const jobPath = (job) => `/v1/users/${encodeURIComponent(job.user)}/jobs/${encodeURIComponent(job.name)}`;
export const jobAddress = (job) => `#/job/${encodeURIComponent(job.user)}/${encodeURIComponent(job.name)}`;
export const runLink = (run) => el("a", { href: `#/run/${encodeURIComponent(run)}`, class: "run" }, run);

/** What a job does now: that a run goes on tells more than that its schedule is active. */
export function jobPill(pill, job) {
  const state = job.state === "active" && job.running.length ? "running" : job.state;
  text(pill, state);
  pill.dataset.state = state;
  pill.title = STATES[state] ?? "";
}

/** Seconds since 1970 of a time of the API; 0 for none. */
export const secondsOf = (iso) => (iso ? Date.parse(iso) / 1000 : 0);

/** When its run ended, "" while it goes on. */
export const endedAt = (row) => row.completed_at || row.failed_at || "";

/** How a row counts: finished, limited, stopped, failed, running, retrying, queued, unknown or missed. */
export function kindOf(row) {
  if (row.outcome) return row.outcome;
  if (row.state === "failed_to_start") return "failed";
  return ["queued", "unknown"].includes(row.state) ? row.state : "missed";
}

const timesOf = (row) => row.count || 1;

/** When: a time, or the first and the last of several. */
export function when(row) {
  if (row.nominal) return moment(secondsOf(row.nominal));
  return `${moment(secondsOf(row.from))} to ${moment(secondsOf(row.to))}, ${counted(row.count, "time")}`;
}

/** How long a run took, or has been running. */
export function tookS(row) {
  if (!row.started_at && !row.picked_at) return 0;
  const end = endedAt(row) ? secondsOf(endedAt(row)) : row.outcome === "running" ? nowS() : 0;
  return Math.max(0, end - secondsOf(row.started_at || row.picked_at));
}

const tookText = (row) => (endedAt(row) || row.outcome === "running" ? duration(Math.round(tookS(row))) : "");

function barText(row) {
  const figures = row.run && row.outcome !== "running" ? [counted(row.pages ?? 0, "page"), tookText(row)] : [];
  return [`${when(row)}: ${row.result}`, ...figures.filter(Boolean), row.reason].filter(Boolean).join(", ");
}

/** "Last 12 times: 10 finished, 1 failed, 34 missed" */
function summary(rows) {
  if (!rows.length) return "No time yet";
  const counts = new Map();
  for (const row of rows) counts.set(kindOf(row), (counts.get(kindOf(row)) ?? 0) + timesOf(row));
  const total = rows.reduce((n, row) => n + timesOf(row), 0);
  const parts = [...counts].map(([kind, n]) => `${number(n)} ${kind}`);
  return `${total === 1 ? "Last time" : `Last ${number(total)} times`}: ${parts.join(", ")}`;
}

/** One bar for each of the last rows, oldest first: as high as its pages, coloured by outcome; a gap where missed. */
export class HistoryBars {
  /** With `isLeft` they begin at the left, else they end at the right. */
  constructor(barsMax, { isLeft = false } = {}) {
    this.isLeft = isLeft;
    const width = barsMax * (BAR.width + BAR.gap);
    const box = { width, height: BAR.height, viewBox: `0 0 ${width} ${BAR.height}` };
    this.barsMax = barsMax;
    this.element = svg("svg", { class: "bars", role: "img", focusable: "false", ...box });
  }

  /** `rows`: newest first. */
  update(rows) {
    const shown = rows.slice(0, this.barsMax).reverse();
    const shape = JSON.stringify(shown);
    if (shape === this.shape) return;
    this.shape = shape;
    const most = Math.max(1, ...shown.map((row) => row.pages ?? 0));
    const first = this.isLeft ? 0 : this.barsMax - shown.length;
    this.element.setAttribute("aria-label", summary(shown));
    this.element.replaceChildren(...shown.map((row, n) => this.bar(row, first + n, most)));
  }

  bar(row, place, most) {
    const kind = kindOf(row);
    const room = BAR.height - BAR.least;
    const isEmpty = kind === "missed" || kind === "queued";
    const height = isEmpty ? BAR.missed : BAR.least + Math.round((room * (row.pages ?? 0)) / most);
    const at = { x: place * (BAR.width + BAR.gap), width: BAR.width };
    const edge = isEmpty ? 0.5 : 0; // half of an outline, which is drawn inside
    const body = { x: at.x + edge, y: BAR.height - height + edge };
    const inner = { width: BAR.width - 2 * edge, height: height - 2 * edge };
    return svg(
      "g",
      { class: `bar ${kind}` },
      svg("title", {}, barText(row)),
      svg("rect", { class: "hit", ...at, y: 0, height: BAR.height }),
      svg("rect", { class: "body", ...body, ...inner }),
      kind === "failed" && svg("path", { class: "cross", d: crossAt(at.x, BAR.height - height) }),
    );
  }
}

/** A cross above a bar: colour alone does not tell that it failed. */
function crossAt(x, top) {
  const y = Math.max(1, top - 6);
  return `M${x + 1} ${y}l4 4m0 -4l-4 4`;
}

const HISTORY = ["Time", "Result", "Run", "#Pages", "#Errors", "#Size", "#Duration", "Reason"];

/** The cells of a table of rows, with the headers. */
export function historyTable(rows) {
  const figures = (row) =>
    endedAt(row) ? [number(row.pages ?? 0), number(row.errors ?? 0), size(row.bytes ?? 0)] : ["", "", ""];
  const cells = rows.map((row) => [
    when(row),
    el("span", { class: `outcome ${kindOf(row)}` }, row.result),
    row.run ? runLink(row.run) : "",
    ...figures(row),
    row.run ? tookText(row) : "",
    el("span", { class: "wrap" }, row.reason ?? ""),
  ]);
  return [HISTORY, cells];
}

/** Next times as a list: in the reader's clock, and that of the job's zone where it tells something. */
export function fillTimes(list, times) {
  const lines = times.map((one) =>
    el(
      "li",
      {},
      el("time", { datetime: one.nominal }, one.local),
      one.note && el("span", { class: "mark" }, ` ${one.note}`),
    ),
  );
  list.replaceChildren(...(lines.length ? lines : [el("li", { class: "muted" }, "No further time.")]));
}

/** "in 41 m 07 s", "now" for what is due, "-" for nothing. */
export function countdown(element, iso) {
  const left = Math.round(secondsOf(iso) - nowS());
  text(element, iso ? (left > 0 ? `in ${duration(left)}` : "now") : "-");
  element.title = iso ? moment(secondsOf(iso)) : "";
}
