// The ring as a picture: who holds each partition and whom the ring suggests, with leases that change hands.

import { el, show, svg, text } from "./dom.js";
import { byName, counted, number } from "./format.js";

const SIZE = 320;
const MIDDLE = SIZE / 2;
const OUTER = [138, 112]; // radii of the band of holders
const INNER = [108, 98]; // of the band of suggestions
const CHORD = 92;
const GAP = 0.012; // radians between two nodes
const COLOURS = 8;
const CHORD_S = 8;
export const NOBODY = "";

const numbers = new Map(); // node -> its colour, for as long as the page is open

/** The class that colours a node, the same everywhere on the page. */
export function colourOf(node) {
  if (node === NOBODY) return "node-none";
  if (!numbers.has(node)) numbers.set(node, numbers.size % COLOURS);
  return `node-${numbers.get(node)}`;
}

/** Give colours in the order of names, before anything is drawn. */
export const meet = (nodes) =>
  [...nodes]
    .filter((n) => n !== NOBODY)
    .sort(byName)
    .forEach(colourOf);

/** What changed hands between two readings: [{from, to, partitions}], most first. */
export function movesOf(before, now) {
  const pairs = new Map();
  now.forEach((holder, p) => {
    if (before[p] === undefined || before[p] === holder) return;
    const key = JSON.stringify([before[p], holder]);
    pairs.set(key, (pairs.get(key) ?? 0) + 1);
  });
  return [...pairs]
    .map(([key, partitions]) => ({ from: JSON.parse(key)[0], to: JSON.parse(key)[1], partitions }))
    .sort((a, b) => b.partitions - a.partitions);
}

const point = (radius, angle) =>
  `${(MIDDLE + radius * Math.sin(angle)).toFixed(2)} ${(MIDDLE - radius * Math.cos(angle)).toFixed(2)}`;

function band([outer, inner], from, to) {
  const end = Math.min(to, from + 2 * Math.PI - 0.0005);
  const large = end - from > Math.PI ? 1 : 0;
  const arc = (radius, sweep, to) => `A${radius} ${radius} 0 ${large} ${sweep} ${point(radius, to)}`;
  return `M${point(outer, from)}${arc(outer, 1, end)}L${point(inner, end)}${arc(inner, 0, from)}Z`;
}

export class RingPicture {
  constructor(box, { hasLegend = true } = {}) {
    this.bands = svg("g");
    this.chords = svg("g", { class: "chords" });
    this.count = svg("text", { class: "ring-count", x: MIDDLE, y: MIDDLE - 2, "text-anchor": "middle" });
    this.about = svg("text", { class: "ring-about", x: MIDDLE, y: MIDDLE + 18, "text-anchor": "middle" });
    this.svg = svg(
      "svg",
      { viewBox: `0 0 ${SIZE} ${SIZE}`, role: "img", class: "ring" },
      this.bands,
      this.chords,
      this.count,
      this.about,
    );
    this.legend = el("ul", { class: "ring-legend" });
    box.append(this.svg);
    if (hasLegend) box.append(this.legend);
    this.middles = new Map();
  }

  /** Draw a reading: `held` and `suggested` are nodes by partition. */
  update({ held, suggested }) {
    meet(new Set([...held, ...suggested]));
    const runs = runsOf(held, suggested);
    const holders = [...new Set(runs.map((run) => run.holder))];
    const share = (2 * Math.PI - GAP * holders.length) / held.length;
    const shapes = [];
    let at = GAP / 2;
    for (const holder of holders) {
      const begin = at;
      for (const run of runs.filter((one) => one.holder === holder)) {
        const end = at + run.count * share;
        const title = run.holder === run.suggested ? "" : `, suggested for ${run.suggested || "nobody"}`;
        shapes.push(svg("path", { class: `suggested ${colourOf(run.suggested)}`, d: band(INNER, at, end) }));
        shapes.push(
          svg(
            "path",
            { class: `held ${colourOf(holder)}`, d: band(OUTER, at, end) },
            svg("title", {}, `${holder || "no owner"}: ${counted(run.count, "partition")}${title}`),
          ),
        );
        at = end;
      }
      this.middles.set(holder, (begin + at) / 2);
      if (holder !== NOBODY && at - begin > 0.2) shapes.push(label(holder, (begin + at) / 2));
      at += GAP;
    }
    this.bands.replaceChildren(...shapes);
    this.tell(held, suggested, holders);
  }

  tell(held, suggested, holders) {
    const away = held.filter((holder, p) => holder !== suggested[p]).length;
    const free = held.filter((holder) => holder === NOBODY).length;
    text(this.count, number(held.length));
    text(this.about, free ? `${number(free)} without owner` : away ? `${number(away)} to move` : "partitions");
    const nodes = [...new Set([...holders, ...suggested])].sort(byName);
    const counts = nodes.map((node) => [
      node,
      held.filter((h) => h === node).length,
      suggested.filter((s) => s === node).length,
    ]);
    const said = counts.map(
      ([node, has, should]) => `${node || "no owner"} holds ${has}${should === has ? "" : `, suggested ${should}`}`,
    );
    this.svg.setAttribute("aria-label", `${counted(held.length, "partition")}: ${said.join("; ")}`);
    this.legend.replaceChildren(
      ...counts.map(([node, has, should]) =>
        el(
          "li",
          {},
          el("span", { class: `swatch ${colourOf(node)}` }),
          el("span", {}, node || "no owner"),
          el("span", { class: "n" }, should === has ? number(has) : `${number(has)} of ${number(should)}`),
        ),
      ),
    );
  }

  /** Show leases on their way for some seconds. */
  showMoves(moves) {
    for (const { from, to, partitions } of moves) {
      const [a, b] = [this.middles.get(from), this.middles.get(to)];
      if (a === undefined || b === undefined) continue;
      const chord = svg("path", {
        class: `chord ${colourOf(to)}`,
        d: `M${point(CHORD, a)}Q${MIDDLE} ${MIDDLE} ${point(CHORD, b)}`,
      });
      chord.style.strokeWidth = String(1.5 + Math.min(5, Math.sqrt(partitions) / 2));
      chord.append(svg("title", {}, `${from} → ${to}: ${counted(partitions, "partition")}`));
      this.chords.append(chord);
      setTimeout(() => {
        chord.remove();
        this.makeRoom();
      }, CHORD_S * 1000);
    }
    this.makeRoom();
  }

  /** The number in the middle gives way to lines. */
  makeRoom() {
    for (const part of [this.count, this.about]) show(part, !this.chords.childElementCount);
  }
}

function label(node, angle) {
  const right = Math.sin(angle);
  const anchor = Math.abs(right) < 0.3 ? "middle" : right > 0 ? "start" : "end";
  const [x, y] = point(OUTER[0] + 7, angle)
    .split(" ")
    .map(Number);
  return svg(
    "text",
    { class: "ring-label", x, y: y + 4 - 4 * Math.cos(angle), "text-anchor": anchor },
    node.length > 9 ? `${node.slice(0, 8)}…` : node,
  );
}

/** Partitions in groups of one holder and one suggestion, by holder. */
function runsOf(held, suggested) {
  const counts = new Map();
  held.forEach((holder, p) => {
    const key = JSON.stringify([holder, suggested[p]]);
    counts.set(key, (counts.get(key) ?? 0) + 1);
  });
  return [...counts]
    .map(([key, count]) => ({ holder: JSON.parse(key)[0], suggested: JSON.parse(key)[1], count }))
    .sort(
      (a, b) =>
        (a.holder === NOBODY) - (b.holder === NOBODY) || byName(a.holder, b.holder) || byName(a.suggested, b.suggested),
    );
}
