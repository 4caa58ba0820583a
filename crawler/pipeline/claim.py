"""Stage one: claims URLs of the partitions that are due, as many as the instance can hold.

Keeps one due time per partition (own monotonic ms) from the replies, so that nobody polls in vain. A lost wake-up
hint costs one sweep interval.
"""

import asyncio
import heapq
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence

from crawler.errors import EngineError
from crawler.frontier.budgets import Budget
from crawler.frontier.frontier import ClaimRequest, Fence, Frontier
from crawler.frontier.messages import ClaimReply
from crawler.membership.ownership import Ownership
from crawler.pipeline.schedule import Workbench
from crawler.runtime.clock import ENGINE_PAUSE_S, monotonic_ms, wall_s
from crawler.runtime.counters import Flow
from crawler.runtime.crash_points import reached
from crawler.settings import Settings

log = logging.getLogger(__name__)

PARTITIONS_PER_ROUND = 256
URLS_PER_CALL = 8  # at least, when there is room for fewer than are due: each call has its price, and so has each ack
SWEEP_MS = 1000
SOON_MS = 500
# So long before its time a queue is claimed: one whose next URL is not in hand when it is due would be fetched later by
# the wait for a call to the engine, and by some turns of the event loop.
LEAD_MS = 250
OUTDATED_MAX = 1024  # entries of the heap for which there is an earlier one, before they are looked for
NOTHING_MS = 20  # pause where a queue that is due gave nothing: it is at its cap, and acks will wake it


class Claimer:
    """Fills the workbench."""

    def __init__(
        self, frontier: Frontier, ownership: Ownership, bench: Workbench, flow: Flow, settings: Settings
    ) -> None:
        self._frontier = frontier
        self._ownership = ownership
        self._bench = bench
        self._flow = flow
        self._settings = settings
        self._due: dict[int, int] = {}
        self._heap: list[tuple[int, int]] = []
        self._boosts: dict[int, dict[int, int]] = {}  # of partitions where queues have one: boost -> due time
        self.on_short: Callable[[int, Sequence[str]], None] = lambda *_: None
        self._wake = asyncio.Event()
        self._serial = 0
        self._unanswered: dict[int, ClaimRequest] = {}  # sent again as they were: then nothing is handed out twice
        self._answered = asyncio.Event()  # no call is out whose claims are still to come
        self._answered.set()
        self._swept_ms = 0
        self._out_max = max(256, 16 * settings.fetch.concurrency)

    def schedule(self, partition: int, at_ms: int = 0) -> None:
        """Claim from this partition at that time (monotonic ms), unless an earlier one is set."""
        known = self._due.get(partition)
        if known is not None and known <= at_ms:
            return
        self._due[partition] = at_ms
        heapq.heappush(self._heap, (at_ms, partition))
        if len(self._heap) > len(self._due) + OUTDATED_MAX:
            self._heap = [(due_ms, number) for number, due_ms in self._due.items()]
            heapq.heapify(self._heap)
        if self._heap[0] == (at_ms, partition):
            self._wake.set()  # also for a time that is still to come: the sleep may end later than that

    def due(self, partition: int, at_ms: int) -> None:
        """A queue of this partition is due at that time (monotonic ms): it is to be in hand by then."""
        self.schedule(partition, at_ms - self._lead_ms())

    def hint(self, partition: int) -> None:
        """A sleeping queue of this partition woke."""
        if self._ownership.is_open(partition):
            if partition in self._boosts:
                self._boosts[partition][0] = 0  # what boost the queue has, the claim will tell
            self.schedule(partition)

    def forget(self, partitions: Iterable[int]) -> None:
        """These partitions are not ours any more."""
        for partition in partitions:
            self._due.pop(partition, None)
            self._boosts.pop(partition, None)
            self._unanswered.pop(partition, None)

    @property
    def is_idle(self) -> bool:
        """Will no partition be due soon?"""
        return not self._heap or self._heap[0][0] > monotonic_ms() + SOON_MS

    async def run(self) -> None:
        """Claim until cancelled."""
        while True:
            self._wake.clear()
            try:
                busy = await self._round()
            except EngineError as error:
                log.warning("claim.engine_error", extra={"error": str(error)})
                await asyncio.sleep(ENGINE_PAUSE_S)
                continue
            if not busy:
                await self._sleep()

    async def _sleep(self) -> None:
        now_ms = monotonic_ms()
        until_ms = self._swept_ms + SWEEP_MS
        if self._heap and self._room() > 0:
            until_ms = min(until_ms, self._heap[0][0])
        try:
            async with asyncio.timeout(max(until_ms - now_ms, 1) / 1000):
                await self._wake.wait()
        except TimeoutError:
            pass

    def room_changed(self) -> None:
        """Claims were ended: there may be room for more."""
        if self._heap and self._heap[0][0] <= monotonic_ms():
            self._wake.set()

    def _room(self) -> int:
        room = self._out_max - self._flow.outstanding
        budget = self._flow.pages_left()
        return room if budget is None else min(room, budget)

    async def _round(self) -> bool:
        """One batch of claims; False when there was nothing to do."""
        if monotonic_ms() - self._swept_ms >= SWEEP_MS:
            self._swept_ms = monotonic_ms()
            await self._sweep()
        if self._flow.is_stopping or self._flow.waits_for:
            return False
        partitions = self._due_partitions()
        if not partitions:
            return False
        await self._claim(partitions)
        return True

    def _due_partitions(self) -> list[int]:
        now_ms, most = monotonic_ms(), min(PARTITIONS_PER_ROUND, -(-self._room() // URLS_PER_CALL))
        if self._boosts and most > 0:
            return self._most_boosted(now_ms, most)
        found: list[int] = []
        while self._heap and len(found) < most:
            at_ms, partition = self._heap[0]
            if self._due.get(partition) != at_ms:
                heapq.heappop(self._heap)  # outdated
                continue
            if at_ms > now_ms:
                break
            heapq.heappop(self._heap)
            del self._due[partition]
            if self._ownership.is_open(partition):
                found.append(partition)
        return found

    def _most_boosted(self, now_ms: int, most: int) -> list[int]:
        """Of the partitions that are due, those with the highest boost; the others when these need nothing more."""
        due = [(*self._place_of(p, at_ms, now_ms), p) for p, at_ms in self._due.items() if at_ms <= now_ms]
        highest = min(due, default=(0,))[0]
        found = [p for *_, p in heapq.nsmallest(most, (one for one in due if one[0] == highest))]
        for partition in found:
            del self._due[partition]
        while self._heap and self._due.get(self._heap[0][1]) != self._heap[0][0]:
            heapq.heappop(self._heap)  # outdated
        return [p for p in found if self._ownership.is_open(p)]

    def _place_of(self, partition: int, at_ms: int, now_ms: int) -> tuple[int, int]:
        """Lower goes first: minus the highest boost of which a queue is due, and since when one is."""
        known = self._boosts.get(partition, {})
        boost = max((boost for boost, due_ms in known.items() if due_ms <= now_ms), default=0)
        return -boost, known.get(boost, at_ms)

    async def _claim(self, partitions: list[int]) -> None:
        share = max(1, self._room() // len(partitions))
        wanted: list[tuple[Fence, ClaimRequest]] = []
        for partition in partitions:
            fence = self._ownership.fence_of(partition)
            if fence is not None:
                known = partition in self._unanswered
                wanted.append((fence, self._unanswered.pop(partition) if known else self._request(share)))
        self._answered.clear()
        try:
            replies = await self._frontier.claim(wanted)
            for (fence, request), reply in zip(wanted, replies, strict=True):
                self._take_in(fence, request, reply)
        except EngineError:
            for fence, request in wanted:
                self._again(fence.partition, request)
            raise
        finally:
            self._answered.set()

    async def settle(self) -> None:
        """Wait until the last call has brought its claims, or failed; called when no further one is made."""
        await self._answered.wait()

    def _is_scarce(self) -> bool:
        """Is there so little room that nothing should be kept for later while other queues are due?"""
        return 2 * self._flow.outstanding > self._out_max

    def _lead_ms(self) -> int:
        return 0 if self._is_scarce() else LEAD_MS

    def _request(self, share: int) -> ClaimRequest:
        f, self._serial = self._settings.frontier, self._serial + 1
        return ClaimRequest(
            request_id=f"{self._frontier.session}-{self._serial}",
            urls_max=min(share, 2 * f.claim_urls_max),  # twice as many took the engine 5.5 ms beside a million keys
            per_queue_max=f.claim_urls_max,
            ahead_ms=0 if self._is_scarce() else int(f.claim_ahead_s * 1000),
            visibility_ms=int(f.visibility_timeout_s * 1000),
            default_delay_ms=int(self._settings.politeness.delay_s * 1000),
            out_max=2 * f.claim_urls_max,
            lead_ms=self._lead_ms(),
            budget=Budget(pages=self._settings.budget.pages, bytes=self._settings.budget.bytes),
            at_s=wall_s(),
        )

    def _take_in(self, fence: Fence, request: ClaimRequest, reply: ClaimReply | EngineError) -> None:
        partition = fence.partition
        if isinstance(reply, EngineError):
            self._again(partition, request)
            return
        if reply.status == "FENCED":
            self._ownership.fenced(partition)
            return
        if reply.status == "RECOVER":
            self._flow.recover()
            return
        held = self._ownership.held.get(partition)
        if held is None or held.epoch != fence.epoch:
            return  # lost while the call was out: the claims are of an older epoch and come back by themselves
        for batch in reply.batches:
            self._flow.claimed(partition, len(batch.claims))
            self._bench.put(batch, start_ms=self._here(partition, batch.start_ms))
            reached("claim.taken", batch.claims[0].url)
        if reply.short:
            self.on_short(partition, reply.short)
        self._note_boosts(partition, reply.boosts)
        if reply.next_due_ms >= 0:
            wait_ms = reply.next_due_ms - self._ownership.now_of(partition)  # below 0: due since then, and goes first
            if not reply.batches:
                wait_ms = max(wait_ms, NOTHING_MS)
            self.schedule(partition, monotonic_ms() + wait_ms)

    def _here(self, partition: int, at_ms: int) -> int:
        """A time of the partition's clock on our own (monotonic ms); 0 stays 0."""
        return at_ms and monotonic_ms() + at_ms - self._ownership.now_of(partition)

    def _note_boosts(self, partition: int, boosts: Mapping[int, int]) -> None:
        if boosts:
            later_ms = monotonic_ms() - self._ownership.now_of(partition)
            self._boosts[partition] = {boost: due_ms + later_ms for boost, due_ms in boosts.items() if due_ms >= 0}
        else:
            self._boosts.pop(partition, None)

    def _again(self, partition: int, request: ClaimRequest) -> None:
        """The outcome is unknown: the same request id brings the same batch."""
        if self._ownership.is_open(partition):
            self._unanswered[partition] = request
            self.schedule(partition, monotonic_ms() + int(ENGINE_PAUSE_S * 1000))

    async def _sweep(self) -> None:
        """Partitions that wait for nothing, or for long, are looked at once a second: a hint may have been lost."""
        soon_ms = monotonic_ms() + SWEEP_MS
        waiting = [p for p in self._ownership.held if self._due.get(p, soon_ms + 1) > soon_ms]
        for partition, due_ms in await self._frontier.awake(waiting):
            if self._ownership.is_open(partition):
                self.due(partition, self._here(partition, due_ms))
        for partition in waiting:
            if partition in self._boosts:  # their queues are ready elsewhere
                self.schedule(partition)
