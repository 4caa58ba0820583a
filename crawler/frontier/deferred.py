"""What is parked and what is stopped, and how people and budgets change that. Knows no rule by which it came about.

Every call is atomic and may be repeated at any time, also while the crawl runs; none needs a lease.
"""

from collections.abc import Sequence
from enum import StrEnum
from typing import Any

import msgspec

from crawler.frontier.codec import pack, pairs_of
from crawler.frontier.frontier import Frontier
from crawler.frontier.spill import BlockFiles, NoFiles, Spilling

RELEASE_MAX = 256  # URLs a call: about a millisecond of the engine
ORDERS_MAX = 64  # a call
ADMIT_MAX = 128
HOSTS_MAX = 256
PAUSED = "paused"  # a stop that parks nothing: the URLs stay pending
BLOCKED = "blocked"
DEPTH = "depth"
HOSTS = "hosts"
CRAWL_URLS = "crawl:urls"  # meta counts those of a partition; see lua/_deferred.lua


class ChangeKind(StrEnum):
    """What happens to a queue."""

    STOP = "stop"
    START = "start"
    RELEASE = "release"
    DELAY = "delay"
    BOOST = "boost"


class QueueChange(msgspec.Struct, frozen=True):
    """STOP a queue for a reason; START it if it is stopped for that; RELEASE the n best URLs that are parked for it,
    until `upto` URLs of the queue are taken in (-1: whatever that makes).

    DELAY: n ms between requests, -1 for what robots.txt will say; the reason is "". `due_ms`: only its owner knows.
    BOOST: of those that are due, the ones with a higher n go first; from -9 to 9, 0 for none; the reason is "".
    """

    queue: str
    what: ChangeKind
    reason: str
    n: int = 0
    due_ms: int = -1
    upto: int = -1

    @property
    def values(self) -> tuple[str, str, str, int, int]:
        """As `steer` takes it."""
        if self.what is ChangeKind.RELEASE:
            return self.queue, self.what.value, self.reason, min(self.n, RELEASE_MAX), self.upto
        return self.queue, self.what.value, self.reason, self.n, self.due_ms


def kind_of(reason: str) -> str:
    """The reason for which rows of many names are parked: what is too deep has a row for each depth."""
    return DEPTH if reason.startswith(f"{DEPTH}:") else reason


class DeferredRow(msgspec.Struct, frozen=True, kw_only=True):
    """URLs of a queue that are parked for one reason."""

    partition: int
    queue: str
    reason: str
    urls: int

    @property
    def kind(self) -> str:
        """See `kind_of`."""
        return kind_of(self.reason)

    @property
    def depth(self) -> int:
        """Of those that are too deep: how far from a seed they are."""
        return int(self.reason.removeprefix(f"{DEPTH}:"))


class DeferredUrls:
    """The parked URLs of one crawl."""

    def __init__(self, frontier: Frontier, partitions: int, files: BlockFiles | None = None) -> None:
        self._frontier = frontier
        self._partitions = partitions
        self._files = files or NoFiles()
        self._spilling = Spilling(frontier.engine, frontier.keys, default_delay_ms=frontier.default_delay_ms)

    async def change_queues(self, partition: int, overrides: Sequence[QueueChange]) -> list[int]:
        """Carry out orders on queues of one partition; how many URLs each was about. Raises EngineError."""
        f, found = self._frontier, []
        for start in range(0, len(overrides), ORDERS_MAX):
            items = [order.values for order in overrides[start : start + ORDERS_MAX]]
            args = (f.default_delay_ms, f.keys.hints, f.session, pack(items))
            _, *counts = await f.engine.run("change_queues", (f.keys.meta(partition),), *args)
            found += [int(n) for n in counts]
        return found

    async def release(self, partition: int, queue: str, reason: str, n: int, *, upto: int = -1) -> int:
        """Put up to n parked URLs back into their queue; how many. `upto`: see Order. Raises EngineError.

        Blocks that are in files are released as they are. Only of the last one, of which a part is wanted, must the
        file be at hand: ArchiveError, with all before it released.
        """
        released = 0
        while released < n:
            (some,) = await self.change_queues(
                partition, [QueueChange(queue, ChangeKind.RELEASE, reason, n - released, upto=upto)]
            )
            if some < 0:
                break
            if not some and not await self._spilling.bring_back_next(partition, f"{queue}|{reason}", self._files):
                break
            released += some
        return released

    async def hosts(self, partition: int, domains: Sequence[str]) -> list[int]:
        """How many hosts of each domain a budget of hosts took in. Raises EngineError."""
        return [int(n or 0) for n in await self._look(partition, domains)]

    async def hosts_taken(self, partition: int, domain: str, labels: Sequence[str]) -> set[str]:
        """Those of these hosts of a domain, by label ("@": itself), that a budget took in. Raises EngineError."""
        answers = await self._look(partition, [f"{domain} {label}" for label in labels])
        return {label for label, answer in zip(labels, answers, strict=True) if answer}

    async def _look(self, partition: int, names: Sequence[str]) -> list[bytes]:
        key, found = self._frontier.keys.meta(partition), list[bytes]()
        for i in range(0, len(names), HOSTS_MAX):
            found += await self._frontier.engine.run("read_queues", (key,), "hosts", *names[i : i + HOSTS_MAX])
        return found

    async def admit(
        self, partition: int, queue: str, domain: str, hosts_max: int, urls: Sequence[tuple[str, str, str]]
    ) -> int:
        """Put these parked (block, member, host) into their queue whose hosts their domain takes in; how many.

        Raises EngineError.
        """
        f, admitted = self._frontier, 0
        for i in range(0, len(urls), ADMIT_MAX):
            items = (queue, domain, hosts_max, urls[i : i + ADMIT_MAX])
            args = (f.default_delay_ms, f.keys.hints, f.session, pack(items))
            admitted += int((await f.engine.run("admit_hosts", (f.keys.meta(partition),), *args))[1])
        return admitted

    async def deferred(self) -> list[DeferredRow]:
        """All that is parked, by queue and reason. Raises EngineError."""
        raw = await self._frontier.engine.commands(
            [("HGETALL", self._key(p, "parks")) for p in range(self._partitions)]
        )
        return [one for partition, flat in enumerate(raw) for one in _deferred(partition, flat)]

    async def of_partition(self, partition: int) -> list[DeferredRow]:
        """What is parked in one partition. Raises EngineError."""
        return _deferred(partition, await self._frontier.engine.command("HGETALL", self._key(partition, "parks")))

    async def of_queue(self, partition: int, queue: str) -> list[DeferredRow]:
        """What is parked of one queue. Raises EngineError."""
        cursor, key, found = -1, self._key(partition, "parks"), list[DeferredRow]()
        while cursor:
            reply = await self._frontier.engine.command(
                "HSCAN", key, max(cursor, 0), "MATCH", f"{_literally(queue)}|*", "COUNT", 1000
            )
            cursor = int(reply[0])
            found += _deferred(partition, reply[1])
        return found

    async def survey(self, partitions: Sequence[int]) -> list[tuple[int, dict[str, str], list[DeferredRow]]]:
        """(partition, its stopped queues, what is parked) of each partition with any. Raises EngineError."""
        raw = await self._frontier.engine.commands(
            [("HGETALL", self._key(p, name)) for p in partitions for name in ("stops", "parks")]
        )
        both = zip(partitions, raw[::2], raw[1::2], strict=True)
        return [(p, _stops(stops), _deferred(p, parks)) for p, stops, parks in both if stops or parks]

    async def stops(self, partition: int) -> dict[str, str]:
        """Stopped queues of a partition, with their reasons. Raises EngineError."""
        return _stops(await self._frontier.engine.command("HGETALL", self._key(partition, "stops")))

    def _key(self, partition: int, name: str) -> str:
        return self._frontier.keys.of(partition, name)


def _deferred(partition: int, raw: Any) -> list[DeferredRow]:
    names = [(name.decode().partition("|"), int(n)) for name, n in pairs_of(raw)]
    return [DeferredRow(partition=partition, queue=queue, reason=reason, urls=n) for (queue, _, reason), n in names]


def _stops(raw: Any) -> dict[str, str]:
    return {queue.decode(): reason.decode() for queue, reason in pairs_of(raw)}


def _literally(name: str) -> str:
    """A pattern of this name only: an IPv6 address has brackets."""
    return "".join(f"\\{c}" if c in "*?[]\\" else c for c in name)
