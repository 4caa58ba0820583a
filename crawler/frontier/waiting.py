"""URLs that wait: pending in queues, deferred, or spilled to disk; read, moved and counted partition by partition."""

import asyncio
from collections.abc import AsyncIterator, Iterable, Sequence
from enum import StrEnum
from typing import Any, NamedTuple, Protocol

import msgspec

from crawler.engine.client import Call, Engine
from crawler.errors import ArchiveError
from crawler.frontier.arguments import AdmitArgs, OrderArgs, QueueOrder, SpillArgs, UnspillArgs
from crawler.frontier.codec import (
    INLINE,
    OF_ORIGIN,
    OF_USER,
    ORIGINS,
    PendingUrl,
    as_queued,
    aside_row,
    listed,
    pack,
    pairs_of,
    pending_url,
    row_of,
    split_row,
    unpack_queue,
)
from crawler.frontier.owner import Fence, Frontier
from crawler.frontier.record import Keys
from crawler.rules.urls import Fingerprints, origin_of, registrable_domain

# Blocks of queues in files: their format, and the calls that move blocks out of the engine's memory and back.
#
# A row of deferred URLs is a queue here, with the name QUEUE|REASON, and so is a user's row, QUEUE|@USER. The files
# themselves are behind `BlockFiles`.

LONGEST_MAX = 4  # queues of a partition that are considered in one round
INDEX_PAGE = 1000  # blocks
ID_LENGTH = 9  # as in lua/_block.lua

Place = tuple[str, int, int]  # file, offset, length in bytes
Urls = list[tuple[str, int]]  # (member, score)
_decode = msgspec.msgpack.Decoder(tuple[str, list[str]]).decode


class BlockFiles(Protocol):
    """Where blocks are stored. Its methods block, so they are called in threads."""

    def read(self, partition: int, places: Sequence[Place]) -> list[bytes]:
        """What was written there. Raises ArchiveError."""


def is_row(queue: str) -> bool:
    """Is this the name of a row of deferred URLs? Those of users and of silent origins are not."""
    return "|" in queue and OF_USER not in queue and OF_ORIGIN not in queue


class NoFiles:
    """For callers without a folder of spilled URLs."""

    def read(self, partition: int, places: Sequence[Place]) -> list[bytes]:
        """Raises ArchiveError when there is anything to read."""
        if places:
            raise ArchiveError(
                f"URLs of partition {partition} are in spill files: set frontier.spill_folder to their folder"
            )
        return []


class Stub(msgspec.Struct, frozen=True):
    """A block that is in a file, by its name in the queue's index."""

    name: str
    place: Place
    urls: int

    @classmethod
    def of(cls, name: str) -> "Stub | None":
        """None for a block that is in memory."""
        if len(name) <= ID_LENGTH:
            return None
        _, file, offset, length, urls = name.split(" ")
        return cls(name, (file, int(offset), int(length)), int(urls))


class Block(msgspec.Struct, frozen=True, kw_only=True):
    """A block that was read from memory."""

    partition: int
    queue: str
    id: str
    urls: Urls

    def packed(self) -> bytes:
        """The bytes for a file."""
        return pack((self.queue, _flat(self.urls)))


def urls_of(packed: bytes) -> Urls:
    """The URLs of a packed block. Raises ArchiveError."""
    try:
        _, flat = _decode(packed)
        return [(member, int(score)) for member, score in zip(flat[::2], flat[1::2], strict=True)]
    except (msgspec.MsgspecError, ValueError) as error:
        raise ArchiveError(f"a block of spilled URLs is damaged: {error}") from None


def _flat(urls: Urls) -> list[str]:
    return [text for member, score in urls for text in (member, str(score))]


class Spilling:
    """Spills blocks of one crawl and brings them back. All methods raise EngineError."""

    def __init__(self, engine: Engine, keys: Keys, *, default_delay_ms: int) -> None:
        self._engine = engine
        self._keys = keys
        self._default_delay_ms = default_delay_ms

    async def longest(self, partitions: Iterable[int]) -> list[tuple[int, int, str]]:
        """(blocks in memory after the head, partition, queue) of queues with more than one of them, longest first.

        Rows of deferred URLs come before all others: nobody waits for them.
        """
        asked = [(p, name) for name in ("long:parked", "long") for p in partitions]
        commands = [("ZREVRANGE", self._keys.of(*one), 0, LONGEST_MAX - 1, "WITHSCORES") for one in asked]
        rows = await self._engine.commands(commands)
        found = [
            (int(float(blocks)), p, queue.decode())
            for (p, _), row in zip(asked, rows, strict=True)
            for queue, blocks in pairs_of(row)
        ]
        return sorted((one for one in found if one[0] > 1), key=lambda one: (is_row(one[2]), *one), reverse=True)

    async def worst(self, partition: int, queue: str, most: int) -> list[Block]:
        """At most `most` of the worst blocks of a queue that are in memory; of a row not the very worst.

        The URLs that are deferred next usually go there: they should fill that block, not start a new one each time.
        """
        key, start, ids = self._keys.of(partition, f"t:{queue}"), 0, list[str]()
        kept = int(is_row(queue))
        while len(ids) < kept + most:
            page = await self._engine.command("ZRANGE", key, start, start + INDEX_PAGE - 1)
            ids += [name.decode() for name in page if len(name) == ID_LENGTH]
            start += INDEX_PAGE
            if len(page) < INDEX_PAGE:
                break
        ids = ids[kept:][:most]
        commands = [("ZREVRANGE", self._keys.of(partition, f"b:{queue}:{id_}"), 0, -1, "WITHSCORES") for id_ in ids]
        rows = await self._engine.commands(commands)
        read = [[(member.decode(), int(float(score))) for member, score in pairs_of(row)] for row in rows]
        return [
            Block(partition=partition, queue=queue, id=id_, urls=urls)
            for id_, urls in zip(ids, read, strict=True)
            if urls
        ]

    async def spill(self, fence: Fence, written: Sequence[tuple[Block, Place]]) -> int:
        """Remove blocks from memory that were written to files, unless they changed; how many were removed."""
        calls = []
        for block, place in written:
            args = SpillArgs(block.queue, block.id, *place, _flat(block.urls))
            calls.append(
                Call(
                    "spill", (self._keys.meta(fence.partition),), (fence.session, fence.epoch, fence.now_ms, pack(args))
                )
            )
        return sum(reply[0] == b"COMMITTED" for reply in await self._engine.run_all(calls))

    async def next_stubs(self, queues: Sequence[tuple[int, str]]) -> list[Stub | None]:
        """The next block of each (partition, queue), if it is in a file."""
        rows = await self._engine.commands([("ZREVRANGE", self._keys.of(p, f"t:{queue}"), 0, 0) for p, queue in queues])
        return [Stub.of(row[0].decode()) if row else None for row in rows]

    async def unspill(self, back: Sequence[tuple[int, str, Stub, Urls]]) -> list[bool]:
        """Bring blocks back, given as (partition, queue, stub, URLs); whether the next one of each should follow."""
        calls = [
            Call(
                "unspill",
                (self._keys.meta(p),),
                UnspillArgs(queue, stub.name, self._default_delay_ms, pack(_flat(urls))),
            )
            for p, queue, stub, urls in back
        ]
        return [bool(reply[1]) for reply in await self._engine.run_all(calls)]

    async def bring_back_next(self, partition: int, queue: str, files: BlockFiles) -> bool:
        """Bring a queue's next block back if it is in a file, else return False. Raises ArchiveError, too."""
        (stub,) = await self.next_stubs([(partition, queue)])
        if stub is None:
            return False
        (packed,) = await asyncio.to_thread(files.read, partition, [stub.place])
        await self.unspill([(partition, queue, stub, urls_of(packed))])
        return True

    async def bring_back(self, partition: int, queue: str, name: str, files: BlockFiles) -> None:
        """Bring a block back that is in a file, by its name, unless it was. Raises ArchiveError, too."""
        if stub := Stub.of(name):
            (packed,) = await asyncio.to_thread(files.read, partition, [stub.place])
            await self.unspill([(partition, queue, stub, urls_of(packed))])

    async def files(self, partition: int) -> set[str]:
        """The files that stubs of the partition name."""
        return {name.decode() for name in await self._engine.command("HKEYS", self._keys.of(partition, "files"))}


# Reads pending URLs from the queues, partition by partition: for audits, rebuilds and look-ups. Reads only.
#
# URLs in spill files are read from there: callers see no difference.
#
# There is no index of pending URLs by fingerprint: it would take more memory than the URLs. So this reads whole
# partitions, in pipelines of bounded calls. While the crawl runs the result is not a snapshot.


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
        names = [n.decode() for n in await self._engine.command("HKEYS", self._keys.of(partition, "parks"))]
        stops = _deferring(await self._engine.command("HGETALL", self._keys.of(partition, "stops")))
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
        self, partition: int, queue: str, url: str, reason: str = "", *, run: str = "", now_s: float
    ) -> tuple[int, PendingUrl] | None:
        """(place from the front of its queue, URL) of a queued URL of a run, or of one in the row of a reason.

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
                        if (found.url, found.run) == (url, run):
                            return before + rank, found
                before += len(urls)
        return None

    async def origins(self, partition: int, queue: str) -> list[str]:
        """The origins that URLs of a queue may have, as far as known: the usual ones, and those with a port."""
        (listed_ones,) = await self._origins(partition, [queue])
        return [*(f"{scheme}{queue}" for scheme in ORIGINS.values()), *sorted(listed_ones.values())]

    async def set_aside(self, partition: int, queue: str, url: str, run: str, now_s: float) -> AsideUrl | None:
        """A URL of a run that is set aside, because its origin does not answer."""
        origin = origin_of(url)
        found = await self.place(partition, queue, url, f"!{origin}", run=run, now_s=now_s)
        if found is None:
            return None
        key = self._keys.of(partition, f"aside:{queue}")
        due, packed = await self._run(
            [("ZSCORE", key, origin), ("GET", self._keys.of(partition, f"w:{aside_row(queue, origin)}"))]
        )
        return AsideUrl(found[1], int(float(due or 0)), unpack_queue(packed or b"").get("since"))

    async def delivered(self, partition: int, url: str, run: str = "") -> Found | None:
        """A URL of a run that is claimed or waits for a retry."""
        return await _first(self.deliveries(partition), url, run)

    async def scheduled_one(self, partition: int, url: str) -> Found | None:
        """A URL that becomes visible at a wall time."""
        return await _first(self.scheduled(partition), url)

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
        return sorted(names), _deferring(stops)

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


async def _first(found: AsyncIterator[list[Found]], url: str, run: str = "") -> Found | None:
    async for some in found:
        for one in some:
            if (one.url.url, one.url.run) == (url, run):
                return one
    return None


# Deferred URLs and stopped queues: reads and changes for operators and quotas.
#
# Every call is atomic and may be repeated at any time, also while the crawl runs; none needs a lease.


RELEASE_MAX = 256  # URLs a call: about a millisecond of the engine
CHANGES_MAX = 64  # a call
ADMIT_MAX = 128
HOSTS_MAX = 256


def _deferring(stops: Any) -> dict[str, str]:
    """Queues of which URLs are deferred because they are stopped, and why."""
    return {queue.decode(): why.decode() for queue, why in pairs_of(stops) if why.decode() != PAUSED}


PAUSED = "paused"  # a stop that defers nothing: the URLs stay pending
BUDGETS = ("pages", "bytes")  # stops that defer only what belongs to no job
BLOCKED = "blocked"
DEPTH = "depth"
HOSTS = "hosts"
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
        """How many hosts of each domain a quota of hosts admitted. Raises EngineError."""
        return [int(n or 0) for n in await self._look(partition, domains)]

    async def hosts_taken(self, partition: int, domain: str, labels: Sequence[str]) -> set[str]:
        """Which of these hosts of a domain, by label ("@": itself), a quota admitted. Raises EngineError."""
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
        """Release those deferred (block, member, host) whose hosts the quota of their domain admits; how many.

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
            [("HGETALL", self._key(p, "parks")) for p in range(self._partitions)]
        )
        return [one for partition, flat in enumerate(raw) for one in _deferred(partition, flat)]

    async def of_partition(self, partition: int) -> list[DeferredRow]:
        """The deferred URLs of one partition. Raises EngineError."""
        return _deferred(partition, await self._frontier.engine.command("HGETALL", self._key(partition, "parks")))

    async def of_queue(self, partition: int, queue: str) -> list[DeferredRow]:
        """The deferred URLs of one queue. Raises EngineError."""
        cursor, key, found = -1, self._key(partition, "parks"), list[DeferredRow]()
        while cursor:
            reply = await self._frontier.engine.command(
                "HSCAN", key, max(cursor, 0), "MATCH", f"{_literally(queue)}|*", "COUNT", 1000
            )
            cursor = int(reply[0])
            found += _deferred(partition, reply[1])
        return found

    async def survey(self, partitions: Sequence[int]) -> list[tuple[int, dict[str, str], list[DeferredRow]]]:
        """(partition, stopped queues, deferred URLs) of each partition that has any. Raises EngineError."""
        engine, names = self._frontier.engine, ("stops", "parks")
        there = await engine.commands([("EXISTS", *(self._key(p, name) for name in names)) for p in partitions])
        some = [p for p, n in zip(partitions, there, strict=True) if n]  # few have: most are answered in one number
        raw = await engine.commands([("HGETALL", self._key(p, name)) for p in some for name in names])
        both = zip(some, raw[::2], raw[1::2], strict=True)
        return [(p, _stops(stops), _deferred(p, parks)) for p, stops, parks in both if stops or parks]

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
