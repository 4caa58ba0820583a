"""Runs are followed to their ends, whatever fails on the way; by fakes of what is stored."""

import asyncio
from collections.abc import Collection, Iterable, Sequence
from typing import Any, cast

import pytest
from msgspec.structs import replace

from crawler.engine.client import Engine
from crawler.errors import EngineDown, EngineError
from crawler.frontier.jobs import Jobs, StoredJob
from crawler.frontier.owner import Fence
from crawler.frontier.runs import ActiveRun, Runs
from crawler.jobs import runs as run_watch
from crawler.jobs.clock_check import ClockCheck
from crawler.jobs.runs import JobStore, RunWatch
from crawler.membership.held import HeldPartitions
from crawler.rules.cron import Schedule
from crawler.rules.job_plan import Plan, created, plan
from crawler.rules.job_runs import ENDED, RunCounts, RunRecord, RunSpec, job_of
from crawler.rules.jobs import Job, JobSpec, Outcome, State

NOW = 10_000.5
DONE = RunCounts(added=3, done=3, s2=3)


def job_with_run(number: str, pages: int = 0) -> tuple[Job, RunRecord]:
    """A job of every 10 seconds, whose run has begun."""
    spec = JobSpec(schedule=Schedule(every_s=10), seeds=("http://a.test/",), run=RunSpec(pages=pages))
    made = plan(created(number, "u", f"name-{number}", spec, NOW - 10), NOW)
    return made.job, made.starts[0]


class Stored:
    """What the engine has: jobs, counts of their runs, and what was changed."""

    run_id = "engine"

    def __init__(self) -> None:
        self.jobs: dict[str, Job] = {}
        self.counts: dict[str, RunCounts] = {}
        self.records: dict[str, RunRecord] = {}
        self.plans: list[Plan] = []
        self.fails_to_change = False
        self.closing: dict[str, None] = {}
        self.is_down = False
        self.closed: list[str] = []

    def home_of(self, job: str) -> int:
        return 0

    def epoch_of(self, partition: int) -> int:
        return 1

    def fence_of(self, partition: int) -> Fence:
        return Fence(0, "me", 1, 0)

    async def read(self, ids: Sequence[str]) -> list[StoredJob | None]:
        return [StoredJob(self.jobs[one], "") if one in self.jobs else None for one in ids]

    async def change_all(self, steps: Sequence[Any]) -> list[Any]:
        self.plans += [made for _, made, _ in steps]
        self.closing |= dict.fromkeys(run for _, made, _ in steps for run in made.ends)
        self.jobs.update((made.job.id, made.job) for _, made, _ in steps)
        return [StoredJob(made.job, "") for _, made, _ in steps]

    async def change(self, read: StoredJob, made: Plan, fence: Fence) -> None:
        if self.fails_to_change:
            raise EngineDown("no answer")
        await self.change_all([(read, made, fence)])

    async def closing_in(self, partitions: Iterable[int]) -> dict[int, list[str]]:
        return {p: list(self.closing) for p in partitions}

    async def close_everywhere(self, runs: Sequence[str]) -> bool:
        if self.is_down:
            raise EngineDown("no answer")
        self.closed += runs
        return True

    def __contains__(self, partition: int) -> bool:
        return True

    async def look(self, runs: Iterable[str]) -> dict[str, ActiveRun | None]:
        return {run: ActiveRun(self.records[run], 0) for run in runs}

    async def passes(self, runs: Sequence[str]) -> list[dict[int, RunCounts]]:
        return [{0: self.counts[run]} for run in runs]

    def has(self, number: str, counts: RunCounts = DONE, pages: int = 0) -> RunRecord:
        """A job with a run, in these numbers."""
        self.jobs[number], record = job_with_run(number, pages)
        self.counts[record.run], self.records[record.run] = counts, record
        return record


class Lab:
    """A watch over fakes, on a clock of its own."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.stored, self.is_right, self.now_ms = Stored(), True, 0
        self.safe = {0}
        monkeypatch.setattr(run_watch, "monotonic_ms", lambda: self.now_ms)

        async def seed(record: RunRecord, urls: Sequence[str], label: str) -> int:
            return 1

        self.watch = RunWatch(
            JobStore(
                jobs=cast("Jobs", self.stored), runs=cast("Runs", self.stored), engine=cast("Engine", self.stored)
            ),
            cast("HeldPartitions", self.stored), seed=seed, why_unread=cast("Any", None), on_plan=lambda _: None,
            clock=cast("ClockCheck", self), safe_of=self.safe_of, is_told=self.is_told,
        )  # fmt: skip

    async def safe_of(self, partitions: Collection[int]) -> Collection[int]:
        return self.safe & {*partitions}

    async def is_told(self) -> bool:
        return True

    def engine_s(self) -> float:
        return NOW + 100

    async def begin(self, *records: RunRecord) -> None:
        for record in records:
            self.watch.begun(record)
        await self.turn("seed runs 1")

    async def turn(self, loop: str) -> None:
        """Let a loop do what it can do now."""
        task = asyncio.create_task(self.watch.loops()[loop]())
        for _ in range(20):
            await asyncio.sleep(0)
        task.cancel()

    async def look(self, times: int = 2) -> None:
        for _ in range(times):
            self.now_ms += 10_000
            await self.watch.look()

    @property
    def ended(self) -> list[str]:
        return [run for made in self.stored.plans for run in made.ends]


@pytest.fixture
def lab(monkeypatch: pytest.MonkeyPatch) -> Lab:
    return Lab(monkeypatch)


async def test_two_looks_that_find_nothing_pending_end_a_run(lab: Lab) -> None:
    record = lab.stored.has("a")
    await lab.begin(record)
    await lab.look(1)
    assert not lab.ended
    await lab.look(1)
    assert lab.ended == [record.run]


@pytest.mark.parametrize("counts", [DONE, RunCounts(), RunCounts(added=3, done=2, dead=1, refused=1, s5=1)], ids=str)
async def test_a_run_that_people_ended_is_a_success_whatever_it_has(lab: Lab, counts: RunCounts) -> None:
    record = lab.stored.has("a", counts)
    await lab.begin(record)
    lab.stored.records[record.run] = replace(record, stopped=ENDED)
    await lab.look(2)
    (row,) = [row for made in lab.stored.plans for row in made.put if row.run == record.run]
    assert (row.outcome, row.state, row.pages) == (Outcome.STOPPED, State.STARTED, counts.pages)
    assert (row.reason, row.retry_at, lab.stored.jobs["a"].repeats) == ("", 0.0, ())


async def test_a_run_ends_when_a_failover_keeps_its_pages(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    """Found by the simulation: the row of a run counted a page that its partition lost a second later."""
    record = lab.stored.has("1")
    await lab.begin(record)
    lab.safe.clear()
    await lab.look(5)
    assert lab.ended == []
    lab.safe.add(0)

    async def failing_over(partitions: Collection[int]) -> Collection[int]:
        lab.stored.run_id = "another"
        return partitions

    with monkeypatch.context() as patch:
        patch.setattr(lab.watch, "_safe_of", failing_over)
        await lab.look(1)
    assert lab.ended == [], "what was counted may be gone"
    await lab.look(1)
    assert lab.ended == [], "the first look at the new primary"
    await lab.look(1)
    assert lab.ended == [record.run]


async def test_a_run_ends_while_the_clock_is_wrong_and_nothing_is_decided(lab: Lab) -> None:
    record = lab.stored.has("a")
    before = lab.stored.jobs["a"]
    await lab.begin(record)
    lab.is_right = False
    await lab.look(2)
    (made,) = lab.stored.plans
    assert made.ends == (record.run,)
    assert not made.starts
    assert made.job.done_to == before.done_to


async def test_a_wrong_clock_stops_a_run_beyond_its_pages_and_decides_nothing(lab: Lab) -> None:
    record = lab.stored.has("a", RunCounts(added=9, done=3, s2=3), pages=3)
    before = lab.stored.jobs["a"]
    await lab.begin(record)
    lab.is_right = False
    await lab.look(1)
    (made,) = lab.stored.plans
    assert made.job == before
    assert [(one.run, one.stopped) for one in made.starts] == [(record.run, "pages")]


async def test_a_run_ends_although_another_one_could_not_be_stopped(lab: Lab) -> None:
    record = lab.stored.has("a")
    other = lab.stored.has("b", RunCounts(added=9, done=3, s2=3), pages=3)
    await lab.begin(record, other)
    lab.stored.fails_to_change = True
    for _ in range(3):
        lab.now_ms += 10_000
        with pytest.raises(EngineError):
            await lab.watch.look()
    lab.stored.fails_to_change = False
    await lab.look(2)
    assert record.run in lab.ended


async def test_a_run_whose_job_was_removed_before_its_seeds_were_read_is_closed(lab: Lab) -> None:
    record = lab.stored.has("a")
    del lab.stored.jobs[job_of(record.run)]
    lab.stored.closing[record.run] = None
    await lab.begin(record)
    await lab.turn("close runs")
    assert lab.stored.closed == [record.run]


async def test_a_run_whose_end_the_engine_forgot_is_not_closed(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    """It goes on, and needs what a close would delete."""
    monkeypatch.setattr(run_watch, "ENGINE_PAUSE_S", 0)
    record = lab.stored.has("a")
    await lab.begin(record)
    lab.stored.is_down = True
    await lab.look()
    assert lab.ended == [record.run]
    await lab.turn("close runs")  # in vain
    lab.stored.closing.clear()
    lab.stored.is_down = False
    await lab.turn("close runs")
    assert lab.stored.closed == []
