// The dashboard: which view is shown, the headline, and the connection. It stops in a hidden tab.

import { Feed, Repeater, get, onAnswer, readSession, session } from "./api.js";
import { Chart, errorLines, perS, windowOf } from "./charts.js";
import { deadLettersView } from "./dead.js";
import { command, prepare } from "./dialog.js";
import { domainView } from "./domain.js";
import { busiest, domainsView } from "./domains.js";
import { $, announce, el, keyed, show, table, text } from "./dom.js";
import { counted, duration, moment, nowS, number, rate, setNow, size } from "./format.js";
import { explainForm } from "./explain.js";
import { instancesView, ringReader } from "./instances.js";
import { jobView } from "./job.js";
import { jobsView } from "./jobs.js";
import { operatorLog, seedForm } from "./operate.js";
import { runView } from "./run.js";

const SERIES_EVERY_MS = 5000;
const BACKGROUND_EVERY_MS = 5000;

// -- the headline

let said = "";

function headline(o) {
  setNow(o.at);
  text($("crawl-name"), o.crawl);
  document.title = `${o.crawl}: ${o.state}, ${counted(o.pages, "page")}`;
  text($("state"), o.state);
  $("state").dataset.state = o.state;
  text($("state-text"), o.sentence);
  text($("n-pages"), number(o.pages));
  const others = [
    ["3xx", o.redirected],
    ["4xx", o.client_errors],
    ["5xx", o.server_errors],
    ["requisites", o.requisites],
  ];
  text(
    $("s-pages"),
    others
      .filter(([, n]) => n)
      .map(([name, n]) => `${name} ${number(n)}`)
      .join(", "),
  );
  text($("n-rate"), o.rates ? rate(o.rates.pages) : "-");
  text($("s-rate"), o.rates ? `${size(o.rates.bytes)}/s` : "");
  text($("n-queued"), number(Math.max(0, o.pending - o.in_flight - o.scheduled)));
  text($("s-queued"), `of ${counted(o.added, "URL")}`);
  text($("n-in-flight"), number(o.in_flight));
  text($("n-dead"), number(o.dead));
  text($("s-dead"), counted(o.retries, "retry", "retries"));
  text($("n-size"), size(o.bytes));
  text($("s-size"), o.pages ? `${size(o.bytes / o.pages)} a page` : "");
  text($("n-instances"), number(o.instances));
  text($("n-age"), duration(Math.max(0, o.at - o.began_at)));
  text($("s-age"), `since ${moment(o.began_at)}`);
  keyed(
    $("notes"),
    [...o.notes.keys()],
    (n) => n,
    () => el("li"),
    (row, n) => text(row, o.notes[n][0].toUpperCase() + o.notes[n].slice(1)),
  );
  showLosses(o.losses);
  const [shown, hidden] = o.state === "paused" ? ["crawl-resume", "crawl-pause"] : ["crawl-pause", "crawl-resume"];
  show($(shown), ["paused", "running", "idle", "waiting"].includes(o.state));
  show($(hidden), false);
  const now = `${o.state}, ${counted(o.instances, "instance")}`;
  if (said && said !== now) announce(`The crawl is ${now}.`);
  said = now;
}

let drawnLosses = "[]";

/** What is missing in the results; drawn again only when it changed, for who reads or scrolls it. */
function showLosses(losses) {
  const now = JSON.stringify(losses);
  if (now === drawnLosses) return;
  drawnLosses = now;
  show($("losses-panel"), losses.length > 0);
  const rows = losses.map((one) => [
    number(one.count),
    one.kind,
    one.reason,
    el("span", { class: "url" }, one.example),
    el("span", { class: "wrap" }, one.advice),
  ]);
  $("losses").replaceChildren(table("Losses", ["#Number", "What", "Reason", "Example", "What to do"], rows));
}

// -- the connection

const OLD = "This page shows what was known last, and tries again.";
let outage = ""; // who does not answer, or "session" when that has ended

let connected = ["wait", "connecting"];

function connection(state, label) {
  connected = [state, label];
  tellConnection();
}

/** How news come; while nobody knows any, that. */
function tellConnection() {
  const [state, label] = outage ? ["old", outage === "session" ? "logged out" : "no answer"] : connected;
  $("connection").dataset.state = state;
  text($("connection-text"), label);
}

/** Tell of an outage once, with its first reason, and of its end. */
function banner(who, message = "") {
  if (who === outage) return;
  if (outage && !who) announce("The connection is back.");
  outage = who;
  text($("banner"), message && `${message[0].toUpperCase()}${message.slice(1)}. ${OLD}`);
  show($("banner"), Boolean(who));
  document.body.classList.toggle("is-old", Boolean(who));
  tellConnection();
}

onAnswer((error) => {
  if (error === null) banner("");
  else if (error.status === 0) banner("server", "No connection to crawler serve");
  else banner(error.status === 401 ? "session" : "engine", error.message);
});

const log = operatorLog();
const instances = instancesView();
const hear = {
  overview(o) {
    banner("");
    headline(o);
  },
  members: (found) => instances.members(found),
  log: (entry) => log.add(entry),
  takeover(one) {
    instances.takeover(one);
    ring.again();
  },
  outage: ({ detail }) => banner("engine", detail),
};
let feedState = "off";
const feed = new Feed(
  (kind, value) => hear[kind]?.(value),
  (state) => {
    if (state === feedState) return;
    feedState = state;
    connection(state, { live: "live", polling: "polling", off: "stopped" }[state]);
    if (state !== "off") background.start(); // events tell only what is new from here on
  },
);

// -- charts of the whole crawl

const charts = [
  { title: "Pages/s", ...perS, lines: [{ name: "pages/s", style: "a", of: (p) => p.rates.pages }] },
  {
    title: "Errors/s",
    ...perS,
    lines: errorLines,
  },
  {
    title: "Pending URLs",
    format: number,
    least: 1,
    isLevel: true,
    lines: [{ name: "URLs", style: "b", of: (p) => p.pending }],
  },
].map((options) => new Chart($("charts"), options));
let series = { fine: [], coarse: [] };

function drawCharts() {
  const range = new FormData($("range-form")).get("range");
  const points = series[range];
  charts.forEach((chart) => chart.update(points, windowOf(points, range, nowS())));
}

const trends = new Repeater(async (signal) => {
  series = await get("/v1/series", signal);
  if (!signal.aborted) drawCharts();
}, SERIES_EVERY_MS);
$("range-form").addEventListener("change", drawCharts);

// -- views

const ring = ringReader(["ring-small", "ring-large"]);
const top = busiest();
const details = domainView();
const dead = deadLettersView();
const jobs = jobsView();
const job = jobView();
const all = (...parts) => ({
  start: () => parts.forEach((p) => p.start()),
  stop: () => parts.forEach((p) => p.stop()),
});
const VIEWS = {
  overview: all(trends, top, ring),
  domains: domainsView(),
  domain: details,
  jobs,
  job,
  run: runView(),
  instances: ring,
  "dead-letters": dead,
  operate: { start: () => undefined, stop: () => undefined },
};
const TITLES = {
  "": "overview",
  domains: "domains",
  domain: "domain",
  jobs: "jobs",
  job: "job",
  run: "run",
  instances: "instances",
  "dead-letters": "dead-letters",
  operate: "operate",
};
const PARTS = { domain: "domains", job: "jobs", run: "jobs" }; // what they are part of in the navigation
let current = null;

function route() {
  const [, first = "", rest = ""] = /^#\/([^/]*)\/?(.*)$/.exec(location.hash) ?? [];
  let argument = "";
  try {
    argument = decodeURIComponent(rest);
  } catch {
    // not a name: shown as not found
  }
  return { view: TITLES[first] ?? "overview", argument };
}

function go(isFirst) {
  if (location.hash && !location.hash.startsWith("#/")) return; // "Skip to content"
  const wanted = route();
  current?.stop();
  current = VIEWS[wanted.view];
  document.body.dataset.shown = wanted.view;
  document.querySelectorAll("[data-view]").forEach((section) => show(section, section.dataset.view === wanted.view));
  const here = PARTS[wanted.view] ?? wanted.view;
  document.querySelectorAll("nav a").forEach((link) => {
    const isHere = TITLES[link.getAttribute("href").slice(2)] === here;
    if (isHere) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  });
  if (!document.hidden) current.start(wanted.argument);
  if (isFirst) return;
  $("main").focus({ preventScroll: true });
  scrollTo(0, 0);
}

// -- the session, and commands on the whole crawl

async function mayWrite() {
  await readSession();
  const isAllowed = session.current !== null;
  show($("read-only"), !isAllowed);
  document.querySelectorAll(".needs-session").forEach((part) => show(part, isAllowed));
  [details, jobs, job].forEach((view) => view.session());
}

$("crawl-pause").addEventListener("click", () =>
  command(
    {
      title: "Pause the whole crawl?",
      question: "No request starts, to any domain, until it is resumed.",
      button: "Pause",
    },
    "/v1/pause",
  ),
);
$("crawl-resume").addEventListener("click", () =>
  command(
    { title: "Resume the crawl?", question: "Requests start again.", button: "Resume" },
    "/v1/resume",
  ),
);

// -- begin, and stop while nobody looks

/** What events keep up to date is read once, when they begin; without them it is read again and again. */
const background = new Repeater(async (signal) => {
  await mayWrite();
  if (signal.aborted) return;
  const [, entries] = await Promise.all([instances.read(), get("/v1/log?limit=100", signal)]);
  log.add(...entries.entries);
  if (feedState === "live") background.stop();
}, BACKGROUND_EVERY_MS);

function wake() {
  feed.start();
  background.start();
  current?.start(route().argument);
}

function sleep() {
  feed.stop();
  background.stop();
  current?.stop();
}

prepare();
seedForm();
explainForm();
go(true);
addEventListener("hashchange", () => go(false));
document.addEventListener("visibilitychange", () => (document.hidden ? sleep() : wake()));
if (!document.hidden) wake();
