"""Cron expressions of five fields, in a time zone: when they fire, and what happens when the clocks change. Pure.

The library cronsim parses the fields, judges dates and explains the expression. It follows Debian's cron: names of
months and weekdays, ranges, lists, steps, L and LW (last day, last working day of a month), 5L (last Friday), 1#2
(second Monday). If the day of the month and the weekday are both given, one of them is enough, unless either starts
with `*`: then both must match.

Clock changes are computed here. cronsim's own iteration goes by steps of an hour, so where clocks change by half an
hour it leaves out times, and which ones depends on where it began. The rules are the same, those of Debian's cron:

- An expression whose minute and hour both do not start with `*` fires at fixed times of day. A time that clocks show
  twice counts the first time. The times that clocks skip are moved to the end of the gap, all of them to one time:
  02:15 and 02:45 become 03:00, once. If 03:00 is a time of the expression too, that is the same one.
- Any other expression fires whenever the clock shows a matching time: twice where it shows it twice, and not at all
  where it skips it.

A reading is what a local clock shows, as the seconds since 1970-01-01 00:00 on that clock.
"""

import re
from array import array
from bisect import bisect_left
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from functools import lru_cache
from itertools import islice, pairwise
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from crawler.errors import UsageError
from crawler.rules.health import jitter_of

if TYPE_CHECKING:
    from cronsim import CronSim
from crawler.rules.schedules import NoFixedLength, parse_duration, shown
from crawler.rules.zones import DAY_S, zone_day, zone_of

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
