"""Which runs a job starts, and that each of its nominal times is decided once."""

import random
from collections import Counter
from typing import Any

import pytest
from msgspec.structs import replace

from crawler.errors import ConflictError
from crawler.rules.cron import schedule_of
from crawler.rules.job_plan import (
    DEFAULTS,
    QUEUED_MAX,
    Plan,
    RunResult,
    created,
    dismissed,
    edited,
    ended,
    next_time,
    paused,
    plan,
    requested,
    resumed,
    retried,
)
from crawler.rules.jobs import Job, JobSpec, Outcome, Row, State
from crawler.settings.schema import JobSettings

T0 = 1_800_000_000
GAPS = (State.MISSED_WINDOW, State.SKIPPED_OVERLAP, State.SKIPPED_LIMIT, State.PAUSED)
FEW = JobSettings(catchup_max=5, active_max=3)


def spec_of(every: str = "10", **given: Any) -> JobSpec:
    schedule = schedule_of(every=every, now_s=T0, jitter_s=given.pop("jitter_s", 0.0))
    return JobSpec(schedule=schedule, seeds=("http://a.test/",), **given)


def is_continued(before: Row, row: Row) -> bool:
    """Does it tell more of the same, and is no second decision about a time?"""
    if before.state in GAPS:
        return row.state is before.state and row.count > before.count
    return row.count == 1 and row.attempts >= before.attempts and before.outcome is not Outcome.FINISHED


class Book:
    """A job and its history, as the engine keeps them."""

    def __init__(self, spec: JobSpec, settings: JobSettings = DEFAULTS) -> None:
        self.settings = settings
        self.job = created("0123456789", "ann", "news", spec, T0)
        self.by_place: dict[float, Row] = {}
        self.failed_by_place: dict[float, Row] = {}
        self.runs: list[str] = []
        self.due: float | None = None

    @property
    def rows(self) -> list[Row]:
        return list(self.by_place.values())

    @property
    def failed(self) -> list[Row]:
        return list(self.failed_by_place.values())

    def take(self, made: Plan) -> Plan:
        for row in made.put:
            before = self.by_place.get(row.place)
            assert before is None or is_continued(before, row)
            self.by_place[row.place] = row
        self.runs += [record.run for record in made.starts]
        for row in made.settled:
            self.failed_by_place.pop(row.place, None)
        self.failed_by_place |= {row.place: row for row in made.put if row.outcome is Outcome.FAILED}
        self.job, self.due = made.job, made.due
        return made

    def at(self, now_s: float) -> Plan:
        return self.take(plan(self.job, now_s, self.settings))

    def end(self, now_s: float, *, ok: bool = True, run: str = "") -> Plan:
        result = RunResult(run=run or self.job.active[0].run, is_success=ok)
        return self.take(ended(self.job, result, now_s, self.settings))

    def change(self, job: Job) -> None:
        self.job = job

    @property
    def states(self) -> list[tuple[int, int, str]]:
        """(first nominal time after T0, count, state) in order."""
        rows = sorted(self.rows, key=lambda row: row.nominal)
        return [(row.nominal - T0, row.count, row.state.value) for row in rows if not row.is_manual]


def test_a_run_starts_at_each_nominal_time() -> None:
    book = Book(spec_of())
    assert not book.at(T0 + 9.9).starts
    assert book.due == T0 + 10
    (record,) = book.at(T0 + 10.01).starts
    assert (record.nominal, record.user, record.name) == (T0 + 10, "ann", "news")
    assert book.due == T0 + 20
    book.end(T0 + 12)
    assert [row.outcome for row in book.rows] == [Outcome.FINISHED]
    assert book.at(T0 + 20).starts


def test_deciding_twice_at_one_time_changes_nothing() -> None:
    book = Book(spec_of())
    book.at(T0 + 10)
    made = book.at(T0 + 10)
    assert not made.put
    assert not made.starts


def test_skipped_times_share_a_row_until_a_run_starts() -> None:
    book = Book(spec_of())
    for now in range(10, 50, 10):
        book.at(T0 + now)
    assert book.states == [(10, 1, "started"), (20, 3, "skipped_overlap")]
    book.end(T0 + 45)
    book.at(T0 + 50)
    book.at(T0 + 60)
    assert book.states[2:] == [(50, 1, "started"), (60, 1, "skipped_overlap")]


def test_a_queued_run_starts_when_the_one_before_it_has_ended() -> None:
    book = Book(spec_of(overlap="queue"))
    for now in (10, 20, 30):
        book.at(T0 + now)
    assert book.states == [(10, 1, "started"), (20, 1, "queued"), (30, 1, "queued")]
    (record,) = book.end(T0 + 31).starts
    assert record.nominal == T0 + 20
    book.end(T0 + 32)
    assert book.states == [(10, 1, "started"), (20, 1, "started"), (30, 1, "started")]
    assert len(book.runs) == 3


def test_a_queued_run_waits_for_the_repeats_of_the_one_before_it() -> None:
    book = Book(spec_of(overlap="queue", retries=1, retry_delay_s=100.0))
    book.at(T0 + 10)
    book.at(T0 + 20)
    book.end(T0 + 21, ok=False)
    book.at(T0 + 29)
    assert len(book.runs) == 1
    (record,) = book.at(T0 + 121).starts
    assert (record.nominal, record.run[-2:]) == (T0 + 10, ".2")


def test_so_many_manual_runs_wait_and_no_more() -> None:
    book = Book(spec_of())
    for n in range(100):
        book.change(requested(book.job, T0 + n / 10))
    assert len({*book.job.requested}) == 100, "each has a second of its own"
    with pytest.raises(ConflictError):
        requested(book.job, T0 + 1000)


def test_a_full_queue_skips() -> None:
    book = Book(spec_of(overlap="queue"))
    for n in range(1, QUEUED_MAX + 5):
        book.at(T0 + 10 * n)
    assert book.states[-1] == (10 * (QUEUED_MAX + 2), 3, "skipped_overlap")


def test_runs_may_overlap_if_allowed() -> None:
    book = Book(spec_of(overlap="allow"))
    book.at(T0 + 10)
    book.at(T0 + 20)
    assert len(book.job.active) == 2


def test_a_week_of_downtime_is_one_row() -> None:
    book = Book(spec_of("1"))
    book.at(T0 + 1)
    book.end(T0 + 1.5)
    while True:
        book.at(T0 + 604_800)
        if book.due != T0 + 604_800:
            break
        for row in book.job.active:
            book.end(T0 + 604_800, run=row.run)
    missed = [row for row in book.rows if row.state is State.MISSED_WINDOW]
    assert len(missed) == 1
    assert missed[0].nominal == T0 + 2
    assert_accounted(book, T0 + 604_800)


def test_the_latest_missed_time_is_caught_up_with() -> None:
    book = Book(spec_of(catchup="latest"))
    (record,) = book.at(T0 + 3601).starts
    assert record.nominal == T0 + 3600
    assert book.states == [(10, 359, "missed_window"), (3600, 1, "started")]


def test_all_missed_times_of_the_window_are_caught_up_with() -> None:
    book = Book(spec_of(catchup="all", overlap="allow", catchup_window_s=100.0))
    book.at(T0 + 3605)
    assert [row for row in book.states if row[2] != "started"] == [(10, 350, "missed_window")]
    assert len(book.runs) == 10


@pytest.mark.parametrize("overlap", ["skip", "queue"])
def test_times_that_are_caught_up_with_wait_for_each_other(overlap: str) -> None:
    book = Book(spec_of(catchup="all", overlap=overlap))
    book.at(T0 + 185)
    assert book.states == [(10, 1, "started"), *((n, 1, "queued") for n in range(20, 190, 10))]
    for n in range(18):
        if n == 3:
            book.at(T0 + 190.5)
            assert book.states[-1] == (190, 1, "skipped_overlap" if overlap == "skip" else "queued")
        book.end(T0 + 191 + n)
    assert [row.outcome for row in book.rows if row.run][:18] == [Outcome.FINISHED] * 18
    assert [run.split(".")[2] for run in book.runs] == sorted(run.split(".")[2] for run in book.runs)


def test_times_that_passed_in_a_few_seconds_are_caught_up_with_too() -> None:
    """Soon enough to be on time, but nobody was there to decide the first ones."""
    book = Book(spec_of("2", catchup="all"))
    book.at(T0 + 9)
    assert book.states == [(2, 1, "started"), (4, 1, "queued"), (6, 1, "queued"), (8, 1, "queued")]
    book.at(T0 + 10)
    assert book.states[-1] == (10, 1, "skipped_overlap")


@pytest.mark.parametrize("times", [4, 5, 6, 7])
def test_as_many_times_are_caught_up_with_as_the_limit_allows(times: int) -> None:
    book = Book(spec_of(catchup="all"), FEW)
    now = T0 + 10 * times + 5
    while book.at(now).due == now:
        pass
    assert Counter(row.state for row in book.rows if row.state is not State.MISSED_WINDOW).total() == min(times, 5)


@pytest.mark.parametrize("overlap", ["skip", "queue", "allow"])
@pytest.mark.parametrize("when", ["10", "1", "cron"])
def test_the_newest_times_are_caught_up_with(overlap: str, when: str) -> None:
    """The rest is one row."""
    spec = spec_of("10" if when == "cron" else when, catchup="all", overlap=overlap)
    if when == "cron":
        spec = replace(spec, schedule=schedule_of(cron="* * * * *", now_s=T0))
    book = Book(spec, FEW)
    now, times = T0 + 7205, list(spec.schedule.times(T0, T0 + 7205))
    while book.at(now).due == now:
        pass
    missed, *others = sorted(book.rows, key=lambda row: row.nominal)
    assert (missed.state, missed.count, missed.to) == (State.MISSED_WINDOW, len(times) - 5, times[-6])
    assert missed.reason == "of the times that passed, the newest 5 run"
    assert [row.nominal for row in others] == times[-5:]
    assert Counter(row.state for row in others) == (
        {"started": 3, "queued": 2} if overlap == "allow" else {"started": 1, "queued": 4}
    )
    assert_accounted(book, now)
    for n in range(5):
        book.end(now + 0.1 * n)
    assert len(book.runs) == 5


def test_a_skipped_time_names_the_run_that_it_overlapped_with() -> None:
    book = Book(spec_of(retries=1))
    book.at(T0 + 10)
    book.at(T0 + 20)
    book.at(T0 + 30)
    (first,) = book.runs
    assert book.by_place[T0 + 20.0].reason == f"run {first} had not ended"
    assert book.states[-1] == (20, 2, "skipped_overlap")
    book.end(T0 + 31, ok=False)
    book.at(T0 + 40)
    assert book.by_place[T0 + 40.0].reason == f"run {first} is to be repeated"


def test_runs_that_are_active_have_a_limit() -> None:
    book = Book(spec_of(overlap="allow"), FEW)
    for n in range(1, 7):
        book.at(T0 + 10 * n)
    assert book.states[3:] == [(40, 3, "skipped_limit")]
    assert book.by_place[T0 + 40.0].reason == "3 runs were active"
    book.change(requested(book.job, T0 + 61))
    made = book.at(T0 + 62)
    assert (made.starts, len(made.job.requested), made.due) == ((), 1, T0 + 70), "no busy loop"
    (record,) = book.end(T0 + 63).starts
    assert record.run.endswith("-m")
    failing = Book(spec_of(overlap="allow", retries=1, retry_delay_s=1.0), FEW)
    for n in range(1, 4):
        failing.at(T0 + 10 * n)
    failing.end(T0 + 39, ok=False)
    failing.at(T0 + 40)
    made = failing.at(T0 + 45)
    assert (len(made.job.active), len(made.job.repeats), made.due) == (3, 0, T0 + 50)


@pytest.mark.parametrize("is_decided", [True, False])
def test_an_edit_replaces_a_definition_that_no_time_belongs_to(is_decided: bool) -> None:
    """Whether the times before it were decided or not."""
    book = Book(spec_of("1000"))
    now = T0 + 5000.0
    if is_decided:
        book.at(now)
        book.end(now)
    for n in range(200):
        book.change(edited(book.job, spec_of("1000", retries=n % 100), now + n))
        assert len(book.job.revisions) <= 2 - is_decided
    assert (book.job.revision, book.job.spec.retries) == (201, 99)
    for later in range(5200, 8000, 100):
        book.at(T0 + later)
        for row in book.job.active:
            book.end(T0 + later, run=row.run)
    assert_accounted(book, T0 + 8000)


def test_an_edit_keeps_the_definition_of_a_run_and_decides_no_time_of_before() -> None:
    book = Book(spec_of("1000"))
    assert book.at(T0 + 1000).starts
    for n in range(10):
        book.change(edited(book.job, spec_of("7", retries=n), T0 + 1100))
    assert [one.number for one in book.job.revisions] == [1, 11], "the run needs its own"
    made = book.at(T0 + 1100.5)
    assert (made.put, made.due) == ((), T0 + 1106), "the next of every 7 seconds"


def test_definitions_and_pauses_that_nobody_decides_have_a_limit() -> None:
    book, now = Book(spec_of("1")), T0 + 10.0
    for n in range(19):
        book.change(edited(book.job, spec_of("1", retries=n), now + 5 * n))
    with pytest.raises(ConflictError, match="is an instance running"):
        edited(book.job, spec_of("1"), now + 100)
    while book.at(now + 1000).due == now + 1000:
        pass
    assert len(book.job.revisions) == 1
    for n in range(20):
        book.change(resumed(paused(book.job, now + 2000 + 5 * n), now + 2003 + 5 * n))
    with pytest.raises(ConflictError, match="is an instance running"):
        paused(book.job, now + 3000)


def test_delays_before_retries_grow_and_the_last_one_stays() -> None:
    book = Book(spec_of("100000", retries=4, retry_delay_s=(60.0, 300.0, 1800.0)))
    now = T0 + 100_000.0
    book.at(now)
    for delay in (60, 300, 1800, 1800):
        assert book.end(now, ok=False).due == now + delay
        (row,) = book.rows
        assert (row.outcome, row.failed_at, row.retry_at) == (Outcome.RETRYING, now, now + delay)
        assert not book.at(now + delay - 1).starts
        now += delay
        assert book.at(now).starts
    book.end(now, ok=False)
    (row,) = book.rows
    assert (row.outcome, row.attempts, row.retry_at) == (Outcome.FAILED, 5, 0.0)


@pytest.mark.parametrize(
    ("times", "outcome"),
    [
        ({}, Outcome.RUNNING),
        ({"started_at": 2.0}, Outcome.RUNNING),
        ({"completed_at": 3.0}, Outcome.FINISHED),
        ({"completed_at": 3.0, "limit": "pages"}, Outcome.LIMITED),
        ({"failed_at": 3.0}, Outcome.FAILED),
        ({"failed_at": 3.0, "retry_at": 9.0}, Outcome.RETRYING),
        ({"picked_at": 0.0, "completed_at": 3.0}, Outcome.UNKNOWN),
        ({"run": ""}, Outcome.NONE),
    ],
)
def test_the_state_of_a_run_follows_from_its_times(times: dict[str, Any], outcome: Outcome) -> None:
    row = Row(nominal=1, to=1, count=1, state=State.STARTED, revision=1, run="x.1.1", picked_at=1.0)
    assert replace(row, **times).outcome is outcome


def test_nothing_is_triggered_late_without_catching_up() -> None:
    book = Book(spec_of("3600"))
    book.at(T0 + 3600 + 59)
    book.end(T0 + 3660)
    made = book.at(T0 + 7200 + 61)
    assert not made.starts
    assert book.states == [(3600, 1, "started"), (7200, 1, "missed_window")]


def test_a_pause_is_one_row() -> None:
    book = Book(spec_of())
    book.change(paused(book.job, T0 + 15))
    book.at(T0 + 16)  # what was due before the pause starts
    assert book.states == [(10, 1, "started")]
    book.end(T0 + 17)
    assert book.at(T0 + 100).due is None
    assert next_time(book.job, T0 + 100) is None
    book.change(resumed(book.job, T0 + 105))
    book.at(T0 + 105.5)
    assert book.states == [(10, 1, "started"), (20, 9, "paused")]
    assert book.at(T0 + 110).starts
    with pytest.raises(ConflictError, match="is not paused"):
        resumed(book.job, T0)


def test_an_edit_neither_repeats_nor_forgets_a_time() -> None:
    book = Book(spec_of())
    book.at(T0 + 10)
    book.end(T0 + 11)
    book.change(edited(book.job, replace(spec_of("7"), retries=1), T0 + 25))
    book.at(T0 + 26)  # 20 by the first definition; then 28, 35 ... by the second
    assert book.states == [(10, 1, "started"), (20, 1, "started")]
    assert [row.revision for row in sorted(book.rows, key=lambda row: row.nominal)] == [1, 1]
    book.end(T0 + 27)
    (record,) = book.at(T0 + 28).starts
    assert record.run.split(".")[1] == "2"
    assert [revision.number for revision in book.job.revisions] == [2]


def test_a_failed_run_is_repeated_and_then_given_up() -> None:
    book = Book(spec_of("3600", retries=2, retry_delay_s=30.0))
    now = T0 + 3600.0
    book.at(now)
    for attempt in (1, 2, 3):
        (row,) = book.job.active
        assert row.attempts == attempt
        book.end(now, ok=False)
        now += 30
        book.at(now)
    (row,) = book.rows
    assert (row.outcome, row.attempts) == (Outcome.FAILED, 3)
    assert len(set(book.runs)) == 3


def test_a_run_may_end_without_anything_being_decided() -> None:
    """As an instance ends it whose clock is wrong: whoever looks next decides, at once."""
    book = Book(spec_of(retries=1, retry_delay_s=30.0))
    book.at(T0 + 10)
    (row,) = book.job.active
    made = book.take(ended(book.job, RunResult(run=row.run, is_success=True), T0 + 7210, decides=False))
    assert (made.starts, made.ends, book.due) == ((), (row.run,), T0 + 10)
    assert book.states == [(10, 1, "started")]
    assert book.at(T0 + 20).starts
    (row,) = book.job.active
    book.take(ended(book.job, RunResult(run=row.run, is_success=False), T0 + 21, decides=False))
    assert not book.at(T0 + 29).starts
    assert book.due == T0 + 30
    assert len(book.at(T0 + 51).starts) == 1, "it is repeated"
    (row,) = book.job.active
    book.change(requested(book.job, T0 + 52))
    book.take(ended(book.job, RunResult(run=row.run, is_success=True), T0 - 3600, decides=False))
    assert book.due == T0 - 3600, "a manual run does not wait until clocks that were set back have caught up"


def test_a_manual_run_starts_whatever_else_runs() -> None:
    book = Book(spec_of())
    book.at(T0 + 10)
    book.change(requested(requested(book.job, T0 + 11), T0 + 11))
    assert [record.nominal - T0 for record in book.at(T0 + 11).starts] == [11, 12]
    assert len(set(book.runs)) == 3
    assert book.states == [(10, 1, "started")]


def test_a_failed_run_is_repeated_by_hand_with_the_definition_of_now() -> None:
    book = Book(spec_of("3600", overlap="allow"))
    book.at(T0 + 3600)
    book.end(T0 + 3601, ok=False)
    (failed,) = book.failed
    book.change(edited(book.job, spec_of("7", retries=2), T0 + 3602))
    book.at(T0 + 7200)
    book.take(retried(book.job, [failed], T0 + 7200))
    assert not book.failed
    (record,) = [one for one in book.at(T0 + 7200.5).starts if one.nominal == T0 + 3600]
    assert record.run == failed.run.replace(".1.", ".2.") + ".2"
    assert book.by_place[failed.place].outcome is Outcome.RUNNING
    book.end(T0 + 7201, ok=False, run=record.run)
    assert not book.failed, "it has one retry more"
    (again,) = [one for one in book.at(T0 + 7261).starts if one.nominal == T0 + 3600]
    book.end(T0 + 7262, ok=False, run=again.run)
    assert [row.attempts for row in book.failed] == [3]
    book.take(dismissed(book.job, book.failed, T0 + 100))
    assert not book.failed
    assert book.by_place[failed.place].outcome is Outcome.FAILED
    assert len(set(book.runs)) == len(book.runs)


def test_so_many_failed_runs_are_repeated_at_once_and_no_more() -> None:
    book = Book(spec_of("1", overlap="allow", catchup="all"))
    rows = [Row(nominal=n, to=n, count=1, state=State.STARTED, revision=1, run=f"x.1.{n}") for n in range(101)]
    with pytest.raises(ConflictError, match="job news has 0 runs to be repeated, and takes up to 100"):
        retried(book.job, rows, T0)
    assert len(book.take(retried(book.job, rows[1:], T0)).job.repeats) == 100


def test_a_job_that_runs_once_is_over_then() -> None:
    once = JobSpec(schedule=schedule_of(at="2027-01-31T12:00Z", now_s=T0), seeds=("http://a.test/",))
    book = Book(once)
    at = once.schedule.at_s
    assert book.at(T0).due == at
    book.at(at + 1)
    assert book.end(at + 2).due is None
    assert next_time(book.job, at) is None


def assert_accounted(book: Book, until: int) -> None:
    """Each nominal time of a job that was never edited has one row, and ranges have their counts."""
    seen: Counter[int] = Counter()
    for row in (row for row in book.rows if not row.is_manual):
        times = list(book.job.spec.schedule.times(row.nominal - 1, row.to))
        assert len(times) == row.count
        seen.update(times)
    assert set(seen) == set(book.job.spec.schedule.times(T0, min(until, book.job.done_to)))
    assert set(seen.values()) == {1}


@pytest.mark.parametrize("seed", range(60))
def test_each_nominal_time_has_one_row_whatever_clocks_do(seed: int) -> None:
    """Random steps: time passes or jumps either way, runs end well or badly, people pause, resume and edit."""
    r = random.Random(seed)
    spec = spec_of(
        r.choice(("1", "7", "60")), overlap=r.choice(("skip", "queue", "allow")), retries=r.choice((0, 2)),
        catchup=r.choice(("none", "latest", "all")), retry_delay_s=5.0, catchup_window_s=r.choice((30.0, 500.0)),
        jitter_s=r.choice((0.0, 0.9)),
    )  # fmt: skip
    book = Book(spec)
    history = [(T0, 1, spec)]  # since, revision, definition
    now = float(T0)
    for _ in range(120):
        now += r.choice((0.1, 1.0, 5.0, 40.0, 3600.0, -3600.0) if r.random() < 0.2 else (0.5, 1.0, 3.0))
        step = r.random()
        if step < 0.6:
            book.at(now)
        elif step < 0.8 and book.job.active:
            book.end(now, ok=r.random() < 0.5, run=r.choice(book.job.active).run)
        elif step < 0.87:
            book.change((resumed if book.job.is_paused else paused)(book.job, now))
        elif step < 0.9:
            spec = replace(spec, schedule=replace(spec.schedule, every_s=r.choice((1, 3, 11))))
            book.change(edited(book.job, spec, now))
            history.append((book.job.revisions[-1].since, book.job.revision, spec))
        elif step < 0.93 and len(book.job.requested) < 5:
            book.change(requested(book.job, now))
        elif step < 0.96 and book.failed:
            book.take(retried(book.job, [r.choice(book.failed)], now))
    if book.job.is_paused:
        book.change(resumed(book.job, now))
    for _ in range(1000):
        book.at(now)
        if book.due is None or book.due > now:
            break
    seen: Counter[int] = Counter()
    for row in book.rows:
        if not row.is_manual:
            since, number, definition = [one for one in history if one[0] < row.nominal][-1]
            assert row.revision == number or row.attempts > 1, "repeated by hand, after an edit"
            times = [t for t in definition.schedule.times(row.nominal - 1, row.to) if t > since]
            assert len(times) == row.count
            seen.update(times)
    wanted = set[int]()
    for (since, _, definition), until in zip(
        history, [*(at for at, _, _ in history[1:]), book.job.done_to], strict=True
    ):
        wanted |= set(definition.schedule.times(since, min(until, book.job.done_to)))
    assert set(seen) == wanted
    assert set(seen.values()) <= {1}
    assert len(book.runs) == len(set(book.runs))
