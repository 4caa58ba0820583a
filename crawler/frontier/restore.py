"""The calls of a rebuild, and of others that work when no session does: URLs whose commits are on disk become done;
queues keep their delay; numbers of items change.
"""

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from itertools import islice
from typing import Any, NamedTuple

import msgspec

from crawler.engine.client import Call, Engine
from crawler.frontier.arguments import RestateItem
from crawler.frontier.codec import PendingUrl, pack
from crawler.frontier.keys import Keys
from crawler.frontier.pending import DELIVERED, Found, PendingUrls
from crawler.frontier.spilling import ID_LENGTH, BlockFiles, NoFiles, Spilling
from crawler.frontier.states import State
from crawler.frontier.stats import LOST
from crawler.model import CommitEntry, RefusalReason
from crawler.rules.places import Fingerprints

RESTORE_MAX = 256  # URLs per call: below a millisecond of the engine
ROW_HEAD = "."  # see RestateItem.place


class DoneUrl(msgspec.Struct, frozen=True, kw_only=True):
    """A committed URL, and what its commit adds to the counters."""

    fingerprint: str
    partition: int
    domain: str
    queue: str
    status: int
    body_bytes: int
    fetch_ms: int
    seed_number: int = 0
    run: str = ""
    items: int = 0
    lost: Mapping[str, int] = msgspec.field(default_factory=dict)  # what is missing of it, by reason of LOST
    url: str = ""  # needed then
    told: Mapping[str, int] = msgspec.field(default_factory=dict)  # what else its line tells of it, by total


class SeenUrl(NamedTuple):
    """A URL that another crawl has fetched."""

    fingerprint: str
    partition: int
    domain: str
    queue: str


class Restoring:
    """The calls of a rebuild on one crawl. Any session may make them; each may be repeated."""

    def __init__(self, engine: Engine, keys: Keys, *, hash_key: bytes, files: BlockFiles | None = None) -> None:
        self._engine = engine
        self._keys = keys
        self._hash_key = hash_key.hex()
        self._fingerprints = Fingerprints(hash_key)
        self._files = files or NoFiles()
        self._pending = PendingUrls(engine, keys, files)
        self._spilling = Spilling(engine, keys, default_delay_ms=0)  # no session works; claims check the delay again

    async def restore(self, urls: Iterable[DoneUrl]) -> int:
        """Mark URLs that the engine does not know as seen and done; how many. Raises EngineError."""
        return await self._restate((u.partition, _item(u, u.queue, State.COMMITTED)) for u in urls)

    async def mark_seen(self, urls: Iterable[SeenUrl], reason: str) -> int:
        """URLs that the engine does not know count as seen, and as refused for this reason; how many. Raises
        EngineError, EngineFull where there is no room.
        """
        refused = State.REFUSED.name
        return await self._restate(
            (u.partition, RestateItem(u.fingerprint, u.queue, u.domain, refused, reason=reason)) for u in urls
        )

    async def reopen(self, urls: Iterable[DoneUrl]) -> int:
        """Forget done URLs, none of which may be pending, so that they can be added again; how many were known. Raises
        EngineError.
        """
        return await self._restate((u.partition, _item(u, u.queue, State.UNSEEN)) for u in urls)

    async def withdraw(self, found: Iterable[tuple[Found, DoneUrl]]) -> int:
        """Mark pending URLs as done, wherever they are; how many were still there. Raises EngineError."""
        asked = list(found)
        await self._bring_back({(u.partition, f.row, f.block) for f, u in asked})
        return await self._restate(
            (u.partition, _item(u, f.row, State.COMMITTED, place=f.block[:ID_LENGTH] or ROW_HEAD, name=f.name))
            for f, u in asked
        )

    async def refuse(
        self, partition: int, domain: str, found: Iterable[tuple[str, Found]], reason: RefusalReason
    ) -> int:
        """Drop URLs that sessions which are gone had claimed; how many were still there. Raises EngineError."""
        return await self._restate(
            (
                partition,
                RestateItem(
                    fp, one.row, domain, State.REFUSED.name, DELIVERED, one.name, reason,
                    seed=one.url.run or one.url.seed_number,
                ),
            )
            for fp, one in found
            if one.block == DELIVERED
        )  # fmt: skip

    async def clear_log(self, by_partition: Mapping[int, Sequence[CommitEntry]]) -> None:
        """Take commits out of the engine's log that are in an index segment on disk. Raises EngineError."""
        commands = [
            ("HDEL", self._keys.of(partition, "l"), *(f"{one.fingerprint}:{one.visit}" for one in entries))
            for partition, entries in by_partition.items()
        ]
        await self._engine.commands(commands)

    async def count_items(self, change: str, counts: Iterable[tuple[int, int, str, str, int]]) -> None:
        """Change the numbers of items of queues and runs; each change counts once, however often this is repeated.

        `counts`: (number, partition, queue, run or "", by how much); the numbers only grow, and are always the same for
        one id of a `change`. Raises EngineError.
        """
        rest = iter(counts)
        while some := list(islice(rest, RESTORE_MAX)):  # a partition gets one call at a time: its numbers only grow
            by_partition: dict[int, list[Any]] = {}
            for number, partition, *one in some:
                by_partition.setdefault(partition, []).append((number, *one))
            await self._run_all("count_items", by_partition, change)

    async def _bring_back(self, blocks: Iterable[tuple[int, str, str]]) -> None:
        """Bring those (partition, queue, block) back to memory that are in files."""
        for p, queue, block in sorted(blocks):
            await self._spilling.bring_back(p, queue, block, self._files)

    async def _restate(self, items: Iterable[tuple[int, RestateItem]]) -> int:
        """How many URLs were moved."""
        by_partition: dict[int, list[Any]] = {}
        for partition, item in items:
            by_partition.setdefault(partition, []).append(item)
        return sum(digits.count(b"1") for digits in await self._run_all("restate", by_partition, self._hash_key))

    async def _run_all(self, name: str, by_partition: Mapping[int, Sequence[Any]], *more: str) -> list[Any]:
        calls = [
            Call(name, (self._keys.meta(partition),), (pack(items[start : start + RESTORE_MAX]), *more))
            for partition, items in by_partition.items()
            for start in range(0, len(items), RESTORE_MAX)
        ]
        return await self._engine.run_all(calls)

    async def pending(self, wanted: Mapping[int, Sequence[str]]) -> dict[str, PendingUrl]:
        """The URLs of those fingerprints, given by partition, that are pending now. Reads whole partitions."""
        found: dict[str, PendingUrl] = {}
        for partition, fingerprints in wanted.items():
            asked = set(fingerprints)
            async for some in self.all_pending(partition):
                found.update((fp, one.url) for fp, one in some if fp in asked)
        return found

    async def all_pending(self, partition: int) -> AsyncIterator[list[tuple[str, Found]]]:
        """(fingerprint, URL with its place) of all pending URLs of a partition, some at a time."""
        async for some in self._pending.read(partition):
            yield [(found.url.fingerprint(self._fingerprints), found) for found in some]

    async def hold(self, partitions: int) -> None:
        """Set a politeness hold, as after a takeover: the first requests wait for the delay of their queue.

        Nobody knows when the lost crawl made its last requests. A partition that has a hold keeps it.
        """
        await self._engine.commands([("HSETNX", self._keys.meta(p), "hold", 0) for p in range(partitions)])


def _item(url: DoneUrl, row: str, to: State, *, place: str = "", name: str = "") -> RestateItem:
    return RestateItem(
        url.fingerprint, row, url.domain, to.name, place, name, seed=url.run or url.seed_number,
        status_class=url.status // 100, bytes=url.body_bytes, fetch_ms=url.fetch_ms, items=url.items,
        lost={f"{LOST}{reason}": n for reason, n in url.lost.items()}, url=url.url if url.lost else "",
        told={**url.told},
    )  # fmt: skip
