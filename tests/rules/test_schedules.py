"""When jobs run: intervals, one time, and what holds for every schedule. Cron expressions have their own tests."""

from collections import Counter
from datetime import datetime
from itertools import islice, pairwise

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crawler.errors import UsageError
from crawler.rules.cron import EVERY_MAX_S, LATEST_S, Schedule, as_iso, as_local, interval_of, moment_of, schedule_of

DAY_S = 86_400


def stamp(text: str) -> int:
    return int(datetime.fromisoformat(text).timestamp())


NOW = stamp("2026-11-26T10:00Z")
MOMENTS = st.integers(NOW - 400 * DAY_S, NOW + 400 * DAY_S)
EVERY = st.builds(
    lambda s: Schedule(every_s=s, anchor_s=NOW), st.one_of(st.integers(1, 60), st.integers(1, EVERY_MAX_S))
)
ONCE = st.builds(lambda at: Schedule(at_s=at), MOMENTS)
CRON = st.builds(
    lambda cron, zone: Schedule(cron=cron, timezone=zone),
    st.sampled_from(["* * * * *", "*/7 1-3 * * *", "0,30 2 * * *", "0 0 1 * *", "15 3 L * 5", "0 0 29 2 *"]),
    st.sampled_from(["UTC", "Europe/Paris", "America/New_York", "Australia/Lord_Howe", "Asia/Beirut"]),
)
SCHEDULES = st.one_of(EVERY, ONCE, CRON)


@given(SCHEDULES, MOMENTS)
def test_times_are_what_comes_next_again_and_again(schedule: Schedule, after: int) -> None:
    expected, at = [], after
    while len(expected) < 50 and (found := schedule.next_after(at)) is not None:
        assert found > at
        expected.append(found)
        at = found
    assert list(schedule.times(after, LATEST_S, 50)) == expected
    if expected:
        assert list(schedule.times(after, expected[-1])) == expected
        assert list(schedule.times(after, expected[-1] - 1)) == expected[:-1]
        assert list(schedule.times(expected[0] - 1, expected[0])) == expected[:1]


@given(SCHEDULES, MOMENTS, st.integers(-10, 3 * DAY_S))
def test_a_span_counts_the_times(schedule: Schedule, after: int, length: int) -> None:
    times = list(islice(schedule.times(after, after + length), 300_000))
    span = schedule.span(after, after + length)
    assert (span.first, span.last, span.count) == (
        times[0] if times else None,
        times[-1] if times else None,
        len(times),
    )
    assert (span.is_complete, span.reached) == (True, after + length)


@pytest.mark.slow(ci=True)
@given(CRON, MOMENTS, st.integers(1, 40))
def test_a_span_goes_on_where_it_stopped(schedule: Schedule, after: int, steps: int) -> None:
    until = after + 200 * DAY_S
    whole = schedule.span(after, until)
    parts = [schedule.span(after, until, steps)]
    while not parts[-1].is_complete:
        parts.append(schedule.span(parts[-1].reached, until, steps))
    assert len(parts) <= 200 // steps + 2
    assert sum(part.count for part in parts) == whole.count
    assert [part.first for part in parts if part.count][:1] == ([whole.first] if whole.count else [])
    assert [part.last for part in parts if part.count][-1:] == ([whole.last] if whole.count else [])


@given(SCHEDULES)
def test_a_schedule_survives_json(schedule: Schedule) -> None:
    assert msgspec.json.decode(msgspec.json.encode(schedule), type=Schedule) == schedule


def test_an_interval_counts_from_its_anchor_and_never_before() -> None:
    schedule = schedule_of(every="PT3H", now_s=NOW)
    assert list(map(as_iso, schedule.times(NOW, LATEST_S, 2))) == ["2026-11-26T13:00:00Z", "2026-11-26T16:00:00Z"]
    assert schedule.next_after(0) == schedule.next_after(NOW) == NOW + 3 * 3600  # a clock that is behind
    assert schedule.next_after(NOW + 3 * 3600 - 1) == NOW + 3 * 3600
    assert schedule.next_after(NOW + 3 * 3600) == NOW + 6 * 3600


def test_an_interval_ignores_clock_changes() -> None:
    schedule = schedule_of(every="24h", timezone="Europe/Paris", now_s=stamp("2026-10-24T06:00+02:00"))
    assert [as_local(t, "Europe/Paris") for t in schedule.times(0, LATEST_S, 2)] == [
        "2026-10-25 05:00:00+01:00", "2026-10-26 05:00:00+01:00",
    ]  # fmt: skip


def test_a_week_of_seconds_is_counted_at_once() -> None:
    span = schedule_of(every="PT1S", now_s=NOW).span(NOW + 10, NOW + 10 + 7 * DAY_S)
    assert (span.first, span.last, span.count) == (NOW + 11, NOW + 10 + 7 * DAY_S, 7 * DAY_S)


def test_one_time_comes_once() -> None:
    schedule = schedule_of(at="2027-01-31T12:00Z", now_s=NOW)
    assert list(schedule.times(NOW, LATEST_S)) == [stamp("2027-01-31T12:00Z")]
    assert schedule.next_after(stamp("2027-01-31T12:00Z")) is None


@pytest.mark.parametrize(
    ("text", "timezone", "iso"),
    [
        ("2027-01-31T12:00Z", "Europe/Paris", "2027-01-31T12:00:00Z"),
        ("2027-01-31T12:00", "UTC", "2027-01-31T12:00:00Z"),
        ("2027-01-31T12:00", "Europe/Paris", "2027-01-31T11:00:00Z"),
        ("2027-01-31 12:00:30+05:30", "Europe/Paris", "2027-01-31T06:30:30Z"),
        ("2027-01-31", "America/New_York", "2027-01-31T05:00:00Z"),
        ("2026-10-25T02:30", "Europe/Paris", "2026-10-25T00:30:00Z"),  # shown twice: the first
        ("2026-10-25T02:30+01:00", "Europe/Paris", "2026-10-25T01:30:00Z"),  # the second
        ("2027-03-28T02:30Z", "Europe/Paris", "2027-03-28T02:30:00Z"),
    ],
)
def test_a_time_is_read_by_the_clocks_of_the_zone(text: str, timezone: str, iso: str) -> None:
    assert as_iso(moment_of(text, timezone)) == iso


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("tomorrow", "expected a time like 2027-01-31T12:00"),
        ("12:00", "expected a time like"),
        ("2027-13-01T00:00", "expected a time like"),
        ("2027-01-31T24:01", "expected a time like"),
        ("1800000000", "expected a time like"),
        ("2" * 10**6, "expected a time like"),
        ("0001-01-01T00:00", "expected a time from 1970 to 2999"),
        ("9999-12-31T23:59:59", "expected a time from 1970 to 2999"),
        ("9999-12-31T23:59:59-12:00", "expected a time from 1970 to 2999"),
        ("2027-01-31T12:00:00.5Z", "expected whole seconds"),
        ("2027-03-28T02:30", r"does not exist in Europe/Paris: clocks go forward; use 2027-03-28 03:00:00\+02:00"),
    ],
)
def test_what_is_no_time_is_refused(text: str, message: str) -> None:
    with pytest.raises(UsageError, match=f"^at .*{message}") as error:
        moment_of(text, "Europe/Paris")
    assert len(str(error.value)) < 200


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("PT1S", 1), ("90", 90), ("1h30m", 5400), ("P2W", 14 * DAY_S), ("1.1h", 3960), ("3650d", EVERY_MAX_S)],
)
def test_intervals_go_from_a_second_to_ten_years(text: str, seconds: int) -> None:
    assert interval_of(text) == seconds


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("0", "from 1 second to 3650 days"),
        ("500ms", "expected whole seconds"),
        ("PT1.5S", "expected whole seconds"),
        ("3651d", "from 1 second to 3650 days"),
        ("99999999d", "too long"),
        ("P1M", "months, which differ in length; use weeks or days, or cron '0 0 1"),
        ("soon", "is not a valid duration"),
    ],
)
def test_other_intervals_are_refused(text: str, message: str) -> None:
    with pytest.raises(UsageError, match=f"^every .*{message}"):
        interval_of(text)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "exactly one of every"),
        ({"every": "1h", "cron": "0 * * * *"}, "exactly one of every"),
        ({"cron": "0 * * *"}, "cron .*five fields"),
        (
            {"cron": "*/90 * * * *"},
            "step of '\\*/90' leaves the minutes 0-59, so only 0 would count; for every 90m use",
        ),
        ({"cron": "*/60 * * * *"}, "leaves the minutes 0-59"),
        ({"cron": "0 */25 * * *"}, "leaves the hours 0-23, so only 0 would count; for every 25h use 'every'"),
        ({"cron": "0 */24 * * *"}, "leaves the hours 0-23"),
        ({"cron": "0 0 */31 * *"}, "leaves the days of the month 1-31, so only 1 would count"),
        ({"cron": "0 0 1 */12 *"}, "leaves the months 1-12, so only 1 would count$"),
        ({"cron": "0 0 * * */7"}, "leaves the weekdays 0-6"),
        ({"cron": "10-20/15 * * * *"}, "leaves the minutes 10-20, so only 10 would count$"),
        ({"cron": "5,*/90 * * * *"}, "step of '\\*/90'"),
        ({"every": "1h", "timezone": "Europe/Pars"}, "timezone .*did you mean Europe/Paris"),
        ({"at": "2026-11-26T10:00Z"}, "at .* has passed: it is 2026-11-26T10:00:00Z"),
        ({"every": "10s", "jitter_s": 10}, "jitter 10: expected seconds from 0 to below 10"),
        ({"every": "10s", "jitter_s": -1}, "jitter -1: "),
        ({"every": "10s", "jitter_s": float("nan")}, "jitter nan: "),
        ({"cron": "*/5 * * * *", "jitter_s": 300}, "below 300, the shortest time between two runs"),
        ({"cron": "0 0 1 * *", "jitter_s": DAY_S}, "below 86,400"),
        ({"at": "2027-01-31", "jitter_s": DAY_S}, "below 86,400$"),
    ],
)
def test_a_schedule_that_can_not_be_used_is_refused(given: dict[str, str], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        schedule_of(**given, now_s=NOW)  # type: ignore[arg-type]


@pytest.mark.parametrize("cron", ["*/59 * * * *", "0 */23 * * *", "0 0 */30 * *", "0 0 1 */11 *", "0-50/25 * * * *",
                                  "*/7 * * * *", "5/10 * * * *", "0 0 * JAN-DEC/2 MON-FRI/2"])  # fmt: skip
def test_a_step_within_its_range_is_taken(cron: str) -> None:
    assert schedule_of(cron=cron, now_s=NOW).cron == cron


def test_what_was_described_is_what_is_kept() -> None:
    assert schedule_of(every="1h", jitter_s=5, now_s=NOW) == Schedule(every_s=3600, anchor_s=NOW, jitter_s=5.0)
    found = schedule_of(cron=" 0  */6 * * * ", timezone="Europe/Paris", now_s=NOW)
    assert found == Schedule(cron="0 */6 * * *", timezone="Europe/Paris")
    assert msgspec.json.encode(found) == b'{"cron":"0 */6 * * *","timezone":"Europe/Paris"}'


def test_jitter_spreads_runs_evenly_and_is_always_the_same() -> None:
    schedule = Schedule(every_s=3600, anchor_s=NOW, jitter_s=600.0)
    delays = [schedule.jitter_of(f"job{n}", NOW) for n in range(6000)]
    assert all(0 <= delay <= 600 for delay in delays)
    assert delays == [schedule.jitter_of(f"job{n}", NOW) for n in range(6000)]
    assert all(900 < n < 1100 for n in Counter(int(delay // 100) for delay in delays if delay < 600).values())
    assert schedule.jitter_of("job", NOW) != schedule.jitter_of("job", NOW + 3600)
    assert Schedule(every_s=3600).jitter_of("job", NOW) == 0
    moved = [t + schedule.jitter_of("job", t) for t in schedule.times(NOW, LATEST_S, 100)]
    assert all(a < b for a, b in pairwise(moved))


@pytest.mark.parametrize("schedule", [Schedule(every_s=DAY_S), Schedule(cron="0 0 * * *"), Schedule(at_s=NOW)])
def test_clocks_that_are_far_off_end_nothing(schedule: Schedule) -> None:
    assert schedule.next_after(10**12) is None
    assert schedule.next_after(LATEST_S) is None
    assert schedule.next_after(-(10**12)) == schedule.next_after(0)
    assert schedule.span(LATEST_S, 10**12).count == 0
