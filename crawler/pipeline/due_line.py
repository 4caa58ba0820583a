"""The line of lanes whose claims wait for their time: of those that are due, the highest boost first.

Knows nothing of claims, workers or clocks.
"""

import heapq
from typing import Generic, Protocol, TypeVar


class Boosted(Protocol):
    """What stands in the line. Its boost may change: it is then put in anew, and its old place counts no more."""

    boost: int


T = TypeVar("T", bound=Boosted)


class DueQueue(Generic[T]):
    """A heap of due times for each boost."""

    def __init__(self) -> None:
        self._heaps: dict[int, list[tuple[int, int, T]]] = {0: []}  # by boost, highest first
        self._serial = 0

    def push(self, due_ms: int, one: T) -> None:
        """Among equals of one due time, the first that came leaves first."""
        if one.boost not in self._heaps:
            self._heaps = dict(sorted([*self._heaps.items(), (one.boost, [])], reverse=True))
        self._serial += 1
        heapq.heappush(self._heaps[one.boost], (due_ms, self._serial, one))

    def pop(self, now_ms: int) -> T | None:
        """The one that has been due for longest among those of the highest boost that is due; None if none is."""
        for boost, heap in self._heaps.items():
            while heap and heap[0][0] <= now_ms:
                one = heapq.heappop(heap)[2]
                if one.boost == boost:
                    return one
        return None

    def next_ms(self) -> int | None:
        """When one may be due first, whatever its boost."""
        return min((heap[0][0] for heap in self._heaps.values() if heap), default=None)
