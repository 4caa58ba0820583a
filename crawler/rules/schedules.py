"""Schedules of jobs: every so often, by a cron expression, or once. Pure: the caller says what time it is.

The times of a schedule are its nominal times: whole seconds of the wall clock since 1970-01-01 UTC. They depend on
nothing but the schedule, so two instances compute the same ones, from wherever they begin.

- `every` counts elapsed time from the anchor, when the job was created: anchor + interval, anchor + 2 intervals, and
  so on. Clock changes do not matter to it: a job of every 24 hours comes an hour later by local clocks in summer.
- `cron` follows the local clock of a time zone. crawler/rules/cron.py documents what clock changes do.
- `at` is one time.

Jitter moves when a run is triggered, not its nominal time: by a hash of the job and the nominal time, so that jobs of
the same schedule do not start in the same second.
"""

from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import islice

import msgspec

from crawler.errors import UsageError
from crawler.rules.cron import Cron, cron_of
from crawler.rules.durations import NoFixedLength, parse_duration, shown
from crawler.rules.retry import jitter_of
from crawler.rules.timezones import DAY_S, zone_day, zone_of

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
