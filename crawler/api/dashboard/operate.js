// What an operator does with the crawl as a whole: seeds, and the log of who changed what.

import { ApiError, post } from "./api.js";
import { $, el, keyed } from "./dom.js";
import { moment, number, words } from "./format.js";

const LOG_KEPT = 100;
const WHOLE = ["pause", "resume"]; // without a target they are for the whole crawl
const EXAMPLES = 10; // of URLs that were not added

/** The form that adds seeds. */
export function seedForm() {
  $("seed-form").addEventListener("submit", async (event) => {
    event.preventDefault();
    const urls = $("seed-urls")
      .value.split("\n")
      .map((line) => line.trim())
      .filter(Boolean);
    if (!urls.length) {
      answer("Enter at least one URL.");
      $("seed-urls").focus();
      return;
    }
    $("seed-button").disabled = true;
    try {
      tell(await post("/v1/seeds", { urls }));
    } catch (error) {
      if (!(error instanceof ApiError)) throw error;
      answer(`Not added: ${error.message}.`);
    } finally {
      $("seed-button").disabled = false;
    }
  });
}

function answer(message, ...more) {
  $("seed-result").replaceChildren(el("p", {}, message), ...more);
}

const KINDS = [
  ["seen", "already seen"],
  ["retried", "retried after they had failed"],
  ["out_of_scope", "out of scope"],
  ["invalid", "invalid"],
];

function tell(result) {
  const others = KINDS.filter(([name]) => result[name]).map(([name, label]) => `${number(result[name])} ${label}`);
  const wrong = result.complaints.slice(0, EXAMPLES);
  const list = wrong.map((one) => el("li", {}, el("span", { class: "url" }, one.url), `: ${one.reason}`));
  answer(
    `${[`${number(result.new)} new`, ...others].join(", ")}.`,
    wrong.length ? el("ul", { class: "feed" }, list) : "",
  );
  if (!wrong.length) $("seed-urls").value = "";
}

/** The operator log, newest first. */
export function operatorLog() {
  const entries = new Map();

  function draw() {
    const newest = [...entries.values()].sort((a, b) => b.id - a.id).slice(0, LOG_KEPT);
    const rows = newest.length ? newest : [null];
    keyed(
      $("log"),
      rows,
      (entry) => entry?.id ?? "",
      make,
      () => undefined,
    );
  }

  function make(entry) {
    if (!entry) return el("li", { class: "muted" }, "No command has changed this crawl.");
    const target = entry.target || (WHOLE.includes(entry.action) ? "the whole crawl" : "");
    return el(
      "li",
      {},
      el("time", {}, moment(entry.at)),
      el("b", {}, entry.who || "somebody"),
      ` (${entry.via}): `,
      words(entry.action),
      target && el("span", { class: "url" }, ` ${target}`),
      entry.detail && `, ${entry.detail}`,
      entry.times > 1 && `, ${number(entry.times)} times`,
    );
  }

  return {
    add(...some) {
      some.forEach((entry) => entries.set(entry.id, entry));
      draw();
    },
  };
}
