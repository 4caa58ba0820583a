"""What triggers cost on the real engine: CPU of the engine and of this client, by the calls that instances make."""

import time
from collections.abc import Sequence
from dataclasses import dataclass

from crawler.frontier.jobs import DUE_MAX, Jobs, StoredJob, job_id
from crawler.frontier.runs import Runs
from crawler.rules.cron import Schedule
from crawler.rules.job_plan import Plan, RunResult, created, ended, plan
from crawler.rules.jobs import JobSpec
from scripts.bench_lib.frontier_session import FrontierSession

PARTITIONS = 64
BEGUN_S = 1_800_000_000
EVERY_S = 60
CREATED_AT_ONCE = 500


@dataclass
class Cost:
    """What steps of one kind took, s of CPU."""

    name: str
    steps: int
    engine_s: float
    client_s: float

    def line(self) -> str:
        return (
            f"{self.name:<34}{self.steps:>9,}{1e6 * self.engine_s / self.steps:>12.1f}"
            f"{self.steps / self.engine_s:>14,.0f}{1e6 * self.client_s / self.steps:>12.1f}"
        )


HEAD = f"{'':<34}{'steps':>9}{'engine us':>12}{'a CPU-second':>14}{'client us':>12}"


def a_job(n: int, *, since_s: int = BEGUN_S, **spec: object) -> StoredJob:
    """A job of every minute."""
    schedule = Schedule(every_s=EVERY_S, anchor_s=since_s)
    definition = JobSpec(schedule=schedule, seeds=(f"https://site-{n}.example/news/",), **spec)  # type: ignore[arg-type]
    name = f"job-{n}"
    return StoredJob(created(job_id("bench", name), "bench", name, definition, since_s), "")


async def store(jobs: Jobs, some: Sequence[StoredJob], due_s: Sequence[float]) -> None:
    """Store new jobs, many at a time, as people would one by one."""
    for start in range(0, len(some), CREATED_AT_ONCE):
        steps = [
            (one, Plan(job=one.job, due=due), None)
            for one, due in zip(
                some[start : start + CREATED_AT_ONCE], due_s[start : start + CREATED_AT_ONCE], strict=True
            )
        ]
        for answer in await jobs.change_all(steps, new_revisions=True):
            if isinstance(answer, Exception):
                raise answer


class JobCosts:
    """Triggers and ends of jobs in the partitions of one session."""

    def __init__(self, session: FrontierSession) -> None:
        self._session = session
        self._jobs = Jobs(session.engine, session.keys, session.partitions, rows_max=200)
        self._runs = Runs(session.engine, session.keys, session.partitions)
        self.costs = [Cost("", 0, 0.0, 0.0), Cost("", 0, 0.0, 0.0)]

    async def measure(self, n: int, rounds: int, warm: int) -> None:
        """Rounds of `n` jobs: all are triggered, and all their runs end. The first ones are not counted."""
        some = [a_job(number) for number in range(n)]
        await store(self._jobs, some, [float(BEGUN_S + EVERY_S)] * n)
        for number in range(1, rounds + 1):
            now_s = BEGUN_S + EVERY_S * number + 0.5
            if number == warm + 1:
                self.costs = [Cost("trigger", 0, 0.0, 0.0), Cost("end of a run, nothing fetched", 0, 0.0, 0.0)]
            runs = await self._trigger_all(n, now_s)
            await self._end_all(runs, now_s + 10)

    async def _measured(self, cost: Cost, begun: tuple[float, float], steps: int) -> None:
        engine_s, client_s = await self._begin()
        cost.steps += steps
        cost.engine_s += engine_s - begun[0]
        cost.client_s += client_s - begun[1]

    async def _begin(self) -> tuple[float, float]:
        return await self._session.engine_cpu_s(), time.process_time()

    async def _trigger_all(self, n: int, now_s: float) -> list[str]:
        """As crawler/jobs/clock_check.py: what is due in some partitions, each with its next one."""
        begun, runs = await self._begin(), list[str]()
        while len(runs) < n:
            for start in range(0, PARTITIONS, 4):
                partitions = range(start, start + 4)
                stored = await self._jobs.due(partitions, now_s)
                steps = [
                    (one, plan(one.job, now_s), self._session.fence(self._jobs.home_of(one.job.id))) for one in stored
                ]
                for (_, made, _), answer in zip(steps, await self._jobs.change_all(steps), strict=True):
                    if isinstance(answer, Exception):
                        raise answer
                    runs += [record.run for record in made.starts]
                await self._jobs.first_due(partitions)
        assert len(set(runs)) == n
        await self._measured(self.costs[0], begun, n)
        return runs

    async def _end_all(self, runs: Sequence[str], now_s: float) -> None:
        """As crawler/jobs/clock_check.py: two looks, the end, and what is left of them."""
        begun = await self._begin()
        for start in range(0, len(runs), DUE_MAX):
            some = runs[start : start + DUE_MAX]
            await self._runs.passes(some)
            await self._runs.passes(some)
            stored = await self._jobs.read([run.split(".")[0] for run in some])
            steps = [
                (
                    one,
                    ended(one.job, RunResult(run=run, is_success=True, pages=1, bytes=30_000), now_s),
                    self._session.fence(self._jobs.home_of(one.job.id)),
                )
                for run, one in zip(some, stored, strict=True)
                if one is not None
            ]
            for answer in await self._jobs.change_all(steps):
                if isinstance(answer, Exception):
                    raise answer
            await self._runs.close_everywhere(some)
        await self._measured(self.costs[1], begun, len(runs))
