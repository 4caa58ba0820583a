// Tables of domains: the busiest ones of the overview, and all of them with search, order and pages.

import { Repeater, get } from "./api.js";
import { $, cells, el, keyed, reading, show, text } from "./dom.js";
import { counted, duration, number, rate, size, sum, words } from "./format.js";
import { Pages } from "./pages.js";

const EVERY_MS = 3000;
const BUSIEST = 12;

export const STATES = {
  fetching: "a request is open",
  due: "the next request may start",
  active: "crawled as fast as its delay allows",
  waiting: "waits for a retry, for a time, or after errors",
  paused: "paused by an operator",
  blocked: "blocked by an operator",
  spent: "one of its budgets is used up",
  done: "nothing is pending",
};

export const domainLink = (name) => el("a", { href: `#/domain/${encodeURIComponent(name)}` }, name);

export const delayText = (ms) => (ms < 0 ? "?" : duration(ms / 1000));

export function statePill(pill, d) {
  text(pill, words(d.state));
  pill.dataset.state = d.state;
  pill.title = STATES[d.state] ?? "";
}

const PARTS = [
  ["2", "2xx"],
  ["3", "3xx"],
  ["4", "4xx"],
  ["5", "5xx"],
];

/** What came of the attempts at a domain, as a bar: 2xx to 5xx, and those that failed. */
function answersBar(bar, d) {
  const failed = sum(d.errors);
  const counts = [...PARTS.map(([c, name]) => [`s${c}`, name, d.status[c] ?? 0]), ["s0", "failed", failed]];
  const total = counts.reduce((n, [, , count]) => n + count, 0);
  const said =
    counts
      .filter(([, , n]) => n)
      .map(([, name, n]) => `${name} ${number(n)}`)
      .join(", ") || "none";
  if (bar.title === said) return;
  bar.title = said;
  bar.setAttribute("aria-label", said);
  counts.forEach(([, , n], at) => {
    const part = bar.children[at];
    show(part, n > 0);
    part.style.flexGrow = String(n ? Math.max(n, total / 25) : 0);
  });
}

const newBar = () =>
  el(
    "span",
    { class: "answers", role: "img" },
    ["s2", "s3", "s4", "s5", "s0"].map((c) => el("i", { class: c, hidden: true })),
  );

const some = (count) => (count ? number(count) : "-");

/** Columns: header, order that it stands for, is it a number, what is in a cell. */
const COLUMNS = {
  domain: { header: "Domain", sort: "name", value: null },
  state: { header: "State", value: null },
  pages: { header: "Pages", sort: "pages", n: true, value: (d) => number(d.fetched) },
  rate: { header: "Pages/s", sort: "rate", n: true, value: (d) => (d.rates?.pages ? rate(d.rates.pages) : "-") },
  answers: { header: "Answers", value: null },
  queued: { header: "Queued", sort: "queue", n: true, value: (d) => some(d.queued + d.retrying) },
  flight: { header: "In flight", n: true, value: (d) => (d.in_flight === null ? "?" : some(d.in_flight)) },
  delay: { header: "Delay", n: true, value: (d) => delayText(d.delay_ms) },
  next: { header: "Next", sort: "due", n: true, value: (d) => d.next },
  latency: { header: "Latency", n: true, value: (d) => (d.latency_ms === null ? "-" : duration(d.latency_ms / 1000)) },
  bytes: { header: "Size", sort: "bytes", n: true, value: (d) => (d.bytes ? size(d.bytes) : "-") },
  errors: { header: "Errors", sort: "errors", n: true, value: (d) => some(errorsOf(d)) },
  last: { header: "Last error", value: (d) => words(d.last_error) || "-" },
  owner: { header: "Owner", value: (d) => d.owner || "-" },
};

const errorsOf = (d) => sum(d.errors) + (d.status["4"] ?? 0) + (d.status["5"] ?? 0);

class DomainTable {
  /** `sortBy(order)` is called by headers, where there is one. */
  constructor(table, caption, names, sortBy) {
    this.columns = names.map((name) => [name, COLUMNS[name]]);
    this.heads = this.columns.map(([, c]) => {
      const label =
        sortBy && c.sort ? el("button", { type: "button", on: { click: () => sortBy(c.sort) } }, c.header) : c.header;
      return el("th", { scope: "col", class: c.n ? "n" : null }, label);
    });
    this.body = el("tbody", {}, reading(names.length));
    table.append(
      el("caption", { class: "visually-hidden" }, caption),
      el("thead", {}, el("tr", {}, this.heads)),
      this.body,
    );
  }

  update(rows, sort) {
    this.columns.forEach(([, c], n) => {
      if (c.sort === sort) this.heads[n].setAttribute("aria-sort", sort === "name" ? "ascending" : "descending");
      else this.heads[n].removeAttribute("aria-sort");
    });
    keyed(
      this.body,
      rows,
      (d) => d.domain,
      (d) => this.make(d),
      (row, d) => this.fill(row, d),
    );
  }

  make(d) {
    const pill = el("span", { class: "pill" });
    const bar = newBar();
    const row = el(
      "tr",
      {},
      this.columns.map(([name, c]) => {
        if (name === "domain") return el("th", { scope: "row" }, domainLink(d.domain), el("span", { class: "mark" }));
        return el(
          "td",
          { class: c.n ? "n" : name === "last" ? "long" : null },
          name === "state" ? pill : name === "answers" ? bar : "",
        );
      }),
    );
    row.parts = { pill, bar, mark: row.querySelector(".mark") };
    return row;
  }

  fill(row, d) {
    statePill(row.parts.pill, d);
    answersBar(row.parts.bar, d);
    text(row.parts.mark, d.boost ? ` boost ${d.boost > 0 ? "+" : ""}${d.boost}` : "");
    row.classList.toggle("stopped", Boolean(d.stop));
    cells(
      row,
      this.columns.map(([name, c], n) => (c.value ? c.value(d) : row.cells[n].firstChild)),
    );
  }
}

/** The busiest domains of the overview. */
export function busiest() {
  const shown = new DomainTable($("busiest"), "The busiest domains", [
    "domain",
    "state",
    "pages",
    "rate",
    "answers",
    "queued",
    "errors",
    "next",
    "owner",
  ]);
  return new Repeater(async (signal) => {
    const found = await get(`/v1/domains?sort=rate&limit=${BUSIEST}`, signal);
    shown.update(found.rows, "");
  }, EVERY_MS);
}

/** The view of all domains. */
export function domainsView() {
  const names = [
    "domain",
    "state",
    "pages",
    "rate",
    "answers",
    "queued",
    "flight",
    "delay",
    "next",
    "latency",
    "bytes",
    "errors",
    "last",
    "owner",
  ];
  const [search, sort] = [$("domains-search"), $("domains-sort")];
  const shown = new DomainTable($("domains-table"), "Domains", names, (order) => {
    sort.value = order;
    search.value = "";
    pages.begin();
  });
  const repeater = new Repeater(async (signal) => {
    const found = await get(`/v1/domains?${query()}`, signal);
    if (signal.aborted) return;
    pages.came(found.next);
    shown.update(found.rows, found.sort);
    tellCount(found);
  }, EVERY_MS);
  const pages = new Pages("domains", () => repeater.again());

  function query() {
    const asked = new URLSearchParams({ limit: $("domains-limit").value });
    const wanted = pages.wanted;
    if (wanted) asked.set("match", wanted);
    else if (sort.value === "name") asked.set("by_name", "true");
    else asked.set("sort", sort.value);
    if (!wanted && pages.after) asked.set("after", pages.after);
    return asked;
  }

  function tellCount(found) {
    const wanted = pages.wanted;
    text($("domains-total"), number(found.total));
    show($("domains-empty"), !found.rows.length);
    text(
      $("domains-empty"),
      wanted
        ? `No domain among the busiest and largest contains "${wanted}", and none begins with it.`
        : "No domain yet.",
    );
    $("domains-table").caption.textContent = wanted ? `${counted(found.rows.length, "domain")} found` : "Domains";
  }

  sort.addEventListener("change", () => {
    search.value = "";
    pages.begin();
  });
  return { start: () => repeater.start(), stop: () => repeater.stop() };
}
