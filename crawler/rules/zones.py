"""Time zones: their names, and when the clocks of one change. Pure.

The rules come with the package `tzdata`, not from the machine: all instances of one release agree on them, so the
instance that takes over a job computes the same times.
"""

import io
import re
from datetime import UTC, datetime
from functools import cache, lru_cache
from typing import TYPE_CHECKING, NamedTuple

from crawler.errors import UsageError

if TYPE_CHECKING:
    from zoneinfo import ZoneInfo

from crawler.rules.schedules import shown

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
