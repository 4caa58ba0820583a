"""Reads pending URLs from the queues, partition by partition: for audits, rebuilds and look-ups. Reads only.

URLs in spill files are read from there: callers see no difference.

There is no index of pending URLs by fingerprint: it would take more memory than the URLs. So this reads whole
partitions, in pipelines of bounded calls. While the crawl runs the result is not a snapshot.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any, NamedTuple

import msgspec

from crawler.engine.client import Engine
from crawler.frontier.codec import (
    INLINE,
    ORIGINS,
    PendingUrl,
    as_queued,
    aside_row,
    listed,
    pairs_of,
    pending_url,
    row_of,
    split_row,
    unpack_queue,
)
from crawler.frontier.deferred import BUDGETS, deferring
from crawler.frontier.keys import Keys
from crawler.frontier.spilling import BlockFiles, NoFiles, Stub, Urls, urls_of
from crawler.rules.places import Fingerprints, registrable_domain
from crawler.rules.urls import origin_of

DELIVERED = "*"  # in place of a block: claimed, or to be retried
SCHEDULED = "@"  # likewise: visible at a wall time
HEAD = ""
QUEUES_MAX = 256  # per pipeline
BLOCKS_MAX = 64
RECORDS_MAX = 1000


class Found(msgspec.Struct, frozen=True):
    """A pending URL and its place: its queue or row, the block of that and its member there; or DELIVERED and its
    token, or SCHEDULED and how it is stored.

    The block is HEAD, or its name in the index of the row.
    """

    url: PendingUrl
    row: str
    block: str
    name: str
    visible_at: float = 0.0  # of a scheduled one: wall clock, s


class AsideUrl(NamedTuple):
    """A URL that is set aside, when its origin is probed next, and since when it has been silent (ms on the partition
    clock; None: it is not known to be).
    """

    url: PendingUrl
    due_ms: int
    since_ms: int | None


class PendingUrls:
    """Reads one crawl's queues. Raises ArchiveError when URLs are in files and no `files` are given."""

    def __init__(self, engine: Engine, keys: Keys, files: BlockFiles | None = None) -> None:
        self._engine = engine
        self._keys = keys
        self._files = files or NoFiles()

    async def read(self, partition: int) -> AsyncIterator[list[Found]]:
        """All pending URLs of a partition, some at a time; one that moves meanwhile may come twice."""
        async for some in self.scheduled(partition):
            yield some
        async for some in self.deliveries(partition):
            yield some
        rows = await self._rows(partition)
        for start in range(0, len(rows), QUEUES_MAX):
            async for some in self._queued(partition, rows[start : start + QUEUES_MAX]):
                yield some
        async for some in self.deliveries(partition):  # claimed since
            yield some

    async def deferred(self, partition: int) -> AsyncIterator[list[Found]]:
        """All deferred URLs of a partition, in rows and in stopped queues."""
        names = [n.decode() for n in await self._engine.command("HKEYS", self._keys.of(partition, "deferred"))]
        stops = deferring(await self._engine.command("HGETALL", self._keys.of(partition, "stops")))
        stopped = sorted({name.partition("|")[0] for name in names} & stops.keys())
        whole = await self.with_users(partition, [queue for queue in stopped if stops[queue] not in BUDGETS])
        rows = [*names, *(queue for queue in stopped if stops[queue] in BUDGETS), *whole]
        for start in range(0, len(rows), QUEUES_MAX):
            async for some in self._queued(partition, rows[start : start + QUEUES_MAX]):
                yield some

    async def fingerprints(self, fingerprints: Fingerprints, partition: int) -> set[str]:
        """The fingerprints of all pending URLs of a partition."""
        return {found.url.fingerprint(fingerprints) async for some in self.read(partition) for found in some}

    async def count(self, partition: int) -> int:
        """The number of pending URLs, by the sizes of all blocks."""
        scheduled = await self._engine.command("ZCARD", self._keys.of(partition, "at"))
        rows = await self._rows(partition)
        named = zip(rows, await self._blocks(partition, rows), strict=True)
        blocks = [(queue, block) for queue, some in named for block in some]
        stubs = [Stub.of(block) for _, block in blocks]
        in_memory = [self._key(partition, *one) for one, stub in zip(blocks, stubs, strict=True) if stub is None]
        sizes = await self._run([("ZCARD", key) for key in in_memory])
        delivered = await self._engine.command("HLEN", self._keys.of(partition, "u"))
        return int(sum(sizes)) + sum(stub.urls for stub in stubs if stub) + int(delivered) + int(scheduled)

    async def place(
        self,
        partition: int,
        queue: str,
        url: str,
        reason: str = "",
        *,
        run: str = "",
        now_s: float,
        is_requisite: bool = False,
    ) -> tuple[int, PendingUrl] | None:
        """(place from the front of its queue, URL) of a queued URL of a run, or of one in the row of a reason; as a
        page, or as a requisite.

        The place is that among the URLs of its user. Its domain is not looked up.
        """
        path = url[len(origin_of(url)) :]
        (origins,) = await self._origins(partition, [queue])
        rows = [f"{queue}|{reason}"] if reason else await self.with_users(partition, [queue])
        for row, blocks in zip(rows, await self._blocks(partition, rows), strict=True):
            before = 0
            for block in blocks:
                (urls,) = await self._read(partition, [(row, block)])
                for rank, (name, stored) in enumerate(urls):
                    if name.endswith(path):
                        member, score, user = as_queued(row, name, stored)
                        found = pending_url(queue, "", score, member, listed(member, origins), now_s, user)
                        if (found.url, found.run, found.is_requisite) == (url, run, is_requisite):
                            return before + rank, found
                before += len(urls)
        return None

    async def origins(self, partition: int, queue: str) -> list[str]:
        """The origins that URLs of a queue may have, as far as known: the usual ones, and those with a port."""
        (listed_ones,) = await self._origins(partition, [queue])
        return [*(f"{scheme}{queue}" for scheme in ORIGINS.values()), *sorted(listed_ones.values())]

    async def set_aside(
        self, partition: int, queue: str, url: str, run: str, now_s: float, *, is_requisite: bool = False
    ) -> AsideUrl | None:
        """A URL of a run that is set aside, because its origin does not answer."""
        origin = origin_of(url)
        found = await self.place(partition, queue, url, f"!{origin}", run=run, now_s=now_s, is_requisite=is_requisite)
        if found is None:
            return None
        key = self._keys.of(partition, f"aside:{queue}")
        due, packed = await self._run(
            [("ZSCORE", key, origin), ("GET", self._keys.of(partition, f"w:{aside_row(queue, origin)}"))]
        )
        return AsideUrl(found[1], int(float(due or 0)), unpack_queue(packed or b"").get("since"))

    async def delivered(self, partition: int, url: str, run: str = "", *, is_requisite: bool = False) -> Found | None:
        """A URL of a run that is claimed or waits for a retry."""
        return await _first(self.deliveries(partition), url, run, is_requisite=is_requisite)

    async def scheduled_one(self, partition: int, url: str, *, is_requisite: bool = False) -> Found | None:
        """A URL that becomes visible at a wall time."""
        return await _first(self.scheduled(partition), url, is_requisite=is_requisite)

    async def row(self, partition: int, queue: str, reason: str) -> AsyncIterator[list[Found]]:
        """The URLs of a queue that are deferred for a reason, block by block, the best first."""
        async for some in self._queued(partition, [f"{queue}|{reason}"]):
            yield some

    async def with_users(self, partition: int, queues: Sequence[str]) -> list[str]:
        """The queues, and the rows of the users that have URLs in them."""
        rows = list(queues)
        for start in range(0, len(queues), QUEUES_MAX):
            some = queues[start : start + QUEUES_MAX]
            records = await self._run([("GET", self._keys.of(partition, f"w:{queue}")) for queue in some])
            for queue, raw in zip(some, records, strict=True):
                rows += [row_of(queue, user) for user in unpack_queue(raw or b"").get("users", ())]
        return rows

    async def rows_of(self, partition: int, queue: str) -> list[str]:
        """A queue with all rows of its pending URLs: of users, and of origins that do not answer."""
        return [*await self.with_users(partition, [queue]), *await self._aside(partition, [queue])]

    async def _rows(self, partition: int) -> list[str]:
        """All queues and rows with pending URLs in blocks."""
        names, stops = await self._queues(partition)
        queues = [queue for queue in names if stops.get(queue) in (None, *BUDGETS)]
        rows = [row for row in await self.with_users(partition, queues) if row not in stops]
        silent = [
            name.decode() for name in await self._engine.command("ZRANGE", self._keys.of(partition, "aside"), 0, -1)
        ]
        return [*rows, *await self._aside(partition, silent)]

    async def _aside(self, partition: int, queues: Sequence[str]) -> list[str]:
        """The rows of these queues with URLs of origins that do not answer."""
        origins = await self._run([("ZRANGE", self._keys.of(partition, f"aside:{queue}"), 0, -1) for queue in queues])
        return [aside_row(q, origin.decode()) for q, some in zip(queues, origins, strict=True) for origin in some]

    async def queues(self, partition: int) -> set[str]:
        """All queues with pending URLs."""
        found = {split_row(row)[0] for row in await self._rows(partition)}
        async for some in self.scheduled(partition):
            found.update(one.url.queue for one in some)
        return found

    async def scheduled(self, partition: int) -> AsyncIterator[list[Found]]:
        """All URLs that become visible at a wall time."""
        key, cursor = self._keys.of(partition, "at"), 0
        origins: dict[str, dict[str, str]] = {}
        while True:
            cursor, entries = await self._engine.command("ZSCAN", key, cursor, "COUNT", RECORDS_MAX)
            stored = [(name.decode(), float(at_ms) / 1000) for name, at_ms in entries]
            parts = [name.split(" ", 2) for name, _ in stored]
            new = sorted({queue for _, queue, member in parts if member[0] not in (*ORIGINS, INLINE)} - {*origins})
            origins.update(zip(new, await self._origins(partition, new), strict=True))
            found = []
            for (name, at_s), (score, queue, member) in zip(stored, parts, strict=True):
                origin = listed(member, origins.get(queue, {}))
                url = pending_url(queue, registrable_domain(queue), int(score), member, origin)
                found.append(Found(url, queue, SCHEDULED, name, at_s))
            yield found
            if cursor == 0:
                return

    async def deliveries(self, partition: int) -> AsyncIterator[list[Found]]:
        """All URLs that are claimed or wait for a retry."""
        key, cursor = self._keys.of(partition, "u"), 0
        origins: dict[str, dict[str, str]] = {}
        while True:
            reply = await self._engine.command("HSCAN", key, cursor, "COUNT", RECORDS_MAX)
            cursor = int(reply[0])
            found = []
            for token, packed in pairs_of(reply[1]):
                score, row, domain, member = packed.decode().split(" ", 3)
                queue, user = split_row(row)
                if queue not in origins:
                    (origins[queue],) = await self._origins(partition, [queue])
                url = pending_url(queue, domain, int(score), member, listed(member, origins[queue]), user=user)
                found.append(Found(url, row, DELIVERED, token.decode()))
            yield found
            if cursor == 0:
                return

    # --- the partition's keys ---

    async def _queues(self, partition: int) -> tuple[list[str], dict[str, str]]:
        """Queues that may have URLs (ready, stopped, boosted, or asleep because of claims out or blocks in files), and
        which of them defer URLs, and why.
        """
        of = self._keys.of
        users = await self._engine.command("HKEYS", of(partition, "users"))
        ready = ["ready", *(f"ready@{user.decode()}" for user in users)]
        asked = [("ZRANGE", of(partition, name), 0, -1) for name in (*ready, "short", "boosts")]
        *found, stops = await self._engine.commands([*asked, ("HGETALL", of(partition, "stops"))])
        names = {split_row(name.decode())[0] for some in found for name in some}
        names.update(queue.decode() for queue, _ in pairs_of(stops))
        async for some in self.deliveries(partition):
            names.update(found.url.queue for found in some)
        return sorted(names), deferring(stops)

    async def _queued(self, partition: int, rows: Sequence[str]) -> AsyncIterator[list[Found]]:
        """The URLs in the blocks of queues and of rows QUEUE|REASON and QUEUE|@USER."""
        queues = [row.partition("|")[0] for row in rows]
        origins = await self._origins(partition, queues)
        records = await self._run([("GET", self._keys.of(partition, f"w:{queue}")) for queue in queues])
        domains = [unpack_queue(raw or b"").get("domain", queue) for queue, raw in zip(queues, records, strict=True)]
        asked = [
            (row, queue, domain, known, block)
            for row, queue, domain, known, blocks in zip(
                rows, queues, domains, origins, await self._blocks(partition, rows), strict=True
            )
            for block in blocks
        ]
        for start in range(0, len(asked), BLOCKS_MAX):
            some = asked[start : start + BLOCKS_MAX]
            read = await self._read(partition, [(row, block) for row, _, _, _, block in some])
            for (row, queue, domain, known, block), urls in zip(some, read, strict=True):
                found = []
                for name, stored in urls:
                    member, score, user = as_queued(row, name, stored)
                    origin = listed(member, known)
                    url = pending_url(queue, domain, score, member, origin, user=user)
                    found.append(Found(url, row, block, name))
                yield found

    async def _blocks(self, partition: int, queues: Sequence[str]) -> list[list[str]]:
        """The names of each queue's blocks, the best first."""
        rows = await self._run([("ZREVRANGE", self._keys.of(partition, f"t:{queue}"), 0, -1) for queue in queues])
        return [[HEAD, *(block.decode() for block in row)] for row in rows]

    def _key(self, partition: int, queue: str, block: str) -> str:
        return self._keys.of(partition, f"b:{queue}:{block}" if block else f"q:{queue}")

    async def _read(self, partition: int, blocks: Sequence[tuple[str, str]]) -> list[Urls]:
        """The URLs of each (queue, block), the best first."""
        stubs = [Stub.of(block) for _, block in blocks]
        places = [stub.place for stub in stubs if stub]
        packed = await asyncio.to_thread(self._files.read, partition, places) if places else []
        in_memory = [self._key(partition, *one) for one, stub in zip(blocks, stubs, strict=True) if stub is None]
        rows = iter(await self._run([("ZREVRANGE", key, 0, -1, "WITHSCORES") for key in in_memory]))
        spilled = iter(packed)
        return [
            urls_of(next(spilled)) if stub else [(m.decode(), int(float(score))) for m, score in pairs_of(next(rows))]
            for stub in stubs
        ]

    async def _origins(self, partition: int, queues: Sequence[str]) -> list[dict[str, str]]:
        """Letter -> origin, of each queue."""
        rows = await self._run([("HGETALL", self._keys.of(partition, f"g:{queue}")) for queue in queues])
        return [{k.decode(): v.decode() for k, v in pairs_of(row) if len(k) == 1} for row in rows]

    async def _run(self, commands: Sequence[tuple[Any, ...]]) -> list[Any]:
        return list(await self._engine.commands(commands)) if commands else []


async def _first(
    found: AsyncIterator[list[Found]], url: str, run: str = "", *, is_requisite: bool = False
) -> Found | None:
    async for some in found:
        for one in some:
            if (one.url.url, one.url.run, one.url.is_requisite) == (url, run, is_requisite):
                return one
    return None
