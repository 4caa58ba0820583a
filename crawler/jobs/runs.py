"""Runs that are active in the partitions of this session: seeds them, notices their ends, and cleans up behind them.

A run has ended when it is seeded, and two passes over the partitions that it touched find nothing pending and nothing
changed (rules/membership.py). Its end costs what the run cost, not what the crawl has. Whoever takes over seeds it
again from the start: what a run has seen it does not add again.
"""

import asyncio
import contextlib
import heapq
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Sequence

import msgspec
from msgspec.structs import replace

from crawler.engine.client import Engine
from crawler.errors import EngineError
from crawler.frontier.jobs import Changed, Jobs, StoredJob
from crawler.frontier.owner import Fence
from crawler.frontier.runs import Runs
from crawler.jobs.clock_check import ClockCheck
from crawler.membership.held import HeldPartitions
from crawler.model import SITEMAP
from crawler.rules.finish import RunPass, is_run_finished
from crawler.rules.job_plan import DEFAULTS, Plan, RunResult, ended, undecided
from crawler.rules.job_runs import ENDED, URLS, RunCounts, RunRecord, job_of, reached, total_of, with_limits
from crawler.rules.jobs import JobSpec
from crawler.runtime.clocks import ENGINE_PAUSE_S, monotonic_ms
from crawler.runtime.tasks import Gate, Loop, open_gate
from crawler.runtime.ticks import until_set
from crawler.settings.schema import JobSettings
from crawler.terminal.words import counted

log = logging.getLogger(__name__)


SEEDERS = 16  # runs that are seeded at once
AT_ONCE = 256  # runs that one look, and one call behind it, is about
LOOK_S = (0.1, 5.0)  # between looks at a run: a tenth of its age, within these bounds
LIMITED_S = 0.25  # at most, for a run that may reach a limit

Seed = Callable[[RunRecord, Sequence[str], str], Awaitable[int]]  # adds seeds with a label; how many were valid


class ActiveRun(msgspec.Struct, kw_only=True):
    """A run as its owner follows it. `known_ms`: monotonic clock; `started_at`: wall clock, s."""

    record: RunRecord
    partition: int
    epoch: int
    known_ms: int
    spec: JobSpec | None  # of its job; None: to be read
    started_at: float = 0.0
    seeds: int = 0  # valid ones, without those of its sitemap
    failure: str = ""  # why its sitemap was not read
    last: RunPass | None = None


class JobStore(msgspec.Struct, frozen=True, kw_only=True):
    """Where jobs and their runs are."""

    jobs: Jobs
    runs: Runs
    engine: Engine
    pause: Gate = open_gate  # awaited before what changes them


async def all_of(partitions: Collection[int]) -> Collection[int]:
    """On an engine that is one server."""
    return partitions


class RunWatch:
    """Follows the active runs of the partitions that are held."""

    def __init__(
        self,
        store: JobStore,
        held: HeldPartitions,
        *,
        seed: Seed,
        why_unread: Callable[[RunRecord], Awaitable[str]],
        on_plan: Callable[[Plan], None],
        clock: ClockCheck,
        settings: JobSettings = DEFAULTS,
        safe_of: Callable[[Collection[int]], Awaitable[Collection[int]]] = all_of,
        is_told: Callable[[], Awaitable[bool]],
    ) -> None:
        """`on_plan`: called with what was stored here: it may start further runs. While `clock` is wrong, runs end, and
        nothing is decided. `why_unread`: why the sitemap of a run was given up, "" if it was not. On a cluster,
        `safe_of` tells in which of these partitions a failover keeps what is stored: the record of a run before its
        seeds are added elsewhere, its pages before its end, and that before others forget the run. `is_told`: has each
        shard what was sent there? These raise EngineError.
        """
        self._safe_of = safe_of
        self._is_told = is_told
        self._gate = store.pause
        self._jobs = store.jobs
        self._runs = store.runs
        self._engine = store.engine
        self._held = held
        self._seed = seed
        self._why_unread = why_unread
        self._on_plan = on_plan
        self._clock = clock
        self._settings = settings
        self.is_ending = False  # no further run is started here
        self._active: dict[str, ActiveRun] = {}
        self._to_seed: asyncio.Queue[ActiveRun] = asyncio.Queue()
        self._looks: list[tuple[int, str]] = []  # heap: when (monotonic clock, ms), run
        self._has_new_look = asyncio.Event()
        self._closing: asyncio.Queue[tuple[int, str]] = asyncio.Queue()
        self._known: dict[int, int] = {}  # partition -> epoch in which its runs were read

    def loops(self) -> dict[str, Loop]:
        """What has to run, by name."""
        seeders: dict[str, Loop] = {f"seed runs {n}": self._seed_runs for n in range(1, SEEDERS + 1)}
        return {"watch runs": self._watch, "close runs": self._close_runs, **seeders}

    @property
    def active(self) -> int:
        """How many runs this session follows."""
        return len(self._active)

    def begun(self, record: RunRecord, spec: JobSpec | None = None) -> None:
        """A run was triggered here by a job with this definition, or found after a takeover."""
        partition = self._jobs.home_of(record.run)
        epoch, known = self._held.epoch_of(partition), self._active.get(record.run)
        if epoch is not None and (known is None or known.epoch != epoch):
            record = with_limits(record, self._settings)
            one = ActiveRun(record=record, partition=partition, epoch=epoch, known_ms=monotonic_ms(), spec=spec)
            self._active[record.run] = one
            self._to_seed.put_nowait(one)

    def uncertain(self, partition: int) -> None:
        """A change whose outcome is unknown may have begun runs here."""
        self._known.pop(partition, None)

    async def find(self) -> None:
        """Read the runs of partitions that were acquired. Raises EngineError."""
        for run in [run for run, one in self._active.items() if not self._is_ours(one)]:
            del self._active[run]  # its partition was lost
        new = {p: held.epoch for p, held in self._held.items() if self._known.get(p) != held.epoch}
        if not new:
            return
        found, closing = await self._runs.active_in(new), await self._runs.closing_in(new)
        for partition, epoch in new.items():
            if self._held.epoch_of(partition) != epoch:
                continue
            self._known[partition] = epoch
            for record in found[partition]:
                self.begun(record)
            for run in closing[partition]:
                self._closing.put_nowait((partition, run))

    # Seeding.

    async def _seed_runs(self) -> None:
        while True:
            one = await self._to_seed.get()
            while self._is_ours(one):
                try:
                    while not await self._safe_of([one.partition]):  # noqa: ASYNC110 - there is no event
                        await asyncio.sleep(ENGINE_PAUSE_S)
                    await self._seed_run(one)
                    break
                except EngineError as error:
                    log.warning("run.engine_error", extra={"run": one.record.run, "error": str(error)})
                    await asyncio.sleep(ENGINE_PAUSE_S)

    def _is_ours(self, one: ActiveRun) -> bool:
        return self._active.get(one.record.run) is one and self._held.epoch_of(one.partition) == one.epoch

    async def _seed_run(self, one: ActiveRun) -> None:
        """Add its seeds. Raises EngineError."""
        run = one.record.run
        spec = one.spec or await self._spec_of(run)
        if spec is None:
            self._ended(one)  # its job was removed
            return
        started_at, valid = self._clock.engine_s(), 0
        async with contextlib.aclosing(self._seeds(job_of(run), spec)) as blocks:
            async for urls, label in blocks:
                await self._gate()
                if not self._is_ours(one):
                    return
                found = await self._seed(one.record, urls, label)
                valid += 0 if label else found
                await self._read_again([one])
                if one.record.stopped == ENDED:
                    break
        one.seeds, one.started_at = valid, started_at
        self._look_later(one)

    async def _spec_of(self, run: str) -> JobSpec | None:
        (stored,) = await self._jobs.read([job_of(run)])
        rows = () if stored is None else stored.job.active
        return next((stored.job.spec_of(row.revision) for row in rows if stored and row.run == run), None)

    async def _seeds(self, job: str, spec: JobSpec) -> AsyncGenerator[tuple[Sequence[str], str], None]:
        """Some at a time, with their label."""
        if spec.sitemap:
            yield (spec.sitemap,), SITEMAP
        if spec.seeds:
            yield spec.seeds, ""
        if spec.seeds_key:
            async for kept in self._jobs.seeds(job, spec.seeds_key):
                yield kept, ""

    # Their ends.

    def _look_later(self, one: ActiveRun) -> None:
        now_ms = monotonic_ms()
        most_s = LIMITED_S if one.record.is_limited else LOOK_S[1]
        wait_s = min(max(LOOK_S[0], (now_ms - one.known_ms) / 10_000), most_s)
        heapq.heappush(self._looks, (now_ms + int(wait_s * 1000), one.record.run))
        self._has_new_look.set()

    async def _until_look(self) -> None:
        """Sleep until a look is due, and at least as long as is between two."""
        await asyncio.sleep(LOOK_S[0])
        while not self._looks or self._looks[0][0] > monotonic_ms():
            self._has_new_look.clear()
            wait_s = (self._looks[0][0] - monotonic_ms()) / 1000 if self._looks else None
            await until_set(self._has_new_look, wait_s)

    async def _watch(self) -> None:
        while True:
            await self._until_look()
            await self._gate()
            with contextlib.suppress(EngineError):
                await self.look()

    async def look(self) -> None:
        """Look at runs that may have ended. Raises EngineError: then they are looked at later."""
        due, ending = self._due_looks(), list[ActiveRun]()
        if not due:
            return
        run_id = self._engine.run_id
        try:
            if not await self._is_told():
                for one in due:
                    one.last = None
                return
            for one, counts in zip(due, await self._runs.passes([one.record.run for one in due]), strict=True):
                before, one.last = one.last, RunPass(run_id, counts)
                if before is not None and is_run_finished((before, one.last)):
                    ending.append(one)
                else:
                    await self._stop_at_limit(one, total_of(counts.values()))
            ending = await self._kept(ending)
            await self._read_again(ending)
            for one in ending:
                if one.record.sitemap and _counts(one).dead:
                    one.failure = await self._why_unread(one.record)
            while ending:
                ending = await self._end(ending)
        finally:
            for one in due:
                self._look_later(one)  # for those that have ended, it is in vain

    async def _read_again(self, ending: Sequence[ActiveRun]) -> None:
        """Take the records as they are stored now: people may have ended these runs. Raises EngineError."""
        if not ending:
            return
        found = await self._runs.look(one.record.run for one in ending)
        for one in ending:
            if (active := found[one.record.run]) is not None:
                one.record = with_limits(active.record, self._settings)

    async def _kept(self, ending: Sequence[ActiveRun]) -> list[ActiveRun]:
        """Those of which a failover keeps what was counted in the last look. Raises EngineError."""
        passes = [(one, one.last) for one in ending if one.last is not None]
        touched = {partition for _, last in passes for partition in last.counts}
        safe = {*await self._safe_of(touched)} if touched else set[int]()
        return [one for one, last in passes if last.engine_run_id == self._engine.run_id and last.counts.keys() <= safe]

    def _due_looks(self) -> list[ActiveRun]:
        found: dict[str, ActiveRun] = {}
        now_ms = monotonic_ms()
        while self._looks and self._looks[0][0] <= now_ms and len(found) < AT_ONCE:
            one = self._active.get(heapq.heappop(self._looks)[1])
            if one is not None and self._is_ours(one):
                found[one.record.run] = one
        return list(found.values())

    async def _stop_at_limit(self, one: ActiveRun, counts: RunCounts) -> None:
        """Tell all instances that a run has reached a limit."""
        limit = reached(one.record.spec, counts)
        if not one.record.is_limited or limit in ("", one.record.stopped) or not counts.pending:
            return
        (stored,) = await self._jobs.read([job_of(one.record.run)])
        fence = self._held.fence_of(one.partition)
        if stored is not None and fence is not None and _knows(stored, one.record.run):
            record = replace(one.record, stopped=limit)
            with contextlib.suppress(Changed):
                made = replace(undecided(stored.job, self._clock.engine_s()), starts=(record,))
                await self._jobs.change(stored, made, fence)
                one.record = record
                self._on_plan(made)

    async def _end(self, ending: Sequence[ActiveRun]) -> list[ActiveRun]:
        """Store the ends of runs, one of each job, and return the others. Raises EngineError."""
        by_job = {job_of(one.record.run): one for one in ending if self._is_ours(one)}
        again = [one for one in ending if by_job.get(job_of(one.record.run)) is not one and self._is_ours(one)]
        try:
            steps: list[tuple[ActiveRun, StoredJob, Plan, Fence]] = []
            for one, stored in zip(by_job.values(), await self._jobs.read(list(by_job)), strict=True):
                fence = self._held.fence_of(one.partition)
                if stored is None or not _knows(stored, one.record.run):
                    self._ended(one)  # its job was removed, or an earlier call did it
                elif fence is not None:
                    decides = self._clock.is_right and not self.is_ending
                    made = ended(stored.job, _result(one), self._clock.engine_s(), self._settings, decides=decides)
                    steps.append((one, stored, made, fence))
            answers = await self._jobs.change_all([step[1:] for step in steps])
        except EngineError:
            for one in by_job.values():
                self.uncertain(one.partition)
            raise
        for (one, _, made, _), answer in zip(steps, answers, strict=True):
            if isinstance(answer, EngineError):
                self.uncertain(one.partition)  # it may have ended, and others may have begun
            elif not isinstance(answer, Changed):  # else by somebody else, or it is not ours any more: look again
                self._ended(one)
                self._on_plan(made)
        return again

    def _ended(self, one: ActiveRun) -> None:
        log.info("run.ended", extra={"run": one.record.run})
        self._active.pop(one.record.run, None)
        self._closing.put_nowait((one.partition, one.record.run))

    # What they leave.

    async def _close_runs(self) -> None:
        while True:
            some = dict.fromkeys([await self._closing.get()])
            while len(some) < AT_ONCE and not self._closing.empty():
                some[self._closing.get_nowait()] = None
            await self._gate()
            ours = [one for one in some if one[0] in self._held]
            try:
                closing = await self._runs.closing_in({partition for partition, _ in ours})
                # An engine that fell back may have forgotten that a run had ended: then it goes on.
                ended = [(partition, run) for partition, run in ours if run in closing[partition]]
                safe = await self._safe_of({*dict(ended)}) if ended else ()
                now = [one for one in ended if one[0] in safe]
                is_closed = await self._runs.close_everywhere([run for _, run in now])
                late = [one for one in ended if one[0] not in safe or not is_closed]
                for one in late:
                    self._closing.put_nowait(one)
                if late:
                    await asyncio.sleep(ENGINE_PAUSE_S)
            except EngineError:
                for one in some:
                    self._closing.put_nowait(one)
                await asyncio.sleep(ENGINE_PAUSE_S)


def _knows(stored: StoredJob, run: str) -> bool:
    return any(row.run == run for row in stored.job.active)


def _counts(one: ActiveRun) -> RunCounts:
    assert one.last is not None
    return total_of(one.last.counts.values())


def _result(one: ActiveRun) -> RunResult:
    """What became of a run. It has failed if no page came without an error, and something went wrong. That URLs are
    refused beyond its limit is not wrong.
    """
    counts = _counts(one)
    good, errors = counts.s2 + counts.s3, counts.s4 + counts.s5 + counts.dead
    spec, reason = one.record.spec, one.failure
    limit = one.record.stopped or (URLS if 0 < spec.urls <= counts.added else "")  # links may be left out before a look
    wrong = errors + (0 if limit else counts.refused) + counts.deferred
    is_stopped = limit == ENDED
    has_started = is_stopped or bool(one.seeds or counts.named or counts.pages)
    if not reason and not good and wrong:
        what = ((counts.dead, "{:,} failed"), (counts.refused, "{:,} refused"), (counts.deferred, "{:,} deferred"))
        pages = counts.s4 + counts.s5
        parts = [*([counted(pages, "error page")] if pages else []), *(text.format(n) for n, text in what if n)]
        reason = f"no usable page: {', '.join(parts)}"
    elif not has_started and not reason:
        reason = "no valid seed URL"
    elif limit:
        reason = f"limit of {limit}"
    return RunResult(
        run=one.record.run, is_success=is_stopped or bool(good) or not (wrong or one.failure or not has_started),
        limit=limit, has_started=has_started,
        started_at=one.started_at, pages=counts.pages, errors=errors, bytes=counts.bytes,
        unchanged=counts.unchanged, reason="" if is_stopped else reason,
    )  # fmt: skip
