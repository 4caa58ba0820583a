// A list that is read page by page behind a search field: its elements are NAME-search, NAME-limit, NAME-form,
// NAME-paging, NAME-first, NAME-back, NAME-next and NAME-table.

import { $, show } from "./dom.js";

const SEARCH_AFTER_MS = 250;

export class Pages {
  /** `read()` reads the page again. */
  constructor(name, read) {
    this.name = name;
    this.read = read;
    this.cursors = [""]; // of the pages that led here
    this.following = "";
    let timer = 0;
    this.part("search").addEventListener("input", () => {
      clearTimeout(timer);
      timer = setTimeout(() => this.begin(), SEARCH_AFTER_MS);
    });
    this.part("limit").addEventListener("change", () => this.begin());
    this.part("form").addEventListener("submit", (event) => event.preventDefault());
    this.part("first").addEventListener("click", () => this.turn([""]));
    this.part("back").addEventListener("click", () => this.turn(this.cursors.slice(0, -1)));
    this.part("next").addEventListener("click", () => this.turn([...this.cursors, this.following]));
  }

  part(name) {
    return $(`${this.name}-${name}`);
  }

  /** What is searched for, "" for all. */
  get wanted() {
    return this.part("search").value.trim();
  }

  /** Cursor of the page that is shown; "" for the first. */
  get after() {
    return this.cursors.at(-1);
  }

  /** From the first page on. */
  begin() {
    this.cursors = [""];
    this.read();
  }

  turn(cursors) {
    this.cursors = cursors;
    this.read();
    this.part("table").closest(".scroll").scrollTop = 0;
  }

  /** A page came, with the cursor of the next one; "" after the last. */
  came(following) {
    this.following = following;
    const isFirst = this.cursors.length === 1;
    show(this.part("paging"), Boolean(following) || !isFirst);
    this.part("next").disabled = !following;
    this.part("back").disabled = this.part("first").disabled = isFirst;
  }
}
