"""Follows the ring: partitions that are ours by it and not held are acquired, others are drained and released."""

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from functools import partial
from typing import Any

from crawler.engine.client import Call
from crawler.errors import EngineError
from crawler.frontier.owner import Aside, Fence, Frontier, Settlement
from crawler.model import AckOutcome, Claim
from crawler.runtime.clocks import ENGINE_PAUSE_S, monotonic_ms
from crawler.runtime.ticks import tick
from crawler.settings import FrontierSettings
from crawler.worker import url_lines
from crawler.worker.archive import ArchiveStage
from crawler.worker.response_policy import Recall
from crawler.worker.turn import SetAside
from crawler.worker.work import Work

log = logging.getLogger(__name__)

Job = Callable[[], Coroutine[Any, Any, None]]

RETURN_TRIES = 2  # more would delay a hand-over or the end of the process when the engine is gone
RETURN_MAX = 128  # claims per call: twice as many take 7 ms in an engine with a million keys
RETURN_EVERY_S = 0.5
ASIDE_PAUSE_MS = 100  # until a queue is claimed from again whose URLs were set aside: a long row of them is no hurry
TOLD_MAX = 256  # last words on origins that are kept for an engine that may lose them
WAIT_MAX_MS = 1000  # claims due later than this, and later than the time to claim ahead, are returned


class PartitionRebalance:
    """Implements ownership's `RebalanceListener`. `run` does the work that ownership must not wait for."""

    def __init__(
        self,
        frontier: Frontier,
        work: Work,
        archive: ArchiveStage,
        *,
        overtaken: Callable[[Sequence[Claim], SetAside], Recall | None],
        store_sessions: Callable[[int], Awaitable[None]],
    ) -> None:
        """`overtaken`: what happened to an origin while claims of it were on their way into its row. `store_sessions`:
        store what has changed in those of a partition; raises EngineError.
        """
        self._frontier = frontier
        self._work = work
        self._archive = archive
        self._overtaken = overtaken
        self._store_sessions = store_sessions
        self._recalls: dict[str, tuple[Claim, Recall]] = {}  # the last one of an origin, until the engine has taken it
        self._told: OrderedDict[str, tuple[Claim, Recall]] = OrderedDict()  # the last ones, kept for a while
        self._to_repeat: set[str] = set()  # origins whose last one the engine may not have
        self._jobs: asyncio.Queue[Job] = asyncio.Queue()
        self._working = 0  # jobs, and returns of claims

    async def run(self) -> None:
        """Run the jobs that the methods below queue, concurrently, until cancelled."""
        async with asyncio.TaskGroup() as group:
            while True:
                job = await self._jobs.get()
                group.create_task(self._done(job))

    async def _done(self, job: Job) -> None:
        self._working += 1
        try:
            await job()
        finally:
            self._working -= 1

    @property
    def owes(self) -> bool:
        """Are there calls that the engine has not answered, or that are to be made?"""
        return bool(self._working or self._recalls or self._jobs.qsize())

    def acquired(self, partition: int, *, log_entries: int, pending: int) -> None:
        """A partition is ours: claim from it, and index what its last owner left in the log."""
        if pending:
            self._work.due.schedule(partition)
        if log_entries:
            self._jobs.put_nowait(partial(self._adopt_log, partition))
        if partition in self._work.unsaved.by_partition:
            self._jobs.put_nowait(partial(self._save_clocks_or_lose, partition))
        for origin in self._to_repeat & self._told.keys():
            claim, what = self._told[origin]
            if claim.partition == partition:
                self._to_repeat.discard(origin)
                self._jobs.put_nowait(partial(self.recall, claim, what))
        self._to_repeat &= self._told.keys()

    def engine_restarted(self) -> None:
        """The engine may have lost what it was told last of an origin, whose URLs would then wait for another probe: it
        is told again when the partition is acquired.
        """
        self._to_repeat = set(self._told)

    async def _adopt_log(self, partition: int) -> None:
        try:
            await self._archive.adopt(partition)
        except EngineError:
            self._work.held.lose(partition)  # it is acquired again and retried then

    async def _save_clocks_or_lose(self, partition: int) -> None:
        try:
            await self._save_clocks(partition)
        except EngineError:
            self._work.held.lose(partition)  # it is acquired again and retried then

    async def _save_clocks(self, partition: int) -> None:
        """Store the clocks and delays of queues that were ours when the partition was lost, because an engine that fell
        back may have older ones, or an answer with the delay came after the loss. Others may have sent requests with a
        shorter delay, so each queue waits for its own.

        Raises EngineError.
        """
        fence, queues = self._work.held.fence_of(partition), self._work.unsaved.by_partition.get(partition, ())
        if fence is None or not queues:
            return
        calls = []
        for queue in queues:
            delay_ms = self._work.scheduler.delay_of(queue)
            next_ms = fence.now_ms + max(self._work.scheduler.wait_of(queue), delay_ms)
            calls.append(self._frontier.pace_call(fence, queue, Settlement(next_fetch_ms=next_ms, delay_ms=delay_ms)))
        for reply in await self._frontier.end(calls):
            if isinstance(reply, EngineError):
                raise reply
        self._work.unsaved.by_partition.pop(partition, None)

    def drain(self, partition: int) -> None:
        """Start nothing more; return the waiting claims at once."""
        self._work.due.drop([partition])
        self._jobs.put_nowait(partial(self.return_claims, self._work.scheduler.remove([partition])))

    def is_idle(self, partition: int) -> bool:
        """Is nothing of the partition in flight or unacked?"""
        has_calls = any(claim.partition == partition for claim, _ in self._recalls.values())
        has_backlog = self._work.backlog.has_any(partition) and not self._archive.refuses  # the next owner indexes it
        is_open = self._work.open_claims.has_any(partition) or has_backlog
        return not is_open and not has_calls

    def set_back(self, pages: int) -> None:
        """The engine lost so many pages of ours."""
        self._work.counters.set_back(pages)

    async def give_back(self, partition: int) -> None:
        """Return the waiting claims of a partition; save its clocks and sessions. Raises EngineError if that fails."""
        await self.return_claims(self._work.scheduler.remove([partition]))
        await self._save_clocks(partition)
        await self._store_sessions(partition)

    async def set_aside(self, claims: list[Claim], end: SetAside) -> None:
        """Return claims of one origin into its row; repeated until the engine answers."""
        self._told.pop(end.origin, None)
        left = await self._return(claims, aside=end)
        if left:
            self._jobs.put_nowait(partial(self._set_aside_later, left, claims, end))
        else:
            await self._recall_overtaken(claims, end)

    async def _set_aside_later(self, calls: list[Call], claims: list[Claim], end: SetAside) -> None:
        while calls:
            calls = await self._send(calls)
        await self._recall_overtaken(claims, end)

    async def _recall_overtaken(self, claims: list[Claim], end: SetAside) -> None:
        if (recall := self._overtaken(claims, end)) is not None:
            await self.recall(claims[0], recall)

    async def recall(self, claim: Claim, what: Recall) -> None:
        """Put what was set aside of the claim's origin back. It is repeated until the engine answers, or a later one of
        the origin replaces it.
        """
        self._recalls[what.origin] = self._told[what.origin] = claim, what
        if len(self._told) > TOLD_MAX:
            self._told.popitem(last=False)
        if error := await self._try_recall(claim, what):
            log.warning("origin.not_recalled", extra={"origin": what.origin, "error": str(error)})
            self._jobs.put_nowait(partial(self._recall_later, claim, what))

    async def _recall_later(self, claim: Claim, what: Recall) -> None:
        while self._is_open(what):
            await asyncio.sleep(ENGINE_PAUSE_S)
            await self._try_recall(claim, what)

    def _is_open(self, what: Recall) -> bool:
        """Is this the last recall of its origin, and not taken yet?"""
        return self._recalls.get(what.origin, (None, None))[1] is what

    async def _try_recall(self, claim: Claim, what: Recall) -> EngineError | None:
        """None when nothing is left to do: the engine has answered, or the partition is not ours (any more, or yet)."""
        fence = self._work.held.fence_of(claim.partition)
        if fence is not None:
            try:
                due_ms = max(1, what.due_ms + fence.now_ms - monotonic_ms()) if what.due_ms else 0
                await self._frontier.recall(fence, claim.queue, what.origin, is_good=what.is_good, due_ms=due_ms)
            except EngineError as error:
                return error
            self._work.due.schedule(claim.partition, what.due_ms)
        else:
            self._to_repeat.add(what.origin)
        if self._is_open(what):
            del self._recalls[what.origin]
        return None

    async def return_claims(self, claims: list[Claim], *, started: bool = False) -> None:
        """Return claims; their queues are due when they would have been due here.

        `started`: their requests were sent, so their queues wait at least their delay.
        """
        await self._return(claims, started=started)

    async def _return(self, claims: list[Claim], *, started: bool = False, aside: SetAside | None = None) -> list[Call]:
        """As `return_claims`, or with `aside` into the row of their origin. Returns what the engine did not take."""
        if not claims:
            return []
        by_partition: dict[int, list[tuple[Claim, int]]] = {}
        for claim in claims:
            by_partition.setdefault(claim.partition, []).append((claim, self._wait_ms(claim, started=started)))
            url_lines.returned(claim, self._work.open_claims.place_of(claim))
            self._work.open_claims.ended(claim)
        calls = []
        for partition, mine in by_partition.items():
            fence = self._work.held.fence_of(partition)
            if fence is not None:
                calls += self._return_calls(fence, mine, aside)
        self._working += 1
        try:
            left = await self._send(calls)
        finally:
            self._working -= 1
        now_ms = monotonic_ms()
        for partition, mine in by_partition.items():
            if self._work.held.is_open(partition):
                self._work.due.schedule(partition, now_ms + min(wait_ms for _, wait_ms in mine))
        return left

    async def _send(self, calls: list[Call]) -> list[Call]:
        """Returns what the engine does not take after some tries: claims that come back after their visibility timeout,
        unless they are sent again.
        """
        for _ in range(RETURN_TRIES):
            try:
                replies: Sequence[AckOutcome | EngineError] = await self._frontier.end(calls)
            except EngineError as error:
                replies = [error] * len(calls)
            calls = [call for call, reply in zip(calls, replies, strict=True) if isinstance(reply, EngineError)]
            if not calls:
                return []
            await asyncio.sleep(ENGINE_PAUSE_S)
        log.warning("return.engine_error", extra={"calls": len(calls)})
        return calls

    def _return_calls(self, fence: Fence, mine: Sequence[tuple[Claim, int]], end: SetAside | None = None) -> list[Call]:
        given, aside = [(claim, fence.now_ms + wait_ms if wait_ms else 0) for claim, wait_ms in mine], None
        if end is not None:
            later_ms = fence.now_ms - monotonic_ms()
            since_ms = -1 if end.since_ms is None else max(0, end.since_ms + later_ms)
            aside = Aside(end.origin, max(1, end.due_ms + later_ms), since_ms)
            given = [(claim, max(at_ms, fence.now_ms + ASIDE_PAUSE_MS)) for claim, at_ms in given]
        return [
            self._frontier.return_claims(fence, given[start : start + RETURN_MAX], aside=aside)
            for start in range(0, len(given), RETURN_MAX)
        ]

    def _wait_ms(self, claim: Claim, *, started: bool) -> int:
        wait_ms = self._work.scheduler.wait_of(claim.queue)
        return max(wait_ms, self._work.scheduler.slot_of(claim.queue).delay_ms) if started else wait_ms

    async def return_stale(self, settings: FrontierSettings) -> None:
        """Return claims that are not due soon, until cancelled: their queue has to wait, or has too many."""
        half_ms = int(settings.visibility_timeout_s * 500)
        wait_max_ms = max(WAIT_MAX_MS, int(settings.claim_ahead_s * 1000))
        while True:
            await tick(RETURN_EVERY_S)
            await self.return_claims(self._work.scheduler.take_stale(wait_max_ms=wait_max_ms, age_max_ms=half_ms))
            self._work.scheduler.forget_idle()
