// Charts over time, drawn as SVG: axes with units, a read-out by mouse, finger or keyboard, and the values as a table.

import { el, show, svg, table, text } from "./dom.js";
import { clock, moment, number, rate } from "./format.js";

const HEIGHT = 150;
const TOP = 8;
const BOTTOM = 20;
const RIGHT = 8;
const CHAR_PX = 6.4; // of a digit of the axis' font
const X_STEPS_S = [15, 30, 60, 120, 300, 900, 1800, 3600, 7200, 10800, 21600];
const TABLE_ROWS_MAX = 300;

export const RANGES = { fine: { slotS: 5, spanS: 900 }, coarse: { slotS: 300, spanS: 86400 } };
const YOUNG_S = 60; // a crawl that just began fills its chart all the same

/** How rates are shown. */
export const perS = { format: (value, isTick) => (isTick ? tick(value) : `${rate(value)}/s`), least: 0.1 };
const tick = (value) => (Number.isInteger(value) ? number(value) : rate(value));

/** Lines of errors: answers of these classes, and attempts that failed. */
export const errorLines = [
  { name: "4xx", style: "c4", of: (p) => p.rates.client_errors },
  { name: "5xx", style: "c5", of: (p) => p.rates.server_errors },
  { name: "failed", style: "c0", of: (p) => p.rates.failures },
];

/** The part of time that is shown: at most the range, and not much more than there is. */
export function windowOf(points, range, nowS) {
  const { slotS, spanS } = RANGES[range];
  const first = points.length ? points[0].at : nowS;
  const span = Math.min(spanS, Math.max(nowS - first, range === "fine" ? YOUNG_S : 12 * slotS));
  return { from: nowS - span, to: nowS, slotS };
}

export class Chart {
  /** `lines`: [{name, of(point), style}]; `format` shows a value with its unit; `least`: between two marks of the axis.
   *
   * With `isLevel`, a value is that at the end of its slot, else the mean of the slot.
   */
  constructor(parent, { title, lines, format, least, isLevel = false }) {
    Object.assign(this, { title, lines, format, least, isLevel, points: [], at: -1 });
    this.window = { from: 0, to: 1, slotS: 5 };
    this.now = lines.map(() => el("b", { class: "chart-now" }));
    this.svg = svg("svg", { "aria-hidden": "true", height: HEIGHT, focusable: "false" });
    this.tip = el("div", { class: "tip", hidden: true });
    this.plot = el(
      "div",
      { class: "plot", tabindex: 0, role: "slider", "aria-orientation": "horizontal", "aria-label": title },
      this.svg,
      this.tip,
    );
    this.rows = el("div", { class: "scroll short" });
    this.details = el("details", {}, el("summary", {}, "Values as a table"), this.rows);
    const legend = lines.map((line, n) =>
      el(
        "span",
        lines.length > 1 ? { class: `key ${line.style}` } : {},
        lines.length > 1 ? line.name : "",
        " ",
        this.now[n],
      ),
    );
    this.figure = el(
      "figure",
      { class: "panel chart" },
      el("figcaption", {}, el("span", { class: "chart-title" }, title), el("span", { class: "legend" }, legend)),
      this.plot,
      this.details,
    );
    parent.append(this.figure);
    this.plot.addEventListener("pointermove", (event) => this.readAt(event));
    this.plot.addEventListener("pointerdown", (event) => this.readAt(event));
    this.plot.addEventListener("pointerleave", () => this.leave());
    this.plot.addEventListener("blur", () => this.leave());
    this.plot.addEventListener("focus", () => this.read(this.points.length - 1));
    this.plot.addEventListener("keydown", (event) => this.key(event));
    this.details.addEventListener("toggle", () => this.fillTable());
    new ResizeObserver(() => this.draw()).observe(this.plot);
  }

  /** Show other points: `Point`s of the API, oldest first. */
  update(points, window) {
    const held = this.points[this.at]?.at;
    this.window = window;
    const least = Math.min(0.8 * window.slotS, 30); // a rate over less is noise: commits come in groups
    this.points = points.filter((p) => p.at + p.rates.seconds > window.from && p.rates.seconds >= least);
    this.at = held === undefined ? -1 : this.points.findIndex((p) => p.at === held);
    const last = this.points.at(-1);
    this.lines.forEach((line, n) => text(this.now[n], last ? this.format(line.of(last)) : "no data"));
    this.describe();
    this.draw();
    if (this.at >= 0) this.read(this.at);
    if (this.details.open) this.fillTable();
  }

  describe() {
    const parts = this.lines.map((line) => {
      const values = this.points.map(line.of);
      const most = values.length ? Math.max(...values) : 0;
      return `${this.lines.length > 1 ? `${line.name} ` : ""}at most ${this.format(most)}`;
    });
    const span = this.points.length ? `from ${moment(this.points[0].at)} on, ${parts.join(", ")}` : "no data yet";
    this.plot.setAttribute("aria-label", `${this.title}: ${span}. Arrow keys read values.`);
    this.plot.setAttribute("aria-valuemin", 0);
    this.plot.setAttribute("aria-valuemax", Math.max(0, this.points.length - 1));
    const at = this.at >= 0 ? this.at : this.points.length - 1;
    this.plot.setAttribute("aria-valuenow", Math.max(0, at));
    if (at < 0) this.plot.setAttribute("aria-valuetext", "no data yet");
    else this.plot.setAttribute("aria-valuetext", this.said(this.points[at]));
  }

  said(point) {
    const values = this.lines.map(
      (line) => `${this.lines.length > 1 ? `${line.name} ` : ""}${this.format(line.of(point))}`,
    );
    return `${moment(this.timeOf(point))}: ${values.join(", ")}`;
  }

  timeOf(point) {
    return this.isLevel ? point.at + point.rates.seconds : point.at + point.rates.seconds / 2;
  }

  draw() {
    const width = Math.floor(this.plot.clientWidth);
    if (!width) return;
    const most = Math.max(0, ...this.lines.flatMap((line) => this.points.map(line.of)));
    const { top, step } = nice(most, this.least);
    const labels = [];
    for (let n = 0; n * step <= top * 1.0001; n += 1) labels.push(n * step);
    const left = 10 + CHAR_PX * Math.max(...labels.map((value) => this.format(value, true).length));
    const { from, to } = this.window;
    this.x = (at) => left + ((at - from) / (to - from)) * (width - left - RIGHT);
    this.y = (value) => TOP + (1 - value / top) * (HEIGHT - TOP - BOTTOM);
    const grid = labels.map((value) => {
      const y = this.y(value);
      return [
        svg("line", { class: value ? "grid" : "axis", x1: left, x2: width - RIGHT, y1: y, y2: y }),
        svg("text", { class: "tick", x: left - 6, y: y + 4, "text-anchor": "end" }, this.format(value, true)),
      ];
    });
    const lines = this.lines.flatMap((line) => this.line(line, left, width));
    this.cursor = svg("g", { class: "cursor" });
    this.svg.setAttribute("width", width);
    this.svg.setAttribute("viewBox", `0 0 ${width} ${HEIGHT}`);
    this.svg.replaceChildren(...grid.flat(), ...this.times(left, width), ...lines, this.cursor);
  }

  times(left, width) {
    const { from, to } = this.window;
    const fits = (s) => ((to - from) / s) * (s < 60 ? 84 : 60) <= width - left; // px of a label
    const step = X_STEPS_S.find(fits) ?? X_STEPS_S.at(-1);
    const offset = new Date(to * 1000).getTimezoneOffset() * 60;
    const marks = [];
    for (let at = Math.ceil((from - offset) / step) * step + offset; at <= to; at += step) {
      const x = this.x(at);
      if (x < left + 24) continue;
      if (x > width - 24) break;
      const label = step < 60 ? moment(at) : clock(at);
      marks.push(svg("line", { class: "axis", x1: x, x2: x, y1: HEIGHT - BOTTOM, y2: HEIGHT - BOTTOM + 4 }));
      marks.push(svg("text", { class: "tick", x, y: HEIGHT - 4, "text-anchor": "middle" }, label));
    }
    return marks;
  }

  line(line, left, width) {
    const spots = this.spots(line);
    if (!spots.length) return [];
    const clamp = (x) => Math.min(width - RIGHT, Math.max(left, x));
    const path = spots
      .map(([at, value], n) => `${n ? "L" : "M"}${clamp(this.x(at)).toFixed(1)} ${this.y(value).toFixed(1)}`)
      .join("");
    const base = this.y(0).toFixed(1);
    const shapes = [svg("path", { class: `line ${line.style}`, d: path })];
    if (this.lines.length === 1) {
      const [first, last] = [spots[0], spots.at(-1)].map(([at]) => clamp(this.x(at)).toFixed(1));
      const area = `${path}L${last} ${base}L${first} ${base}Z`;
      shapes.unshift(svg("path", { class: `area ${line.style}`, d: area }));
    }
    return shapes;
  }

  /** (time, value) where the line turns. A rate over long is level; where nothing was noted it is 0. */
  spots(line) {
    const spots = [];
    const { slotS } = this.window;
    let end = null;
    for (const point of this.points) {
      const {
        at,
        rates: { seconds },
      } = point;
      const value = line.of(point);
      if (!this.isLevel && end !== null && at - end > slotS * 1.5) spots.push([end, 0], [at, 0]);
      if (!this.isLevel && seconds > slotS * 3) spots.push([at, value], [at + seconds, value]);
      else spots.push([this.timeOf(point), value]);
      end = at + seconds;
    }
    if (!this.isLevel && end !== null && this.window.to - end > slotS * 3) spots.push([end, 0], [this.window.to, 0]);
    return spots;
  }

  readAt(event) {
    if (!this.points.length || !this.x) return;
    const x = event.clientX - this.plot.getBoundingClientRect().left;
    let best = 0;
    this.points.forEach((point, n) => {
      if (Math.abs(this.x(this.timeOf(point)) - x) < Math.abs(this.x(this.timeOf(this.points[best])) - x)) best = n;
    });
    this.read(best);
  }

  key(event) {
    const last = this.points.length - 1;
    const steps = { ArrowLeft: -1, ArrowDown: -1, ArrowRight: 1, ArrowUp: 1, PageDown: -12, PageUp: 12 };
    const at = this.at < 0 ? last : this.at;
    const wanted =
      event.key === "Home" ? 0 : event.key === "End" ? last : event.key in steps ? at + steps[event.key] : null;
    if (event.key === "Escape") this.leave();
    if (wanted === null || last < 0) return;
    event.preventDefault();
    this.read(Math.min(last, Math.max(0, wanted)));
  }

  read(at) {
    const point = this.points[at];
    if (!point || !this.x) return;
    this.at = at;
    const x = Math.max(this.x(this.window.from), this.x(this.timeOf(point)));
    const marks = this.lines.map((line) =>
      svg("circle", { class: `dot ${line.style}`, cx: x, cy: this.y(line.of(point)), r: 3.5 }),
    );
    this.cursor.replaceChildren(svg("line", { class: "hair", x1: x, x2: x, y1: TOP, y2: HEIGHT - BOTTOM }), ...marks);
    text(this.tip, this.said(point));
    show(this.tip, true);
    const room = this.plot.clientWidth - this.tip.offsetWidth;
    this.tip.style.left = `${Math.max(0, Math.min(room, x - this.tip.offsetWidth / 2))}px`;
    this.describe();
  }

  leave() {
    this.at = -1;
    show(this.tip, false);
    this.cursor?.replaceChildren();
  }

  fillTable() {
    if (!this.details.open) return;
    const rows = this.points.slice(-TABLE_ROWS_MAX).reverse();
    const cells = rows.map((p) => [moment(this.timeOf(p)), ...this.lines.map((line) => this.format(line.of(p)))]);
    this.rows.replaceChildren(table(this.title, ["Time", ...this.lines.map((line) => `#${line.name}`)], cells));
  }
}

/** A round upper end of an axis, and the distance of its three to five marks. */
function nice(most, least) {
  const raw = Math.max((most || 4) / 4, least);
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].map((n) => n * power).find((s) => s >= raw * 0.9999);
  return { top: Math.max(step, Math.ceil(most / step - 1e-9) * step), step };
}
