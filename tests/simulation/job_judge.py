"""Watches jobs from outside: each change when the engine stores it, and their histories by a look into all keys.

Believes what was stored and its own notes. What is judged is I9, and the ends of runs.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from typing import Any

import msgspec

from crawler.engine.client import Call
from crawler.frontier.arguments import FenceArgs, JobChange
from crawler.frontier.keys import Keys
from crawler.jobs.clock_check import OFFSET_MAX_S
from crawler.rules.job_runs import RunRecord
from crawler.rules.jobs import OPEN, Job, Outcome, Revision, Row, State
from tests.simulation.clocks import EPOCH_NS
from tests.simulation.job_census import JobCensus
from tests.simulation.loop import NS, Process, VirtualLoop
from tests.simulation.nominal_times import wrong_rows

STALE_S = 30.0  # an engine that is not heard of for so long has removed the session
SLACK_S = 0.2


@dataclass(slots=True)
class KnownJob:
    """A job as its stored changes tell."""

    job: Job
    revisions: dict[int, Revision] = field(default_factory=dict)
    pauses: set[tuple[int, int]] = field(default_factory=set)


@dataclass(slots=True)
class KnownRun:
    """A run: what it is to fetch, and how it ended."""

    record: RunRecord
    seeds: tuple[str, ...]
    result: Row | None = None
    is_active: bool = True
    is_removed: bool = False


class JobJudge:
    """Notes of all jobs and runs."""

    def __init__(
        self, loop: VirtualLoop, census: JobCensus, rows_max: int, blame: Callable[[str, str], None],
        trace: Callable[[str], None], engine_wall_ns: Callable[[], int],
    ) -> None:  # fmt: skip
        self._loop = loop
        self._census = census
        self._rows_max = rows_max
        self._blame = blame
        self._trace = trace
        self._engine_wall_ns = engine_wall_ns  # the engine's wall clock minus virtual time
        self._engine_walls: list[tuple[int, int]] = [(0, 0)]
        self._journal: list[tuple[int, int, JobChange]] = []  # when, in which partition
        self.jobs: dict[str, KnownJob] = {}
        self.runs: dict[str, KnownRun] = {}
        self._by_hand: dict[tuple[str, float], int] = {}  # attempts of a run that people may have begun, by its place
        self.stats: Counter[str] = Counter()

    # --- the engine's calls ---

    def executed(self, process: Process, call: Call, reply: Any) -> None:
        """A change that was stored."""
        if call.name != "change_job":
            return
        if reply[0] != b"OK":
            self.stats[f"changes of jobs {reply[0].decode().lower()}"] += 1
            return
        change = JobChange(*msgspec.msgpack.decode(call.args[FenceArgs._fields.__len__()]))
        self._journal.append((self._loop.now_ns, Keys.partition_of_meta(call.keys[0]), change))
        is_owner = call.args[0] != ""
        self._trace(f"  {change.job}: starts {change.starts[::2]}, ends {change.ends}")
        if is_owner:
            self._check_clock(process, change)
            for run in change.ends:
                if left := self._census.pending_of(run):
                    self._blame("run", f"{run} was ended by {process.name} while {left} are pending")
        elif change.starts:
            self._blame("I9", f"{process.name} started {change.starts} without a lease")
        self.stats["runs repeated by hand"] += len(change.settled)
        self._note(change, self._blame)

    def _check_clock(self, process: Process, change: JobChange) -> None:
        """Decisions come from the past, never from the future, whatever the clock of the one who decides."""
        now_ns = self._loop.now_ns
        if self._engine_walls[-1][1] != self._engine_wall_ns():
            self._engine_walls.append((now_ns, self._engine_wall_ns()))
        since = [wall for at, wall in self._engine_walls if at >= now_ns - STALE_S * NS] + [self._engine_walls[-1][1]]
        since += [wall for at, wall in self._engine_walls if at < now_ns - STALE_S * NS][-1:]
        latest_s = (EPOCH_NS + now_ns + max(since)) / NS + OFFSET_MAX_S + SLACK_S
        job = msgspec.json.decode(change.definition, type=Job) if change.definition else None
        before = self.jobs.get(change.job)
        if job is not None and before is not None and job.done_to > max(before.job.done_to, latest_s):
            self._blame("clock", f"{process.name} decided up to {job.done_to}, at {latest_s - OFFSET_MAX_S:.1f}")
        records = [msgspec.json.decode(text, type=RunRecord) for text in change.starts[1::2]]
        if early := [one.run for one in records if one.started_at > latest_s and not one.stopped]:
            self._blame("clock", f"{process.name} started {early} before their time, at {latest_s - OFFSET_MAX_S:.1f}")

    def engine_stepped(self) -> None:
        """The engine's wall clock was set."""
        self._engine_walls.append((self._loop.now_ns, self._engine_wall_ns()))

    def rolled_back(self, to_ns: int, partitions: Collection[int]) -> None:
        """These partitions lost what happened after that time: so do these notes."""
        self._journal = [one for one in self._journal if one[0] <= to_ns or one[1] not in partitions]
        self.jobs, self.runs, self._by_hand = {}, {}, {}
        for _, _, change in self._journal:
            self._note(change, lambda *_: None)

    def _note(self, change: JobChange, blame: Callable[[str, str], None]) -> None:
        rows = [msgspec.json.decode(text, type=Row) for text in change.put[1::2]]
        for run in change.ends:
            known = self.runs[run]
            if not known.is_active:
                blame("I9", f"{run} ended twice")
            known.is_active, known.is_removed = False, not change.definition
            known.result = next((row for row in rows if row.run == run), None)
        if not change.definition:
            del self.jobs[change.job]
            return
        job = msgspec.json.decode(change.definition, type=Job)
        known_job = self.jobs.setdefault(change.job, KnownJob(job))
        if job.done_to < known_job.job.done_to:
            blame("I9", f"job {job.name} was decided up to {known_job.job.done_to}, and is up to {job.done_to} now")
        known_job.job = job
        self._by_hand |= {
            (job.id, one.row.place): one.row.attempts + 1 for one in job.repeats if one.row.place in change.settled
        }
        known_job.pauses.update((begin, end) for begin, end in job.pauses if end != OPEN)
        for number, text in zip(change.revisions[::2], change.revisions[1::2], strict=True):
            known_job.revisions[int(number)] = msgspec.json.decode(text, type=Revision)
        by_run = {row.run: row for row in job.active}
        for run, text in zip(change.starts[::2], change.starts[1::2], strict=True):
            self._started(job, by_run.get(run), msgspec.json.decode(text, type=RunRecord), blame)

    def _started(self, job: Job, row: Row | None, record: RunRecord, blame: Callable[[str, str], None]) -> None:
        known = self.runs.get(record.run)
        if known is not None and known.is_active and record.stopped:
            known.record = record  # nothing more of it is fetched
            return
        if row is None:
            blame("I9", f"{record.run} was started, and its job does not know it")
            return
        if known is not None:
            blame("I9", f"{record.run} was started twice")
        others = [run for run, one in self.runs.items() if one.is_active and run.split(".")[0] == job.id]
        if same := [run for run in others if run.split(".")[:3] == record.run.split(".")[:3]]:
            blame("I9", f"{record.run} was started while {same} was active")
        spec = job.spec_of(row.revision)
        if others and spec.overlap != "allow" and not row.is_manual and row.attempts == 1:
            blame("overlap", f"{record.run} was started while {others} were active")
        if row.attempts > max(spec.retries + 1, self._by_hand.get((job.id, row.place), 0)):
            blame("I9", f"{record.run} is one more than {spec.retries} retries")
        self.runs[record.run] = KnownRun(record, spec.seeds)

    # --- looks into the keys ---

    def faults(self) -> Iterator[str]:
        """What is wrong with the histories at this moment."""
        found = self._census.jobs()
        if strange := set(found) ^ set(self.jobs):
            yield f"jobs that only the engine or only the judge knows: {strange}"
        for number, (job, rows, active) in found.items():
            known = self.jobs.get(number)
            if known is None:
                continue
            is_cut = len(rows) >= self._rows_max
            for wrong in wrong_rows(known.revisions, job.done_to, sorted(known.pauses), rows, is_cut=is_cut):
                yield f"job {job.name}: {wrong}"
            running = {row.run for row in rows if row.outcome is Outcome.RUNNING}
            mine = {row.run for row in job.active}
            noted = {run for run, one in self.runs.items() if one.is_active and run.split(".")[0] == number}
            if not mine == active == noted or not (running <= mine if is_cut else running == mine):
                yield f"job {job.name}: active are {mine}, {active} by records, {running} by rows, {noted} by notes"
            waiting = {row.nominal for row in rows if row.state is State.QUEUED}
            if waiting != {row.nominal for row in job.queued} and not is_cut:
                yield f"job {job.name}: rows {waiting} are queued, and {job.queued}"

    def done_to(self) -> dict[str, int]:
        """Up to when each job is decided."""
        return {number: known.job.done_to for number, known in self.jobs.items()}

    def late(self, done_to: dict[str, int], since_s: float, now_s: float, bound_s: float) -> Iterator[str]:
        """Nominal times of a quiet time that were not decided soon, or found no instance."""
        for number, (job, rows, _) in self._census.jobs().items():
            if job.is_paused:
                continue
            for at in range(int(since_s) + 1, int(now_s - bound_s - job.spec.schedule.jitter_s)):
                if at > job.done_to and self._is_nominal(number, at):
                    yield f"job {job.name}: {at} is not decided at {now_s:.1f}"
            for row in rows:
                is_missed = row.state is State.MISSED_WINDOW and not row.reason
                if row.nominal > max(since_s, done_to.get(number, 0)) and is_missed:
                    yield f"job {job.name}: {row} was missed, with instances up and well"

    def _is_nominal(self, number: str, at: int) -> bool:
        from tests.simulation.nominal_times import decided

        return any(time == at for time, _ in decided(self.jobs[number].revisions, at))
