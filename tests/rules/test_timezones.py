"""Names of time zones, and when their clocks change."""

import io
import pkgutil
from datetime import UTC, datetime
from zoneinfo import _zoneinfo  # type: ignore[attr-defined]

import pytest

from crawler.errors import UsageError
from crawler.rules.zones import DAY_S, clock_text, offset_at, zone_day, zone_of

NAMES = (pkgutil.get_data("tzdata", "zones") or b"").decode().split()


def transitions(name: str) -> list[int]:
    """Since 1970, as the file of the zone has them: one pure Python class of the standard library keeps them."""
    data = pkgutil.get_data("tzdata", f"zoneinfo/{name}") or b""
    return [t for t in _zoneinfo.ZoneInfo.from_file(io.BytesIO(data))._trans_utc if t > 0]


@pytest.mark.parametrize("first", range(0, len(NAMES), 100))
def test_each_change_of_each_zone_is_found_to_the_second(first: int) -> None:
    for name in NAMES[first : first + 100]:
        zone = zone_of(name)
        for t in transitions(name):
            before, after = (datetime.fromtimestamp(at, zone).utcoffset() for at in (t - 1, t))
            assert before is not None
            assert after is not None
            found = zone_day(name, t // DAY_S)
            if before != after:
                assert found == (before.total_seconds(), t, after.total_seconds()), name
            assert (offset_at(name, t - 1), offset_at(name, t)) == (before.total_seconds(), after.total_seconds()), name


def test_a_day_without_a_change_has_one_offset() -> None:
    assert zone_day("Asia/Tokyo", 20_000) == (32_400, 20_000 * DAY_S, 32_400)
    assert zone_day("UTC", 0) == (0, 0, 0)
    assert zone_day("Asia/Tokyo", 20_000).repeated == zone_day("Asia/Tokyo", 20_000).skipped
    assert len(range(*zone_day("Asia/Tokyo", 20_000).skipped)) == 0


@pytest.mark.parametrize(
    ("zone", "day", "skipped", "repeated"),
    [
        ("Europe/Paris", "2027-03-28", ("02:00", "03:00"), ("02:00", "02:00")),
        ("Europe/Paris", "2026-10-25", ("03:00", "03:00"), ("02:00", "03:00")),
        ("Australia/Lord_Howe", "2026-10-03", ("02:00", "02:30"), ("02:00", "02:00")),
        ("Australia/Lord_Howe", "2027-04-03", ("02:00", "02:00"), ("01:30", "02:00")),
    ],
)
def test_skipped_and_repeated_readings(
    zone: str, day: str, skipped: tuple[str, str], repeated: tuple[str, str]
) -> None:
    found = zone_day(zone, int(datetime.fromisoformat(day).replace(tzinfo=UTC).timestamp()) // DAY_S)
    assert tuple(map(clock_text, found.skipped)) == skipped
    assert tuple(map(clock_text, found.repeated)) == repeated


@pytest.mark.parametrize(
    ("name", "meant"),
    [("europe/paris", "Europe/Paris"), ("Europe/Pars", "Europe/Paris"), ("new york", "America/New_York"),
     ("Tokyo", "Asia/Tokyo"), ("utc", "UTC"), ("Amerika/Chicago", "America/Chicago")],
)  # fmt: skip
def test_a_wrong_name_gets_the_one_that_was_meant(name: str, meant: str) -> None:
    with pytest.raises(UsageError, match=f"is unknown; did you mean {meant}\\?"):
        zone_of(name)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("GMT+1", "Etc/GMT-1, which is always UTC+1"),
        ("UTC+2", "Etc/GMT-2, which is always UTC+2"),
        ("utc -5", "Etc/GMT+5, which is always UTC-5"),
        ("Etc/UTC+1", "Etc/GMT-1, which is always UTC+1"),
        ("+02:00", "Etc/GMT-2, which is always UTC+2"),
        ("-0300", "Etc/GMT+3, which is always UTC-3"),
        ("Z+1", "Etc/GMT-1, which is always UTC+1"),
        ("+14", "Etc/GMT-14, which is always UTC+14"),
        ("UTC+15", "like Europe/Paris, whose clocks may change in summer"),
        ("GMT-13", "like Europe/Paris, whose clocks may change in summer"),
        ("+05:30", "like Europe/Paris, whose clocks may change in summer"),
        ("UTC+0", "did you mean UTC?"),
        ("+00:00", "did you mean UTC?"),
        ("Z", "did you mean UTC?"),
        ("z", "did you mean UTC?"),
        ("gmt", "did you mean UTC?"),
        ("local", "use UTC, or a place like Europe/Paris"),
        ("localtime", "use UTC, or a place like Europe/Paris"),
        ("system", "use UTC, or a place like Europe/Paris"),
        ("CEST", "use UTC, or a place like Europe/Paris"),
        ("PST", "use UTC, or a place like Europe/Paris"),
        ("IST", "use UTC, or a place like Europe/Paris"),
        ("UTC+" + "1" * 5000, "use UTC, or a place like Europe/Paris"),
    ],
)
def test_an_offset_is_no_zone_and_gets_the_one_with_the_right_sign(name: str, said: str) -> None:
    with pytest.raises(UsageError, match="is unknown; ") as error:
        zone_of(name)
    assert str(error.value).endswith(said)
    for zone in ("Etc/GMT-1", "Etc/GMT+5"):
        assert offset_at(zone, 1_800_000_000) == {"Etc/GMT-1": 3600, "Etc/GMT+5": -18_000}[zone]


@pytest.mark.parametrize(
    "name", ["", "x", "../zones", "/etc/localtime", "Europe", "Europe/", "\x00", "x" * 10**6, "+02:00"]
)
def test_what_is_no_zone_is_refused_without_reading_a_file(name: str) -> None:
    with pytest.raises(UsageError, match=r"^timezone .* is unknown") as error:
        zone_of(name)
    assert len(str(error.value)) < 180
