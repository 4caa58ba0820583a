"""The calls of a rebuild, and of others that work when no session does: URLs whose commits are on disk become done;
queues keep their delay; numbers of items change.
"""

from collections import defaultdict
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from itertools import islice
from typing import Any, NamedTuple

import msgspec

from crawler.engine.client import Call, Engine
from crawler.frontier.arguments import AddArgs, DiscardArgs, LetterItem, RestateItem
from crawler.frontier.codec import DeadLetter, PendingUrl, item_of_letter, pack, pairs_of, unpack_letter
from crawler.frontier.jobs import Runs
from crawler.frontier.owner import Frontier
from crawler.frontier.reads import LOST
from crawler.frontier.record import Keys
from crawler.frontier.states import State
from crawler.frontier.waiting import ID_LENGTH, BlockFiles, Found, NoFiles, PendingUrls, Spilling
from crawler.model import CommitEntry
from crawler.rules.urls import Fingerprints

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


class SeenUrl(NamedTuple):
    """A URL that another crawl has fetched."""

    fingerprint: str
    partition: int
    domain: str
    queue: str


class Restoring:
    """The calls of a rebuild on one crawl. Any session may make them; each may be repeated."""

    def __init__(
        self, engine: Engine, keys: Keys, *, hash_key: bytes, run: int, files: BlockFiles | None = None
    ) -> None:
        self._engine = engine
        self._keys = keys
        self._run = run
        self._hash_key = hash_key.hex()
        self._fingerprints = Fingerprints(hash_key, run)
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
            Call(name, (self._keys.meta(partition),), (self._run, pack(items[start : start + RESTORE_MAX]), *more))
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
    )  # fmt: skip


# The seeds of a crawl by number, with counts of the URLs that descend from each.
#
# A URL has the number of the seed from which it was first found.

PER_HASH = 256
HASHES_AT_ONCE = 64


class SeedCounts(msgspec.Struct, frozen=True, kw_only=True):
    """Counts of the URLs that descend from a seed, including itself. `waiting`: pending or deferred."""

    number: int
    url: str
    added: int
    done: int  # committed, or refused
    dead: int

    @property
    def waiting(self) -> int:
        return self.added - self.done - self.dead


class Seeds:
    """The seeds of one crawl. Every call raises EngineError."""

    def __init__(self, engine: Engine, keys: Keys, partitions: int) -> None:
        self._engine = engine
        self._keys = keys
        self._partitions = partitions

    async def number(self, urls: Sequence[str]) -> list[int]:
        """Give numbers to new seeds, in their order. A seed that is never added has no counts."""
        if not urls:
            return []
        last = int(await self._engine.command("HINCRBY", self._keys.crawl, "seeds", len(urls)))
        numbers = list(range(last - len(urls) + 1, last + 1))
        await self.restore(dict(zip(numbers, urls, strict=True)))
        return numbers

    async def restore(self, seeds: dict[int, str]) -> None:
        """Store seeds under given numbers."""
        commands = [("HSET", self._hash(number // PER_HASH), number, url) for number, url in seeds.items()]
        await self._engine.commands(commands)
        behind = max(seeds, default=0) - int(await self._engine.command("HGET", self._keys.crawl, "seeds") or 0)
        if behind > 0:
            await self._engine.command("HINCRBY", self._keys.crawl, "seeds", behind)

    async def read(self) -> AsyncIterator[list[SeedCounts]]:
        """All seeds that were added, by number, some at a time; the counts of all are read first."""
        counts = await self._counts()
        last = int(await self._engine.command("HGET", self._keys.crawl, "seeds") or 0)
        for start in range(0, last // PER_HASH + 1, HASHES_AT_ONCE):
            names = [self._hash(n) for n in range(start, min(start + HASHES_AT_ONCE, last // PER_HASH + 1))]
            rows = await self._engine.commands([("HGETALL", name) for name in names])
            urls = {int(number): url.decode() for row in rows for number, url in pairs_of(row)}
            yield [
                SeedCounts(number=number, url=urls[number], added=added, done=done, dead=dead)
                for number in sorted(urls)
                for added, done, dead in [counts.get(number, (0, 0, 0))]
                if added
            ]

    async def _counts(self) -> dict[int, tuple[int, int, int]]:
        """(added, done, dead) by number, summed over the partitions."""
        sums: defaultdict[int, list[int]] = defaultdict(lambda: [0, 0, 0])
        sizes = await self._engine.commands(
            [("HMGET", self._keys.meta(p), "en", "eb") for p in range(self._partitions)]
        )
        for partition, (values, compact_stores) in enumerate(sizes):
            if not values:
                continue
            names = [self._keys.of(partition, f"e:{n}") for n in ("split", *range(int(compact_stores or 1)))]
            rows = await self._engine.commands([("HGETALL", name) for name in names])
            known = {number: packed for row in rows for number, packed in pairs_of(row)}  # one that moved counts once
            for number, packed in known.items():
                if number.isdigit():  # others are of runs
                    for i, n in enumerate(msgspec.msgpack.decode(packed)):
                        sums[int(number)][i] += n
        return {number: (added, done, dead) for number, (added, done, dead) in sums.items()}

    def _hash(self, n: int) -> str:
        return f"{self._keys.seeds}{n}"


# Dead letters for operators: read as a stream, put back into their queues, discarded.
#
# Nothing here needs a lease: each call is atomic and may be repeated at any time, also while the crawl runs.

SCAN_COUNT = 500  # dead letters a call: about 150 kB
CHANGE_MAX = 64  # dead letters a call: a millisecond of the engine if each is of another queue
NOW: Mapping[str, float] = {}


class StoredLetter(msgspec.Struct, frozen=True, kw_only=True):
    """A dead letter and where it is stored."""

    partition: int
    fingerprint: str
    letter: DeadLetter


class DeadLetters:
    """The dead letters of one crawl."""

    def __init__(self, frontier: Frontier, partitions: int) -> None:
        self._frontier = frontier
        self._partitions = partitions
        self._runs = Runs(frontier.engine, frontier.keys, partitions)

    async def find(self, partition: int, fingerprint: str) -> StoredLetter | None:
        """The dead letter of one URL. Raises EngineError, as all methods do."""
        stored = await self._engine.command("HGET", self._key(partition), fingerprint)
        return None if stored is None else _stored(partition, fingerprint.encode(), stored)

    async def find_all(self, wanted: Mapping[int, Sequence[str]]) -> list[StoredLetter]:
        """The dead letters of many URLs, given as fingerprints by partition; URLs without one are left out."""
        asked = [
            (partition, mine[start : start + SCAN_COUNT])
            for partition, mine in wanted.items()
            for start in range(0, len(mine), SCAN_COUNT)
        ]
        replies = await self._engine.commands([("HMGET", self._key(p), *some) for p, some in asked])
        return [
            _stored(partition, fp.encode(), stored)
            for (partition, some), reply in zip(asked, replies, strict=True)
            for fp, stored in zip(some, reply, strict=True)
            if stored is not None
        ]

    async def read(self, partition: int = -1) -> AsyncIterator[list[StoredLetter]]:
        """All dead letters of one partition, or of all partitions, some at a time, in no order.

        One that is written meanwhile may be missed or come twice.
        """
        for one in range(self._partitions) if partition < 0 else (partition,):
            cursor = -1
            while cursor:
                some, cursor = await self.some(one, max(cursor, 0), SCAN_COUNT)
                yield some

    async def some(self, partition: int, cursor: int, count: int) -> tuple[list[StoredLetter], int]:
        """About so many dead letters of a partition from a cursor on, and the next cursor; 0 at begin and end."""
        reply = await self._engine.command("HSCAN", self._key(partition), cursor, "COUNT", count)
        return [_stored(partition, fp, stored) for fp, stored in pairs_of(reply[1])], int(reply[0])

    async def counts(self, partitions: Sequence[int]) -> dict[int, int]:
        """How many dead letters there are in each of these partitions."""
        sizes = await self._engine.commands([("HLEN", self._key(one)) for one in partitions])
        return {one: int(size) for one, size in zip(partitions, sizes, strict=True)}

    async def requeue(self, letters: Iterable[StoredLetter], visible_at: Mapping[str, float] = NOW) -> int:
        """Put URLs back into their queues and reset their attempts; how many still were dead letters.

        `visible_at`: the wall times (s) that URLs are scheduled for instead, by fingerprint. Those of runs that have
        ended stay as they are. EngineFull when the engine is out of memory: the rest is unchanged.
        """
        f, calls = self._frontier, []
        given = list(letters)
        ended = await self._ended(given)
        for (partition, run, user), some in _by_call(one for one in given if one.letter.run not in ended):
            at = {one.fingerprint: visible_at.get(one.fingerprint, 0.0) for one in some}
            items = [v for one in some for v in item_of_letter(one.fingerprint, one.letter, at[one.fingerprint])]
            args = AddArgs(
                run=run or f.run, default_delay_ms=f.default_delay_ms, urls=pack(items), hints=f.keys.hints,
                session="", is_limited=int(f.is_limited or run != ""), quota=b"", hash_key="", user=user,
            )  # fmt: skip
            calls.append(Call("requeue_dead", (f.keys.meta(partition),), args))
        return sum(int(reply[0]) for reply in await self._engine.run_all(calls))

    async def _ended(self, letters: Iterable[StoredLetter]) -> set[str]:
        """Those of their runs that take no URLs any more."""
        partitions: dict[str, set[int]] = {}
        for one in letters:
            if one.letter.run:
                partitions.setdefault(one.letter.run, set()).add(one.partition)
        return await self._runs.touch_all(partitions) if partitions else set()

    async def discard(self, letters: Iterable[StoredLetter], reason: str) -> int:
        """Delete dead letters; their URLs stay seen, refused for this reason. How many still existed."""
        calls = []
        for (partition, _, _), some in _by_call(letters):
            items = [
                LetterItem(one.fingerprint, one.letter.queue, one.letter.run or one.letter.seed_number) for one in some
            ]
            calls.append(Call("discard_dead", (self._frontier.keys.meta(partition),), DiscardArgs(reason, pack(items))))
        return sum(int(reply) for reply in await self._engine.run_all(calls))

    @property
    def _engine(self) -> Engine:
        return self._frontier.engine

    def _key(self, partition: int) -> str:
        return self._frontier.keys.of(partition, "dead")


def _by_call(letters: Iterable[StoredLetter]) -> Iterable[tuple[tuple[int, str, str], list[StoredLetter]]]:
    """Some letters at a time, with their partition, run and user."""
    places: dict[tuple[int, str, str], list[StoredLetter]] = {}
    for one in letters:
        places.setdefault((one.partition, one.letter.run, one.letter.user), []).append(one)
    for place, mine in places.items():
        for start in range(0, len(mine), CHANGE_MAX):
            yield place, mine[start : start + CHANGE_MAX]


def _stored(partition: int, fingerprint: bytes, stored: bytes) -> StoredLetter:
    return StoredLetter(partition=partition, fingerprint=fingerprint.decode(), letter=unpack_letter(stored))
