"""Schedules in plain language: one line for each, and its next times with notes about clock changes. Pure."""

import msgspec

from crawler.rules.cron import LATEST_S, Schedule, as_local, cron_of
from crawler.rules.zones import DAY_S, clock_text, offset_at, zone_day

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
