"""Budgets that were raised: queues that a smaller one stopped are started, URLs that it parked are released.

Must not know who raised them. Needs no lease; each call may be repeated, and does nothing where no budget has room.
"""

from collections.abc import Sequence
from typing import Any

from crawler.frontier.frontier import Budget, Frontier
from crawler.frontier.parking import BLOCKED, DEPTH, Order, Parked, Parking, What
from crawler.frontier.records import unpack_queue
from crawler.rules.budgets import is_left, is_within, room_of

PARTITIONS_MAX = 128  # a pipeline
LOOK_MAX = 64  # records a call
URLS = "urls"


class Raising:
    """The budgets of one instance, against what stands in the engine. Raises EngineError."""

    def __init__(self, frontier: Frontier, parking: Parking, budget: Budget) -> None:
        self._frontier = frontier
        self._parking = parking
        self._budget = budget

    async def look(self, partitions: Sequence[int]) -> int:
        """Start and release what the budgets allow in these partitions; how many URLs are pending again."""
        urls = 0
        for i in range(0, len(partitions), PARTITIONS_MAX):
            some = partitions[i : i + PARTITIONS_MAX]
            for partition, stops, parked in await self._parking.survey(some):
                urls += await self._started(partition, stops)
                urls += await self._released(partition, [p for p in parked if stops.get(p.queue) != BLOCKED])
        return urls

    async def _started(self, partition: int, stops: dict[str, str]) -> int:
        names = [queue for queue, reason in stops.items() if reason in ("pages", "bytes")]
        orders = []
        for queue, known in (await self._records(partition, names)).items():
            if self._has_room(stops[queue], known):
                orders.append(Order(queue, What.START, stops[queue]))
        return sum(await self._parking.steer(partition, orders))

    def _has_room(self, reason: str, known: dict[str, Any]) -> bool:
        if reason == "bytes":
            return is_left(known.get("bytes", 0), self._budget.bytes)
        return is_left(sum(known.get(f"s{status}", 0) for status in range(1, 6)), self._budget.pages)

    async def _released(self, partition: int, parked: Sequence[Parked]) -> int:
        rows = {p.queue: p.urls for p in parked if p.reason == URLS}
        released = 0
        for queue, known in (await self._records(partition, list(rows))).items():
            n = room_of(met=known.get("urls", 0), parked=rows[queue], budget=self._frontier.urls_max)
            released += await self._parking.release(partition, queue, URLS, n)
        for one in parked:
            if one.kind == DEPTH and is_within(one.depth, self._budget.depth):
                released += await self._parking.release(partition, one.queue, one.reason, one.urls)
        return released

    async def _records(self, partition: int, queues: Sequence[str]) -> dict[str, dict[str, Any]]:
        f, found = self._frontier, dict[str, dict[str, Any]]()
        for i in range(0, len(queues), LOOK_MAX):
            some = queues[i : i + LOOK_MAX]
            raw = await f.engine.run("look", (f.keys.meta(partition),), "queues", *some)
            found.update((queue, unpack_queue(record)) for queue, record in zip(some, raw, strict=True))
        return found
