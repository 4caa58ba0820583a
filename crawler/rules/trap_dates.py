"""Dates in URLs: a date is suspect if it is far from all dates that the site itself lists.

A calendar links to the day, month or year before and after, without end. An archive has dates that undated pages or
long lists of years link to. These are the anchors, and a date far from all of them is suspect. No clock is needed.
"""

import re
from collections.abc import Iterable

from crawler.rules.trap_shapes import Suspicion, section_of

YEAR_FIRST, YEAR_LAST = 1400, 2199  # years that can be anchors; later ones come from endless calendars
YEARS_AHEAD, YEARS_BACK = 2, 40  # dates further after or before all years that the site lists are suspect
LISTING_YEARS = 6  # a dated page with links to this many years is a list; a calendar links to the next and the last

_DAY, _MONTH, _YEAR = 1, 31, 372  # only the order matters: ordinals may have gaps

_NEAR_YEAR = r"(19\d\d|2[01]\d\d)"  # where the digits may also be a number
_ANY_YEAR = r"([1-9]\d{3})"
_PADDED = r"(0[1-9]|1[0-2])"
_DAY_OF_MONTH = r"(0[1-9]|[12]\d|3[01])"
_QUICK = re.compile(r"[/=-][1-9]\d{3}").search
_IN_PATH = (
    re.compile(rf"/{_ANY_YEAR}/{_PADDED}(?:/{_DAY_OF_MONTH})?(?=[/.]|$)"),
    re.compile(rf"/{_ANY_YEAR}-{_PADDED}(?:-{_DAY_OF_MONTH})?(?=[/.]|$)"),
    re.compile(rf"/{_NEAR_YEAR}/([1-9])(?:/(\d\d?))?(?=[/.]|$)"),
    re.compile(rf"/{_NEAR_YEAR}{_PADDED}{_DAY_OF_MONTH}(?=/?$|\.\w+$)"),
)
_IN_VALUE = (
    re.compile(rf"{_ANY_YEAR}-{_PADDED}(?:-{_DAY_OF_MONTH}(?:T.*)?)?"),
    re.compile(rf"{_NEAR_YEAR}{_PADDED}{_DAY_OF_MONTH}"),  # not without the day: 200010 may be an offset
)
_WEEK_VALUE = re.compile(rf"{_ANY_YEAR}-?W(\d\d?)")
_DATE_NAMES = re.compile(r"date|day|month|week|when|from|start|begin|until|end", re.IGNORECASE)
_YEAR_NAME = re.compile(r"(?:\w*[_.-])?(?:year|yr|y)", re.IGNORECASE)
_MONTH_NAME = re.compile(r"(?:\w*[_.-])?(?:month|mon|m)", re.IGNORECASE)
_DAY_NAME = re.compile(r"(?:\w*[_.-])?(?:day|d)", re.IGNORECASE)


def date_of(url: str) -> int | None:
    """Ordinal of the first date in a canonical URL, larger for later dates; None without one."""
    if not _QUICK(url, 8):
        return None
    address, _, query = url.partition("?")
    start = address.index("/", 8)
    for form in _IN_PATH:
        if found := form.search(address, start):
            return _ordinal(found[1], found[2], found[3])
    return _date_in(query) if query else None


def year_of(date: int) -> int:
    """Year of an ordinal."""
    return date // _YEAR


def anchors(url: str, links: Iterable[str], *, first: bool) -> set[int]:
    """Years that a fetched page confirms; the `first` page of a domain also confirms its own."""
    own = date_of(url)
    years = {year_of(date) for date in map(date_of, links) if date is not None}
    if own is not None and len(years) < LISTING_YEARS:
        years = {year_of(own)} if first else set()
    return {year for year in years if YEAR_FIRST <= year <= YEAR_LAST}


def suspicion_of_date(url: str, spans: tuple[tuple[int, int], ...]) -> Suspicion | None:
    """Is the URL's date further from all anchors than the limits for an archive?"""
    date = date_of(url) if spans else None
    if date is None:
        return None
    year = year_of(date)
    if any(low - YEARS_BACK <= year <= high + YEARS_AHEAD for low, high in spans):
        return None
    distance = min(min(abs(date - low * _YEAR), abs(date - high * _YEAR)) for low, high in spans)
    return Suspicion("calendar", section_of(url), f"{year} is far from {_spelled(spans)}", distance // _MONTH, distance)


def _spelled(spans: tuple[tuple[int, int], ...]) -> str:
    return ", ".join(str(low) if low == high else f"{low} to {high}" for low, high in spans)


def _ordinal(year: str, month: str | None, day: str | None) -> int:
    return int(year) * _YEAR + int(month or 1) * _MONTH + int(day or 1) * _DAY - _MONTH - _DAY


def _date_of_value(value: str) -> int | None:
    for form in _IN_VALUE:
        if found := form.fullmatch(value):
            return _ordinal(found[1], found[2], found[3])
    found = _WEEK_VALUE.fullmatch(value)
    return int(found[1]) * _YEAR + int(found[2]) * 7 if found else None


def _date_in(query: str) -> int | None:
    """A whole date in a parameter whose name is about time, or year (and month, day) in separate parameters."""
    year = month = day = None
    for parameter in query.split("&"):
        name, _, value = parameter.partition("=")
        if _DATE_NAMES.search(name) and (date := _date_of_value(value)) is not None:
            return date
        if _YEAR_NAME.fullmatch(name) and len(value) == 4 and value.isdecimal():
            year = year or (name, value)
        elif _MONTH_NAME.fullmatch(name) and value.isdecimal() and 1 <= int(value[:4]) <= 12:
            month = month or value
        elif _DAY_NAME.fullmatch(name) and value.isdecimal() and 1 <= int(value[:4]) <= 31:
            day = day or value
    if year is None or (month is None and not year[0].lower().endswith("year")):
        return None  # y=1234 alone is a coordinate
    return _ordinal(year[1], month, day)
