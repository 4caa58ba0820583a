"""Runs of jobs in a crawl of this process: started, looked at, finished and closed as the part that runs jobs does."""

import asyncio
import contextlib
from collections.abc import Sequence
from typing import Any
from unittest.mock import patch

import msgspec

from crawler.crawl.opening import OpenCrawl, make_router
from crawler.crawl.runs import RunSeeder
from crawler.crawl.url_input import GivenUrl
from crawler.frontier.runs import Runs
from crawler.instance.finish import FinishWatcher
from crawler.rules.cron import Schedule
from crawler.rules.finish import RunPass, is_run_finished
from crawler.rules.job_runs import RunCounts, RunRecord, RunSpec, job_of, total_of
from crawler.rules.jobs import Job, JobSpec, Revision, Row, State
from tests.crawl.rebuild_lab import WebLab
from tests.frontier.raw import dump

ONE, TWO = "job00000.0.1", "job00000.0.2"
LOOK_S = 0.02


def runs_of(crawl: OpenCrawl) -> Runs:
    return crawl.runs


def waiting_for_urls(crawl: OpenCrawl) -> Any:
    """The crawl waits for runs that have URLs to fetch: their ends are the test's."""

    async def active(_: FinishWatcher) -> set[str]:
        found = sorted(await crawl.runs.active())
        passes = await crawl.runs.passes(found)
        return {run for run, one in zip(found, passes, strict=True) if total_of(one.values()).pending}

    return patch.object(FinishWatcher, "_active_runs", active)


async def write(crawl: OpenCrawl, record: RunRecord) -> None:
    key = crawl.keys.of(runs_of(crawl).home(record.run), "runs")
    await crawl.engine.command("HSET", key, record.run, msgspec.json.encode(record))
    await write_job(crawl)


async def write_job(crawl: OpenCrawl) -> None:
    """The job of all runs knows those that are active, which audits look at."""
    home = runs_of(crawl).home(ONE)
    found = [run.decode() for run in await crawl.engine.command("HKEYS", crawl.keys.of(home, "runs"))]
    rows = [
        Row(nominal=1, to=1, count=1, state=State.STARTED, revision=1, is_manual=True, run=run) for run in sorted(found)
    ]
    spec = JobSpec(schedule=Schedule(at_s=4_000_000_000), seeds=("http://a.test/",))
    job = Job(
        id=job_of(ONE), user="ann", name="job", created_at=0.0, done_to=10, active=tuple(rows),
        revisions=(Revision(number=1, since=0, spec=spec),),
    )  # fmt: skip
    text = b"mark " + msgspec.json.encode(job)
    await crawl.engine.command("HSET", crawl.keys.of(home, "jobs"), job.id, text)


async def start(
    crawl: OpenCrawl, run: str, seeds: Sequence[str], *, stopped: str = "", user: str = "ann", **spec: Any
) -> RunSeeder:
    """Make a run active and add its seeds."""
    record = RunRecord(run=run, user=user, name="job", nominal=1, started_at=1.0, spec=RunSpec(**spec))
    await write(crawl, record)
    seeder = RunSeeder(crawl.frontier, runs_of(crawl), make_router(crawl), record)
    assert await seeder.add_all(GivenUrl("here", url) for url in seeds)
    await write(crawl, msgspec.structs.replace(record, stopped=stopped))
    return seeder


async def end(crawl: OpenCrawl, run: str) -> None:
    """It is not active any more."""
    await crawl.engine.command("HDEL", crawl.keys.of(runs_of(crawl).home(run), "runs"), run)
    await write_job(crawl)


async def close(crawl: OpenCrawl, run: str) -> None:
    runs = runs_of(crawl)
    await runs.close_everywhere([run])


async def counts(crawl: OpenCrawl, run: str) -> RunCounts:
    runs = runs_of(crawl)
    return total_of((await runs.counts(run, sorted(await runs.touched(run)))).values())


async def finish(crawl: OpenCrawl, run: str) -> RunCounts:
    """Wait until two passes prove that the run has finished, then end and close it; its counts."""
    runs, passes = runs_of(crawl), list[RunPass]()
    while not is_run_finished(passes):
        await asyncio.sleep(LOOK_S)
        assert (await runs.read([run]))[run] is not None
        touched = await runs.touched(run)
        found = await runs.counts(run, sorted(touched))
        passes = [*passes[-1:], RunPass(crawl.engine.run_id, found)]
    await end(crawl, run)
    await close(crawl, run)
    return total_of(passes[-1].counts.values())


def left_of(lab: WebLab, run: str) -> list[bytes]:
    """Keys that still name the run, but for what is kept of it: notes that it is closed, dead letters, commits."""
    kept, name = (b":closed", b":dead", b":l"), run.encode()
    with contextlib.closing(lab.engine.client()) as client:
        whole = dump(client, "{main:*")
    return [key for key, value in whole.items() if name in key or (name in pickled(value) and not key.endswith(kept))]


def pickled(value: Any) -> bytes:
    return repr(value).encode()
