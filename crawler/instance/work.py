"""What happens to the work of partitions as they come and go: ownership speaks to this, it moves claims and logs."""

import asyncio
import contextlib
from collections.abc import Callable, Coroutine, Iterable
from typing import Any

from crawler.errors import EngineError
from crawler.frontier.frontier import Fence, Frontier
from crawler.instance.archiving import ArchiveStage
from crawler.instance.claimer import Claimer
from crawler.instance.ownership import Ownership
from crawler.instance.state import Flow
from crawler.instance.workbench import Workbench
from crawler.model import Claim

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

    async def _adopt_log(self, partition: int) -> None:
        try:
            await self._archive.adopt(partition)
        except EngineError:
            self._ownership.fenced(partition)  # acquired anew, and tried again

    def drain(self, partition: int) -> None:
        """Start nothing more; what waits goes back at once."""
        self._claimer.forget([partition])
        self._spawn(self.give_back(partition))

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
        self._archive.forget(gone)

    async def give_back(self, partition: int) -> None:
        """Return every claim of a partition that waits here."""
        await self.return_claims(self._bench.remove([partition]))

    async def return_claims(self, claims: list[Claim], *, started: bool = False) -> None:
        """Return claims; those whose request was started move their queue's clock."""
        by_partition: dict[int, list[Claim]] = {}
        for claim in claims:
            by_partition.setdefault(claim.partition, []).append(claim)
            self._flow.ended(claim.partition)
        calls = []
        for partition, mine in by_partition.items():
            fence = self._ownership.fence_of(partition)
            if fence is None:
                continue
            for start in range(0, len(mine), GIVE_BACK_MAX):
                given = [
                    (c, self._next_fetch_ms(fence, c) if started else 0) for c in mine[start : start + GIVE_BACK_MAX]
                ]
                calls.append(self._frontier.give_back_call(fence, given))
        with contextlib.suppress(EngineError):  # else they expire
            await self._frontier.end(calls)

    def _next_fetch_ms(self, fence: Fence, claim: Claim) -> int:
        return fence.now_ms + max(0, self._bench.lane_of(claim.queue).delay_ms)
