"""Cron expressions beside a model that judges every minute, and beside the library's own iteration."""

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from functools import cache
from itertools import islice, pairwise

import pytest
from cronsim import CronSim, CronSimError
from hypothesis import given
from hypothesis import strategies as st

from crawler.errors import UsageError
from crawler.rules import cron, schedule_text, zones
from crawler.rules.cron import CRON_CHARS_MAX, Schedule, cron_of
from crawler.rules.zones import ZoneDay, zone_of

DAY_S = 86_400
MONTHS = ["JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC"]
WEEKDAYS = ["SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"]
WHOLE_HOURS = [  # where clocks change by an hour, and not at midnight: the library's iteration is right there
    "Europe/Paris", "Europe/London", "Europe/Athens", "Europe/Chisinau", "America/New_York",
    "America/Chicago", "America/St_Johns", "America/Los_Angeles", "Australia/Sydney", "Australia/Adelaide",
    "Pacific/Auckland", "Pacific/Chatham", "Asia/Jerusalem", "America/Nuuk",
]  # fmt: skip
OTHERS = [  # at midnight, by half an hour, by two hours, in Ramadan, never
    "Australia/Lord_Howe", "Africa/Cairo", "Asia/Beirut", "Atlantic/Azores", "America/Havana", "America/Santiago",
    "Antarctica/Troll", "Africa/Casablanca", "Asia/Tokyo", "Asia/Kolkata", "UTC",
]  # fmt: skip


def stamp(text: str) -> int:
    return int(datetime.fromisoformat(text).timestamp())


@cache
def changes(zone: str) -> tuple[int, ...]:
    """When the clocks change in 2026 and 2027, to the minute, found day by day; without one, some day."""
    info, found = zone_of(zone), []

    def offset(t: int) -> timedelta | None:
        return datetime.fromtimestamp(t, info).utcoffset()

    for day in range(stamp("2026-01-01T00:00Z"), stamp("2028-01-01T00:00Z"), DAY_S):
        if offset(day) != offset(day + DAY_S):
            found += [t for t in range(day + 60, day + DAY_S + 1, 60) if offset(t - 60) != offset(t)]
    return tuple(found) or (stamp("2026-03-01T00:00Z"),)


@cache
def local_minutes(zone: str, start: int, end: int) -> list[tuple[int, datetime, int]]:
    """Each minute, what clocks show, and whether for the second time."""
    info = zone_of(zone)
    local = ((t, datetime.fromtimestamp(t, info)) for t in range(start, end, 60))
    return [(t, shown.replace(tzinfo=None), shown.fold) for t, shown in local]


Field = tuple[str, set[int]]


@st.composite
def field(draw: Callable[..., object], low: int, high: int, names: tuple[str, ...] = (), at_most: int = 99) -> Field:
    """The text of a field and what it means, by a reading of its own."""
    numbers = st.integers(low, min(high, at_most))

    def word(n: int) -> str:
        return names[n - low] if names and n - low < len(names) and draw(st.booleans()) else str(n)

    kind = draw(st.sampled_from(["*", "*", "one", "list", "range", "step", "range/step", "one/step"]))
    if kind == "*":
        return "*", set(range(low, high + 1))
    step = draw(st.integers(1, 20))
    assert isinstance(step, int)
    if kind == "step":
        return f"*/{step}", set(range(low, high + 1, step))
    if kind == "list":
        several = draw(st.lists(numbers, min_size=2, max_size=4))
        assert isinstance(several, list)
        return ",".join(word(n) for n in several), set(several)
    a, b = sorted(draw(st.tuples(numbers, numbers)))  # type: ignore[call-overload]
    if kind == "one":
        return word(a), {a}
    if kind == "range":
        return f"{word(a)}-{word(b)}", set(range(a, b + 1))
    if kind == "one/step":
        return f"{a}/{step}", set(range(a, high + 1, step))
    return f"{a}-{b}/{step}", set(range(a, b + 1, step)) if a != b else set(range(a, high + 1, step))


class Model:
    """What an expression means, judged for one local minute after the other."""

    def __init__(self, fields: tuple[Field, ...]) -> None:
        self.texts = [text for text, _ in fields]
        self.text = " ".join(self.texts)
        self.minutes, self.hours, self.days, self.months, weekdays = (values for _, values in fields)
        self.weekdays = {n % 7 for n in weekdays}
        self.both = self.texts[2].startswith("*") or self.texts[4].startswith("*")
        self.is_fixed = not self.texts[0].startswith("*") and not self.texts[1].startswith("*")

    def __repr__(self) -> str:
        return self.text

    def shows(self, local: datetime) -> bool:
        if local.minute not in self.minutes or local.hour not in self.hours or local.month not in self.months:
            return False
        of_days = [local.day in self.days, local.isoweekday() % 7 in self.weekdays]
        return all(of_days) if self.both else any(of_days)

    def times(self, zone: str, start: int, end: int) -> Iterator[int]:
        earlier: datetime | None = None
        for t, shown, fold in local_minutes(zone, start - 60, end):
            skipped = []
            if self.is_fixed and earlier is not None:
                gap = int((shown - earlier).total_seconds()) // 60
                skipped = [earlier + timedelta(minutes=n) for n in range(1, gap)]
            is_again = self.is_fixed and fold == 1
            if t >= start and (any(map(self.shows, skipped)) or (self.shows(shown) and not is_again)):
                yield t
            earlier = shown


EXPRESSIONS = st.tuples(
    field(0, 59), field(0, 23), field(1, 31), field(1, 12, tuple(MONTHS)), field(0, 7, tuple(WEEKDAYS), at_most=6)
).map(Model)
DENSE = st.tuples(  # fires in most hours around a change, in the night
    field(0, 59), field(0, 23, at_most=3), st.just(("*", set(range(1, 32)))),
    st.just(("*", set(range(1, 13)))), st.just(("*", set(range(7)))),
).map(Model)  # fmt: skip


def never_fires(text: str) -> bool:
    try:
        cron_of(text)
    except UsageError as error:
        return "never fires" in str(error)
    return False


@pytest.mark.slow(ci=True)
@given(EXPRESSIONS, st.integers(stamp("2026-01-01T00:00Z"), stamp("2032-01-01T00:00Z")))
def test_in_utc_it_fires_in_the_minutes_that_its_fields_name(model: Model, start: int) -> None:
    start -= start % 60
    end = start + 4 * DAY_S
    expected = list(model.times("UTC", start, end))
    if never_fires(model.text):
        assert expected == []
        return
    assert list(Schedule(cron=model.text).times(start - 1, end - 1)) == expected


@pytest.mark.slow(ci=True)
@given(st.one_of(EXPRESSIONS, DENSE), st.sampled_from(WHOLE_HOURS + OTHERS), st.integers(0, 3))
def test_around_clock_changes_it_fires_as_documented(model: Model, zone: str, nth: int) -> None:
    change = changes(zone)[nth % len(changes(zone))]
    start, end = change - DAY_S - 7200, change + DAY_S + 7200
    expected = list(model.times(zone, start, end))
    if never_fires(model.text):
        assert expected == []
        return
    schedule = Schedule(cron=model.text, timezone=zone)
    assert list(schedule.times(start - 1, end - 1)) == expected
    assert schedule.span(start - 1, end - 1).count == len(expected)
    for n, t in enumerate(expected[:: max(1, len(expected) // 20)]):  # both ends, wherever they are
        nth = n * max(1, len(expected) // 20)
        assert list(schedule.times(start - 1, t)) == expected[: nth + 1]
        assert list(schedule.times(t, end - 1)) == expected[nth + 1 :]


@given(DENSE, st.sampled_from(WHOLE_HOURS + OTHERS), st.integers(0, 3), st.integers(-4 * 3600, 4 * 3600))
def test_the_next_time_does_not_depend_on_where_one_begins(model: Model, zone: str, nth: int, shift: int) -> None:
    change = changes(zone)[nth % len(changes(zone))]
    schedule = Schedule(cron=model.text, timezone=zone)
    after = change + shift
    expected = next((t for t in schedule.times(change - 2 * DAY_S, change + 90 * DAY_S) if t > after), None)
    if expected is not None:
        assert schedule.next_after(after) == expected


@pytest.mark.slow(ci=True)
@given(
    st.tuples(
        st.sampled_from(["0", "*/20", "5,50", "7-9"]),
        st.sampled_from(["*", "0", "1,2,3", "*/6", "0-4/2"]),
        st.sampled_from(["*", "L", "LW", "1", "15,L", "31", "29", "*/10", "8-14"]),
        st.sampled_from(["*", "2", "JAN-MAR", "4,6,9,11,12"]),
        st.sampled_from(["*", "MON-FRI", "7", "5L", "1#1", "SUN#5", "*/3", "0L,3#2"]),
    ).map(" ".join),
    st.sampled_from(["UTC", *WHOLE_HOURS]),
    st.integers(0, 3),
)
def test_it_agrees_with_the_library_where_that_is_right(text: str, zone: str, nth: int) -> None:
    start = changes(zone)[nth % len(changes(zone))] - 2 * DAY_S
    if never_fires(text):
        with pytest.raises((CronSimError, StopIteration)):
            next(CronSim(text, datetime.fromtimestamp(start, UTC)))
        return
    library = CronSim(text, datetime.fromtimestamp(start, UTC if zone == "UTC" else zone_of(zone)))
    expected = [int(found.timestamp()) for found in islice(library, 30)]
    assert list(Schedule(cron=text, timezone=zone).times(start, 2**60, 30)) == expected


@pytest.mark.parametrize(
    ("text", "after", "times"),
    [
        ("5 0 * * *", "2026-12-31T00:05Z", ["2027-01-01T00:05Z"]),
        ("15 14 1 * *", "2027-01-01T14:15Z", ["2027-02-01T14:15Z"]),
        ("0 22 * * 1-5", "2026-11-27T22:00Z", ["2026-11-30T22:00Z"]),  # Friday to Monday
        ("23 0-23/2 * * *", "2026-11-26T22:23Z", ["2026-11-27T00:23Z"]),
        ("5 4 * * sun", "2026-11-26T00:00Z", ["2026-11-29T04:05Z"]),
        ("5 4 * * 7", "2026-11-26T00:00Z", ["2026-11-29T04:05Z"]),
        (
            "30 4 1,15 * 5",
            "2026-11-26T12:00Z",
            ["2026-11-27T04:30Z", "2026-12-01T04:30Z", "2026-12-04T04:30Z"],
        ),  # either
        ("0 0 */2 * mon", "2026-11-26T00:00Z", ["2026-12-07T00:00Z", "2026-12-21T00:00Z"]),  # both: odd days, Mondays
        ("0 9 L * *", "2028-02-01T00:00Z", ["2028-02-29T09:00Z"]),
        ("0 9 LW * *", "2027-01-30T00:00Z", ["2027-02-26T09:00Z"]),  # the 28th is a Sunday
        ("0 9 * * 5L", "2026-11-01T00:00Z", ["2026-11-27T09:00Z"]),
        ("0 9 * * 2#2", "2026-11-01T00:00Z", ["2026-11-10T09:00Z"]),
        ("0 0 29 2 *", "2027-01-01T00:00Z", ["2028-02-29T00:00Z", "2032-02-29T00:00Z"]),
        ("0 0 29 2 */7", "2080-01-01T00:00Z", ["2088-02-29T00:00Z", "2128-02-29T00:00Z"]),  # 2100 is no leap year
        ("59 23 31 DEC *", "2026-11-26T00:00Z", ["2026-12-31T23:59Z"]),
        ("20/15 * * * *", "2026-11-26T00:00Z", ["2026-11-26T00:20Z", "2026-11-26T00:35Z", "2026-11-26T00:50Z"]),
        ("*/25 * * * *", "2026-11-26T00:25Z", ["2026-11-26T00:50Z", "2026-11-26T01:00Z"]),  # starts again each hour
    ],
)
def test_known_expressions_fire_when_other_schedulers_fire_them(text: str, after: str, times: list[str]) -> None:
    assert list(Schedule(cron=text).times(stamp(after), 2**60, len(times))) == list(map(stamp, times))


PARIS, NEW_YORK, LORD_HOWE, CAIRO = "Europe/Paris", "America/New_York", "Australia/Lord_Howe", "Africa/Cairo"


@pytest.mark.parametrize(
    ("zone", "text", "day", "times"),
    [  # the times of a local day, as UTC
        (PARIS, "30 2 * * *", "2026-10-25", ["00:30"]),  # shown twice: at the first
        (PARIS, "0,30 2 * * *", "2026-10-25", ["00:00", "00:30"]),
        (PARIS, "30 1-3 * * *", "2026-10-25", ["23:30", "00:30", "02:30"]),
        (PARIS, "*/30 2 * * *", "2026-10-25", ["00:00", "00:30", "01:00", "01:30"]),  # whenever the clock shows it
        (PARIS, "0 * * * *", "2026-10-25", [f"{h % 24:02}:00" for h in range(22, 22 + 25)]),
        (PARIS, "0 0 * * *", "2026-10-25", ["22:00"]),
        (PARIS, "30 2 * * *", "2027-03-28", ["01:00"]),  # skipped: at the end of the gap
        (PARIS, "0,15,30 2 * * *", "2027-03-28", ["01:00"]),
        (PARIS, "0,30 2-3 * * *", "2027-03-28", ["01:00", "01:30"]),
        (PARIS, "*/30 2 * * *", "2027-03-28", []),
        (PARIS, "0 * * * *", "2027-03-28", [f"{h % 24:02}:00" for h in range(23, 23 + 23)]),
        (NEW_YORK, "30 1 * * *", "2026-11-01", ["05:30"]),
        (NEW_YORK, "*/30 1 * * *", "2026-11-01", ["05:00", "05:30", "06:00", "06:30"]),
        (NEW_YORK, "30 2 * * *", "2027-03-14", ["07:00"]),
        (NEW_YORK, "30 */2 * * *", "2027-03-14", ["05:30", *(f"{h % 24:02}:30" for h in range(8, 28, 2))]),
        (LORD_HOWE, "45 1 * * *", "2027-04-04", ["14:45"]),
        (LORD_HOWE, "*/15 1 * * *", "2027-04-04", ["14:00", "14:15", "14:30", "14:45", "15:00", "15:15"]),
        (LORD_HOWE, "*/15 2 * * *", "2027-04-04", ["15:30", "15:45", "16:00", "16:15"]),  # the library leaves out two
        (LORD_HOWE, "15 2 * * *", "2026-10-04", ["15:30"]),
        (LORD_HOWE, "*/15 2 * * *", "2026-10-04", ["15:30", "15:45"]),
        (CAIRO, "0 0 * * *", "2027-04-30", ["22:00"]),  # midnight itself is skipped
        (CAIRO, "*/20 0 * * *", "2027-04-30", []),
    ],
)
def test_clock_changes_by_example(zone: str, text: str, day: str, times: list[str]) -> None:
    start, end = (int(datetime.fromisoformat(day).replace(tzinfo=zone_of(zone), hour=h).timestamp()) for h in (0, 23))
    found = Schedule(cron=text, timezone=zone).times(start - 1, end + 3599)
    assert [datetime.fromtimestamp(t, UTC).strftime("%H:%M") for t in found] == times


def test_a_moved_time_is_within_its_bounds() -> None:
    schedule, moved = Schedule(cron="30 2 * * *", timezone=PARIS), stamp("2027-03-28T01:00Z")
    assert list(schedule.times(moved - 1, moved)) == [moved]
    assert schedule.span(moved - 1, moved).count == 1
    assert schedule.next_after(moved) == stamp("2027-03-29T00:30Z")
    assert schedule.span(moved - 1000, moved - 1).count == 0


def test_clocks_can_repeat_readings_over_midnight_in_utc(monkeypatch: pytest.MonkeyPatch) -> None:
    """No zone does it today."""
    change = stamp("2027-05-05T23:30Z")

    def zone_day(zone: str, day: int) -> ZoneDay:
        if day == change // DAY_S:
            return ZoneDay(3600, change, 0)
        offset = 3600 if day * DAY_S < change else 0
        return ZoneDay(offset, day * DAY_S, offset)

    for module in (cron, schedule_text, zones):
        monkeypatch.setattr(module, "zone_day", zone_day)
    fixed, wildcard = Schedule(cron="15,45 23,0 * * *"), Schedule(cron="*/15 0 * * *")
    start, end = stamp("2027-05-05T12:00Z"), stamp("2027-05-06T12:00Z")
    assert list(fixed.times(start, end)) == [change - 4500, change - 2700, change - 900, change + 4500]
    assert list(wildcard.times(start, end)) == [stamp("2027-05-05T23:00Z") + 900 * n for n in (0, 1, 4, 5, 6, 7)]
    notes = [row.note for row in schedule_text.preview(wildcard, 6, start)]
    assert [note.rpartition(" ")[2] for note in notes] == ["first", "first", "second", "second", "", ""]


@pytest.mark.parametrize("zone", WHOLE_HOURS + OTHERS)
@pytest.mark.parametrize("text", ["30 2 * * *", "0 0 * * *"])
def test_in_two_years_it_fires_once_on_each_day(zone: str, text: str) -> None:
    start, end = stamp("2026-01-01T00:00Z"), stamp("2028-01-01T00:00Z")
    assert len(all_different(Schedule(cron=text, timezone=zone), start, end)) == 730


@pytest.mark.parametrize("zone", WHOLE_HOURS + OTHERS)
@pytest.mark.parametrize("text", ["*/15 * * * *", "0-59/15 0-23 * * *", "*/7 1-3 * * *"])
def test_no_time_comes_twice_in_the_weeks_around_a_clock_change(zone: str, text: str) -> None:
    for change in changes(zone):
        all_different(Schedule(cron=text, timezone=zone), change - 7 * DAY_S, change + 7 * DAY_S)


def all_different(schedule: Schedule, start: int, end: int) -> list[int]:
    times = list(schedule.times(start, end))
    assert times == sorted(set(times))
    span = schedule.span(start, end)
    assert (span.first, span.last, span.count, span.is_complete) == (times[0], times[-1], len(times), True)
    return times


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("61 * * * *", r"cron '61 \* \* \* \*': invalid minute \(0-59\)"),
        ("0 24 * * *", r"invalid hour \(0-23\)"),
        ("0 0 0 * *", r"invalid day of the month \(1-31, L, LW\)"),
        ("0 0 1 13 *", r"invalid month \(1-12, JAN-DEC\)"),
        ("0 0 * * 8", r"invalid weekday \(0-7, SUN-SAT, 5L, 1#2\)"),
        ("0 0 31 2 *", "never fires: its months do not have this day"),
        ("0 0 30,31 feb *", "never fires: its months do not have this day"),
        ("0 0 */31 * SUN#5", "never fires: no date matches"),
        ("0 0 * *", "expected five fields: minute hour day month weekday"),
        ("0 0 0 * * *", "expected five fields"),
        ("@daily", "expected five fields"),
        ("0 0 * * ſun", "expected five fields"),
        ("0 0 * * " + "1," * CRON_CHARS_MAX, "is too long"),
        ("*/0 * * * *", "invalid minute"),
        ("5-1 * * * *", "invalid minute"),
        ("-1 * * * *", "invalid minute"),
        ("0 0 L-3 * *", "invalid day of the month"),
        ("0 0 ? * 1", "invalid day of the month"),
    ],
)
def test_what_can_not_be_used_is_refused_in_one_line(text: str, message: str) -> None:
    with pytest.raises(UsageError, match=message) as error:
        cron_of(text)
    assert "\n" not in str(error.value)
    assert len(str(error.value)) < 160


@given(st.text("0123456789*/,-#LWSUNMOJA? \t", max_size=40))
def test_any_text_is_an_expression_or_refused(text: str) -> None:
    try:
        found = cron_of(text)
    except UsageError:
        return
    assert found.explain()
    assert Schedule(cron=text).next_after(0) is not None


@pytest.mark.slow(ci=True)
@given(EXPRESSIONS)
def test_no_gap_is_shorter_than_the_shortest(model: Model) -> None:
    if never_fires(model.text):
        return
    times = Schedule(cron=model.text).times(stamp("2026-01-01T00:00Z"), 2**60, 200)
    assert min(b - a for a, b in pairwise(times)) >= cron_of(model.text).shortest_gap_s


@pytest.mark.parametrize(
    ("text", "gap"), [("* * * * *", 60), ("*/25 * * * *", 600), ("0 6,9,23 * * *", 3 * 3600), ("0 0 1 * *", DAY_S)]
)
def test_the_shortest_gap(text: str, gap: int) -> None:
    assert cron_of(text).shortest_gap_s == gap


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("0 */6 * * *", "at minute 0 past every sixth hour"),
        ("30 2 * * *", "at 02:30 every day"),
        ("0 0 21,22,23 * *", "at 00:00 on the 21st, the 22nd, and the 23rd day of month"),
        ("0 0 11,12,13,30 * *", "at 00:00 on the 11th, the 12th, the 13th, and the 30th day of month"),
        ("*/5 9-17 * * mon-fri", "every fifth minute from 09:00 through 17:59 on Monday through Friday"),
    ],
)
def test_it_can_be_read(text: str, words: str) -> None:
    assert cron_of(text).explain() == words
