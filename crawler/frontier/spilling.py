"""Blocks of queues in files: their format, and the calls that move blocks out of the engine's memory and back.

A row of deferred URLs is a queue here, with the name QUEUE|REASON, and so is a user's row, QUEUE|@USER. The files
themselves are behind `BlockFiles`.

A URL in a file has two homes, and each may forget: the engine its last second, the disk what was not synced, the owner
everything. And an engine that falls back remembers again what it had given away. So there is one truth: the engine
alone decides where a URL is. A block in a file leaves a stub in the index of its queue: id, file, offset, length, and
how many URLs. The file has what was written, and nothing about whether it counts. Whatever state the engine falls back
to, each URL is in memory or behind a stub.

- What a stub names never changes. A file is written once and synced, with its name; only then is the engine told. Its
  name has the epoch, the session and a number, because an epoch may be granted again after the engine fell back. So
  any session may bring a block back, at any time and repeatedly: `unspill` needs no fence. `spill` has one.
- The engine is told what was written. URLs may leave or enter a block between reading it and telling: if it lacks one
  that was written, or that has another score, nothing is done, and the file is garbage. What came since stays.
- Files are removed much later: when no stub has named one for ten minutes under the same lease, run of the engine and
  process. So an engine that falls back by less finds every file that its stubs name. To count the blocks of a file and
  remove it with the last one fails there: an engine that forgets the count of zero wants the file again. A backup of
  the engine that is older needs the folder as it was then; without it the log names the files, and their URLs stay
  pending.

The first block of a queue and one more stay in memory. To move what short queues hold would save half of their memory
in a broad crawl (722 bytes for six URLs with their domain), and cost a random read and a tenth of a write for each
visit of six pages. Files that grow, a database for each partition, and merging what comes back into the blocks around
it were refused: an end that nobody knows, a second store with transactions, and an order that queues which grow at
their end keep anyway.
"""

import asyncio
from collections.abc import Iterable, Sequence
from typing import Protocol

import msgspec

from crawler.engine.client import Call, Engine
from crawler.errors import ArchiveError
from crawler.frontier.arguments import SpillArgs, UnspillArgs
from crawler.frontier.codec import (
    OF_ORIGIN,
    OF_USER,
    pack,
    pairs_of,
)
from crawler.frontier.keys import Keys
from crawler.frontier.owner import Fence

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
        asked = [(p, name) for name in ("long:deferred", "long") for p in partitions]
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
