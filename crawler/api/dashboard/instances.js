// Instances: the ring's picture, members, leases that change hands, and takeovers.

import { Repeater, get } from "./api.js";
import { $, cells, el, keyed, reading, show, text } from "./dom.js";
import { ago, counted, duration, moment, nowS, number, size, words } from "./format.js";
import { NOBODY, RingPicture, colourOf, meet, movesOf } from "./ring.js";

const EVERY_MS = 5000;
const HURRY_MS = 1000; // while something moves
const MOVES_KEPT = 12;
const TAKEOVERS_KEPT = 20;
const TAKEOVERS_SMALL = 3; // in the overview

/** Reads the ring for all pictures of it. `members` come by the event feed. */
export function ringReader(names) {
  const pictures = names.map((name) => new RingPicture($(name)));
  const moves = [];
  let held = [];
  const repeater = new Repeater(async (signal) => {
    const found = await get("/v1/ring/partitions", signal);
    if (signal.aborted) return;
    const names = (places) => places.map((n) => found.nodes[n] ?? NOBODY);
    const ring = { held: names(found.held), suggested: names(found.suggested) };
    const changed = movesOf(held, ring.held);
    held = ring.held;
    pictures.forEach((picture) => picture.update(ring));
    pictures.forEach((picture) => picture.showMoves(changed));
    const at = nowS();
    moves.unshift(...changed.map((move) => ({ ...move, at })));
    moves.length = Math.min(moves.length, MOVES_KEPT);
    drawMoves(moves);
    drawShards(found.shards);
    const isMoving = changed.length || ring.held.some((node, p) => node !== ring.suggested[p]);
    repeater.everyMs = isMoving ? HURRY_MS : EVERY_MS;
  }, EVERY_MS);
  return repeater;
}

const SHARD_HEADERS = ["Primary", "State", "Replica", "#Slots", "#Partitions", "#Memory"];

/** Of an engine that is a cluster. */
function drawShards(shards) {
  show($("shards-panel"), shards.length > 0);
  if (!shards.length) return;
  if (!$("shards").tHead) $("shards").append(...head("Shards", SHARD_HEADERS), el("tbody"));
  keyed(
    $("shards").tBodies[0],
    shards,
    (shard) => shard.name,
    () => el("tr", {}, SHARD_HEADERS.map((h) => el("td", { class: h.startsWith("#") ? "n" : null }))),
    (row, shard) =>
      cells(row, [
        shard.name,
        shard.is_up ? "up" : "down",
        shard.has_replica ? "yes" : "none that works",
        number(shard.slots),
        number(shard.partitions),
        shard.is_up ? size(shard.used_bytes) : "",
      ]),
  );
}

const head = (caption, headers) => [
  el("caption", { class: "visually-hidden" }, caption),
  el(
    "thead",
    {},
    el(
      "tr",
      {},
      headers.map((h) => el("th", { scope: "col", class: h.startsWith("#") ? "n" : null }, h.replace("#", ""))),
    ),
  ),
];

function takeoverLine(t, isShort = false) {
  const silence = t.silent_ms >= 0 && !isShort ? `, silent for ${duration(t.silent_ms / 1000)}` : "";
  return el(
    "li",
    {},
    el("time", {}, moment(t.at)),
    " ",
    swatch(t.by_node),
    `${t.by_node} ${isShort ? "took" : "took over"} ${counted(t.partitions, "partition")} of `,
    swatch(t.node),
    `${t.node}${silence}`,
  );
}

const swatch = (node) => el("span", { class: `swatch ${colourOf(node)}`, "aria-hidden": "true" });

function drawMoves(moves) {
  const rows = moves.length ? moves : [null];
  keyed(
    $("moves"),
    rows,
    (move) => (move ? `${move.at} ${move.from} ${move.to}` : ""),
    (move) => {
      if (!move) return el("li", { class: "muted" }, "None since this page was opened.");
      return el(
        "li",
        {},
        el("time", {}),
        " ",
        swatch(move.from),
        move.from || "no owner",
        " → ",
        swatch(move.to),
        move.to || "no owner",
        `: ${counted(move.partitions, "partition")}`,
      );
    },
    (row, move) => move && text(row.firstChild, ago(move.at)),
  );
}

const STATES = {
  joining: "starting",
  alive: "taking part",
  leaving: "stopping",
  seeding: "a command that adds URLs",
  quarantined: "restarted too often; gets no share for a while",
};
const HEADERS = [
  "Node",
  "State",
  "#Up",
  "#Weight",
  "#Partitions",
  "#In flight",
  "#Lease losses",
  "Waits for",
  "Last error",
];

/** Shows members and takeovers as the event feed brings them. */
export function instancesView() {
  $("members").append(...head("Members", HEADERS), el("tbody", {}, reading(HEADERS.length)));
  const takeovers = new Map(); // by both sessions: each comes as an event, and may be read as well
  const keep = (one) => takeovers.set(`${one.session} ${one.by_session} ${one.at}`, one);

  function members({ members: found }) {
    meet(found.map((m) => m.node));
    const now = nowS();
    keyed(
      $("members").tBodies[0],
      found,
      (m) => m.session,
      make,
      (row, m) => {
        text(row.pill, m.state);
        row.pill.dataset.state = m.state;
        row.pill.title = STATES[m.state] ?? "";
        const awaited = m.awaited ? `${words(m.awaited.what)}${m.awaited.host ? ` of ${m.awaited.host}` : ""}` : "";
        cells(row, [
          row.name,
          row.pill,
          duration(Math.max(0, Math.round(now - m.started_at))),
          number(m.weight),
          number(m.partitions),
          number(m.in_flight),
          number(m.lease_losses),
          m.waits_for || awaited || "-",
          m.last_error || "-",
        ]);
      },
    );
  }

  function make(m) {
    const row = el(
      "tr",
      {},
      HEADERS.map((h, n) =>
        el(n ? "td" : "th", { class: h.startsWith("#") ? "n" : n > 6 ? "long" : null, scope: n ? null : "row" }),
      ),
    );
    row.name = el("span", { title: `session ${m.session}` }, swatch(m.node), m.node);
    row.pill = el("span", { class: "pill" });
    return row;
  }

  function drawTakeovers() {
    const newest = [...takeovers.values()].sort((a, b) => b.at - a.at);
    const lines = newest.slice(0, TAKEOVERS_KEPT).map((t) => takeoverLine(t));
    $("takeovers").replaceChildren(
      lines.length ? el("ul", { class: "feed" }, lines) : el("p", { class: "muted" }, "No instance has died."),
    );
    $("takeovers-small").replaceChildren(...newest.slice(0, TAKEOVERS_SMALL).map((t) => takeoverLine(t, true)));
  }

  return {
    members,
    takeover(one) {
      keep(one);
      drawTakeovers();
    },
    async read() {
      const [found, taken] = await Promise.all([get("/v1/members"), get(`/v1/takeovers?limit=${TAKEOVERS_KEPT}`)]);
      members(found);
      taken.takeovers.forEach(keep);
      drawTakeovers();
    },
  };
}
