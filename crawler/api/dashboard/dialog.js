// Asks before something is changed, and says what came of it.

import { ApiError, send } from "./api.js";
import { $, el, show, text, toast } from "./dom.js";

/** Ask. Resolves to the values of the fields by name, or null. `fields`: elements with a name. */
function ask({ title, question, button, fields = [], isHarsh = false }) {
  const dialog = $("dialog");
  text($("dialog-title"), title);
  text($("dialog-text"), question);
  text($("dialog-ok"), button);
  $("dialog-ok").classList.toggle("harsh", isHarsh);
  $("dialog-fields").replaceChildren(...fields);
  dialog.returnValue = "cancel";
  dialog.showModal();
  (dialog.querySelector("#dialog-fields input") ?? $("dialog-cancel")).focus();
  return new Promise((resolve) => {
    dialog.addEventListener(
      "close",
      () => resolve(dialog.returnValue === "ok" ? Object.fromEntries(new FormData($("dialog-form"))) : null),
      { once: true },
    );
  });
}

/** A labelled field. */
export const field = (label, attributes) => el("label", { class: "field" }, label, el("input", attributes));

/** Ask, send, and say what came of it. `body(values)` makes the body. True when it was done. */
export async function command(
  question,
  path,
  { method = "POST", body = () => ({}), done = (answer) => answer?.text } = {},
) {
  const values = await ask(question);
  if (values === null) return false;
  try {
    const answer = await send(method, path, body(values));
    toast(done(answer) || "Done.");
    return true;
  } catch (error) {
    if (!(error instanceof ApiError)) throw error;
    toast(`Not done: ${error.message}`, true);
    return false;
  }
}

/** Enter is the main button, wherever the focus is in a field. */
export function prepare() {
  $("dialog-form").addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || !(event.target instanceof HTMLInputElement)) return;
    event.preventDefault();
    $("dialog-ok").click();
  });
  $("toast-close").addEventListener("click", () => show($("toast"), false));
}
