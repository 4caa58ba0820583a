"""Schedules in plain language, and notes about clock changes."""

from datetime import datetime

import pytest

from crawler.rules.cron import Schedule
from crawler.rules.schedule_text import PREVIEW_MAX, PreviewRow, describe, preview

PARIS = "Europe/Paris"


def stamp(text: str) -> int:
    return int(datetime.fromisoformat(text).timestamp())


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (1, "every second"),
        (90, "every 90 seconds"),
        (600, "every 10 minutes"),
        (3600, "every hour"),
        (5400, "every 90 minutes"),
        (3 * 3600, "every 3 hours"),
        (86_400, "every day"),
        (7 * 86_400, "every week"),
        (14 * 86_400, "every 2 weeks"),
        (3650 * 86_400, "every 3650 days"),
        (93_784, "every 1 day 2 hours 3 minutes 4 seconds"),
        (7260, "every 2 hours 1 minute"),
    ],
)
def test_intervals_in_words(seconds: int, text: str) -> None:
    assert describe(Schedule(every_s=seconds)) == text


@pytest.mark.parametrize(
    ("schedule", "text"),
    [
        (Schedule(cron="0 */6 * * *", timezone=PARIS), "at minute 0 past every sixth hour, Europe/Paris"),
        (Schedule(cron="30 2 * * *"), "at 02:30 every day, UTC"),
        (Schedule(at_s=stamp("2027-01-31T12:00Z")), "once at 2027-01-31 12:00, UTC"),
        (Schedule(at_s=stamp("2027-01-31T12:00:05Z"), timezone=PARIS), "once at 2027-01-31 13:00:05, Europe/Paris"),
        (Schedule(every_s=3600, jitter_s=30.0), "every hour, up to 30 s later"),
    ],
)
def test_schedules_in_words(schedule: Schedule, text: str) -> None:
    assert describe(schedule) == text


def rows(schedule: Schedule, after: str, count: int = 3) -> list[tuple[str, str]]:
    return [(row.local, row.note) for row in preview(schedule, count, stamp(after))]


def test_a_time_that_comes_twice_is_noted() -> None:
    assert rows(Schedule(cron="30 2 * * *", timezone=PARIS), "2026-10-24T12:00Z") == [
        ("2026-10-25 02:30:00+02:00", "clock goes back: 02:30 comes twice, runs at the first"),
        ("2026-10-26 02:30:00+01:00", "UTC offset changes before this time"),
        ("2026-10-27 02:30:00+01:00", ""),
    ]
    assert rows(Schedule(cron="*/30 2 * * *", timezone=PARIS), "2026-10-25T00:00Z") == [
        ("2026-10-25 02:30:00+02:00", "clock goes back: 02:30 comes twice, this is the first"),
        ("2026-10-25 02:00:00+01:00", "clock goes back: 02:00 comes twice, this is the second"),
        ("2026-10-25 02:30:00+01:00", "clock goes back: 02:30 comes twice, this is the second"),
    ]
    assert rows(Schedule(every_s=3600, anchor_s=stamp("2026-10-24T23:10Z")), "2026-10-24T23:10Z", 1) == [
        ("2026-10-25 00:10:00+00:00", "")
    ]


def test_the_first_of_two_can_be_on_the_day_before_the_change_in_utc() -> None:
    assert rows(Schedule(cron="30 1 * * *", timezone="Antarctica/Troll"), "2026-10-24T12:00Z", 1) == [
        ("2026-10-25 01:30:00+02:00", "clock goes back: 01:30 comes twice, runs at the first")
    ]


def test_a_time_that_does_not_exist_is_noted() -> None:
    assert rows(Schedule(cron="30 2 * * *", timezone=PARIS), "2027-03-27T12:00Z") == [
        ("2027-03-28 03:00:00+02:00", "02:30 does not exist on this day, runs at 03:00"),
        ("2027-03-29 02:30:00+02:00", ""),
        ("2027-03-30 02:30:00+02:00", ""),
    ]
    lord_howe = Schedule(cron="15 2,4 * * *", timezone="Australia/Lord_Howe")
    assert rows(lord_howe, "2026-10-03T12:00Z", 2) == [
        ("2026-10-04 02:30:00+11:00", "02:15 does not exist on this day, runs at 02:30"),
        ("2026-10-04 04:15:00+11:00", ""),
    ]


def test_a_new_offset_is_noted_where_nothing_else_changes() -> None:
    assert rows(Schedule(cron="0 12 * * *", timezone="America/New_York"), "2027-03-13T12:00Z") == [
        ("2027-03-13 12:00:00-05:00", ""),
        ("2027-03-14 12:00:00-04:00", "UTC offset changes before this time"),
        ("2027-03-15 12:00:00-04:00", ""),
    ]
    interval = Schedule(every_s=86_400, anchor_s=stamp("2026-10-24T06:00Z"), timezone=PARIS)
    assert rows(interval, "2026-10-24T06:00Z", 1) == [
        ("2026-10-25 07:00:00+01:00", "UTC offset changes before this time")
    ]


@pytest.mark.parametrize(("at", "which"), [("00:30", "first"), ("01:30", "second")])
def test_one_time_is_noted_too(at: str, which: str) -> None:
    nominal = stamp(f"2026-10-25T{at}Z")
    assert preview(Schedule(at_s=nominal, timezone=PARIS), 10, nominal - 60)[0].note == (
        f"clock goes back: 02:30 comes twice, this is the {which}"
    )


def test_a_preview_is_bounded_and_ends_with_the_schedule() -> None:
    assert len(preview(Schedule(every_s=1), 10**9, 0)) == PREVIEW_MAX
    assert preview(Schedule(every_s=1), -1, 0) == []
    assert preview(Schedule(at_s=60), 10, 0) == [PreviewRow(nominal=60, local="1970-01-01 00:01:00+00:00")]
    assert preview(Schedule(at_s=60), 10, 60) == []
