"""For whom partitions are due: where queues have boosts, or users URLs, a heap for each boost and user.

What is known of a partition comes with the replies to claims. Partitions of which nothing is known, or nothing that
is due, are due for the crawl itself.
"""

import heapq
from collections.abc import Mapping

from crawler.rules.turns import FairTurns

Key = tuple[int, str]  # boost and user
PLAIN: Key = (0, "")
OUTDATED_MAX = 1024  # entries of a heap that are not valid any more, before it is rebuilt


class DueUsers:
    """`scheduled`: when each partition that is not being claimed from may be (ms); kept by the owner of this."""

    def __init__(self, scheduled: Mapping[int, int], turns: FairTurns) -> None:
        self._scheduled = scheduled
        self._turns = turns
        self._waits: dict[int, dict[Key, int]] = {}  # partition -> when a queue is due
        self._heaps: dict[Key, list[tuple[int, int]]] = {}

    def __bool__(self) -> bool:
        """Is anything known? Otherwise the plain order applies, and nothing is kept here."""
        return bool(self._waits)

    def __contains__(self, partition: int) -> bool:
        return partition in self._waits

    def replace(self, partition: int, waits: Mapping[Key, int]) -> None:
        """All that is known of a partition now; empty where there are boosts or users, but nothing is to become due."""
        self._begin()
        self._waits[partition] = dict(waits)
        self.scheduled(partition)

    def note(self, partition: int, user: str, at_ms: int) -> None:
        """A queue is due for a user at that time. The next claim will tell which boost it has."""
        self._begin()
        known = self._waits.setdefault(partition, {})
        known[0, user] = min(at_ms, known.get((0, user), at_ms))
        self.scheduled(partition)

    def drop(self, partition: int) -> None:
        """There are neither boosts nor users in this partition, or it is lost."""
        self._waits.pop(partition, None)
        if self._waits:
            self.scheduled(partition)
        else:
            self._heaps.clear()

    def _begin(self) -> None:
        if not self._waits:
            self._heaps[PLAIN] = sorted((at_ms, partition) for partition, at_ms in self._scheduled.items())

    def scheduled(self, partition: int) -> None:
        """The partition has a new due time, or more is known of it."""
        at_ms = self._scheduled.get(partition)
        if at_ms is None or not self._waits:
            return
        self._push(PLAIN, at_ms, partition)  # for what is not known to be due
        for key, due_ms in self._waits.get(partition, {}).items():
            self._push(key, due_ms, partition)

    def _push(self, key: Key, at_ms: int, partition: int) -> None:
        heap = self._heaps.setdefault(key, [])
        heapq.heappush(heap, (at_ms, partition))
        if len(heap) > 2 * len(self._scheduled) + OUTDATED_MAX:
            found = [(known[key], p) for p, known in self._waits.items() if key in known and p in self._scheduled]
            if key == PLAIN:
                found += [(due_ms, p) for p, due_ms in self._scheduled.items()]
            heap[:] = sorted(found)

    def _first(self, key: Key, now_ms: int, taken: Mapping[int, None]) -> int | None:
        """The partition that has been due for longest for this boost and user, and was not taken."""
        heap = self._heaps[key]
        while heap and heap[0][0] <= now_ms:
            at_ms, partition = heap[0]
            known, scheduled_ms = self._waits.get(partition, {}), self._scheduled.get(partition)
            is_known = known.get(key, at_ms + 1) <= at_ms
            is_plain = key == PLAIN and scheduled_ms == at_ms and not any(due <= now_ms for due in known.values())
            if scheduled_ms is None or partition in taken or not (is_known or is_plain):
                heapq.heappop(heap)
            elif scheduled_ms > now_ms:  # it gave nothing a moment ago
                heapq.heapreplace(heap, (scheduled_ms, partition))
            else:
                return partition
        return None

    def take(self, now_ms: int, most: int) -> list[int]:
        """At most `most` partitions that are due: those with the highest boost, of these one for each user in turn."""
        taken: dict[int, None] = {}
        firsts = {key: first for key in self._heaps if (first := self._first(key, now_ms, taken)) is not None}
        highest = max((boost for boost, _ in firsts), default=0)
        left = {user: first for (boost, user), first in firsts.items() if boost == highest}
        if not left:
            return []
        self._turns.advance(self._turns.next_of(left))
        turns = self._turns.copy()  # what they get is charged when it is here
        while left and len(taken) < most:
            user = turns.next_of(left)
            turns.advance(user)
            turns.charge(user, 1)
            taken[left[user]] = None
            for one in [one for one, partition in left.items() if partition in taken]:
                following = self._first((highest, one), now_ms, taken)
                if following is None:
                    del left[one]
                else:
                    left[one] = following
        return list(taken)
