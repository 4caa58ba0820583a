"""Time zones: their names, and when the clocks of one change. Pure.

The rules come with the package `tzdata`, not from the machine: all instances of one release agree on them, so the
instance that takes over a job computes the same times.
"""

import difflib
import io
import pkgutil
from datetime import UTC, datetime
from functools import cache, lru_cache
from typing import NamedTuple
from zoneinfo import ZoneInfo

from crawler.errors import UsageError
from crawler.rules.durations import shown

DAY_S = 86_400
CACHE_DAYS = 16_384  # of all zones, about 200 bytes each; a miss costs 2 us, or 15 us where the clock changes
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
def zone_of(name: str) -> ZoneInfo:
    """The zone of that name, like "Europe/Paris". Raises UsageError, with the name that was probably meant."""
    if name not in _names():
        close = _close_name(name)
        raise UsageError(f"timezone {shown(name)} is unknown{f'; did you mean {close}?' if close else ''}")
    data = pkgutil.get_data("tzdata", f"zoneinfo/{name}")
    assert data is not None  # it is part of the package
    return ZoneInfo.from_file(io.BytesIO(data), key=name)


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


def _offset(zone: ZoneInfo, at: int) -> int:
    offset = datetime.fromtimestamp(at, zone).utcoffset()
    assert offset is not None
    return offset.days * DAY_S + offset.seconds


def clock_text(reading: int) -> str:
    """A reading as people write a time of day: "02:30", with seconds only where there are some."""
    text = datetime.fromtimestamp(reading, UTC).strftime("%H:%M:%S")
    return text.removesuffix(":00")


@cache
def _names() -> frozenset[str]:
    data = pkgutil.get_data("tzdata", "zones")
    assert data is not None  # it is part of the package
    return frozenset(data.decode().split())


def _close_name(name: str) -> str:
    if len(name) > CLOSE_CHARS_MAX:
        return ""
    by_folded = {known.casefold(): known for known in sorted(_names())}
    by_folded |= {known.rpartition("/")[2].casefold(): known for known in sorted(_names())}
    folded = name.strip().casefold().replace(" ", "_")
    close = difflib.get_close_matches(folded, by_folded, n=1)
    return by_folded[close[0]] if close else ""
