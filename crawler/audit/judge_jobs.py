"""Judges the histories of jobs: has each nominal time exactly one row, is each run that goes on in its job, and has the
index the pages that the row of a run counts?

The times are counted again from the definitions that were in force. They are known from the oldest row on: what is
older was dropped.
"""

from collections.abc import Callable, Iterator

from crawler.audit.findings import Report
from crawler.frontier.job_audit import JobBook, JobBooks
from crawler.rules.cron import Schedule, as_iso
from crawler.rules.jobs import Job, Outcome, Row
from crawler.terminal.words import counted

CLOCK_S = 10.0  # by which clocks may differ


COUNTED = (Outcome.FINISHED, Outcome.LIMITED, Outcome.STOPPED, Outcome.FAILED)


async def judge_jobs(
    books: JobBooks,
    report: Report,
    pages_of: Callable[[str], int] | None = None,
    *,
    before_s: float = 0.0,
    forgotten: int = 0,
) -> None:
    """Read and judge all jobs. Raises EngineError.

    `pages_of`: how many pages of a run the index has; `before_s`: it has all of runs that ended before this time (wall
    clock). `forgotten`: how many pages of ended runs were of domains that the crawl has forgotten: rows count them.
    """
    unsteady = 0
    async for some in books.read():
        for book in some:
            if isinstance(book, str):
                unsteady += 1
                continue
            _judge(book, report)
            if pages_of is not None:
                forgotten -= _judge_pages(book, report, pages_of, before_s - CLOCK_S, forgotten)
    if unsteady:
        report.notes.append(f"{counted(unsteady, 'job')} changed at every look and not judged")


def _judge(book: JobBook, report: Report) -> None:
    report.jobs += 1
    report.nominal_times += sum(row.count for row in book.rows if not row.is_manual)
    if book.job is None:
        for run in sorted(book.runs):
            report.findings.runs.add(job=book.id, run=run, reason="it has a record, and its job is gone")
        return
    for at, reason in _wrong_times(book, book.job):
        report.findings.nominal.add(job=book.job.name, time=as_iso(at), reason=reason)
    for run, reason in _wrong_runs(book, book.job):
        report.findings.runs.add(job=book.job.name, run=run, reason=reason)


def _judge_pages(book: JobBook, report: Report, pages_of: Callable[[str], int], before_s: float, forgotten: int) -> int:
    """Does the index have as many pages of each run as its row says, without those that were forgotten? How many of
    these the runs of this job lack.
    """
    name, lacking = book.job.name if book.job else book.id, 0
    for row in book.rows:
        if row.outcome in COUNTED and row.ended_at < before_s and (pages := pages_of(row.run)) != row.pages:
            if 0 < row.pages - pages <= forgotten - lacking:
                lacking += row.pages - pages
                continue
            reason = f"its row has {counted(row.pages, 'page')}, the index and the engine's log have {pages:,}"
            report.findings.runs.add(job=name, run=row.run, reason=reason)
    return lacking


def _wrong_times(book: JobBook, job: Job) -> Iterator[tuple[int, str]]:
    """Nominal times without a row, with two, or with one that stands for other times; and why."""
    reached = _begin(book, job)
    for row in (row for row in book.rows if not row.is_manual):
        if row.nominal <= reached:
            yield row.nominal, "it has two rows"
        else:
            yield from _unwritten(book, reached, row.nominal - 1)
        yield from _wrong_row(book, row)
        reached = max(reached, row.to)
        if row.to > job.done_to:
            yield row.to, f"it has a row, but the job is decided up to {as_iso(job.done_to)} only"
    yield from _unwritten(book, reached, job.done_to)


def _begin(book: JobBook, job: Job) -> int:
    """Up to when nothing is known. Rows are dropped by when they begin, so one of a manual run tells nothing."""
    known = min((revision.since for revision in book.revisions.values()), default=job.done_to)
    if not book.rows:
        return known
    return max(known, next((row.nominal - 1 for row in book.rows if not row.is_manual), job.done_to))


def _unwritten(book: JobBook, after: int, until: int) -> Iterator[tuple[int, str]]:
    """Times in (after, until] that have no row."""
    revisions = [book.revisions[number] for number in sorted(book.revisions)]
    for n, revision in enumerate(revisions):
        last = revisions[n + 1].since if n + 1 < len(revisions) else until
        first, count = _times(revision.spec.schedule, max(after, revision.since), min(until, last))[:2]
        if count:
            yield first, "it has no row" if count == 1 else f"it and {count - 1:,} more have no row"


def _wrong_row(book: JobBook, row: Row) -> Iterator[tuple[int, str]]:
    in_force = [revision for revision in book.revisions.values() if revision.since < row.nominal]
    if not in_force:  # its definition was dropped
        return
    revision = max(in_force, key=lambda one: one.number)  # a run that was repeated by hand has a later one
    first, count, last = _times(revision.spec.schedule, row.nominal - 1, row.to)
    if (first, last) != (row.nominal, row.to):
        yield row.nominal, "its row begins or ends at a time that the job does not have"
    elif count != row.count:
        yield row.nominal, f"its row is for {row.count:,} times up to {as_iso(row.to)}, where the job has {count:,}"


def _times(schedule: Schedule, after: int, until: int) -> tuple[int, int, int]:
    """The first of the times in (after, until], how many, and the last."""
    first = last = count = 0
    while after < until:
        span = schedule.span(after, until)
        first, last, count = first or span.first or 0, span.last or last, count + span.count
        if span.is_complete:
            break
        after = span.reached
    return first, count, last


def _wrong_runs(book: JobBook, job: Job) -> Iterator[tuple[str, str]]:
    """Runs that only the job, only its history, or only the records of active runs take for active; and leftovers."""
    active = {row.run for row in job.active}
    oldest = book.rows[0].nominal if book.rows else job.done_to + 1
    shown = {row.run for row in book.rows if row.outcome is Outcome.RUNNING}
    wanted = {row.run for row in job.active if row.nominal > oldest}  # others may have been dropped
    for run in sorted(active - book.runs):
        yield run, "its job waits for it, but it has no record"
    for run in sorted(book.runs - active):
        yield run, "it has a record, but its job does not know it"
    for run in sorted(shown - active):
        yield run, "it has ended, and its row says that it runs"
    for run in sorted(wanted - shown):
        yield run, "it runs, and no row says so"
    for run in book.left:
        yield run, "it has ended, and was not removed from its partitions"
