"""What happens to the work of partitions as they come and go: ownership speaks to this, it moves claims and logs."""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable, Sequence
from typing import Any

from crawler.engine.client import Call
from crawler.errors import EngineError
from crawler.frontier.frontier import Fence, Frontier, Settlement
from crawler.membership.ownership import Ownership
from crawler.model import AckOutcome, Claim
from crawler.pipeline.archive import ArchiveStage
from crawler.pipeline.claim import Claimer
from crawler.pipeline.schedule import Workbench
from crawler.runtime.clock import ENGINE_PAUSE_S, monotonic_ms
from crawler.runtime.counters import Flow

log = logging.getLogger(__name__)

GIVE_BACK_TRIES = 2  # it holds up a hand-over or the end of the process, when the engine is gone
GIVE_BACK_MAX = 128  # claims per call: twice as many took the engine 7 ms beside a million keys


class PartitionWork:
    """Implements ownership's PartitionUser."""

    def __init__(
        self,
        frontier: Frontier,
        bench: Workbench,
        flow: Flow,
        *,
        spawn: Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]],
    ) -> None:
        self._frontier = frontier
        self._bench = bench
        self._flow = flow
        self._spawn = spawn
        self._untold: dict[int, list[str]] = {}  # partition -> queues of which an engine may have forgotten something

    def serve(self, ownership: Ownership, claimer: Claimer, archive: ArchiveStage) -> None:
        """These need ownership to be built, and it needs us."""
        self._ownership = ownership
        self._claimer = claimer
        self._archive = archive

    def acquired(self, partition: int, *, log_entries: int, pending: int) -> None:
        """A partition is ours: claim from it, and index what its last owner left."""
        if pending:
            self._claimer.schedule(partition)
        if log_entries:
            self._spawn(self._adopt_log(partition))
        if partition in self._untold:
            self._spawn(self._tell_or_leave(partition))

    async def _adopt_log(self, partition: int) -> None:
        try:
            await self._archive.adopt(partition)
        except EngineError:
            self._ownership.fenced(partition)  # acquired anew, and tried again

    async def _tell_or_leave(self, partition: int) -> None:
        try:
            await self._tell(partition)
        except EngineError:
            self._ownership.fenced(partition)  # acquired anew, and tried again

    async def _tell(self, partition: int) -> None:
        """Store the clocks and delays of queues that were ours when the partition was lost: an engine that has fallen
        back knows less of them than we do. Raises EngineError.
        """
        fence, queues = self._ownership.fence_of(partition), self._untold.get(partition, ())
        if fence is None or not queues:
            return
        calls = []
        for queue in queues:
            next_ms, delay_ms = fence.now_ms + self._bench.wait_of(queue), self._bench.delay_of(queue)
            calls.append(self._frontier.pace_call(fence, queue, Settlement(next_fetch_ms=next_ms, delay_ms=delay_ms)))
        for reply in await self._frontier.end(calls):
            if isinstance(reply, EngineError):
                raise reply
        self._untold.pop(partition, None)

    def drain(self, partition: int) -> None:
        """Start nothing more; what waits goes back at once."""
        self._claimer.forget([partition])
        self._spawn(self.return_claims(self._bench.remove([partition])))

    def is_idle(self, partition: int) -> bool:
        """Is nothing of the partition in flight or unacked?"""
        return not self._flow.outstanding_of[partition] and not self._archive.has_undrained(partition)

    def lost(self, partitions: Iterable[int]) -> None:
        """Drop all work of partitions at once."""
        gone = list(partitions)
        self._claimer.forget(gone)
        dropped = self._bench.remove(gone)
        for claim in dropped:
            self._flow.ended(claim.partition)
        self._flow.dropped += len(dropped)
        self._remember({*gone, *self._untold})
        self._archive.forget(gone)

    def _remember(self, partitions: set[int]) -> None:
        """Of which queues of lost partitions something is known here. What the workbench has forgotten is no longer."""
        self._untold = {}
        for lane in self._bench.lanes() if partitions else ():
            if lane.partition in partitions and lane.delay_ms >= 0:
                self._untold.setdefault(lane.partition, []).append(lane.queue)

    async def give_back(self, partition: int) -> None:
        """Return every claim of a partition that waits here, and tell what is untold. Raises EngineError for that."""
        await self.return_claims(self._bench.remove([partition]))
        await self._tell(partition)

    async def return_claims(self, claims: list[Claim], *, started: bool = False) -> None:
        """Return claims; their queues are due when they would have been here. Those whose request was started move
        their queue's clock.
        """
        by_partition: dict[int, list[tuple[Claim, int]]] = {}
        for claim in claims:
            by_partition.setdefault(claim.partition, []).append((claim, self._wait_ms(claim, started=started)))
            self._flow.ended(claim.partition)
        calls = []
        for partition, mine in by_partition.items():
            fence = self._ownership.fence_of(partition)
            if fence is not None:
                calls += self._give_backs(fence, mine)
        await self._send(calls)
        now_ms = monotonic_ms()
        for partition, mine in by_partition.items():
            if self._ownership.is_open(partition):
                self._claimer.schedule(partition, now_ms + min(wait_ms for _, wait_ms in mine))

    async def _send(self, calls: list[Call]) -> None:
        """What the engine has not taken after some tries comes back when its time to be visible again is over."""
        for _ in range(GIVE_BACK_TRIES):
            try:
                replies: Sequence[AckOutcome | EngineError] = await self._frontier.end(calls)
            except EngineError as error:
                replies = [error] * len(calls)
            calls = [call for call, reply in zip(calls, replies, strict=True) if isinstance(reply, EngineError)]
            if not calls:
                return
            await asyncio.sleep(ENGINE_PAUSE_S)
        log.warning("give_back.engine_error", extra={"calls": len(calls)})

    def _give_backs(self, fence: Fence, mine: Sequence[tuple[Claim, int]]) -> list[Call]:
        given = [(claim, fence.now_ms + wait_ms if wait_ms else 0) for claim, wait_ms in mine]
        return [
            self._frontier.give_back(fence, given[start : start + GIVE_BACK_MAX])
            for start in range(0, len(given), GIVE_BACK_MAX)
        ]

    def _wait_ms(self, claim: Claim, *, started: bool) -> int:
        wait_ms = self._bench.wait_of(claim.queue)
        return max(wait_ms, self._bench.lane_of(claim.queue).delay_ms) if started else wait_ms
