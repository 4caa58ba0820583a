// The form that makes a job or changes one, with the next times of the schedule as it is typed.

import { ApiError, get, send } from "./api.js";
import { el, show, text, toast } from "./dom.js";
import { counted } from "./format.js";
import { fillTimes, jobPath } from "./job_parts.js";

const PREVIEW_AFTER_MS = 300;
const PREVIEW_TIMES = 5;
const KINDS = { executionInterval: "interval", cron: "cron expression", at: "one time" };
const PLACEHOLDERS = { executionInterval: "PT3H, 90, 10m, 2h, 1d", cron: "0 */6 * * *", at: "2027-01-31T12:00" };
const NAME = { required: true, maxlength: 64, pattern: "[A-Za-z0-9][A-Za-z0-9._\\-]*" };
const NUMBERS = ["depth", "pages", "bytes", "urls", "priority", "maxRetryCount"];
const EMPTY_IS_NULL = ["sitemap", "scope", "depth", "pages", "bytes", "urls"]; // what the crawl decides when nothing is written
const SCOPES = { "": "as the crawl", domain: "domain", host: "host", prefix: "prefix", any: "any" };
const OVERLAPS = { skip: "skip the next", queue: "queue the next", allow: "run both" };
const CATCHUPS = { none: "skip", latest: "run the latest", all: "run all" };

let forms = 0;

/** In a panel that is hidden until `open(job)`: null for a new job. `done(job)` gets the job that was saved. */
export class JobForm {
  constructor(panel, done) {
    this.panel = panel;
    this.done = done;
    this.id = (forms += 1);
  }

  open(job) {
    this.job = job;
    this.opener = document.activeElement;
    this.build();
    this.before = this.values();
    show(this.panel, true);
    this.panel.scrollIntoView({ block: "nearest" });
    this.inputs[job ? "when" : "name"].focus();
    this.preview();
  }

  close() {
    if (this.panel.hidden) return;
    clearTimeout(this.timer);
    this.abort?.abort();
    show(this.panel, false);
    this.panel.replaceChildren();
    this.opener?.focus?.();
  }

  build() {
    const job = this.job;
    const kind = Object.keys(KINDS).find((name) => job?.[name]) ?? "executionInterval";
    const more = job ? job.seedsTotal - job.seeds.length : 0;
    this.inputs = {
      name: input({ ...NAME, value: job?.name ?? "", disabled: Boolean(job) }),
      user: input({ ...NAME, value: job?.user ?? "default", disabled: Boolean(job) }),
      kind: select(KINDS, kind),
      when: input({ required: true, maxlength: 200, value: job?.[kind] ?? "", placeholder: PLACEHOLDERS[kind] }),
      timezone: input({ maxlength: 64, value: job?.timezone ?? "UTC", list: `zones-${this.id}` }),
      jitter: input({ maxlength: 64, value: job && job.jitter !== "PT0S" ? job.jitter : "", placeholder: "none" }),
      seeds: el("textarea", { rows: 4, spellcheck: "false", autocomplete: "off" }),
      sitemap: input({ type: "url", value: job?.sitemap ?? "", placeholder: "none" }),
      scope: select(SCOPES, job?.scope ?? ""),
      depth: input({ type: "number", min: 0, max: 255, value: job?.depth ?? "", placeholder: "as the crawl" }),
      pages: input({ type: "number", min: 1, value: job?.pages ?? "", placeholder: "as the settings" }),
      bytes: input({ type: "number", min: 1, value: job?.bytes ?? "", placeholder: "as the settings" }),
      urls: input({ type: "number", min: 1, value: job?.urls ?? "", placeholder: "as the settings" }),
      priority: input({ type: "number", step: "any", value: job?.priority ?? 0, required: true }),
      maxRetryCount: input({ type: "number", min: 0, max: 100, value: job?.maxRetryCount ?? 0, required: true }),
      retryDelay: input({ value: job?.retryDelay ?? "PT1M", required: true }),
      overlap: select(OVERLAPS, job?.overlap ?? "skip"),
      catchup: select(CATCHUPS, job?.catchup ?? "none"),
      catchupWindow: input({ value: job?.catchupWindow ?? "P1D", required: true }),
    };
    const i = this.inputs;
    i.seeds.value = job ? job.seeds.join("\n") : "";
    i.seeds.placeholder = more ? `${counted(more, "URL")}; kept if you enter none here` : "https://docs.example/";
    const zones = Intl.supportedValuesOf("timeZone").map((zone) => el("option", { value: zone }));
    this.words = el("p", { class: "sentence", role: "status" });
    this.times = el("ul", { class: "feed" });
    this.error = el("p", { class: "error", role: "alert" });
    const form = el(
      "form",
      { class: "job-form", "aria-label": job ? `Change ${job.name}` : "New job" },
      el("h3", {}, job ? `Change ${job.name}: from now on` : "New job"),
      group(
        "Name and schedule",
        label("Name", i.name),
        label("User", i.user),
        label("Kind of schedule", i.kind),
        label("Schedule", i.when),
        label("Time zone", i.timezone),
        label("Random delay, at most", i.jitter),
      ),
      el("div", { class: "preview" }, this.words, this.times),
      group(
        "Content and limits",
        label("Seeds, one per line", i.seeds, "whole"),
        label("Sitemap", i.sitemap),
        label("Scope", i.scope),
        label("Depth", i.depth),
        label("Pages per run", i.pages),
        label("Bytes per run", i.bytes),
        label("URLs per run", i.urls),
        label("Priority", i.priority),
      ),
      group(
        "Failures and delays",
        label("Retries", i.maxRetryCount),
        label("Retry delay", i.retryDelay),
        label("Overlapping runs", i.overlap),
        label("Missed times", i.catchup),
        label("Catch-up window", i.catchupWindow),
      ),
      el("datalist", { id: `zones-${this.id}` }, zones),
      this.error,
      el(
        "div",
        { class: "actions" },
        el("button", { type: "button", on: { click: () => this.close() } }, "Cancel"),
        (this.button = el("button", { type: "submit", class: "primary" }, job ? "Save the changes" : "Add the job")),
      ),
    );
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      this.save();
    });
    form.addEventListener("keydown", (event) => event.key === "Escape" && this.close());
    i.kind.addEventListener("change", () => {
      i.when.value = job?.[i.kind.value] ?? "";
      i.when.placeholder = PLACEHOLDERS[i.kind.value];
      this.preview();
    });
    for (const one of [i.when, i.timezone, i.jitter]) {
      one.addEventListener("input", () => {
        clearTimeout(this.timer);
        this.timer = setTimeout(() => this.preview(), PREVIEW_AFTER_MS);
      });
    }
    this.panel.replaceChildren(form);
  }

  /** The schedule as the API takes it, without what is empty. */
  schedule() {
    const { kind, when, timezone, jitter } = this.inputs;
    const given = { [kind.value]: when.value.trim(), timezone: timezone.value.trim(), jitter: jitter.value.trim() };
    return Object.fromEntries(Object.entries(given).filter(([, value]) => value));
  }

  async preview() {
    this.abort?.abort();
    this.abort = new AbortController();
    const { signal } = this.abort;
    if (!this.inputs.when.value.trim()) {
      text(this.words, "");
      this.times.replaceChildren();
      return;
    }
    try {
      const asked = new URLSearchParams({ ...this.schedule(), times: PREVIEW_TIMES });
      const found = await get(`/v1/schedules/preview?${asked}`, signal);
      text(this.words, `${found.schedule[0].toUpperCase()}${found.schedule.slice(1)}. Next:`);
      fillTimes(this.times, found.times);
      this.words.classList.remove("error");
    } catch (error) {
      if (signal.aborted) return;
      if (!(error instanceof ApiError)) throw error;
      text(this.words, error.message);
      this.words.classList.add("error");
      this.times.replaceChildren();
    }
  }

  /** What is in the fields, by the names of the API. */
  values() {
    const { kind, when, seeds, user, name, ...others } = this.inputs;
    const found = { [kind.value]: when.value.trim() };
    for (const [field, { value }] of Object.entries(others)) {
      const written = value.trim();
      if (!written && EMPTY_IS_NULL.includes(field)) found[field] = null;
      else found[field] = NUMBERS.includes(field) ? Number(written) : written;
    }
    found.timezone ||= "UTC";
    found.jitter ||= "0";
    const lines = seeds.value.split("\n").map((line) => line.trim());
    return { ...found, seeds: lines.filter(Boolean) };
  }

  async save() {
    const values = this.values();
    const isSame = (name) => JSON.stringify(values[name]) === JSON.stringify(this.before[name]);
    const changed = Object.fromEntries(Object.entries(values).filter(([name]) => !isSame(name)));
    if (this.job && !Object.keys(changed).length) {
      this.close();
      return;
    }
    text(this.error, "");
    this.button.disabled = true;
    try {
      const [user, name] = [this.inputs.user.value.trim(), this.inputs.name.value.trim()];
      const saved = this.job
        ? await send("PATCH", jobPath(this.job), changed)
        : await send("POST", `/v1/users/${encodeURIComponent(user)}/jobs`, { name, ...values });
      toast(this.job ? `${saved.name} was changed.` : `${saved.name} was added.`);
      this.close();
      this.done(saved);
    } catch (error) {
      if (!(error instanceof ApiError)) throw error;
      text(this.error, `Not saved: ${error.message}.`);
    } finally {
      this.button.disabled = false;
    }
  }
}

const input = (attributes) => el("input", { type: "text", autocomplete: "off", spellcheck: "false", ...attributes });

function select(options, chosen) {
  return el(
    "select",
    {},
    Object.entries(options).map(([value, name]) => el("option", { value, selected: value === chosen }, name)),
  );
}

const label = (name, field, style = "") => el("label", { class: `field ${style}`.trim() }, name, field);
const group = (name, ...fields) => el("fieldset", {}, el("legend", {}, name), fields);
