// The API of our own server: requests, the session, and events with polling where events fail.

const EVENT_KINDS = ["overview", "members", "log", "takeover", "outage"];
const SESSION = "/v1/session";
const POLL_EVERY_MS = 2000;
const EVENTS_AGAIN_MS = 15000;
const SILENCE_MAX_MS = 40000; // the server says something each 15 s
const REQUEST_MAX_MS = 30000;
const REST_MAX_MS = 60000;
const below = (path) => `.${path}`; // the page may be served below a path
const REST = 20; // times as long as an answer took: a large crawl is asked less often

/** A request that failed. `status` is 0 when no answer came. */
export class ApiError extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

/** The session of this browser, null while it may only read: {csrf_token, ...}. */
export const session = { current: null };

const watchers = new Set();

/** `watch(error)` hears of each request: null when it was answered, else why not. */
export const onAnswer = (watch) => watchers.add(watch);
const tell = (error) => watchers.forEach((watch) => watch(error));

export const get = (path, signal) => request("GET", path, undefined, signal);
export const post = (path, body = {}) => request("POST", path, body);
export const send = (method, path, body) => request(method, path, body);

async function request(method, path, body, signal) {
  const headers = { Accept: "application/json" };
  if (method !== "GET") {
    headers["Content-Type"] = "application/json";
    headers["X-CSRF-Token"] = session.current?.csrf_token ?? "";
    headers["Idempotency-Key"] = key();
  }
  const limit = AbortSignal.timeout(REQUEST_MAX_MS);
  const sent = { method, headers, signal: signal ? AbortSignal.any([signal, limit]) : limit, cache: "no-store" };
  if (body !== undefined) sent.body = JSON.stringify(body);
  let answer;
  let found;
  try {
    answer = await fetch(below(path), sent);
    found = await answer.json().catch(() => null);
  } catch (error) {
    if (signal?.aborted) throw error;
    throw told(new ApiError(0, "the server does not answer"));
  }
  if (answer.ok) {
    if (path !== SESSION) tell(null); // that one is answered without the engine
    return found;
  }
  const error = new ApiError(answer.status, found?.detail || found?.title || `the server answered ${answer.status}`);
  throw answer.status >= 500 || answer.status === 401 ? told(error) : error;
}

function told(error) {
  tell(error);
  return error;
}

/** The same command sent twice counts once. */
function key() {
  return [...crypto.getRandomValues(new Uint8Array(16))].map((byte) => byte.toString(16).padStart(2, "0")).join("");
}

/** Ask whether this browser may write. */
export async function readSession() {
  try {
    session.current = await get(SESSION);
    if (!session.current?.csrf_token) session.current = null;
  } catch (error) {
    if (!error.status || error.status >= 500) throw error;
    session.current = null;
  }
  return session.current;
}

/** Events of the crawl while the page is seen. Without them, the overview is read every two seconds. */
export class Feed {
  /** `hear(kind, value)` gets each event; `state("live" | "polling" | "off")` tells how they come. */
  constructor(hear, state) {
    this.hear = hear;
    this.state = state;
    this.source = null;
    this.timers = new Set();
  }

  start() {
    this.stop();
    this.open();
  }

  stop() {
    this.close();
    this.timers.forEach(clearTimeout);
    this.timers.clear();
    this.abort?.abort();
    this.state("off");
  }

  close() {
    this.source?.close();
    this.source = null;
  }

  later(ms, act) {
    const timer = setTimeout(() => {
      this.timers.delete(timer);
      act();
    }, ms);
    this.timers.add(timer);
    return timer;
  }

  open() {
    const source = new EventSource(below("/v1/events"));
    this.source = source;
    const heard = () => {
      clearTimeout(this.silence);
      this.timers.delete(this.silence);
      this.silence = this.later(SILENCE_MAX_MS, () => this.fall(source));
    };
    for (const kind of EVENT_KINDS) {
      source.addEventListener(kind, (event) => {
        heard();
        this.state("live");
        this.hear(kind, JSON.parse(event.data));
      });
    }
    source.addEventListener("error", () => this.fall(source));
    heard();
  }

  /** Events broke off: poll, and try them again later. */
  fall(source) {
    if (this.source !== source) return;
    this.close();
    this.state("polling");
    this.poll();
    this.later(EVENTS_AGAIN_MS, () => this.start());
  }

  async poll() {
    if (this.source) return;
    this.abort = new AbortController();
    const { signal } = this.abort;
    try {
      this.hear("overview", await get("/v1/overview", signal));
    } catch (error) {
      if (signal.aborted) return;
    }
    if (!this.source) this.later(POLL_EVERY_MS, () => this.poll());
  }
}

/** Runs `act(signal)` again and again, never twice at a time, while it is started. */
export class Repeater {
  constructor(act, everyMs) {
    this.act = act;
    this.everyMs = everyMs;
  }

  start() {
    this.stop();
    this.abort = new AbortController();
    this.turn(this.abort.signal);
  }

  stop() {
    clearTimeout(this.timer);
    this.abort?.abort();
  }

  /** Now, instead of when it is due. */
  again() {
    if (this.abort && !this.abort.signal.aborted) this.start();
  }

  async turn(signal) {
    const began = performance.now();
    try {
      await this.act(signal);
    } catch (error) {
      if (!(error instanceof ApiError) && !signal.aborted) console.error(error);
    }
    const rest = Math.max(this.everyMs, REST * (performance.now() - began));
    if (!signal.aborted) this.timer = setTimeout(() => this.turn(signal), Math.min(rest, REST_MAX_MS));
  }
}
