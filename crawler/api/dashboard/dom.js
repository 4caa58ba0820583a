// Builds and updates elements. Text always goes in as text: nothing that a site sends is ever read as markup.

import { local } from "./format.js";

const SVG = "http://www.w3.org/2000/svg";

/** An element with attributes and children; texts become text nodes. `on`: listeners by event name. */
export function el(name, attributes = {}, ...children) {
  return fill(document.createElement(name), attributes, children);
}

/** The same for SVG. */
export function svg(name, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG, name), attributes, children);
}

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (name === "on") {
      for (const [event, listener] of Object.entries(value)) element.addEventListener(event, listener);
    } else if (value === true) {
      element.setAttribute(name, "");
    } else if (value !== false && value !== null && value !== undefined) {
      element.setAttribute(name, String(value));
    }
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

export const $ = (id) => document.getElementById(id);

/** Set a text if it differs: readers of screens are not told of what has not changed. */
export function text(element, value) {
  const wanted = String(value ?? "");
  if (element.textContent !== wanted) element.textContent = wanted;
}

/** Show or hide. */
export function show(element, isShown) {
  const change = () => element.toggleAttribute("hidden", !isShown);
  if (!isShown && element.contains(document.activeElement)) keepingFocus(element.parentElement, change);
  else change();
}

const CONTROLS = "button, a[href], input, select, textarea";
const controlsOf = (part) =>
  [...part.querySelectorAll(CONTROLS)].filter((one) => !one.disabled && one.offsetParent !== null);

/** Do what removes or hides elements of a part. The focus goes to the control that is then where it was. */
export function keepingFocus(part, change) {
  const focused = document.activeElement;
  const place = part.contains(focused) ? controlsOf(part).indexOf(focused) : -1;
  change();
  if (place < 0 || (part.contains(focused) && focused.offsetParent !== null)) return;
  const controls = controlsOf(part);
  (controls[Math.min(place, controls.length - 1)] ?? $("main")).focus({ preventScroll: true });
}

/** Replace what is in a part, where it differs. */
export function replace(part, ...children) {
  if (part.childNodes.length === children.length && children.every((one, n) => one.isEqualNode(part.childNodes[n]))) return;
  keepingFocus(part, () => part.replaceChildren(...children));
}

/** The row of a table until it was read. */
export const reading = (columns) =>
  el("tr", {}, el("td", { class: "muted", colspan: columns }, "Reading ..."));

/** Make the children of `parent` those of `rows`, in order. Rows that stay keep their elements, and so the focus.
 *
 * `make(row)` returns a new element, `update(element, row)` brings it up to date.
 */
export function keyed(parent, rows, keyOf, make, update) {
  const before = new Map([...parent.children].map((child) => [child.dataset.key, child]));
  let place = parent.firstElementChild;
  for (const row of rows) {
    const key = String(keyOf(row));
    let child = before.get(key);
    if (child) {
      before.delete(key);
    } else {
      child = make(row);
      child.dataset.key = key;
    }
    if (child === place) place = place.nextElementSibling;
    else move(parent, child, place);
    update(child, row);
  }
  if (before.size) keepingFocus(parent, () => before.forEach((child) => child.remove()));
}

function move(parent, child, place) {
  const focused = child.contains(document.activeElement) ? document.activeElement : null;
  parent.insertBefore(child, place);
  focused?.focus({ preventScroll: true });
}

/** The cells of a table's row: each a text, or an element that replaces what is there. */
export function cells(row, values) {
  values.forEach((value, n) => {
    const cell = row.cells[n];
    if (value instanceof Node) {
      if (cell.firstChild !== value) cell.replaceChildren(value);
    } else {
      text(cell, value);
    }
  });
}

/** A table with a caption for readers of screens; numeric columns are those whose name begins with "#". */
export function table(caption, headers, rows) {
  const cell = (name, value, header) => el(name, { class: header.startsWith("#") ? "n" : null }, value);
  const name = (header) => header.replace(/^#/, "");
  return el(
    "table",
    {},
    el("caption", { class: "visually-hidden" }, caption),
    el(
      "thead",
      {},
      el(
        "tr",
        {},
        headers.map((h) => {
          const head = cell("th", name(h), h);
          head.scope = "col";
          return head;
        }),
      ),
    ),
    el(
      "tbody",
      {},
      rows.map((row) =>
        el(
          "tr",
          {},
          row.map((value, n) => cell("td", value, headers[n])),
        ),
      ),
    ),
  );
}

/** A list of names and texts, without those that are empty. */
export function facts(list, pairs) {
  const known = pairs.filter(([, value]) => value !== "" && value !== null);
  keyed(
    list,
    known.map(([name, value], n) => [name, value, `${name} ${known.slice(0, n).filter(([one]) => one === name).length}`]),
    ([, , key]) => key,
    ([name]) => el("div", {}, el("dt", {}, name), el("dd")),
    (row, [, value]) => text(row.lastChild, local(value)),
  );
}

/** A sentence that is renewed. Waits count down in it: only what else changes is told to readers of screens. */
export function tell(box, sentence) {
  const shape = sentence.replace(/[\d.,]+ (ms|s|m|h|d)\b/g, "");
  box.setAttribute("aria-live", shape === box.dataset.shape ? "off" : "polite");
  box.dataset.shape = shape;
  text(box, sentence);
}

/** Tell readers of screens something, once. */
export function announce(message) {
  text($("announcer"), message);
}

let toastTimer = 0;

/** Show a short message at the bottom, for some seconds; an error stays until it is closed. */
export function toast(message, isError = false) {
  const box = $("toast");
  clearTimeout(toastTimer);
  box.classList.toggle("error", isError);
  text($("toast-text"), message);
  show(box, true);
  if (!isError) toastTimer = setTimeout(() => show(box, false), 6000);
}
