"""What is parked and what is stopped, and how people and budgets change that. Knows no rule by which it came about.

Every call is atomic and may be repeated at any time, also while the crawl runs; none needs a lease.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from crawler.frontier.frontier import Frontier
from crawler.frontier.pending import PendingUrls
from crawler.frontier.records import pack, pairs_of

RELEASE_MAX = 256  # URLs a call: about a millisecond of the engine
ORDERS_MAX = 64  # a call
PAUSED = "paused"  # a stop that parks nothing: the URLs stay pending
BLOCKED = "blocked"


class What(StrEnum):
    """What happens to a queue."""

    STOP = "stop"
    START = "start"
    RELEASE = "release"


@dataclass(frozen=True, slots=True)
class Order:
    """STOP a queue for a reason; START it if it is stopped for that; RELEASE the n best URLs that are parked for it."""

    queue: str
    what: What
    reason: str
    n: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Parked:
    """URLs of a queue that are parked for one reason."""

    partition: int
    queue: str
    reason: str
    urls: int


class Parking:
    """The parked URLs of one crawl."""

    def __init__(self, frontier: Frontier, partitions: int) -> None:
        self._frontier = frontier
        self._partitions = partitions

    async def steer(self, partition: int, orders: Sequence[Order]) -> list[int]:
        """Carry out orders on queues of one partition; how many URLs each was about. Raises EngineError."""
        f, found = self._frontier, []
        for start in range(0, len(orders), ORDERS_MAX):
            items = [
                (o.queue, o.what.value, o.reason, min(o.n, RELEASE_MAX)) for o in orders[start : start + ORDERS_MAX]
            ]
            args = (f.default_delay_ms, f.keys.hints, f.session, pack(items))
            _, *counts = await f.engine.run("steer", (f.keys.meta(partition),), *args)
            found += [int(n) for n in counts]
        return found

    async def release(self, partition: int, queue: str, reason: str, n: int) -> int:
        """Put up to n parked URLs back into their queue; how many. Raises EngineError."""
        released = 0
        while released < n:
            (some,) = await self.steer(partition, [Order(queue, What.RELEASE, reason, n - released)])
            if not some:
                break
            released += some
        return released

    async def parked(self) -> list[Parked]:
        """All that is parked, by queue and reason. Raises EngineError."""
        raw = await self._frontier.engine.commands(
            [("HGETALL", self._frontier.keys.of(p, "parks")) for p in range(self._partitions)]
        )
        found = []
        for partition, flat in enumerate(raw):
            for name, n in pairs_of(flat):
                queue, _, reason = name.decode().partition("|")
                found.append(Parked(partition=partition, queue=queue, reason=reason, urls=int(n)))
        return found

    async def of_queue(self, partition: int, queue: str) -> list[Parked]:
        """What is parked of one queue. Raises EngineError."""
        cursor, key, found = -1, self._frontier.keys.of(partition, "parks"), []
        while cursor:
            reply = await self._frontier.engine.command(
                "HSCAN", key, max(cursor, 0), "MATCH", f"{queue}|*", "COUNT", 1000
            )
            cursor = int(reply[0])
            for name, n in pairs_of(reply[1]):
                reason = name.decode().partition("|")[2]
                found.append(Parked(partition=partition, queue=queue, reason=reason, urls=int(n)))
        return found

    async def reason_of(self, partition: int, queue: str, url: str) -> str:
        """Why this URL is parked by itself, not with its whole queue; "" when it is not. Raises EngineError."""
        pending = PendingUrls(self._frontier.engine, self._frontier.keys)
        for parked in await self.of_queue(partition, queue):
            if await pending.place(partition, queue, url, parked=parked.reason) is not None:
                return parked.reason
        return ""

    async def stops(self, partition: int) -> dict[str, str]:
        """Stopped queues of a partition, with their reasons. Raises EngineError."""
        raw = await self._frontier.engine.command("HGETALL", self._frontier.keys.of(partition, "stops"))
        return {queue.decode(): reason.decode() for queue, reason in pairs_of(raw)}
