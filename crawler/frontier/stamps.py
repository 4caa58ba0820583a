"""The stamp in a queued URL's member: when it was queued, to a second, the number of the seed it descends from, and the
label of the handler that its page is for.

Four characters of base 90 for the time, which come round after two years, then the number, without leading zeros, then
`~` and the label, if it has one. No character is a slash or a blank, so a path or a blank ends it.
"""

from functools import lru_cache

DIGITS = "".join(chr(code) for code in range(35, 126) if chr(code) != "/")
BASE = len(DIGITS)
TIME_DIGITS = 4
LABEL = "~"  # is no digit
ROUND_S = BASE**TIME_DIGITS  # some two years
AHEAD_S = 86_400.0  # so far the clock of who queued it may be before that of who reads it
_VALUES = {digit: value for value, digit in enumerate(DIGITS)}


@lru_cache(maxsize=1000)  # the links of a page have one stamp
def make_stamp(queued_at: int, seed_number: int, label: str = "") -> str:
    """Of a wall clock (whole s) and a number; 0 where no seed is known. The label has no slash and no blank."""
    digits, rest = "", queued_at % ROUND_S
    for _ in range(TIME_DIGITS):
        rest, digit = divmod(rest, BASE)
        digits = DIGITS[digit] + digits
    number = ""
    while seed_number:
        seed_number, digit = divmod(seed_number, BASE)
        number = DIGITS[digit] + number
    return f"{digits}{number}{LABEL}{label}" if label else digits + number


@lru_cache(maxsize=1000)  # so have those that were found together, when they are claimed together
def read_stamp(stamp: str, now_s: float) -> tuple[float, int]:
    """(queued at, wall clock in s; number of the seed), for somebody who reads it at `now_s`. KeyError for no stamp."""
    latest = int(now_s + AHEAD_S)
    return float(latest - (latest - _value(stamp[:TIME_DIGITS])) % ROUND_S), seed_number_of(stamp)


def seed_number_of(stamp: str) -> int:
    """KeyError for no stamp."""
    return _value(stamp[TIME_DIGITS:].partition(LABEL)[0])


def label_of(stamp: str) -> str:
    """Empty for most."""
    return stamp.partition(LABEL)[2]


@lru_cache(maxsize=10_000)
def _value(digits: str) -> int:
    value = 0
    for digit in digits:
        value = value * BASE + _VALUES[digit]
    return value
