"""What happens in the queues of this instance, for the rates of the busiest: counted here, sent with drains of the log.

Nothing is sent twice, so a crash or a failed call may lose two seconds of it. Totals don't come from here.
"""

import heapq
from collections.abc import Iterable

from crawler.frontier.codec import pack
from crawler.frontier.script_args import ActivityHead, ActivityItem
from crawler.frontier.series import FINE, busiest_max
from crawler.runtime.clock import monotonic_ms, wall_s

SEND_EVERY_MS = 2000
_PAGES, _BYTES, _CLIENT_ERRORS, _SERVER_ERRORS, _FAILURES = range(5)  # as in ActivityItem
_ERRORS = {4: _CLIENT_ERRORS, 5: _SERVER_ERRORS}

_Queues = dict[str, list[int]]


class Activity:
    """Counts by partition, slot and queue."""

    def __init__(self, partitions: int) -> None:
        self._most = busiest_max(partitions)
        self._counts: dict[int, dict[int, _Queues]] = {}
        self._slot = 0  # that was noted last
        self._taken_ms = monotonic_ms()
        self._is_slot_over = False
        self._is_ending = False

    def response(self, partition: int, queue: str, status: int, body_bytes: int) -> None:
        """A response was committed."""
        counts = self._of(partition, queue)
        counts[_PAGES] += 1
        counts[_BYTES] += body_bytes
        kind = _ERRORS.get(status // 100)
        if kind is not None:
            counts[kind] += 1

    def failure(self, partition: int, queue: str) -> None:
        """An attempt brought no response."""
        self._of(partition, queue)[_FAILURES] += 1

    def _of(self, partition: int, queue: str) -> list[int]:
        slot = FINE.slot_of(wall_s())
        self._is_slot_over |= bool(self._counts) and slot != self._slot
        self._slot = slot
        queues = self._counts.setdefault(partition, {}).setdefault(slot, {})
        counts = queues.get(queue)
        if counts is None:
            counts = queues[queue] = [0] * (_FAILURES + 1)
        return counts

    def drop(self, partitions: Iterable[int]) -> None:
        """These partitions are lost."""
        for partition in partitions:
            self._counts.pop(partition, None)

    def end(self) -> None:
        """Nothing more comes: what there is is due."""
        self._is_ending = True

    @property
    def is_due(self) -> bool:
        """Is there something to send, for long enough or of a slot that is over?"""
        if not self._counts:
            return False
        is_over = self._is_ending or self._is_slot_over or FINE.slot_of(wall_s()) != self._slot
        return is_over or monotonic_ms() - self._taken_ms >= SEND_EVERY_MS

    def take(self) -> dict[int, bytes]:
        """What is to be sent for each partition, of the busiest queues of each slot; it is forgotten here."""
        counts, self._counts = self._counts, {}
        seconds = max(0.5, (monotonic_ms() - self._taken_ms) / 1000)
        self._taken_ms, self._is_slot_over = monotonic_ms(), False
        head = ActivityHead(most=self._most, seconds=seconds, slot_s=FINE.slot_s)
        return {partition: pack([*head, *self._items(slots)]) for partition, slots in counts.items()}

    def _items(self, slots: dict[int, _Queues]) -> Iterable[int | str]:
        for slot in sorted(slots):
            queues = slots[slot]
            for queue in heapq.nlargest(
                self._most, queues, key=lambda name: queues[name][_PAGES] + queues[name][_FAILURES]
            ):
                yield from ActivityItem(slot, queue, *queues[queue])
