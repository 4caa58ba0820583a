"""Runs of jobs that used up their attempts, the dead letters of jobs: listed, repeated, dismissed.

A failed run stays in the list of its job until somebody acts on it; the newest hundred of each job are kept. All
raise EngineError, and NotMetError for a job or a run that there is not.
"""

import contextlib
from collections.abc import AsyncIterator, Callable, Iterable, Sequence

import msgspec

from crawler.archive.prune_records import runs_beyond
from crawler.crawl.opening import OpenCrawl
from crawler.errors import NotMetError
from crawler.frontier.jobs import Changed
from crawler.frontier.operator_log import Actor
from crawler.rules.job_plan import Plan, dismissed, retried
from crawler.rules.jobs import Job, Row
from crawler.runtime.clocks import wall_s
from crawler.views.job_view import FailedRun, failed_run
from crawler.views.jobs import TRIES, _detail, _note_order, checked_s, contended

JOBS_AT_ONCE = 500


async def failed_runs(crawl: OpenCrawl, user: str | None, name: str = "", *, limit: int = 0) -> list[FailedRun]:
    """Those of a job, of all jobs of a user, or of all (None), those that failed last first. `limit` 0: all."""
    if name:
        job = (await crawl.jobs.find(user or "", name)).job
        (some,) = await crawl.jobs.failed([job.id])
        rows = [(job, row) for row in some]
    else:
        rows = [(job, row) async for job, some in _all(crawl, user) for row in some]
    rows.sort(key=lambda one: (-one[1].ended_at, one[0].user, one[0].name, -one[1].place))
    return [failed_run(job, row) for job, row in (rows[:limit] if limit else rows)]


async def _all(crawl: OpenCrawl, user: str | None = None) -> AsyncIterator[tuple[Job, Sequence[Row]]]:
    """Jobs that have failed runs, with these."""
    after = ""
    while True:
        jobs, after = await crawl.jobs.page(user, after=after, limit=JOBS_AT_ONCE)
        counts = await crawl.jobs.failed_counts([job.id for job in jobs])
        with_some = [job for job, n in zip(jobs, counts, strict=True) if n]
        for job, rows in zip(with_some, await crawl.jobs.failed([job.id for job in with_some]), strict=True):
            yield job, rows
        if not after:
            return


class FailedRunsChange(msgspec.Struct, frozen=True, kw_only=True):
    """How many failed runs were repeated or dismissed, and how many are left in the list of their job."""

    runs: int
    left: int


async def retry(
    crawl: OpenCrawl, user: str, name: str, runs: Sequence[str] | None, *, actor: Actor
) -> FailedRunsChange:
    """Repeat failed runs at once, with the definition that the job has now; None: all of the list.

    Each keeps its nominal time, and leaves the list. Raises ConflictError when too many are to be repeated.
    """
    now_s = await checked_s(crawl)
    await _note_order(crawl, actor, "jobs retry", user, name, _detail(runs))
    return await _change_failed(crawl, user, name, _chosen(name, runs), lambda job, rows: retried(job, rows, now_s))


async def dismiss(
    crawl: OpenCrawl, user: str, name: str, runs: Sequence[str] | None, *, actor: Actor
) -> FailedRunsChange:
    """Take failed runs off the list of their job; None: all of it. The history still has them."""
    await _note_order(crawl, actor, "jobs dismiss", user, name, _detail(runs))
    return await _change_failed(crawl, user, name, _chosen(name, runs), _dismissed)


async def dismiss_old(
    crawl: OpenCrawl, *, before: float, keep: int, runs: Iterable[str], active: Iterable[str], dry_run: bool
) -> int:
    """Dismiss those of all jobs that are too old; how many. `before`: wall clock, s; 0: whenever they failed.

    `keep`: those beyond the newest of each job, counted with `runs`, which others know of; 0: all.
    """
    found = [one async for one in _all(crawl)]
    beyond = runs_beyond({*runs, *(row.run for _, rows in found for row in rows)}, keep, active) if keep else None

    def old(rows: Sequence[Row]) -> list[Row]:
        aged = [row for row in rows if not before or row.ended_at < before]
        return [row for row in aged if beyond is None or row.run in beyond]

    if dry_run:
        return sum(len(old(rows)) for _, rows in found)
    count = 0
    for job, rows in found:
        if old(rows):
            with contextlib.suppress(NotMetError):  # the job was removed meanwhile
                count += (await _change_failed(crawl, job.user, job.name, old, _dismissed)).runs
    return count


def _dismissed(job: Job, rows: Sequence[Row]) -> Plan:
    return dismissed(job, rows, wall_s())


def _chosen(name: str, runs: Sequence[str] | None) -> Callable[[Sequence[Row]], list[Row]]:
    def chosen(rows: Sequence[Row]) -> list[Row]:
        """Raises NotMetError when one is not there."""
        wanted = {row.run for row in rows} if runs is None else {*runs}
        if missing := wanted - {row.run for row in rows}:
            raise NotMetError(f"{min(missing)[:80]!r} is not a failed run of job {name}; nothing was changed")
        return [row for row in rows if row.run in wanted]

    return chosen


async def _change_failed(
    crawl: OpenCrawl,
    user: str,
    name: str,
    choose: Callable[[Sequence[Row]], list[Row]],
    step: Callable[[Job, Sequence[Row]], Plan],
) -> FailedRunsChange:
    """Take this step with failed runs of a job, oldest first."""
    for _ in range(TRIES):
        stored = await crawl.jobs.find(user, name)
        (rows,) = await crawl.jobs.failed([stored.job.id])
        chosen = choose(rows)[::-1]
        change = FailedRunsChange(runs=len(chosen), left=len(rows) - len(chosen))
        if not chosen:
            return change
        with contextlib.suppress(Changed):
            await crawl.jobs.change(stored, step(stored.job, chosen), None)
            await crawl.jobs.notify()
            return change
    raise contended(name)
