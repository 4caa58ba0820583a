"""Durations as people write them, and as ISO 8601 does."""

from contextlib import suppress

import pytest

from crawler.errors import UsageError
from crawler.rules.schedules import DURATION_CHARS_MAX, NoFixedLength, parse_duration, shown
from tests.support.growth import LINEAR_MAX, growth


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90", 90), ("1.5", 1.5), ("90s", 90), ("10m", 600), ("2h", 7200), ("1d", 86400), ("1h30m", 5400), ("500ms", 0.5)],
)
def test_times_are_seconds_or_have_units(text: str, seconds: float) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("PT3H", 3 * 3600),
        ("PT1H30M", 5400),
        ("PT90S", 90),
        ("P1D", 86400),
        ("P2W", 14 * 86400),
        ("P1DT12H", 129_600),
        ("P1W2DT3H4M5S", 788_645),
        ("PT0.5S", 0.5),
        ("PT1,5H", 5400),
        ("pt36h", 129_600),
    ],
)
def test_iso_8601_is_read_too(text: str, seconds: float) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "x", "10x", "-5", "m", "1h 30", "1e9", "nan", "1..5s"])
def test_what_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="is not a valid duration"):
        parse_duration(text)


@pytest.mark.parametrize(
    "text", ["P", "PT", "P1DT", "P1H", "PT1D", "P-1D", "-P1D", "P1D2W", "PT1H1H", "P1", "P1S", "PxD"]
)
def test_what_is_not_quite_iso_8601_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="is not a valid duration"):
        parse_duration(text)


def test_a_duration_is_at_most_a_century() -> None:
    assert parse_duration("36500d") == 36_500 * 86_400
    with pytest.raises(UsageError):
        parse_duration("36500d1s")


@pytest.mark.parametrize("text", ["P1M", "P1Y", "P1Y2M3DT4H", "P0.5Y"])
def test_months_and_years_have_no_length(text: str) -> None:
    with pytest.raises(NoFixedLength, match="use weeks or days"):
        parse_duration(text)


def test_a_long_text_is_refused_unread() -> None:
    def refused(text: str) -> None:
        with suppress(UsageError):
            parse_duration(text)

    for unit in ("1", "1h", " "):
        assert growth(refused, unit * 1000, unit * 10**6) < LINEAR_MAX, "a thousand times the text"


def test_a_hostile_text_is_not_repeated_whole() -> None:
    for text in (
        "1" * 10**6 + "x",
        "P" + "1" * 10**6,
        "1h" * 10**6,
        " " * 10**6,
        "9" * DURATION_CHARS_MAX,
        "1d" * 30 + "9999999999w",
    ):
        with pytest.raises(UsageError) as error:
            parse_duration(text)
        assert len(str(error.value)) < 120
    assert shown("\x1b[2J\u202e") == "'\\x1b[2J\\u202e'"
