"""Schedules of jobs: every so often, by a cron expression, or once. Pure: the caller says what time it is.

The times of a schedule are its nominal times: whole seconds of the wall clock since 1970-01-01 UTC. They depend on
nothing but the schedule, so two instances compute the same ones, from wherever they begin.

- `every` counts elapsed time from the anchor, when the job was created: anchor + interval, anchor + 2 intervals, and
  so on. Clock changes do not matter to it: a job of every 24 hours comes an hour later by local clocks in summer.
- `cron` follows the local clock of a time zone. Below is what clock changes do.
- `at` is one time.

Jitter moves when a run is triggered, not its nominal time: by a hash of the job and the nominal time, so that jobs of
the same schedule do not start in the same second.
"""

import io
import math
import re
from array import array
from bisect import bisect_left
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from functools import cache, lru_cache
from itertools import islice, pairwise
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from crawler.errors import UsageError
from crawler.rules.health import jitter_of

if TYPE_CHECKING:
    from zoneinfo import ZoneInfo

    from cronsim import CronSim

DURATION_MAX_S = 36_500 * 86_400.0  # a century: beyond it, dates and clocks overflow
DURATION_CHARS_MAX = 64  # of a duration; more than any needs, and no work for a longer one
SHOWN_MAX = 40  # characters of a wrong text that a message repeats
_UNITS_S = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}
_PART = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d|w)", re.IGNORECASE)
_NUMBER = r"(\d+(?:[.,]\d+)?)"
_ISO = re.compile(
    "P" + "".join(f"(?:{_NUMBER}{unit})?" for unit in "YMWD")
    + "(?:T" + "".join(f"(?:{_NUMBER}{unit})?" for unit in "HMS") + r"(?<!T))?(?<!P)",
    re.IGNORECASE,
)  # fmt: skip
_ISO_UNITS_S = (604800.0, 86400.0, 3600.0, 60.0, 1.0)  # of weeks and what follows them


class NoFixedLength(UsageError):
    """A duration of months or years: how long these are depends on the date."""


def parse_duration(text: str) -> float:
    """Seconds of "90", "1.5", "90s", "10m", "2h", "1d", "1h30m", "500ms", "PT3H", "P1DT12H". Raises UsageError."""
    if len(text) > DURATION_CHARS_MAX:
        seconds: float | None = math.inf
    else:
        compact = "".join(text.split())
        seconds = _iso(compact, text) if compact[:1] in ("P", "p") else _short(compact)
    if seconds is None:
        raise UsageError(f"{shown(text)} is not a valid duration (use 90, 10m, 2h, 1d)")
    if seconds > DURATION_MAX_S:
        raise UsageError(f"{shown(text)} is too long a duration (at most 36500d)")
    return seconds


def _short(compact: str) -> float | None:
    if re.fullmatch(r"\d+(\.\d+)?", compact):
        return float(compact)
    parts = list(_PART.finditer(compact))
    if not parts or "".join(part[0] for part in parts) != compact:
        return None
    return sum(float(part[1]) * _UNITS_S[part[2].lower()] for part in parts)


def _iso(compact: str, text: str) -> float | None:
    found = _ISO.fullmatch(compact)
    if found is None:
        return None
    years, months, *rest = found.groups()
    if years or months:
        raise NoFixedLength(f"{shown(text)} has years or months, which differ in length; use weeks or days")
    return sum(
        float(number.replace(",", ".")) * unit for number, unit in zip(rest, _ISO_UNITS_S, strict=True) if number
    )


def iso_duration(seconds: float) -> str:
    """Seconds in ISO 8601, in days, hours, minutes and seconds: "PT3H", "P1DT30M", "PT0.5S"."""
    days, rest = divmod(seconds, 86_400)
    hours, rest = divmod(rest, 3600)
    minutes, rest = divmod(rest, 60)
    date = f"{days:.0f}D" if days else ""
    time = "".join(f"{n:.0f}{unit}" for n, unit in ((hours, "H"), (minutes, "M")) if n)
    if rest or not (date or time):
        time += f"{f'{rest:.3f}'.rstrip('0').rstrip('.')}S"
    return f"P{date}{'T' if time else ''}{time}"


def shown(text: str) -> str:
    """A wrong text as messages repeat it: in quotes, without what acts on a terminal, and not too long."""
    return repr(text if len(text) <= SHOWN_MAX else f"{text[:SHOWN_MAX]}...")


# Time zones: their names, and when the clocks of one change. Pure.
#
# The rules come with the package `tzdata`, not from the machine: all instances of one release agree on them, so the
# instance that takes over a job computes the same times.


DAY_S = 86_400
CACHE_DAYS = 16_384  # of all zones, about 200 bytes each; a miss costs 2 us, or 15 us where the clock changes
CLOSE_MIN, ABBREVIATION_CHARS = 0.75, 4
CLOSE_CHARS_MAX = 64  # longer names get no suggestion; the longest zone has 32


class ZoneDay(NamedTuple):
    """A UTC day in a zone: the offset from UTC before and after its clock change, s. Without a change both are equal.

    A reading is what a local clock shows, as the seconds since 1970-01-01 00:00 on that clock: time + offset.
    """

    before: int
    at: int  # the first second with the offset `after`; without a change the day's first second
    after: int

    @property
    def skipped(self) -> tuple[int, int]:
        """The readings that no clock shows: from, and up to but not including. Empty unless the clock goes forward."""
        return self.at + self.before, max(self.at + self.after, self.at + self.before)

    @property
    def repeated(self) -> tuple[int, int]:
        """The readings that clocks show twice: the same. Empty unless the clock goes back."""
        return self.at + min(self.after, self.before), self.at + self.before


@lru_cache(maxsize=1024)  # zoneinfo itself keeps eight; a miss costs 25 us
def zone_of(name: str) -> "ZoneInfo":
    """The zone of that name, like "Europe/Paris". Raises UsageError, with the name that was probably meant."""
    from zoneinfo import ZoneInfo

    if name not in _names():
        raise UsageError(f"timezone {shown(name)} is unknown; {_what_was_meant(name)}")
    return ZoneInfo.from_file(io.BytesIO(_data(f"zoneinfo/{name}")), key=name)


@lru_cache(maxsize=CACHE_DAYS)
def zone_day(zone: str, day: int) -> ZoneDay:
    """A day, counted from 1970-01-01 in UTC. A change is found by its effect: zoneinfo does not tell their times.

    No zone has changed twice within a day since 1970.
    """
    info = zone_of(zone)
    start, last = day * DAY_S, day * DAY_S + DAY_S - 1
    before, after = _offset(info, start - 1), _offset(info, last)
    if before == after:
        return ZoneDay(before, start, after)
    low, high = start - 1, last  # the offset at `low` is the old one, at `high` it isn't
    while high - low > 1:
        middle = (low + high) // 2
        if _offset(info, middle) == before:
            low = middle
        else:
            high = middle
    return ZoneDay(before, high, after)


def offset_at(zone: str, at: int) -> int:
    """The offset from UTC, s."""
    found = zone_day(zone, at // DAY_S)
    return found.after if at >= found.at else found.before


def _offset(zone: "ZoneInfo", at: int) -> int:
    offset = datetime.fromtimestamp(at, zone).utcoffset()
    assert offset is not None
    return offset.days * DAY_S + offset.seconds


def clock_text(reading: int) -> str:
    """A reading as people write a time of day: "02:30", with seconds only where there are some."""
    text = datetime.fromtimestamp(reading, UTC).strftime("%H:%M:%S")
    return text.removesuffix(":00")


def _data(file: str) -> bytes:
    """A file of the package with the zones."""
    import pkgutil

    data = pkgutil.get_data("tzdata", file)
    assert data is not None
    return data


@cache
def _names() -> frozenset[str]:
    return frozenset(_data("zones").decode().split())


_OFFSET = re.compile(r"(?:etc/)?(?:gmt|utc|z)?\s*([+-])\s*(\d{1,2})(?::?(\d\d))?", re.IGNORECASE)
_HOURS_EAST_MAX, _HOURS_WEST_MAX = 14, 12  # of the zones below Etc/


def _what_was_meant(name: str) -> str:
    """What to use instead. The sign of zones like Etc/GMT-1 is not that of UTC+1."""
    text = name.strip()[: CLOSE_CHARS_MAX + 1]
    if text.casefold() in ("z", "utc", "gmt"):
        return "did you mean UTC?"
    if offset := _OFFSET.fullmatch(text):
        sign, hours, minutes = offset[1], int(offset[2]), int(offset[3] or 0)
        hint = "use a place, like Europe/Paris, whose clocks may change in summer"
        if hours == minutes == 0:
            return "did you mean UTC?"
        if minutes or hours > (_HOURS_EAST_MAX if sign == "+" else _HOURS_WEST_MAX):
            return hint
        return f"{hint}, or Etc/GMT{'-' if sign == '+' else '+'}{hours}, which is always UTC{sign}{hours}"
    close = _close_name(text)
    return f"did you mean {close}?" if close else "use UTC, or a place like Europe/Paris"


def _close_name(name: str) -> str:
    import difflib

    if len(name) > CLOSE_CHARS_MAX:
        return ""
    cutoff = 1.0 if len(name) <= ABBREVIATION_CHARS else CLOSE_MIN  # one abbreviation is of several zones: CST
    by_folded = {known.casefold(): known for known in sorted(_names())}
    by_folded |= {known.rpartition("/")[2].casefold(): known for known in sorted(_names())}
    folded = name.strip().casefold().replace(" ", "_")
    close = difflib.get_close_matches(folded, by_folded, n=1, cutoff=cutoff)
    return by_folded[close[0]] if close else ""


# Cron expressions of five fields, in a time zone: when they fire, and what happens when the clocks change. Pure.
#
# The library cronsim parses the fields, judges dates and explains the expression. It follows Debian's cron: names of
# months and weekdays, ranges, lists, steps, L and LW (last day, last working day of a month), 5L (last Friday), 1#2
# (second Monday). If the day of the month and the weekday are both given, one of them is enough, unless either starts
# with `*`: then both must match.
#
# Clock changes are computed here. cronsim's own iteration goes by steps of an hour, so where clocks change by half an
# hour it leaves out times, and which ones depends on where it began. The rules are the same, those of Debian's cron:
#
# - An expression whose minute and hour both do not start with `*` fires at fixed times of day. A time that clocks show
#   twice counts the first time. The times that clocks skip are moved to the end of the gap, all of them to one time:
#   02:15 and 02:45 become 03:00, once. If 03:00 is a time of the expression too, that is the same one.
# - Any other expression fires whenever the clock shows a matching time: twice where it shows it twice, and not at all
#   where it skips it.
#
# A reading is what a local clock shows, as the seconds since 1970-01-01 00:00 on that clock.


CRON_CHARS_MAX = 256  # all minutes of an hour, written out, take 169
YEARS_MAX = 50  # without a matching date; 29 February on a given weekday is at most 40 years away
CACHE_CRONS = 2048  # of at most 8 kB each; a miss costs 15 to 200 us
_EPOCH = date(1970, 1, 1).toordinal()
_ALLOWED = {  # by the library's messages
    "Bad minute": "minute (0-59)",
    "Bad hour": "hour (0-23)",
    "Bad day-of-month": "day of the month (1-31, L, LW)",
    "Bad month": "month (1-12, JAN-DEC)",
    "Bad day-of-week": "weekday (0-7, SUN-SAT, 5L, 1#2)",
}


class Times(NamedTuple):
    """Times of an expression, all on one date: base + times_of_day[i], for i from `low` up to but not `high`."""

    base: int
    low: int
    high: int


class Cron:
    """A parsed expression."""

    __slots__ = ("_fields", "is_fixed", "times_of_day")

    def __init__(self, text: str) -> None:
        """Raises UsageError, also for an expression that never fires."""
        self._fields = _parsed(text)
        minute, hour = text.split()[:2]
        self.is_fixed = not minute.startswith("*") and not hour.startswith("*")
        minutes, hours = sorted(self._fields.minutes), sorted(self._fields.hours)
        self.times_of_day = array("i", [3600 * h + 60 * m for h in hours for m in minutes])
        if self._next_date(0) is None:
            raise UsageError(f"cron {shown(text)} never fires: no date matches")

    @property
    def shortest_gap_s(self) -> int:
        """The shortest time between two of its times where no clock changes; at most a day."""
        times = self.times_of_day
        return min([later - earlier for earlier, later in pairwise(times)] + [times[0] + DAY_S - times[-1]])

    def blocks(self, after: int, until: int, zone: str) -> Iterator[tuple[int, list[Times]]]:
        """Its times in (after, until] in order, by UTC day: up to when, and what is there. Skips days without dates."""
        day = (after + 1) // DAY_S
        while day * DAY_S <= until:
            matching = self._next_date(day - 1)
            if matching is None:
                return
            day = max(day, matching - 1)
            if day * DAY_S > until:
                return
            yield min(until, day * DAY_S + DAY_S - 1), list(self._times_of(day, after, until, zone))
            day += 1

    def skipped(self, zone: str, at: int) -> list[int]:
        """The readings of the expression that were moved to this time, because the clock goes forward there."""
        found = zone_day(zone, at // DAY_S)
        if not self.is_fixed or at != found.at:
            return []
        return [
            base + self.times_of_day[i] for base, low, high in self._readings(*found.skipped) for i in range(low, high)
        ]

    def explain(self) -> str:
        """Like "at minute 0 past every sixth hour"."""
        words = self._fields.explain().split(" ")
        text = " ".join(_ordinal(word) for word in words)
        return text[0].lower() + text[1:]

    def _times_of(self, day: int, after: int, until: int, zone: str) -> Iterator[Times]:
        """Of one UTC day: the part with the offset of before, then what comes after the change."""
        found = zone_day(zone, day)
        seen = zone_day(zone, day - 1).repeated[1]  # fixed times: clocks have shown all readings below
        yield from self._part(max(day * DAY_S, after + 1), min(found.at, until + 1), found.before, seen)
        if after < found.at <= until and self.skipped(zone, found.at):
            reading = found.at + found.after
            if not self._readings(reading, reading + 1):
                yield Times(found.at - self.times_of_day[0], 0, 1)
        seen = max(seen, found.repeated[1])
        yield from self._part(max(found.at, after + 1), min(day * DAY_S + DAY_S, until + 1), found.after, seen)

    def _part(self, start: int, end: int, offset: int, seen: int) -> Iterator[Times]:
        first = max(start + offset, seen) if self.is_fixed else start + offset
        for base, low, high in self._readings(first, end + offset):
            yield Times(base - offset, low, high)

    def _readings(self, start: int, end: int) -> list[Times]:
        """The readings of the expression from start up to but not end."""
        found = []
        for day in range(start // DAY_S, (end - 1) // DAY_S + 1):
            midnight = day * DAY_S
            low = bisect_left(self.times_of_day, start - midnight)
            high = bisect_left(self.times_of_day, end - midnight)
            if low < high and self._matches(date.fromordinal(_EPOCH + day)):
                found.append(Times(midnight, low, high))
        return found

    def _matches(self, on: date) -> bool:
        return on.month in self._fields.months and self._fields.match_day(on)

    def _next_date(self, day: int) -> int | None:
        """The first matching date from `day` on, both as days since 1970-01-01."""
        on = date.fromordinal(_EPOCH + day)
        last_year = on.year + YEARS_MAX
        while on.year <= last_year:
            if on.month not in self._fields.months:
                on = (on.replace(day=1) + timedelta(days=32)).replace(day=1)
            elif self._fields.match_day(on):
                return on.toordinal() - _EPOCH
            else:
                on += timedelta(days=1)
        return None


@lru_cache(maxsize=CACHE_CRONS)
def cron_of(text: str) -> Cron:
    """The expression, parsed. Raises UsageError."""
    return Cron(text)


def _parsed(text: str) -> "CronSim":
    from cronsim import CronSim, CronSimError

    if len(text) > CRON_CHARS_MAX:
        raise UsageError(f"cron {shown(text)} is too long (at most {CRON_CHARS_MAX} characters)")
    fields = text.split()
    if len(fields) != 5 or not text.isascii():
        raise UsageError(f"cron {shown(text)}: expected five fields: minute hour day month weekday")
    try:
        return CronSim(text, datetime(1970, 1, 1))  # noqa: DTZ001 - it must not apply its own rules for clock changes
    except CronSimError as error:
        wrong = str(error)
    if wrong == "Bad day-of-month" and _is_valid(" ".join([*fields[:3], "*", fields[4]])):
        raise UsageError(f"cron {shown(text)} never fires: its months do not have this day")
    raise UsageError(f"cron {shown(text)}: invalid {_ALLOWED.get(wrong, wrong)}")


_FIELDS = (("minute", 0, 59), ("hour", 0, 23), ("day of the month", 1, 31), ("month", 1, 12), ("weekday", 0, 6))
_STEP = re.compile(r"(?:\*|(\d{1,2})-(\d{1,2}))/(\d+)")


def _check_steps(text: str) -> None:
    """Raises UsageError for a step that is longer than its range: it fires once in it, and not every so often."""
    for (name, low, high), field in zip(_FIELDS, text.split(), strict=True):
        for part in field.split(","):
            if (found := _STEP.fullmatch(part)) is None:
                continue
            first, last = (int(found[1]), int(found[2])) if found[1] else (low, high)
            if int(found[3]) > last - first:
                plural = name.replace("day", "days") if " " in name else f"{name}s"
                unit = {"minute": "m", "hour": "h", "day of the month": "d"}.get(name, "")
                use = f"; for every {found[3]}{unit} use 'every' instead of cron" if unit and not found[1] else ""
                raise UsageError(
                    f"cron {shown(text)}: the step of {shown(part)} leaves the {plural} {first}-{last}, so only "
                    f"{first} would count{use}"
                )


def _is_valid(text: str) -> bool:
    from cronsim import CronSim, CronSimError

    try:
        CronSim(text, datetime(1970, 1, 1))  # noqa: DTZ001 - see above
    except CronSimError:
        return False
    return True


def _ordinal(word: str) -> str:
    """The library writes 21th, 22th, 23th."""
    number, found, rest = word.partition("th")
    if not found or not number.isdecimal() or number[-2:-1] == "1":
        return word
    return number + {"1": "st", "2": "nd", "3": "rd"}.get(number[-1], "th") + rest


EVERY_MAX_S = 3650 * DAY_S
LATEST_S = 32_503_680_000  # 3000-01-01: no nominal time is that late, so no zone meets the bounds of datetime
AT_CHARS_MAX = 64
SPAN_STEPS_MAX = 1000  # days of a cron expression: 6 ms
_AT_FORM = "expected a time like 2027-01-31T12:00 or 2027-01-31T12:00Z"


class Span(msgspec.Struct, frozen=True, kw_only=True):
    """The nominal times of a part of time. If it is not complete, go on with the times after `reached`."""

    first: int | None = None
    last: int | None = None
    count: int = 0
    reached: int  # all times up to and including this one are counted
    is_complete: bool


class Schedule(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """When a job runs: exactly one of `every_s`, `cron` and `at_s`. `schedule_of` makes valid ones."""

    every_s: int = 0
    anchor_s: int = 0  # of `every`
    cron: str = ""
    at_s: int = 0
    timezone: str = "UTC"  # of `cron`, and of times that people read
    jitter_s: float = 0.0

    def next_after(self, after_s: int) -> int | None:
        """The first nominal time after that time, never that time itself; None if there is none."""
        return next(self.times(after_s, LATEST_S), None)

    def times(self, after_s: int, until_s: int, at_most: int | None = None) -> Iterator[int]:
        """The nominal times in (after_s, until_s], in order."""
        after, until = max(after_s, 0), min(until_s, LATEST_S - 1)
        if self.every_s:
            found: Iterator[int] = iter(range(self._first_every(after), until + 1, self.every_s))
        elif self.cron:
            found = _cron_times(cron_of(self.cron), after, until, self.timezone)
        else:
            found = iter([self.at_s] if after < self.at_s <= until else [])
        return islice(found, at_most)

    def span(self, after_s: int, until_s: int, steps_max: int = SPAN_STEPS_MAX) -> Span:
        """How many nominal times (after_s, until_s] has, the first and the last of them.

        For a cron expression a step is a day with times, however many: 4 to 7 us. All else is one step of 1 us.
        """
        after, until = max(after_s, 0), min(until_s, LATEST_S - 1)
        if self.cron:
            return _cron_span(cron_of(self.cron), after, until, self.timezone, steps_max)
        if self.every_s:
            found = range(self._first_every(after), until + 1, self.every_s)
        else:
            found = range(self.at_s, self.at_s + 1) if after < self.at_s <= until else range(0)
        if not found:
            return Span(reached=until, is_complete=True)
        return Span(first=found[0], last=found[-1], count=len(found), reached=until, is_complete=True)

    def jitter_of(self, job: str, nominal: int) -> float:
        """How long after the nominal time the run is triggered, s: the same each time, from 0 to `jitter_s`."""
        return self.jitter_s * jitter_of(job, nominal) if self.jitter_s else 0.0

    def _first_every(self, after: int) -> int:
        passed = max(0, after - self.anchor_s) // self.every_s
        return self.anchor_s + (passed + 1) * self.every_s


def schedule_of(
    *, every: str = "", cron: str = "", at: str = "", timezone: str = "UTC", jitter_s: float = 0.0, now_s: int
) -> Schedule:
    """The schedule that a person or a client describes, from now on; "" for what is not given. Raises UsageError."""
    if bool(every) + bool(cron) + bool(at) != 1:
        raise UsageError("give exactly one of every (3h, PT3H), cron ('0 */6 * * *') and at (2027-01-31T12:00)")
    zone_of(timezone)
    if every:
        found = Schedule(every_s=interval_of(every), anchor_s=now_s, timezone=timezone)
        gap = found.every_s
    elif cron:
        parsed = cron_of(cron)
        _check_steps(cron)
        found = Schedule(cron=" ".join(cron.split()), timezone=timezone)
        gap = parsed.shortest_gap_s
    else:
        found = Schedule(at_s=moment_of(at, timezone), timezone=timezone)
        gap = DAY_S
        if found.at_s <= now_s:
            raise UsageError(f"at {shown(at)} has passed: it is {as_iso(now_s)}")
    if not 0 <= jitter_s < gap:
        why = "" if at else ", the shortest time between two runs"
        raise UsageError(f"jitter {jitter_s:g}: expected seconds from 0 to below {gap:,}{why}")
    return msgspec.structs.replace(found, jitter_s=float(jitter_s))


def interval_of(text: str) -> int:
    """The seconds of an interval: 90, 10m, 2h, PT3H. Raises UsageError."""
    try:
        seconds = parse_duration(text)
    except NoFixedLength as error:
        raise UsageError(f"every {error}, or cron '0 0 1 * *' for each month") from None
    except UsageError as error:
        raise UsageError(f"every {error}") from None
    whole = round(seconds)
    if abs(seconds - whole) > 1e-6:
        raise UsageError(f"every {shown(text)}: expected whole seconds")
    if not 1 <= whole <= EVERY_MAX_S:
        raise UsageError(f"every {shown(text)}: expected from 1 second to {EVERY_MAX_S // DAY_S} days")
    return whole


def moment_of(text: str, timezone: str = "UTC") -> int:
    """A time in ISO 8601, by the clocks of that zone if it has no offset; a date alone is midnight. Raises UsageError.

    Of a time that clocks show twice it is the first. One that they skip is refused.
    """
    zone = zone_of(timezone)
    try:
        found = datetime.fromisoformat(text.strip() if len(text) <= AT_CHARS_MAX else "")
        local = found if found.tzinfo else found.replace(tzinfo=zone)
        at_s = int(local.timestamp())
    except (ValueError, OverflowError):
        raise UsageError(f"at {shown(text)}: {_AT_FORM}") from None
    if found.microsecond:
        raise UsageError(f"at {shown(text)}: expected whole seconds")
    if not 0 < at_s < LATEST_S:
        raise UsageError(f"at {shown(text)}: expected a time from 1970 to 2999")
    shown_then = datetime.fromtimestamp(at_s, local.tzinfo)
    if shown_then.replace(tzinfo=None) != found.replace(tzinfo=None):
        gap = zone_day(timezone, at_s // DAY_S)
        raise UsageError(
            f"at {shown(text)} does not exist in {timezone}: clocks go forward; "
            f"use {as_local(gap.at, timezone)} or another time with its offset"
        )
    return at_s


def as_iso(at_s: int) -> str:
    """A nominal time: "2027-01-31T12:00:00Z"."""
    return datetime.fromtimestamp(at_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def as_local(at_s: int, timezone: str) -> str:
    """The same by the clocks of a zone: "2027-01-31 13:00:00+01:00"."""
    return datetime.fromtimestamp(at_s, zone_of(timezone)).isoformat(" ")


def _cron_times(cron: Cron, after: int, until: int, zone: str) -> Iterator[int]:
    for _, found in cron.blocks(after, until, zone):
        for base, low, high in found:
            for time_of_day in cron.times_of_day[low:high]:
                yield base + time_of_day


def _cron_span(cron: Cron, after: int, until: int, zone: str, steps_max: int) -> Span:
    count, first, last, reached = 0, None, None, after
    blocks = cron.blocks(after, until, zone)
    for block in islice(blocks, steps_max):
        reached, found = block
        for base, low, high in found:
            first = base + cron.times_of_day[low] if first is None else first
            last = base + cron.times_of_day[high - 1]
            count += high - low
    is_complete = next(blocks, None) is None
    reached = until if is_complete else reached
    return Span(first=first, last=last, count=count, reached=reached, is_complete=is_complete)


# Schedules in plain language: one line for each, and its next times with notes about clock changes. Pure.


PREVIEW_MAX = 100  # rows
_UNITS = (("week", 604_800), ("day", DAY_S), ("hour", 3600), ("minute", 60), ("second", 1))
_COUNT_MAX = 120  # of one unit: 90 minutes and 100 seconds read well, 5,000 seconds do not


class PreviewRow(msgspec.Struct, frozen=True, kw_only=True):
    """A nominal time that is to come."""

    nominal: int
    local: str  # by the clocks of the schedule's zone, with the offset: "2026-10-25 02:30:00+02:00"
    note: str = ""  # about a clock change; "" on all other days


def describe(schedule: Schedule) -> str:
    """Like "every 3 hours", "at 06:00 every day, Europe/Paris", "once at 2027-01-31 12:00, UTC"."""
    if schedule.every_s:
        text = f"every {_interval(schedule.every_s)}"
    elif schedule.cron:
        text = f"{cron_of(schedule.cron).explain()}, {schedule.timezone}"
    else:
        day, clock = as_local(schedule.at_s, schedule.timezone)[:19].split(" ")
        text = f"once at {day} {clock.removesuffix(':00')}, {schedule.timezone}"
    return f"{text}, up to {schedule.jitter_s:g} s later" if schedule.jitter_s else text


def preview(schedule: Schedule, rows: int, after_s: int) -> list[PreviewRow]:
    """The next nominal times, at most PREVIEW_MAX."""
    found, zone = [], schedule.timezone
    offset = offset_at(zone, max(after_s, 0))
    for nominal in schedule.times(after_s, LATEST_S, max(0, min(rows, PREVIEW_MAX))):
        earlier, offset = offset, offset_at(zone, nominal)
        note = _moved(schedule, nominal) or _twice(schedule, nominal)
        if not note and offset != earlier:
            note = "UTC offset changes before this time"
        found.append(PreviewRow(nominal=nominal, local=as_local(nominal, zone), note=note))
    return found


def _moved(schedule: Schedule, nominal: int) -> str:
    skipped = cron_of(schedule.cron).skipped(schedule.timezone, nominal) if schedule.cron else []
    if not skipped:
        return ""
    clock = clock_text(nominal + offset_at(schedule.timezone, nominal))
    return f"{clock_text(skipped[0])} does not exist on this day, runs at {clock}"


def _twice(schedule: Schedule, nominal: int) -> str:
    reading = nominal + offset_at(schedule.timezone, nominal)
    day = nominal // DAY_S
    for change in (zone_day(schedule.timezone, near) for near in (day - 1, day, day + 1)):
        start, end = change.repeated
        if start <= reading < end and abs(nominal - change.at) <= end - start:
            is_first = nominal < change.at
            is_only = is_first and bool(schedule.cron) and cron_of(schedule.cron).is_fixed
            which = "runs at the first" if is_only else f"this is the {'first' if is_first else 'second'}"
            return f"clock goes back: {clock_text(reading)} comes twice, {which}"
    return ""


def _interval(seconds: int) -> str:
    """In one unit where it reads well, else in several."""
    for unit, length in _UNITS:
        count, rest = divmod(seconds, length)
        if not rest and (count <= _COUNT_MAX or unit == "day"):
            return unit if count == 1 else f"{count} {unit}s"
    parts = []
    for unit, length in _UNITS[1:]:
        count, seconds = divmod(seconds, length)
        if count:
            parts.append(f"{count} {unit}{'s' if count > 1 else ''}")
    return " ".join(parts)
