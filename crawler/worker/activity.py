"""What happens in the queues of this instance, for the rates of the busiest: counted here, sent with drains of the log.

Nothing is sent twice, so a crash or a failed call may lose two seconds of it. Totals don't come from here.
"""

import heapq
from collections import Counter
from collections.abc import Callable, Iterable, Iterator

import msgspec

from crawler.frontier.arguments import ActivityHead, ActivityItem
from crawler.frontier.codec import pack
from crawler.frontier.series import FINE, busiest_max
from crawler.model import Claim
from crawler.runtime.clocks import monotonic_ms, wall_s

SEND_EVERY_MS = 2000
ACTIVITY_ERROR_MAX = 60  # characters that are kept of the reason of a failure


class _Counts(msgspec.Struct):
    """What happened in a queue in one slot, as in ActivityItem."""

    pages: int = 0
    bytes: int = 0
    client_errors: int = 0
    server_errors: int = 0
    failures: int = 0
    error: str = ""  # the last one

    def item(self, slot: int, queue: str, in_flight: int) -> ActivityItem:
        return ActivityItem(
            slot, queue, self.pages, self.bytes, self.client_errors, self.server_errors, self.failures, in_flight,
            self.error,
        )  # fmt: skip


_NONE = _Counts()
_Queues = dict[str, _Counts]
_Open = Counter[tuple[int, str]]  # requests by partition and queue


class Activity:
    """Counts by partition, slot and queue, and the open requests of each queue."""

    def __init__(self, partitions: int, open_requests: Callable[[], Iterable[Claim]] = tuple) -> None:
        self._most = busiest_max(partitions)
        self._open_requests = open_requests
        self._open = _Open()  # when it was taken last
        self._sent = _Open()  # what the engine has of them
        self._counts: dict[int, dict[int, _Queues]] = {}
        self._slot = 0  # that was noted last
        self._taken_ms = monotonic_ms()
        self._is_slot_over = False
        self._is_ending = False

    def response(self, partition: int, queue: str, status: int, body_bytes: int) -> None:
        """A response was committed."""
        counts = self._of(partition, queue)
        counts.pages += 1
        counts.bytes += body_bytes
        counts.client_errors += status // 100 == 4
        counts.server_errors += status // 100 == 5

    def failure(self, partition: int, queue: str, error: str) -> None:
        """An attempt brought no response, for this reason."""
        counts = self._of(partition, queue)
        counts.failures += 1
        counts.error = error[:ACTIVITY_ERROR_MAX]

    def _of(self, partition: int, queue: str) -> _Counts:
        slot = FINE.slot_of(wall_s())
        self._is_slot_over |= bool(self._counts) and slot != self._slot
        self._slot = slot
        queues = self._counts.setdefault(partition, {}).setdefault(slot, {})
        counts = queues.get(queue)
        if counts is None:
            counts = queues[queue] = _Counts()
        return counts

    def drop(self, partitions: Iterable[int]) -> None:
        """These partitions are lost."""
        gone = set(partitions)
        for partition in gone:
            self._counts.pop(partition, None)
        for place in [one for one in self._sent if one[0] in gone]:
            del self._sent[place]

    @property
    def has_any(self) -> bool:
        """Has the engine other counts, or others of open requests?"""
        return bool(self._counts or self._sent)

    def end(self) -> None:
        """Nothing more comes: what there is is due."""
        self._is_ending = True

    @property
    def is_due(self) -> bool:
        """Is there something to send, for long enough or of a slot that is over?"""
        is_over = self._is_ending or self._is_slot_over or FINE.slot_of(wall_s()) != self._slot
        is_late = monotonic_ms() - self._taken_ms >= SEND_EVERY_MS
        if self._counts:
            return is_over or is_late
        return is_late and (bool(self._sent) or any(self._open_requests()))

    def take(self) -> dict[int, bytes]:
        """What is to be sent for each partition, of the busiest queues of each slot; it is forgotten here."""
        counts, self._counts = self._counts, {}
        seconds = max(0.5, (monotonic_ms() - self._taken_ms) / 1000)
        self._taken_ms, self._is_slot_over = monotonic_ms(), False
        now = _Open((claim.partition, claim.queue) for claim in self._open_requests())
        found: dict[int, list[ActivityItem]] = {p: list(self._items(p, slots, now)) for p, slots in counts.items()}
        told = {(partition, item.queue) for partition, items in found.items() for item in items}
        slot = FINE.slot_of(wall_s())
        for place in self._changed(now):
            if place not in told:
                found.setdefault(place[0], []).append(_NONE.item(slot, place[1], now[place]))
                told.add(place)
        for place in told:
            self._sent[place] = now[place]
        self._open, self._sent = now, +self._sent
        head = ActivityHead(most=self._most, seconds=seconds, slot_s=FINE.slot_s)
        return {p: pack([*head, *(value for item in items for value in item)]) for p, items in found.items()}

    def _items(self, partition: int, slots: dict[int, _Queues], now: _Open) -> Iterator[ActivityItem]:
        for slot in sorted(slots):
            queues = slots[slot]
            busiest = heapq.nlargest(self._most, queues, key=lambda name: queues[name].pages + queues[name].failures)
            for queue in busiest:
                yield queues[queue].item(slot, queue, now[partition, queue])

    def _changed(self, now: _Open) -> Iterator[tuple[int, str]]:
        """Queues of which the engine has another number of open requests. A new request that ends soon is not worth
        a message of its own: it counts from the second time that it is seen.
        """
        yield from (place for place in self._sent if self._sent[place] != now[place])
        yield from (place for place in now if place in self._open and place not in self._sent)
