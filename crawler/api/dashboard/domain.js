// One domain in full: why something or nothing happens there, its numbers, and what an operator can do.

import { ApiError, Repeater, get, session } from "./api.js";
import { Chart, errorLines, perS, windowOf } from "./charts.js";
import { command, field } from "./dialog.js";
import { delayText, statePill } from "./domains.js";
import { $, el, facts, keyed, replace, show, table, tell, text } from "./dom.js";
import { duration, moment, nowS, number } from "./format.js";
import { lettersTable } from "./dead.js";

const EVERY_MS = 2000;
const DETAILS_EVERY = 5; // attempts and dead letters are read with each fifth look
const ATTEMPTS = 20;

export function domainView() {
  let name = "";
  let detail = null;
  let looks = 0;
  const charts = [
    new Chart($("domain-charts"), {
      title: "Pages/s",
      ...perS,
      lines: [{ name: "pages/s", style: "a", of: (p) => p.rates.pages }],
    }),
    new Chart($("domain-charts"), {
      title: "Errors/s",
      ...perS,
      lines: errorLines,
    }),
  ];
  const repeater = new Repeater(look, EVERY_MS);

  async function look(signal) {
    const path = `/v1/domains/${encodeURIComponent(name)}`;
    try {
      detail = await get(path, signal);
    } catch (error) {
      if (!(error instanceof ApiError) || !error.status || error.status >= 500) throw error;
      missing(error.message);
      return;
    }
    if (signal.aborted) return;
    draw();
    if (looks % DETAILS_EVERY === 0) {
      await Promise.all([attempts(signal), letters(signal)]);
    }
    looks += 1;
  }

  function missing(message) {
    detail = null;
    text($("domain-sentence"), message.endsWith(".") ? message : `${message}.`);
    show($("domain-body"), false);
    show($("domain-state"), false);
    $("domain-actions").replaceChildren();
  }

  function draw() {
    const d = detail.domain;
    show($("domain-body"), true);
    show($("domain-state"), true);
    statePill($("domain-state"), d);
    text($("t-domain"), d.domain);
    tell($("domain-sentence"), detail.sentence);
    facts($("domain-facts"), detail.facts);
    buttons();
    const points = detail.series.fine;
    charts.forEach((chart) => chart.update(points, windowOf(points, "fine", nowS())));
  }

  async function attempts(signal) {
    const { attempts: found } = await get(
      `/v1/history?${new URLSearchParams({ domain: name, limit: ATTEMPTS })}`,
      signal,
    );
    if (signal.aborted) return;
    const rows = found.map((a) => {
      const ended = a.finished ?? a.failed ?? a.lost ?? a.refused ?? a.claimed ?? 0;
      const took = a.started ? duration(Math.max(0, ended - a.started)) : "-";
      return [
        moment(ended),
        number(a.attempt),
        el("span", { class: "wrap" }, a.result),
        took,
        a.node,
        el("span", { class: "url" }, a.url),
      ];
    });
    fillOr(
      $("domain-attempts"),
      rows.length && table("Recent attempts", ["At", "#Attempt", "Result", "#Duration", "Node", "URL"], rows),
      "No attempts in the crawl folder on this machine.",
    );
  }

  async function letters(signal) {
    const asked = new URLSearchParams({ domain: name, limit: "20" });
    const found = await get(`/v1/dead-letters?${asked}`, signal);
    if (signal.aborted) return;
    fillOr($("domain-dead"), found.letters.length && lettersTable(found.letters, again), "None.");
  }

  const fillOr = (box, shown, otherwise) => replace(box, shown || el("p", { class: "muted" }, otherwise));

  function again() {
    looks = 0;
    repeater.again();
  }

  function buttons() {
    show($("domain-actions"), Boolean(session.current));
    if (!session.current) return;
    const d = detail.domain;
    const isBlocked = d.stop === "blocked";
    const isPaused = d.stop === "paused";
    const wanted = [
      isPaused
        ? action("resume", "Resume", "Requests to this domain start again.", true)
        : action("pause", "Pause", "No request to this domain starts until it is resumed. Its URLs wait."),
      isBlocked
        ? action("unblock", "Unblock", "Its deferred URLs return to its queue and are fetched.", true)
        : action(
            "block",
            "Block",
            "Nothing more is fetched from this domain. Its URLs and new ones are deferred.",
            false,
            true,
          ),
      { verb: "boost", label: d.boost ? `Boost (${d.boost})…` : "Boost…", act: boost },
      {
        verb: "delay",
        label: detail.ordered_delay_ms === null ? "Delay…" : `Delay (${delayText(detail.ordered_delay_ms)})…`,
        act: delay,
      },
    ];
    keyed(
      $("domain-actions"),
      wanted,
      (one) => one.verb.replace(/^resume$/, "pause").replace(/^unblock$/, "block"), // the same button, and so the focus
      () => el("button", { type: "button" }),
      (button, one) => {
        button.dataset.verb = one.verb;
        text(button, one.label);
        button.onclick = one.act;
      },
    );
  }

  const post = (verb) => `/v1/domains/${encodeURIComponent(detail.domain.domain)}/${verb}`;

  function action(verb, label, question, isMain = false, isHarsh = false) {
    const act = async () => {
      const title = `${label} ${detail.domain.domain}?`;
      if (await command({ title, question, button: label, isHarsh }, post(verb))) again();
    };
    return { verb, label, act, isMain };
  }

  async function boost() {
    const fields = [
      field("Boost, from -9 to 9", {
        name: "n",
        type: "number",
        min: -9,
        max: 9,
        step: 1,
        required: true,
        value: detail.domain.boost || 5,
      }),
    ];
    const question = "Due domains with a higher boost are fetched first; 0 is no boost. The delay does not change.";
    const body = ({ n }) => ({ boost: Number(n) });
    if (
      await command(
        { title: `Boost ${detail.domain.domain}`, question, button: "Set the boost", fields },
        post("boost"),
        { body },
      )
    )
      again();
  }

  async function delay() {
    const now = Math.max(0, detail.domain.delay_ms) / 1000;
    const fields = [
      field("Seconds between two requests", {
        name: "s",
        type: "number",
        min: 0,
        max: 86400,
        step: "any",
        value: now,
        placeholder: "robots.txt",
      }),
    ];
    const question = "Leave it empty to follow robots.txt and the settings.";
    const body = ({ s }) => ({ delay_s: s === "" ? null : Number(s) });
    if (
      await command(
        { title: `Delay of ${detail.domain.domain}`, question, button: "Set the delay", fields },
        post("delay"),
        { body },
      )
    )
      again();
  }

  return {
    start(wanted) {
      if (wanted !== name) {
        name = wanted;
        looks = 0;
        detail = null;
        text($("t-domain"), name);
        text($("domain-sentence"), "Reading ...");
        ["domain-attempts", "domain-dead"].forEach((id) => replace($(id), el("p", { class: "muted" }, "Reading ...")));
        show($("domain-body"), false);
        show($("domain-state"), false);
        $("domain-actions").replaceChildren();
        charts.forEach((chart) => chart.update([], windowOf([], "fine", nowS())));
      }
      repeater.start();
    },
    stop: () => repeater.stop(),
    session: () => detail && buttons(),
  };
}
