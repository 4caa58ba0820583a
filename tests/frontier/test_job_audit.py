"""The audit of jobs: clean whatever became of their times, and not clean when a row is wrong, missing or doubled."""

import math
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from crawler.audit.findings import Report
from crawler.audit.judge_jobs import judge_jobs
from crawler.audit.report import report_json, report_text
from crawler.frontier.job_audit import JobBooks
from crawler.frontier.jobs import Jobs, StoredJob, job_id
from crawler.rules.cron import Schedule
from crawler.rules.job_plan import Plan, RunResult, created, edited, ended, paused, plan, requested, resumed, retried
from crawler.rules.jobs import Job, JobSpec, Row
from tests.frontier.door import Door

T0 = 1_800_000_000
TITLE = "nominal times without a row, or with two"
SPEC = JobSpec(schedule=Schedule(every_s=10, anchor_s=T0), seeds=("http://a.test/",), retries=1, retry_delay_s=5.0)
CRON = replace(SPEC, schedule=Schedule(cron="* * * * *"), overlap="allow")

encode = msgspec.json.Encoder().encode


class Lab:
    """A job in the engine, and its audit."""

    def __init__(self, door: Door, rows_max: int = 100) -> None:
        self.door = door
        self.jobs = Jobs(door.engine, door.keys, 1, rows_max=rows_max)
        self.read = StoredJob(created(job_id("u", "news"), "u", "news", SPEC, T0), "")

    def key(self, name: str) -> str:
        return self.door.keys.of(0, name)

    @property
    def job(self) -> Job:
        return self.read.job

    async def create(self) -> None:
        await self.jobs.create(self.job, due=T0 + 10.0)
        self.read = await self.jobs.find("u", "news")

    async def step(self, made: Plan) -> None:
        self.read = await self.jobs.change(self.read, made, self.door.fence)

    async def decide(self, at: float) -> None:
        await self.step(plan(self.job, float(at)))

    async def end(self, at: float, *, is_success: bool = True) -> None:
        await self.step(ended(self.job, RunResult(run=self.job.active[0].run, is_success=is_success), float(at)))

    async def by_people(self, step: Callable[[Job, float], Job], at: float) -> None:
        self.read = await self.jobs.change(
            self.read, Plan(job=step(self.job, at), due=at), None, new_revision=step is edit
        )

    async def history(self) -> list[Row]:
        return (await self.jobs.history(self.job.id, limit=1000))[::-1]

    async def put(self, *rows: Row) -> None:
        key = self.key(f"ledger:{self.job.id}")
        await self.door.engine.command("ZADD", key, *(part for row in rows for part in (row.nominal, encode(row))))

    async def drop(self, row: Row) -> None:
        await self.door.engine.command("ZREM", self.key(f"ledger:{self.job.id}"), encode(row))

    async def report(self) -> Report:
        report = Report(crawl="t")
        await judge_jobs(JobBooks(self.door.engine, self.door.keys, 1), report)
        return report

    async def found(self) -> list[dict[str, Any]]:
        report = await self.report()
        return [*report.findings.nominal.examples, *report.findings.runs.examples]

    async def live(self) -> None:
        """All that can become of a time: runs, repeats, overlap, misses, pauses, an edit, manual runs."""
        await self.create()
        await self.decide(T0 + 10.2)
        await self.decide(T0 + 20.2)  # skipped
        await self.end(T0 + 21, is_success=False)
        await self.decide(T0 + 30.2)
        await self.end(T0 + 31)
        await self.decide(T0 + 300)  # most were missed
        await self.by_people(requested, T0 + 301)
        await self.decide(T0 + 302)
        while self.job.active:
            await self.end(T0 + 303)
        await self.by_people(paused, T0 + 305)
        await self.by_people(resumed, T0 + 365)
        await self.by_people(edit, T0 + 365.5)
        for at in (366, 450, 700):
            await self.decide(T0 + at)


def edit(job: Job, now_s: float) -> Job:
    return edited(job, CRON, now_s)


@pytest.fixture
async def lab(door: Door) -> Lab:
    found = Lab(door)
    await found.live()
    return found


async def test_whatever_became_of_its_times_a_job_is_clean(lab: Lab) -> None:
    report = await lab.report()
    assert not report.findings.violations
    assert report.jobs == 1
    assert report.nominal_times == 36 + 5  # every ten seconds, then each minute
    assert {row.state for row in await lab.history()} == {"started", "skipped_overlap", "missed_window", "paused"}


async def test_a_failed_run_that_is_repeated_after_an_edit_is_clean(lab: Lab) -> None:
    await lab.end(T0 + 701, is_success=False)
    await lab.decide(T0 + 710)
    while lab.job.active:
        await lab.end(T0 + 711, is_success=False)
    ((*_, failed),) = await lab.jobs.failed([lab.job.id])
    await lab.by_people(lambda job, at: edited(job, SPEC, at), T0 + 712)
    lab.read = await lab.jobs.change(lab.read, retried(lab.job, [failed], T0 + 713), None)
    await lab.decide(T0 + 713)
    (running,) = [row for row in await lab.history() if row.outcome == "running"]
    assert (running.place, running.attempts, running.revision) == (failed.place, failed.attempts + 1, lab.job.revision)
    assert not await lab.found()


async def test_a_history_whose_oldest_rows_were_dropped_is_clean(door: Door) -> None:
    short = Lab(door, rows_max=3)
    await short.live()
    assert len(await short.history()) == 3
    assert not await short.found()


async def test_a_manual_run_before_the_first_time_is_clean(door: Door) -> None:
    new = Lab(door)
    await new.create()
    await new.by_people(requested, T0 + 5)
    await new.decide(T0 + 5.5)
    assert not await new.found()


async def test_a_range_that_was_dropped_before_the_row_of_a_manual_run_in_it_is_clean(door: Door) -> None:
    short = Lab(door, rows_max=2)
    await short.create()
    await short.by_people(requested, T0 + 35)
    await short.decide(T0 + 300)  # a range that began before it was missed, and two were skipped
    assert [(row.is_manual, row.nominal - T0) for row in await short.history()] == [(True, 35), (False, 290)]
    assert not await short.found()


async def test_a_row_that_is_not_there_is_named_by_job_and_time(lab: Lab) -> None:
    rows = await lab.history()
    await lab.drop(rows[1])
    (found,) = await lab.found()
    assert found == {"job": "news", "time": "2027-01-15T08:00:20Z", "reason": "it has no row"}
    text = report_text(await lab.report())
    assert f"FAIL  {TITLE}        1" in text
    assert "news, time 2027-01-15T08:00:20Z, it has no row" in text


async def test_all_times_of_a_range_that_has_no_row_are_counted(lab: Lab) -> None:
    (missed,) = [row for row in await lab.history() if row.state == "missed_window" and row.count > 9]
    await lab.drop(missed)
    (found,) = await lab.found()
    assert found["reason"] == f"it and {missed.count - 1} more have no row"


async def test_a_time_with_two_rows_is_found(lab: Lab) -> None:
    first = (await lab.history())[0]
    await lab.put(replace(first, run="", picked_at=1.0))
    assert [one["reason"] for one in await lab.found()] == ["it has two rows"]


async def test_a_row_for_another_number_of_times_is_found(lab: Lab) -> None:
    missed = next(row for row in await lab.history() if row.state == "missed_window" and row.count > 9)
    await lab.drop(missed)
    await lab.put(replace(missed, count=missed.count + 1))
    (found,) = await lab.found()
    assert f"its row is for {missed.count + 1} times" in found["reason"]
    assert found["reason"].endswith(f"where the job has {missed.count}")


async def test_a_row_at_a_time_that_the_job_does_not_have_is_found(lab: Lab) -> None:
    await lab.put(replace((await lab.history())[0], nominal=T0 + 25, to=T0 + 25, run="another"))
    reasons = [one["reason"] for one in await lab.found()]
    assert "its row begins or ends at a time that the job does not have" in reasons


async def test_a_job_that_was_set_back_is_found(lab: Lab) -> None:
    back = replace(lab.job, done_to=T0 + 400)
    await lab.door.engine.command("HSET", lab.key("jobs"), lab.job.id, b"x " + encode(back))
    assert any("is decided up to 2027-01-15T08:06:40Z only" in one["reason"] for one in await lab.found())


async def test_runs_that_job_history_and_records_do_not_agree_on_are_found(lab: Lab) -> None:
    runs, run = lab.key("runs"), lab.job.active[0].run
    engine = lab.door.engine
    record = await engine.command("HGET", runs, run)
    await engine.command("HDEL", runs, run)
    await engine.command("HSET", runs, f"{lab.job.id}.9.zz", record)
    found = {one["run"]: one["reason"] for one in await lab.found()}
    assert found[run] == "its job waits for it, but it has no record"
    assert found[f"{lab.job.id}.9.zz"] == "it has a record, but its job does not know it"
    await engine.command("HDEL", lab.key("jobs"), lab.job.id)
    assert "it has a record, and its job is gone" in [one["reason"] for one in await lab.found()]


async def test_what_an_ended_run_left_is_found_unless_it_is_still_to_be_closed(lab: Lab) -> None:
    run = (await lab.history())[0].run
    await lab.door.engine.command("SADD", lab.key(f"touched:{run}"), 3)
    assert not await lab.found()  # nobody has closed it yet
    await lab.door.engine.command("SREM", lab.key("closing"), run)
    assert [one["reason"] for one in await lab.found()] == ["it has ended, and was not removed from its partitions"]


async def test_a_run_with_more_or_fewer_pages_in_its_row_than_in_the_index_is_found(lab: Lab) -> None:
    last, first = [row for row in (await lab.history()) if row.outcome in ("finished", "failed")][-2:], T0 + 31.0
    pages = {row.run: row.pages for row in await lab.history()}
    pages[last[0].run] = 3
    for before_s, found in ((math.inf, 1), (first, 0)):
        report = Report(crawl="t")
        books = JobBooks(lab.door.engine, lab.door.keys, 1)
        await judge_jobs(books, report, pages.__getitem__, before_s=before_s)
        assert [one["run"] for one in report.findings.runs.examples] == [last[0].run][:found]
        assert all("its row has 0 pages, the index" in one["reason"] for one in report.findings.runs.examples)


@pytest.mark.parametrize(("forgotten", "found"), [(0, 2), (4, 1), (6, 1), (7, 0)])
async def test_rows_may_have_as_many_more_pages_as_were_forgotten(lab: Lab, forgotten: int, found: int) -> None:
    books, report = JobBooks(lab.door.engine, lab.door.keys, 1), Report(crawl="t")
    ended = [row.run for row in (await lab.history()) if row.outcome in ("finished", "failed")][-2:]
    pages = {row.run: row.pages for row in await lab.history()} | {ended[0]: -3, ended[1]: -4}
    await judge_jobs(books, report, pages.__getitem__, before_s=math.inf, forgotten=forgotten)
    assert report.findings.runs.count == found


def test_a_crawl_without_jobs_has_no_line_for_them() -> None:
    assert TITLE not in report_text(Report(crawl="t"))
    assert f"ok    {TITLE}        0" in report_text(Report(crawl="t", jobs=1))
    assert report_json(Report(crawl="t"))["findings"]["nominal"]["count"] == 0
