// Numbers, times and short sentences as people read them. The same wording as in the terminal.

const grouped = new Intl.NumberFormat("en-US", { maximumFractionDigits: 0 });
const oneDecimal = new Intl.NumberFormat("en-US", { minimumFractionDigits: 1, maximumFractionDigits: 1 });
const UNITS = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];

/** "1,234,567" */
export const number = (count) => grouped.format(count ?? 0);

/** "1 page", "2,000 pages" */
export const counted = (count, noun, plural = `${noun}s`) => `${number(count)} ${count === 1 ? noun : plural}`;

/** Per second: with a decimal only where it tells something. */
export const rate = (perSecond) => (perSecond && perSecond < 9.95 ? oneDecimal : grouped).format(perSecond ?? 0);

/** Bytes in binary units with three digits: "31.2 KiB" */
export function size(bytes) {
  let count = bytes ?? 0;
  let unit = 0;
  for (; count >= 1000 && unit < UNITS.length - 1; unit += 1) count /= 1024;
  if (unit === 0) return `${Math.round(count)} B`;
  return `${count.toFixed(count < 9.995 ? 2 : count < 99.95 ? 1 : 0)} ${UNITS[unit]}`;
}

/** At most two units: "20 ms", "0.4 s", "42 s", "3 m 07 s", "2 h 05 m", "4 d 03 h" */
export function duration(seconds) {
  const two = (n) => String(n).padStart(2, "0");
  if (seconds > 0 && seconds < 0.0995) return `${Math.max(1, Math.round(seconds * 1000))} ms`;
  if (seconds < 9.95) return `${seconds.toFixed(1).replace(/\.0$/, "")} s`;
  const whole = Math.round(seconds);
  if (whole < 60) return `${whole} s`;
  if (whole < 3600) return `${Math.floor(whole / 60)} m ${two(whole % 60)} s`;
  const minutes = Math.round(whole / 60);
  if (minutes < 1440) return `${Math.floor(minutes / 60)} h ${two(minutes % 60)} m`;
  const hours = Math.round(whole / 3600);
  return `${Math.floor(hours / 24)} d ${two(hours % 24)} h`;
}

/** A wall time in the reader's time zone: "14:05:13", with the date when it was another day. */
export function moment(atS) {
  if (!atS) return "";
  const at = new Date(atS * 1000);
  const time = at.toLocaleTimeString("en-GB");
  return at.toDateString() === new Date().toDateString() ? time : `${dateOf(at)} ${time}`;
}

/** A text made for all viewers, with its moments in UTC as `moment` has them. */
export const local = (text) =>
  text.replace(/(\d{4}-\d\d-\d\d) (\d\d:\d\d:\d\d) UTC/g, (_, day, time) => moment(Date.parse(`${day}T${time}Z`) / 1000));

const dateOf = (at) =>
  [at.getFullYear(), at.getMonth() + 1, at.getDate()].map((n) => String(n).padStart(2, "0")).join("-");

/** "14:05" for the axis of a chart */
export const clock = (atS) => new Date(atS * 1000).toLocaleTimeString("en-GB", { hour: "2-digit", minute: "2-digit" });

let aheadS = 0; // of the server's clock

/** Take over the server's clock: this computer's may be wrong. */
export function setNow(serverS) {
  const ahead = serverS - Date.now() / 1000;
  if (Math.abs(ahead - aheadS) > 1.5) aheadS = ahead;
}

/** Now, in seconds since 1970, by the server's clock. */
export const nowS = () => Date.now() / 1000 + aheadS;

/** How long ago something was: "12 s ago" */
export const ago = (atS) => `${duration(Math.max(0, Math.round(nowS() - atS)))} ago`;

/** A reason of the engine in words: "dns_not_found" is "dns not found". */
export const words = (name) => String(name ?? "").replaceAll("_", " ");

/** "timeout 3, connect 1": the most frequent first. */
export const named = (counts) =>
  Object.entries(counts ?? {})
    .filter(([, n]) => n)
    .sort(([a, n], [b, m]) => m - n || (a < b ? -1 : 1))
    .map(([name, n]) => `${words(name)} ${number(n)}`)
    .join(", ");

export const sum = (counts) => Object.values(counts ?? {}).reduce((total, n) => total + n, 0);

/** Names in the order of people: vm-2 before vm-10. */
export const byName = (a, b) => a.localeCompare(b, "en", { numeric: true });
