"""When each held partition may be claimed from: one due time each, so that no partition is polled in vain."""

import asyncio
import heapq
from collections.abc import Iterable, Mapping

from crawler.runtime.clock import monotonic_ms
from crawler.runtime.counters import OpenClaims

SOON_MS = 500
# A queue is claimed this long before it is due: otherwise its next URL would be late by a call to the engine and some
# passes of the event loop.
LEAD_MS = 250
OUTDATED_MAX = 1024  # entries of the heap that were replaced by an earlier one, before the heap is rebuilt


class DuePartitions:
    """Due times by partition (monotonic ms), in a heap that the claimer empties. `wake` is set when it should check."""

    def __init__(self, open_claims: OpenClaims) -> None:
        self._open_claims = open_claims
        self._due: dict[int, int] = {}
        self._heap: list[tuple[int, int]] = []
        self._boosts: dict[int, dict[int, int]] = {}  # of partitions where queues have one: boost -> due time
        self.wake = asyncio.Event()

    def schedule(self, partition: int, at_ms: int = 0) -> None:
        """Claim from this partition at that time, unless an earlier one is set."""
        known = self._due.get(partition)
        if known is not None and known <= at_ms:
            return
        self._due[partition] = at_ms
        heapq.heappush(self._heap, (at_ms, partition))
        if len(self._heap) > len(self._due) + OUTDATED_MAX:
            self._heap = [(due_ms, number) for number, due_ms in self._due.items()]
            heapq.heapify(self._heap)
        if self._heap[0] == (at_ms, partition):
            self.wake.set()  # also for a future time: the claimer's sleep may end later

    def queue_due(self, partition: int, at_ms: int) -> None:
        """A queue of this partition is due at that time: its next claim must be here by then."""
        self.schedule(partition, at_ms - self.lead_ms)

    def hint(self, partition: int) -> None:
        """A sleeping queue of this partition woke."""
        if partition in self._boosts:
            self._boosts[partition][0] = 0  # the claim will tell which boost the queue has
        self.schedule(partition)

    def drop(self, partitions: Iterable[int]) -> None:
        """These partitions are lost."""
        for partition in partitions:
            self._due.pop(partition, None)
            self._boosts.pop(partition, None)

    @property
    def lead_ms(self) -> int:
        """How long before its time a queue is claimed; 0 when claims are scarce."""
        return 0 if self._open_claims.is_scarce else LEAD_MS

    @property
    def first_ms(self) -> int | None:
        """The earliest time in the heap (possibly outdated); None when it is empty."""
        return self._heap[0][0] if self._heap else None

    def later(self) -> dict[int, int]:
        """The partitions that are due at a later time, with that time."""
        now_ms = monotonic_ms()
        return {partition: at_ms for partition, at_ms in self._due.items() if at_ms > now_ms}

    @property
    def is_idle(self) -> bool:
        """Will no partition be due soon?"""
        return not self._heap or self._heap[0][0] > monotonic_ms() + SOON_MS

    def room_changed(self) -> None:
        """Claims were ended: there may be room for more."""
        if self._heap and self._heap[0][0] <= monotonic_ms():
            self.wake.set()

    def waits_beyond(self, partition: int, at_ms: int) -> bool:
        """Has this partition no due time, or one after that time?"""
        return self._due.get(partition, at_ms + 1) > at_ms

    def has_boosts(self, partition: int) -> bool:
        """Do queues of this partition have a boost?"""
        return partition in self._boosts

    def note_boosts(self, partition: int, boosts: Mapping[int, int], *, later_ms: int) -> None:
        """`boosts`: boost -> when a queue with it is due, on a clock that ours is `later_ms` ahead of. Empty: no queue
        has one.
        """
        if boosts:
            self._boosts[partition] = {boost: at_ms + later_ms for boost, at_ms in boosts.items() if at_ms >= 0}
        else:
            self._boosts.pop(partition, None)

    def take(self, most: int) -> list[int]:
        """Remove at most `most` partitions that are due now: those with the highest boost, else the longest due."""
        now_ms = monotonic_ms()
        if self._boosts and most > 0:
            return self._take_most_boosted(now_ms, most)
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
            found.append(partition)
        return found

    def _take_most_boosted(self, now_ms: int, most: int) -> list[int]:
        """Those with the highest boost; the others once these need nothing more."""
        due = [(*self._place_of(p, at_ms, now_ms), p) for p, at_ms in self._due.items() if at_ms <= now_ms]
        highest = min(due, default=(0,))[0]
        found = [p for *_, p in heapq.nsmallest(most, (one for one in due if one[0] == highest))]
        for partition in found:
            del self._due[partition]
        while self._heap and self._due.get(self._heap[0][1]) != self._heap[0][0]:
            heapq.heappop(self._heap)  # outdated
        return found

    def _place_of(self, partition: int, at_ms: int, now_ms: int) -> tuple[int, int]:
        """Sort key, lowest first: minus the highest boost of a due queue, and since when that queue is due."""
        known = self._boosts.get(partition, {})
        boost = max((boost for boost, due_ms in known.items() if due_ms <= now_ms), default=0)
        return -boost, known.get(boost, at_ms)
