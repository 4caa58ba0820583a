// Why one URL is, is not or will be crawled.

import { ApiError, get } from "./api.js";
import { domainLink } from "./domains.js";
import { $, el, text } from "./dom.js";
import { duration, moment, number, stopText, words } from "./format.js";

/** The form that asks for a URL. */
export function explainForm() {
  $("explain-form").addEventListener("submit", async (event) => {
    event.preventDefault();
    const url = $("explain-url").value.trim();
    if (!url) return;
    $("explain-facts").replaceChildren();
    try {
      const found = await get(`/v1/explain?${new URLSearchParams({ url })}`);
      text($("explain-verdict"), found.verdict);
      $("explain-facts").replaceChildren(...factsOf(found).map(([name, value]) => fact(name, value)));
    } catch (error) {
      if (!(error instanceof ApiError)) throw error;
      text($("explain-verdict"), `${error.message}.`);
    }
  });
}

const fact = (name, value) => el("div", {}, el("dt", {}, name), el("dd", {}, value));

function factsOf(f) {
  const owner = f.owner ? `${f.owner}, epoch ${number(f.epoch)}` : "none now";
  const facts = [
    ["URL", f.url],
    ["State", words(f.state)],
    ["Domain", domainLink(f.queue)],
    ["Scope", `${f.scope.allowed ? "in" : "out"}: ${f.scope.rule}`],
    ["robots.txt", robotsText(f.robots)],
    ["Trap rule", f.trap ? `${words(f.trap.rule)}: ${f.trap.why}` : ""],
    ["Deferred", f.deferred && words(f.deferred)],
    ["Place in the queue", f.place === null ? "" : number(f.place + 1)],
    ["Queue", f.stop ? stopText(f.stop) : f.crawl_paused ? "the whole crawl is paused" : ""],
    ["Next request", f.seen && f.delay_ms !== null ? nextText(f) : ""],
    ["Next attempt", f.retry_in_ms === null ? "" : `in ${duration(f.retry_in_ms / 1000)}`],
    ["Failed attempts", f.attempts === null ? "" : number(f.attempts)],
    ["Committed", f.commits.map((one) => `${one.status} at ${moment(one.fetched_at)}`).join(", ")],
    ["Owner", owner],
  ];
  return facts.filter(([, value]) => value);
}

function robotsText(robots) {
  if (robots.allowed === null) return robots.note;
  const line = robots.line_number ? `line ${number(robots.line_number)}: ${robots.line}` : "no rule matches";
  return `${robots.allowed ? "allowed" : "forbidden"} (${line})`;
}

function nextText(f) {
  return `in ${duration(Math.max(0, f.next_fetch_in_ms) / 1000)} for its domain, delay ${duration(f.delay_ms / 1000)}`;
}
