"""Runs that are active in the partitions of this session: seeds them, notices their ends, and cleans up behind them.

A run has ended when it is seeded, and two passes over the partitions that it touched find nothing pending and nothing
changed (rules/run_end.py). Its end costs what the run cost, not what the crawl has. Seeding is repeated from the start
by whoever takes over: what a run has seen it does not add again.
"""

import asyncio
import contextlib
import heapq
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

import msgspec

from crawler.errors import CrawlerError, EngineError
from crawler.frontier.jobs import Changed, Jobs, StoredJob
from crawler.frontier.runs import Runs
from crawler.membership.held_partitions import HeldPartitions
from crawler.rules.job_plan import Plan, RunResult, ended
from crawler.rules.jobs import JobSpec
from crawler.rules.run_end import RunPass, has_ended, result_of
from crawler.rules.runs import RunRecord, job_of
from crawler.runtime.clock import ENGINE_PAUSE_S, monotonic_ms, wall_s
from crawler.runtime.tasks import Loop

log = logging.getLogger(__name__)

SEEDERS = 16  # runs that are seeded at once
LOOKS_AT_ONCE = 256  # runs
LOOK_S = (0.1, 5.0)  # between looks at a run: a tenth of its age, within these bounds
IDLE_S = 0.25

Seed = Callable[[RunRecord, Sequence[str]], Awaitable[int]]  # adds seeds; how many were valid
ReadSitemap = Callable[[str], AsyncIterator[Sequence[str]]]


class ActiveRun(msgspec.Struct, kw_only=True):
    """A run as its owner follows it. Times on the monotonic clock, ms, but `started_at`: wall clock, s."""

    record: RunRecord
    partition: int
    epoch: int
    known_ms: int
    started_at: float = 0.0
    is_seeded: bool = False
    failure: str = ""  # why it could not start
    last: RunPass | None = None


class RunWatch:
    """Follows the active runs of the partitions that are held."""

    def __init__(
        self,
        jobs: Jobs,
        runs: Runs,
        held: HeldPartitions,
        *,
        seed: Seed,
        read_sitemap: ReadSitemap,
        told: Callable[[Plan], None],
    ) -> None:
        """`told`: called with each plan that was stored here: it may start further runs."""
        self._jobs = jobs
        self._runs = runs
        self._held = held
        self._seed = seed
        self._read_sitemap = read_sitemap
        self._told = told
        self._active: dict[str, ActiveRun] = {}
        self._to_seed: asyncio.Queue[ActiveRun] = asyncio.Queue()
        self._looks: list[tuple[int, str]] = []  # heap: when, run
        self._closing: asyncio.Queue[tuple[int, str]] = asyncio.Queue()
        self._known: dict[int, int] = {}  # partition -> epoch in which its runs were read

    def loops(self) -> dict[str, Loop]:
        """What has to run, by name."""
        seeders: dict[str, Loop] = {f"seed runs {n}": self._seed_runs for n in range(SEEDERS)}
        return {"watch runs": self._watch, "close runs": self._close_runs, **seeders}

    def drop(self, partitions: Sequence[int]) -> None:
        """These partitions are lost: their runs are somebody else's."""
        lost = set(partitions)
        for partition in lost:
            self._known.pop(partition, None)
        for run in [run for run, one in self._active.items() if one.partition in lost]:
            del self._active[run]

    def begun(self, partition: int, record: RunRecord) -> None:
        """A run was triggered here, or found after a takeover."""
        epoch = self._held.epoch_of(partition)
        if epoch is None or record.run in self._active:
            return
        one = ActiveRun(record=record, partition=partition, epoch=epoch, known_ms=monotonic_ms())
        self._active[record.run] = one
        self._to_seed.put_nowait(one)

    def uncertain(self, partition: int) -> None:
        """A change whose outcome is unknown may have begun runs here."""
        self._known.pop(partition, None)

    async def find(self) -> None:
        """Read the runs of partitions that were acquired. Raises EngineError."""
        new = {p: held.epoch for p, held in self._held.items() if self._known.get(p) != held.epoch}
        if not new:
            return
        found, closing = await self._runs.active(new), await self._runs.closing(new)
        for partition, epoch in new.items():
            if self._held.epoch_of(partition) != epoch:
                continue
            self._known[partition] = epoch
            for record in found[partition]:
                self.begun(partition, record)
            for run in closing[partition]:
                self._closing.put_nowait((partition, run))

    # Seeding.

    async def _seed_runs(self) -> None:
        while True:
            one = await self._to_seed.get()
            while self._is_ours(one):
                try:
                    await self._seed_run(one)
                    break
                except EngineError as error:
                    log.warning("run.engine_error", extra={"run": one.record.run, "error": str(error)})
                    await asyncio.sleep(ENGINE_PAUSE_S)

    def _is_ours(self, one: ActiveRun) -> bool:
        return self._active.get(one.record.run) is one

    async def _seed_run(self, one: ActiveRun) -> None:
        (stored,) = await self._jobs.read([job_of(one.record.run)])
        row = stored and next((row for row in stored.job.active if row.run == one.record.run), None)
        if stored is None or row is None:
            self._active.pop(one.record.run, None)  # it was removed
            return
        started_at, valid = wall_s(), 0
        try:
            async for urls in self._seeds(stored, stored.job.spec_of(row.revision)):
                if not self._is_ours(one):
                    return
                valid += await self._seed(one.record, urls)
        except EngineError:
            raise
        except CrawlerError as error:
            one.failure = str(error)
        if not valid and not one.failure:
            one.failure = "no valid seed URL"
        if valid:
            one.failure = ""
        one.started_at, one.is_seeded = started_at, True
        self._look_later(one)

    async def _seeds(self, stored: StoredJob, spec: JobSpec) -> AsyncIterator[Sequence[str]]:
        if spec.seeds:
            yield spec.seeds
        if spec.seeds_key:
            async for urls in self._jobs.seeds(stored.job.id, spec.seeds_key):
                yield urls
        if spec.sitemap:
            async with contextlib.aclosing(self._read_sitemap(spec.sitemap)) as batches:  # type: ignore[type-var]
                async for urls in batches:
                    yield urls

    # The end.

    def _look_later(self, one: ActiveRun) -> None:
        age_s = (monotonic_ms() - one.known_ms) / 1000
        wait_s = min(max(LOOK_S[0], age_s / 10), LOOK_S[1])
        heapq.heappush(self._looks, (monotonic_ms() + int(wait_s * 1000), one.record.run))

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(min(IDLE_S, LOOK_S[0]))
            with contextlib.suppress(EngineError):
                await self._look(self._due_looks())

    def _due_looks(self) -> list[ActiveRun]:
        found: list[ActiveRun] = []
        while self._looks and self._looks[0][0] <= monotonic_ms() and len(found) < LOOKS_AT_ONCE:
            one = self._active.get(heapq.heappop(self._looks)[1])
            if one is not None:
                found.append(one)
        return found

    async def _look(self, due: Sequence[ActiveRun]) -> None:
        """Look whether these runs have ended. Raises EngineError: then they are looked at later."""
        ending: list[ActiveRun] = []
        try:
            if due:
                passes = await self._runs.passes([one.record.run for one in due])
                for one, seen in zip(due, passes, strict=True):
                    if has_ended(one.last, seen):
                        ending.append(one)
                    one.last = seen
                await self._stop_beyond_pages(due)
        finally:
            for one in due:
                if one not in ending:
                    self._look_later(one)
        for one in ending:
            await self._end(one)

    async def _stop_beyond_pages(self, due: Sequence[ActiveRun]) -> None:
        """Fetch nothing more of runs that have their pages."""
        for one in due:
            pages = one.record.spec.pages
            if pages and one.last is not None and one.last.counts.pages >= pages and not one.record.stopped:
                fence = self._held.fence_of(one.partition)
                if fence is not None and await self._runs.stop(one.record, "pages", fence):
                    one.record = msgspec.structs.replace(one.record, stopped="pages")

    async def _end(self, one: ActiveRun) -> None:
        assert one.last is not None
        result = result_of(one.record.run, one.last.counts, one.failure, one.started_at)
        try:
            while self._is_ours(one):
                (stored,) = await self._jobs.read([job_of(one.record.run)])
                fence = self._held.fence_of(one.partition)
                if stored is None or fence is None or not _knows(stored, result):
                    self._active.pop(one.record.run, None)  # its job was removed, or an earlier call ended it
                    self._closing.put_nowait((one.partition, one.record.run))
                    return
                plan = ended(stored.job, result, wall_s())
                with contextlib.suppress(Changed):
                    await self._jobs.change(stored, plan, fence)
                    self._active.pop(one.record.run, None)
                    self._closing.put_nowait((one.partition, one.record.run))
                    log.info("run.ended", extra={"run": one.record.run, "success": result.is_success})
                    self._told(plan)
                    return
        except EngineError:
            self.uncertain(one.partition)  # it may have ended, and others may have begun
            self._look_later(one)
            raise

    # Behind it.

    async def _close_runs(self) -> None:
        while True:
            partition, run = await self._closing.get()
            if partition not in self._held:
                continue
            try:
                await self._runs.close_all(run)
            except EngineError:
                await asyncio.sleep(ENGINE_PAUSE_S)
                self._closing.put_nowait((partition, run))


def _knows(stored: StoredJob, result: RunResult) -> bool:
    return any(row.run == result.run for row in stored.job.active)
