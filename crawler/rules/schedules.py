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

import math
import re

from crawler.errors import UsageError

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
