"""What a job is after a rebuild that found runs of it: none of them is triggered again, and each time has one row."""

import random
from typing import Any

import pytest

from crawler.rules.job_plan import FoundRun, edited, recovered, requested
from crawler.rules.job_runs import RunCounts, RunName, job_of, name_of, run_id, total_of
from crawler.rules.jobs import Outcome
from tests.rules.test_job_plan import T0, Book, assert_accounted, spec_of

JOB = "0123456789"


def found(at: int, *, revision: int = 1, attempt: int = 1, is_manual: bool = False) -> FoundRun:
    run = run_id(JOB, revision, T0 + at, attempt=attempt, is_manual=is_manual)
    return FoundRun(run=run, pages=3, errors=1, bytes=100, began=T0 + at + 1.0, last=T0 + at + 2.0)


@pytest.mark.parametrize("given", [{}, {"attempt": 2}, {"is_manual": True}, {"attempt": 37, "is_manual": True}])
def test_an_id_of_a_run_tells_what_it_was_made_of(given: dict[str, Any]) -> None:
    run = run_id(JOB, 36, T0, **given)
    assert job_of(run) == JOB
    assert name_of(run) == RunName(JOB, 36, T0, given.get("is_manual", False), given.get("attempt", 1))


def test_counts_of_a_run_add_up_over_partitions() -> None:
    one, other = RunCounts(*range(13)), RunCounts(*range(100, 113))
    assert total_of([]) == RunCounts(*[0] * 13)
    assert total_of([one, other]) == RunCounts(*range(100, 126, 2))
    assert (total_of([one]).pages, total_of([one]).pending) == (5 + 6 + 7 + 8 + 9, 0 - 1 - 2 - 3)


def recover(book: Book, *runs: FoundRun) -> None:
    book.take(recovered(book.job, runs, T0 + 1000.0))


def test_a_lost_job_has_its_runs_and_the_times_between_them_are_unknown() -> None:
    book = Book(spec_of())
    recover(book, found(60), found(30))
    assert book.states == [(10, 2, "unknown"), (30, 1, "started"), (40, 2, "unknown"), (60, 1, "started")]
    (row,) = [row for row in book.rows if row.nominal == T0 + 30]
    assert (row.outcome, row.pages, row.errors, row.attempts) == (Outcome.UNKNOWN, 3, 1, 1)
    assert not book.runs
    book.at(T0 + 70)
    assert [name_of(run).nominal for run in book.runs] == [T0 + 70]  # type: ignore[union-attr]
    assert_accounted(book, T0 + 70)


def test_recovering_twice_changes_nothing() -> None:
    book = Book(spec_of())
    runs = (found(30), found(40, attempt=2), found(45, is_manual=True))
    recover(book, *runs)
    made = recovered(book.job, runs, T0 + 1000.0)
    assert (made.job, made.put, made.ends) == (book.job, (), ())


def test_what_an_older_job_knows_stays() -> None:
    book = Book(spec_of(overlap="allow"))
    book.at(T0 + 10)
    book.end(T0 + 12)
    book.at(T0 + 20)
    recover(book, found(10), found(20), found(40))
    rows = sorted(book.rows, key=lambda row: row.nominal)
    assert [row.outcome for row in rows] == ["finished", "running", "", "unknown"]
    assert [row.nominal for row in book.job.active] == [T0 + 20]


def test_a_later_attempt_takes_the_place_of_one_that_an_older_job_waits_for() -> None:
    book = Book(spec_of(retries=3, retry_delay_s=500.0, overlap="allow"))
    book.at(T0 + 10)
    book.end(T0 + 12, ok=False)
    book.at(T0 + 20)
    going_on = next(row.run for row in book.job.active if row.nominal == T0 + 20)
    made = book.take(recovered(book.job, [found(10, attempt=2), found(20, attempt=3)], T0 + 1000.0))
    assert made.ends == (going_on,)
    assert (book.job.active, book.job.repeats) == ((), ())
    assert {row.attempts for row in book.rows} == {2, 3}
    assert {row.outcome for row in book.rows} == {Outcome.UNKNOWN}


def test_a_queued_run_and_a_manual_one_that_have_run_do_not_run_again() -> None:
    book = Book(spec_of(overlap="queue"))
    book.at(T0 + 10)
    book.at(T0 + 20)
    book.change(requested(book.job, T0 + 25))
    recover(book, found(20), found(25, is_manual=True), found(26, is_manual=True))
    assert (book.job.queued, book.job.requested, book.job.requested_last) == ((), (), T0 + 26)
    book.end(T0 + 30)
    assert {name_of(run).nominal - T0 for run in book.runs} == {10, 30}  # type: ignore[union-attr]


def test_only_a_manual_run_moves_the_time_of_the_last_request() -> None:
    book = Book(spec_of())
    recover(book, found(30, is_manual=True), found(40))
    assert book.job.requested_last == T0 + 30


def test_times_before_an_edit_belong_to_the_definition_that_was_in_force() -> None:
    book = Book(spec_of())
    book.change(edited(book.job, spec_of("7"), T0 + 35))
    recover(book, found(20), found(42, revision=2))
    assert book.states == [(10, 1, "unknown"), (20, 1, "started"), (30, 1, "unknown"), (42, 1, "started")]
    assert [(row.revision, row.nominal - T0) for row in sorted(book.rows, key=lambda row: row.nominal)] == [
        (1, 10), (1, 20), (1, 30), (2, 42),
    ]  # fmt: skip


def test_what_is_not_the_id_of_a_run_is_left_out() -> None:
    book = Book(spec_of())
    recover(book, FoundRun(run="job.x", pages=1, errors=0, bytes=1, began=1.0, last=1.0))
    assert not book.rows


@pytest.mark.parametrize("seed", range(40))
def test_no_run_is_triggered_twice_whatever_an_engine_forgot(seed: int) -> None:
    """A job goes on for a while, falls back to an earlier state, is recovered from all runs, and goes on."""
    r = random.Random(seed)
    options: dict[str, Any] = {
        "overlap": r.choice(("skip", "queue", "allow")), "retries": r.choice((0, 2)), "retry_delay_s": 5.0,
        "catchup": r.choice(("none", "all")),
    }  # fmt: skip
    book = Book(spec_of(r.choice(("1", "7", "60")), **options))
    now, backup = live(book, r, float(T0), 60), copied(book)
    live(book, r, now, r.choice((5, 60)))
    runs, ran = [FoundRun(run=run, pages=1, errors=0, bytes=1, began=1.0, last=1.0) for run in book.runs], book.runs
    backup.take(recovered(backup.job, runs, now))
    known = {row.run for row in backup.job.active}
    before = set(ran) - known
    backup.runs = []
    live(backup, r, now + 600, 60)
    assert not before & set(backup.runs)
    assert_accounted(backup, T0 + 10**6)


def copied(book: Book) -> Book:
    other = Book(book.job.spec)
    other.job, other.by_place = book.job, dict(book.by_place)
    return other


def live(book: Book, r: random.Random, now: float, steps: int) -> float:
    for _ in range(steps):
        now += r.choice((0.5, 3.0, 20.0))
        step = r.random()
        if step < 0.6:
            book.at(now)
        elif step < 0.9 and book.job.active:
            book.end(now, ok=r.random() < 0.5, run=r.choice(book.job.active).run)
        elif len(book.job.requested) < 5:
            book.change(requested(book.job, now))
    return now
