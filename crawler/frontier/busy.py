"""The busiest queues of each partition, and what happened in them lately: what lua/drain_log.lua keeps.

Pages, bytes and errors of the last 15 minutes in slots of 5 s, and of the last day in slots of 5 minutes.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import msgspec

from crawler.engine.client import Engine
from crawler.frontier.codec import pairs_of
from crawler.frontier.keys import Keys
from crawler.frontier.series import COARSE, FINE, RATE_SLOTS, Rates, Resolution

SETTLED_S = 1.0  # owners send what happened in a slot at most this long after its end
_FINE_SIZES, _COARSE_SIZES = (4, 2, 5, 2, 2, 2), (4, 3, 6, 3, 3, 3)  # bytes of each number of a slot
_HEAD = 7  # values of an entry before its slots


class Slot(NamedTuple):
    """What happened in one slot. `number`: since 1970. `failures`: attempts without a response."""

    number: int
    pages: int = 0
    bytes: int = 0
    client_errors: int = 0
    server_errors: int = 0
    failures: int = 0


class BusyQueue(msgspec.Struct, frozen=True):
    """A queue with its newest slots, open requests, and the last failure with its slot's time (s since 1970)."""

    queue: str
    partition: int
    newest: Sequence[Slot]
    in_flight: int = 0
    last_error: str = ""
    last_error_at: float = 0.0
    first: int = 0  # the slot in which it became one of the busiest

    def rates(self, now_s: float, began_s: float = 0.0) -> Rates | None:
        """Over the last two whole slots, or one; None before there is one. `began_s`: when instances began to run.

        The slot in which it became one of the busiest is not whole, nor is that in which they began.
        """
        end = FINE.slot_of(now_s - SETTLED_S)
        begin = max(end - RATE_SLOTS, self.first + 1, FINE.slot_of(began_s) + 1)
        if begin >= end:
            return None
        whole = (one for one in self.newest if begin <= one.number < end)
        return _mean(whole, float((end - begin) * FINE.slot_s))


class BusyQueues:
    """Reads them."""

    def __init__(self, engine: Engine, keys: Keys, partitions: int) -> None:
        self._engine = engine
        self._keys = keys
        self._partitions = partitions

    async def read(self) -> list[BusyQueue]:
        """All there are: some 4,096, and at most eight for each partition when there are many partitions."""
        raw = await self._engine.commands([("HGETALL", self._keys.of(p, "busy")) for p in range(self._partitions)])
        return [
            _busy_queue(name.decode(), partition, packed)
            for partition, flat in enumerate(raw)
            for name, packed in pairs_of(flat)
        ]

    async def of(self, places: Sequence[tuple[str, int]]) -> list[BusyQueue | None]:
        """The given (queue, partition) pairs; None for those that are not among the busiest."""
        raw = await self._engine.commands([("HGET", self._keys.of(p, "busy"), queue) for queue, p in places])
        return [packed and _busy_queue(queue, p, packed) for (queue, p), packed in zip(places, raw, strict=True)]

    async def slots(self, partition: int, queue: str, now_s: float) -> tuple[list[Slot], list[Slot]]:
        """The last 15 minutes and the last day of a queue, oldest slot first, without those in which nothing happened.
        Empty for a queue that is not among the busiest.
        """
        keys = (self._keys.of(partition, f"v:{queue}"), self._keys.of(partition, f"d:{queue}"))
        fine, coarse = await self._engine.commands([("GET", key) for key in keys])
        return _kept_slots(fine, _FINE_SIZES, FINE, now_s), _kept_slots(coarse, _COARSE_SIZES, COARSE, now_s)


def _mean(slots: Iterable[Slot], seconds: float) -> Rates:
    sums = [sum(values) / seconds for values in zip(*(slot[1:] for slot in slots), strict=True)]
    return Rates(seconds, *sums)


def _busy_queue(queue: str, partition: int, packed: bytes) -> BusyQueue:
    values = msgspec.msgpack.decode(packed)
    width = len(Slot._fields)
    newest = [Slot(*map(int, values[i : i + width])) for i in range(_HEAD, len(values), width)]
    first, _, in_flight, error, error_at = values[_HEAD - 5 : _HEAD]
    return BusyQueue(queue, partition, newest, int(in_flight), error, float(error_at), int(first))


def _kept_slots(ring: bytes | None, sizes: Sequence[int], resolution: Resolution, now_s: float) -> list[Slot]:
    last = resolution.slot_of(now_s)
    slots = (Slot(*_numbers(part, sizes)) for part in _parts(ring or b"", sum(sizes)))
    return sorted(slot for slot in slots if last - resolution.slots < slot.number <= last)


def _parts(ring: bytes, size: int) -> Iterator[bytes]:
    for start in range(0, len(ring), size):
        yield ring[start : start + size]


def _numbers(part: bytes, sizes: Sequence[int]) -> Iterator[int]:
    start = 0
    for size in sizes:
        yield int.from_bytes(part[start : start + size], "little")
        start += size
