"""Keeps the engine within its memory: spills deferred URLs and the tails of long queues to disk, and brings them back.

Few URLs are claimed while the engine is still too full. A file is written and synced before the engine is told of it,
and removed long after the engine last named it: whatever writes the engine loses, each block is in memory or in a file
(frontier/spilling.py).
"""

import asyncio
import logging
from collections.abc import Iterable, Sequence

from crawler.archive.spill_files import SpillFiles
from crawler.engine.client import Engine, Memory
from crawler.errors import ArchiveError, EngineError
from crawler.frontier.codec import split_row
from crawler.frontier.spilling import NoFiles, Spilling, Stub, Urls, urls_of
from crawler.runtime.clocks import monotonic_ms
from crawler.runtime.crash_points import reached
from crawler.runtime.tasks import Gate, open_gate
from crawler.runtime.ticks import tick
from crawler.settings import Settings
from crawler.worker.work import Work

log = logging.getLogger(__name__)

UNBOUNDED = 10  # times as long, without claims, between two looks at memory that has no limit
SPILL_ABOVE, SPILL_TO = 0.9, 0.8  # shares of the budget
MEMORY_MARK = 0.85  # share of the engine's maxmemory above which few URLs are claimed at a time
BLOCKS_MAX = 64  # in one round: some 8,000 URLs
ROUND_PAUSE_S = 0.1
DISK = "disk"  # an entry next to file names, among errors that were logged
BACK_MAX = 64  # blocks read at once
SWEEP_MS = 60_000
KEEP_MS = 600_000  # how far back an engine may fall: a lagging replica or a lost tail is seconds, this is generous

_Back = tuple[int, str, Stub, Urls]


class Spiller:
    """Two loops, `watch` and `unspill`. The claimer requests the queues that run short."""

    def __init__(
        self,
        engine: Engine,
        spilling: Spilling,
        files: SpillFiles | None,
        work: Work,
        settings: Settings,
        pause: Gate = open_gate,
    ) -> None:
        """`pause`: awaited before URLs leave the engine or come back."""
        self._gate = pause
        self._engine = engine
        self._work = work
        self._spilling = spilling
        self._files = files
        self._budget = settings.frontier.memory
        self._is_bounded = True  # is there a limit that the engine's memory could reach?
        self._check_every_s = settings.membership.beat_s
        work.counters.can_spill = bool(self._budget) and files is not None
        self._short: set[tuple[int, str]] = set()
        self._requested = asyncio.Event()
        self._unnamed: dict[tuple[str, int, int, str], int] = {}  # (run id, partition, epoch, file) -> since when
        self._swept_ms = monotonic_ms()
        self._failed: set[str] = set()  # files whose error was logged

    # --- to disk ---

    async def watch(self) -> None:
        """Check the engine's memory until cancelled."""
        if self._budget and self._files is None:
            log.warning("spill.no_folder", extra={"set": "frontier.spill_folder"})
        while True:
            await tick(self._check_every_s)
            if not (self._is_bounded or self._work.open_claims.total):
                await tick((UNBOUNDED - 1) * self._check_every_s, self._work.open_claims.some)
            await self._gate()
            try:
                await self._check()
            except EngineError:
                continue
            except ArchiveError as error:
                self._log_once(DISK, "spill.disk_error", error)

    async def _check(self) -> None:
        memory = await self._engine.memory()
        self._is_bounded = bool(self._budget or memory.share)
        self._judge(memory)
        if self._files is None:
            return
        if self._budget and memory.used_bytes > SPILL_ABOVE * self._budget:
            while memory.used_bytes > SPILL_TO * self._budget and await self._spill(self._files):
                await asyncio.sleep(ROUND_PAUSE_S)
                memory = await self._engine.memory()
                self._judge(memory)
        if monotonic_ms() - self._swept_ms >= SWEEP_MS:
            await self._sweep(self._files)
            self._swept_ms = monotonic_ms()

    def _judge(self, memory: Memory) -> None:
        """Claim few URLs at a time while the engine has no headroom; acks and returns go on and free memory."""
        full = memory.share > MEMORY_MARK or (bool(self._budget) and memory.used_bytes > self._budget)
        if full != self._work.counters.is_engine_full:
            self._work.counters.is_engine_full = full
            log.warning("engine.full" if full else "engine.has_room", extra={"used_bytes": memory.used_bytes})
            self._work.due.room_changed()

    async def _spill(self, files: SpillFiles) -> int:
        """One round over the longest queues; the number of blocks that left the engine."""
        left, spilled = BLOCKS_MAX, 0
        for blocks, partition, queue in await self._spilling.longest(self._open()):
            fence = self._work.held.fence_of(partition)
            if fence is None or left <= 0:
                continue
            found = await self._spilling.worst(partition, queue, min(blocks - 1, left))
            places = await asyncio.to_thread(files.write, partition, fence.epoch, [block.packed() for block in found])
            self._failed.discard(DISK)
            reached("spill.written")
            now = self._work.held.fence_of(partition)
            if now is not None and now.epoch == fence.epoch:
                spilled += await self._spilling.spill(now, list(zip(found, places, strict=True)))
                reached("spill.told")
            left -= len(found)
        return spilled

    def _open(self) -> list[int]:
        return [p for p in self._work.held if self._work.held.is_open(p)]

    # --- and back ---

    def request(self, partition: int, queues: Iterable[str]) -> None:
        """Request the next blocks of these queues, which are in files. Called again until they are back."""
        self._short.update((partition, queue) for queue in queues)
        self._requested.set()

    async def unspill(self) -> None:
        """Bring requested blocks back until cancelled."""
        while True:
            await self._requested.wait()
            await self._gate()
            self._requested.clear()
            asked, self._short = sorted(self._short), set()
            try:
                for start in range(0, len(asked), BACK_MAX):
                    await self._unspill(asked[start : start + BACK_MAX])
            except EngineError as error:
                log.warning("spill.engine_error", extra={"error": str(error)})

    async def _unspill(self, queues: Sequence[tuple[int, str]]) -> None:
        while queues := [(p, queue) for p, queue in queues if self._work.held.is_open(p)]:
            stubs = zip(queues, await self._spilling.next_stubs(queues), strict=True)
            back = await asyncio.to_thread(self._read, [(p, queue, stub) for (p, queue), stub in stubs if stub])
            more = await self._spilling.unspill(back)
            reached("unspill.answered")
            for partition, row, *_ in back:
                self._work.due.hint(partition, split_row(row)[1])
            queues = [(p, queue) for (p, queue, *_), is_short in zip(back, more, strict=True) if is_short]

    def _read(self, wanted: Sequence[tuple[int, str, Stub]]) -> list[_Back]:
        """The blocks that can be read; the others are tried again with the next request."""
        back: list[_Back] = []
        for partition, queue, stub in wanted:
            try:
                (packed,) = (self._files or NoFiles()).read(partition, [stub.place])
                back.append((partition, queue, stub, urls_of(packed)))
            except ArchiveError as error:
                self._log_once(stub.place[0], "spill.unreadable", error)
        return back

    def _log_once(self, what: str, event: str, error: ArchiveError) -> None:
        if what not in self._failed:
            self._failed.add(what)
            log.error(event, extra={"error": str(error)})

    # --- unused files ---

    async def _sweep(self, files: SpillFiles) -> None:
        """Remove files that the engine has not named for long: their blocks are back, or it never knew of them."""
        now_ms, seen = monotonic_ms(), dict[tuple[str, int, int, str], int]()
        for partition in await asyncio.to_thread(files.partitions):
            fence = self._work.held.fence_of(partition)
            if fence is None:
                continue
            there = await asyncio.to_thread(files.names, partition)
            for file in {*there} - await self._spilling.files(partition):
                one = (self._engine.run_id, partition, fence.epoch, file)
                seen[one] = self._unnamed.get(one, now_ms)
        self._unnamed = seen
        for (_, partition, _, file), since_ms in seen.items():
            if now_ms - since_ms >= KEEP_MS:
                await asyncio.to_thread(files.remove, partition, [file])
