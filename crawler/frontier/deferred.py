"""Deferred URLs and stopped queues: reads and changes for operators and budgets.

Every call is atomic and may be repeated at any time, also while the crawl runs; none needs a lease.
"""

from collections.abc import Sequence
from enum import StrEnum
from typing import Any

import msgspec

from crawler.frontier.arguments import AdmitArgs, OrderArgs, QueueOrder
from crawler.frontier.codec import (
    pack,
    pairs_of,
    unpack_queue,
)
from crawler.frontier.owner import Frontier
from crawler.frontier.spilling import BlockFiles, NoFiles, Spilling

RELEASE_MAX = 256  # URLs a call: about a millisecond of the engine
CHANGES_MAX = 64  # a call
ADMIT_MAX = 128
HOSTS_MAX = 256


def deferring(stops: Any) -> dict[str, str]:
    """Queues of which URLs are deferred because they are stopped, and why."""
    return {queue.decode(): why.decode() for queue, why in pairs_of(stops) if why.decode() != PAUSED}


PAUSED = "paused"  # a stop that defers nothing: the URLs stay pending
BUDGETS = ("pages", "bytes")  # stops that defer only what belongs to no job
BLOCKED = "blocked"
DEPTH = "depth"
HOSTS = "hosts"
RIGHTS = "rights"  # robots.txt says no to the purpose of the crawl
REQUISITES = "requisites"  # beyond the bounds of what a queue may be requested for to show pages; lua/_queue.lua
ALLOW_PRIVATE = "allow_private"  # at a private address, refused by that setting
CRAWL_URLS = "crawl:urls"  # counted in meta, too; see lua/_deferred.lua


class ChangeKind(StrEnum):
    """What to do with a queue."""

    STOP = "stop"
    START = "start"
    RELEASE = "release"
    DELAY = "delay"
    BOOST = "boost"


class QueueChange(msgspec.Struct, frozen=True):
    """One change of a queue.

    STOP it for a reason; START it if it is stopped for the reason; RELEASE the n best URLs that are deferred for the
    reason, until `upto` URLs of the queue are admitted (-1: no limit).
    DELAY: n ms between requests, -1 to follow robots.txt; the reason is "". `due_ms`: latest start of its next request,
    if the caller owns the partition.
    BOOST: due queues with a higher n go first; from -9 to 9, 0 for none; the reason is "".
    """

    queue: str
    what: ChangeKind
    reason: str
    n: int = 0
    due_ms: int = -1
    upto: int = -1

    @property
    def order(self) -> QueueOrder:
        """For lua/change_queues.lua."""
        if self.what is ChangeKind.RELEASE:
            return QueueOrder(self.queue, self.what.value, self.reason, min(self.n, RELEASE_MAX), self.upto)
        return QueueOrder(self.queue, self.what.value, self.reason, self.n, self.due_ms)


def kind_of(reason: str) -> str:
    """The reason of a row without its depth: URLs that are too deep have a row for each depth."""
    return DEPTH if reason.startswith(f"{DEPTH}:") else reason


class DeferredRow(msgspec.Struct, frozen=True, kw_only=True):
    """URLs of a queue that are deferred for one reason."""

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
        """Their depth, if they are too deep."""
        return int(self.reason.removeprefix(f"{DEPTH}:"))


class DeferredUrls:
    """The deferred URLs of one crawl."""

    def __init__(self, frontier: Frontier, partitions: int, files: BlockFiles | None = None) -> None:
        self._frontier = frontier
        self._partitions = partitions
        self._files = files or NoFiles()
        self._spilling = Spilling(frontier.engine, frontier.keys, default_delay_ms=frontier.default_delay_ms)

    async def change_queues(self, partition: int, changes: Sequence[QueueChange]) -> list[int]:
        """Change queues of one partition; how many URLs each change affected. Raises EngineError."""
        f, found = self._frontier, []
        for start in range(0, len(changes), CHANGES_MAX):
            items = [change.order for change in changes[start : start + CHANGES_MAX]]
            args = OrderArgs(f.default_delay_ms, f.keys.hints, f.session, pack(items))
            _, *counts = await f.engine.run("change_queues", (f.keys.meta(partition),), *args)
            found += [int(n) for n in counts]
        return found

    async def release(self, partition: int, queue: str, reason: str, n: int, *, upto: int = -1) -> int:
        """Release up to n deferred URLs into their queue; how many. `upto`: see QueueChange. Raises EngineError.

        Blocks in files are released without being read. Only a block that is released in part has to be read:
        ArchiveError if that fails, after all blocks before it were released.
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
        """How many hosts of each domain a budget of hosts admitted. Raises EngineError."""
        return [int(n or 0) for n in await self._look(partition, domains)]

    async def hosts_taken(self, partition: int, domain: str, labels: Sequence[str]) -> set[str]:
        """Which of these hosts of a domain, by label ("@": itself), a budget admitted. Raises EngineError."""
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
        """Release those deferred (block, member, host) whose hosts the budget of their domain admits; how many.

        Raises EngineError.
        """
        f, admitted = self._frontier, 0
        for i in range(0, len(urls), ADMIT_MAX):
            args = AdmitArgs(
                f.default_delay_ms, f.keys.hints, f.session, queue, domain, hosts_max, pack(urls[i : i + ADMIT_MAX])
            )
            admitted += int((await f.engine.run("admit_hosts", (f.keys.meta(partition),), *args))[1])
        return admitted

    async def deferred(self) -> list[DeferredRow]:
        """All deferred URLs, by queue and reason. Raises EngineError."""
        raw = await self._frontier.engine.commands(
            [("HGETALL", self._key(p, "deferred")) for p in range(self._partitions)]
        )
        return [one for partition, flat in enumerate(raw) for one in _deferred(partition, flat)]

    async def of_partition(self, partition: int) -> list[DeferredRow]:
        """The deferred URLs of one partition. Raises EngineError."""
        return _deferred(partition, await self._frontier.engine.command("HGETALL", self._key(partition, "deferred")))

    async def of_queue(self, partition: int, queue: str) -> list[DeferredRow]:
        """The deferred URLs of one queue. Raises EngineError."""
        cursor, key, found = -1, self._key(partition, "deferred"), list[DeferredRow]()
        while cursor:
            reply = await self._frontier.engine.command(
                "HSCAN", key, max(cursor, 0), "MATCH", f"{_literally(queue)}|*", "COUNT", 1000
            )
            cursor = int(reply[0])
            found += _deferred(partition, reply[1])
        return found

    async def survey(self, partitions: Sequence[int]) -> list[tuple[int, dict[str, str], list[DeferredRow]]]:
        """(partition, stopped queues, deferred URLs) of each partition that has any. Raises EngineError."""
        engine, names = self._frontier.engine, ("stops", "deferred")
        there = await engine.commands([("EXISTS", *(self._key(p, name) for name in names)) for p in partitions])
        some = [p for p, n in zip(partitions, there, strict=True) if n]  # few have: most are answered in one number
        raw = await engine.commands([("HGETALL", self._key(p, name)) for p in some for name in names])
        both = zip(some, raw[::2], raw[1::2], strict=True)
        return [(p, _stops(stops), _deferred(p, rows)) for p, stops, rows in both if stops or rows]

    async def records(self, partition: int, queues: Sequence[str]) -> dict[str, dict[str, Any]]:
        """What the engine keeps of queues: nothing of one that it does not know."""
        raw = await self._frontier.engine.run("read_queues", (self._frontier.keys.meta(partition),), "queues", *queues)
        return {queue: unpack_queue(record) for queue, record in zip(queues, raw, strict=True)}

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
    """A pattern that matches only this name: an IPv6 address has brackets."""
    return "".join(f"\\{c}" if c in "*?[]\\" else c for c in name)
