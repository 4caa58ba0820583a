// Why one URL is, is not or will be crawled.

import { ApiError, get } from "./api.js";
import { domainLink } from "./domains.js";
import { $, el, text } from "./dom.js";

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

/** The facts in the words of the terminal, with a link to the domain's page. */
const factsOf = (f) =>
  f.facts.map(([name, value]) =>
    name === "domain" ? [name, [domainLink(f.queue), value.slice(f.domain.length)]] : [name, value],
  );
