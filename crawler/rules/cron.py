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

from array import array
from bisect import bisect_left
from collections.abc import Iterator
from datetime import date, datetime, timedelta
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple

from cronsim import CronSim, CronSimError

from crawler.errors import UsageError
from crawler.rules.durations import shown
from crawler.rules.timezones import DAY_S, zone_day

CHARS_MAX = 256  # all minutes of an hour, written out, take 169
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


def _parsed(text: str) -> CronSim:
    if len(text) > CHARS_MAX:
        raise UsageError(f"cron {shown(text)} is too long (at most {CHARS_MAX} characters)")
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


def _is_valid(text: str) -> bool:
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
