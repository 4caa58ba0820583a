"""Dates of cookies, in the many forms that servers write them (RFC 6265bis 5.1.1). Pure.

The algorithm takes the words of a date in any order: the first that looks like a time, a day, a month or a year is it.
So all of these are the same:

    Sun, 07 Nov 2027 08:49:37 GMT
    Sunday, 07-Nov-27 08:49:37 GMT
    2027 Nov 7 8:49:37
    07/Nov/2027:08:49:37GMT       not: its time has a year before it
"""

import re
from datetime import UTC, datetime

_DELIMITERS = re.compile(r"[\x09\x20-\x2f\x3b-\x40\x5b-\x60\x7b-\x7e]+")
_TIME = re.compile(r"(\d{1,2}):(\d{1,2}):(\d{1,2})(?!\d)", re.ASCII)
_DAY = re.compile(r"(\d{1,2})(?!\d)", re.ASCII)
_YEAR = re.compile(r"(\d{2,4})(?!\d)", re.ASCII)
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_YEAR_MIN = 1601
_CENTURY = 100
_TURN = 70  # years of two digits from here on are of the last century


def cookie_date(text: str) -> float | None:
    """Seconds since 1970 of what an attribute says; None if it is not a date."""
    time = day = month = year = None
    for word in _DELIMITERS.split(text):
        if time is None and (found := _TIME.match(word)):
            time = tuple(map(int, found.groups()))
        elif day is None and (found := _DAY.match(word)):
            day = int(found[1])
        elif month is None and word[:3].lower() in _MONTHS:
            month = 1 + _MONTHS.index(word[:3].lower())
        elif year is None and (found := _YEAR.match(word)):
            year = int(found[1])
    if time is None or day is None or month is None or year is None:
        return None
    if year < _CENTURY:
        year += 1900 if year >= _TURN else 2000
    if year < _YEAR_MIN:
        return None
    try:
        return datetime(year, month, day, time[0], time[1], time[2], tzinfo=UTC).timestamp()
    except ValueError:
        return None
