"""The course of the jobs of one run: a person's acts, a look after all faults, the end of all jobs, and the verdict."""

import asyncio
import random
from collections import defaultdict
from collections.abc import Callable, Mapping

from crawler.model import CommitEntry
from crawler.rules.jobs import Job, Outcome
from crawler.rules.poison import GIVEN_UP_AT
from tests.simulation.clocks import EPOCH_NS
from tests.simulation.engine import Server
from tests.simulation.job_census import JobCensus
from tests.simulation.job_judge import JobJudge, KnownRun
from tests.simulation.job_sketches import Act
from tests.simulation.judge import Judge
from tests.simulation.loop import NS, VirtualLoop
from tests.simulation.machines import Fleet
from tests.simulation.person import Person
from tests.simulation.plan import Plan

SETTLE_S = 20.0  # until all partitions have owners again, and clocks were compared
QUIET_S = 15.0  # in which jobs are triggered in time
LATE_S = 3.0  # a look each second, and calls
WAIT_S, FEW = 60.0, 5
WIND_UP_S = 900.0


class JobCourse:
    """Jobs from the first to the last."""

    def __init__(
        self, plan: Plan, loop: VirtualLoop, server: Server, fleet: Fleet, judge: Judge, census: JobCensus,
        rng: random.Random, trace: Callable[[str], None],
    ) -> None:  # fmt: skip
        self._plan = plan
        self._loop = loop
        self._fleet = fleet
        self._judge = judge
        self._census = census
        self._rng = rng
        self._person = Person(loop, fleet, rng, trace)
        rows_max = plan.settings.jobs.history_rows
        self.judge = JobJudge(loop, census, rows_max, judge.blame, trace, lambda: server.wall_ns)

    def begin(self) -> None:
        """Have the person act when it is time."""
        for act in self._plan.acts:
            self._loop.after(act.at_s, self._person.act, act)

    def look(self) -> None:
        """I9 at this moment."""
        for fault in self.judge.faults():
            self._judge.blame("I9", fault)

    def _wall_s(self) -> float:
        return (EPOCH_NS + self._loop.now_ns) / NS

    async def wind_up(self, is_idle: Callable[[], bool]) -> bool:
        """After all faults: jobs are triggered in time; then all end, and nothing of them is left. False if not."""
        await asyncio.sleep(SETTLE_S)
        done_to, since_s = self.judge.done_to(), self._wall_s()
        await asyncio.sleep(QUIET_S)
        for fault in self.judge.late(done_to, since_s, self._wall_s(), LATE_S):
            self._judge.blame("I9", fault)
        self.look()
        for job, _, _ in self._census.jobs().values():
            waits = [one for one in job.repeats if one.at > self._wall_s() + WAIT_S]  # told by a clock that was wrong
            kind = "remove" if waits or len(job.queued) > FEW else self._rng.choice(("pause", "pause", "remove"))
            if not (job.is_paused and kind == "pause") and not await self._person.act(
                Act(at_s=0, kind=kind, job=job.name)
            ):
                self._judge.blame("I9", f"{kind} of {job.name} failed, although nothing happens any more")
        limit_s = self._loop.time() + WIND_UP_S
        while not (is_idle() and self._is_over()):
            if self._loop.time() > limit_s:
                jobs = [job.name for job, _, _ in self._census.jobs().values() if not _is_over(job)]
                self._judge.blame("I12", f"jobs do not end: {jobs}, runs {self._census.active()}")
                return False
            await asyncio.sleep(0.25)
        return True

    def _is_over(self) -> bool:
        return not self._census.active() and all(_is_over(job) for job, _, _ in self._census.jobs().values())

    # --- the verdict ---

    def close(self, exported: Mapping[tuple[str, int], CommitEntry]) -> None:
        """Judge what is left when all has ended."""
        self.look()
        self._judge.stats.update(self.judge.stats)
        runs = self.judge.runs
        for left in self._census.left_of(sorted(runs)):
            self._judge.blame("left", f"{left} is left of a run that has ended")
        committed: defaultdict[str, dict[str, int]] = defaultdict(dict)
        for ending in self._judge.endings.values():
            if ending.run and ending.how == "committed":
                committed[ending.run][ending.url] = ending.status
        archived: defaultdict[str, dict[str, int]] = defaultdict(dict)
        for entry in exported.values():
            archived[entry.run][entry.url] = entry.status
        for run, known in sorted(runs.items()):
            self._judge.stats["runs removed" if known.is_removed else "runs of jobs"] += 1
            if not known.is_removed:
                self._judge_run(run, known, committed[run], archived[run])
        rows = [row for _, found, _ in self._census.jobs().values() for row in found]
        for row in rows:
            self._judge.stats[f"nominal times {row.state}"] += row.count
            self._judge.stats["manual runs"] += row.is_manual

    def _judge_run(self, run: str, known: KnownRun, committed: dict[str, int], archived: dict[str, int]) -> None:
        row, spec = known.result, known.record.spec
        if row is None:
            self._judge.blame("run", f"{run} has ended without a result")
            return
        scope = spec.scope or self._plan.settings.scope.mode
        deaths = self._judge.deaths
        poison = frozenset(url for url, n in deaths.items() if n >= GIVEN_UP_AT and url not in committed)
        truth = self._plan.web.truth(poison, known.seeds, scope=scope, depth=spec.depth)
        wanted = truth.committed
        if row.limit:
            wanted = {url: status for url, status in wanted.items() if url in committed}
            if row.limit == "pages" and len(committed) < spec.pages:
                self._judge.blame("run", f"{run} was stopped at {len(committed)} of {spec.pages} pages")
        if committed != wanted:
            lost, strange = sorted(wanted.keys() - committed.keys()), sorted(committed.keys() - wanted.keys())
            self._judge.blame("run", f"{run} ({known.seeds}, {spec}) has not committed {lost}, but {strange}")
        if missing := committed.keys() - archived.keys():
            self._judge.blame("archive", f"{run} has committed {sorted(missing)}, which no index has")
        if row.pages != len(committed):
            self._judge.blame("run", f"{run} has {len(committed)} pages, and is {row}")
        is_success = any(status < 400 for status in committed.values())
        if row.completed_at and row.limit != known.record.stopped and not (row.limit == "urls" and spec.urls):
            self._judge.blame("run", f"{run} was stopped for {known.record.stopped!r}, and is {row}")
        if (row.outcome in (Outcome.FINISHED, Outcome.LIMITED)) != is_success:
            self._judge.blame("run", f"{run} has committed {committed}, and is {row}")


def _is_over(job: Job) -> bool:
    """Is there nothing more to come of this job?"""
    is_idle = not (job.active or job.queued or job.repeats or job.requested)
    following = job.spec.schedule.next_after(job.done_to)
    return is_idle and (job.is_paused or following is None)
