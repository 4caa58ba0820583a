// Dead letters: how many for each reason, the newest, and putting them back.

import { Repeater, get, session } from "./api.js";
import { command } from "./dialog.js";
import { $, cells, el, keepingFocus, keyed, reading, show, table, text } from "./dom.js";
import { counted, moment, number, words } from "./format.js";

const EVERY_MS = 5000;
const SHOWN = 50;

const done = ({ text: said }) => `${said}.`;

/** Ask, and retry all of a choice. */
async function retry(choice, what) {
  const question = "Each URL counts as new and gets all its attempts again.";
  return command({ title: `Retry ${what}?`, question, button: "Retry" }, "/v1/dead-letters/retry", {
    body: () => choice,
    done,
  });
}

const why = (letter) => (letter.detail ? `${words(letter.reason)}: ${letter.detail}` : words(letter.reason));

/** Some dead letters as a table, with a button for each where this browser may write. */
export function lettersTable(letters, again) {
  const rows = letters.map((letter) => {
    const button = el("button", { type: "button", class: "small", "aria-label": `Retry ${letter.url}` }, "Retry");
    button.addEventListener("click", async () => (await retry({ urls: [letter.url] }, "this URL")) && again());
    return [
      moment(letter.failed_at),
      el("span", { class: "wrap" }, why(letter)),
      number(letter.attempts),
      el("span", { class: "url" }, letter.url),
      session.current ? button : "",
    ];
  });
  return table("Dead letters", ["Failed at", "Why", "#Attempts", "URL", ""], rows);
}

export function deadLettersView() {
  let reason = "";
  let drawn = "";
  $("dead-reasons").append(
    el("caption", { class: "visually-hidden" }, "Dead letters by reason"),
    el(
      "thead",
      {},
      el(
        "tr",
        {},
        el("th", { scope: "col" }, "Reason"),
        el("th", { scope: "col", class: "n" }, "URLs"),
        el("th", { scope: "col" }, "Share"),
        el("th", {}, ""),
      ),
    ),
    el("tbody", {}, reading(4)),
  );
  const repeater = new Repeater(async (signal) => {
    const summary = await get(`/v1/dead-letters/summary?limit=${SHOWN}`, signal);
    const chosen =
      reason && (await get(`/v1/dead-letters?${new URLSearchParams({ reason, limit: SHOWN })}`, signal)).letters;
    if (!signal.aborted) draw(summary, chosen || summary.newest);
  }, EVERY_MS);
  $("dead-all").addEventListener("click", () => choose(""));

  function choose(wanted) {
    reason = wanted;
    drawn = "";
    repeater.again();
  }

  function again() {
    drawn = "";
    repeater.again();
  }

  function draw(summary, letters) {
    const rows = Object.entries(summary.reasons).sort(([a, n], [b, m]) => m - n || (a < b ? -1 : 1));
    show($("dead-none"), !rows.length);
    show($("dead-reasons"), rows.length > 0);
    show($("dead-panel"), rows.length > 0);
    keyed(
      $("dead-reasons").tBodies[0],
      rows,
      ([name]) => name,
      ([name]) => makeReason(name),
      (row, [, n]) => {
        cells(row, [row.cells[0].firstChild, number(n)]);
        row.meter.style.width = `${Math.max(1, (100 * n) / summary.total)}%`;
        show(row.button, Boolean(session.current));
      },
    );
    text($("dead-title"), reason ? `Dead letters with the reason ${words(reason)}` : "The newest");
    show($("dead-all"), Boolean(reason));
    const shape = JSON.stringify([letters, Boolean(session.current)]);
    if (shape === drawn) return;
    drawn = shape;
    const made = lettersTable(letters, again);
    keepingFocus($("dead-list"), () => $("dead-list").replaceChildren(...made.children));
  }

  function makeReason(name) {
    const pick = el("button", { type: "button", class: "link", on: { click: () => choose(name) } }, words(name));
    const meter = el("i");
    const button = el("button", { type: "button", class: "small" }, "Retry all");
    button.setAttribute("aria-label", `Retry all: ${words(name)}`);
    button.addEventListener(
      "click",
      async () => (await retry({ reason: name }, `all dead letters with the reason ${words(name)}`)) && again(),
    );
    const row = el(
      "tr",
      {},
      el("td", {}, pick),
      el("td", { class: "n" }),
      el("td", { class: "share" }, el("span", { class: "meter" }, meter)),
      el("td", {}, button),
    );
    return Object.assign(row, { meter, button });
  }

  return { start: () => repeater.start(), stop: () => repeater.stop(), session: again };
}
