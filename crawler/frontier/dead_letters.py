"""Dead letters for operators: read as a stream, put back into their queues, discarded.

Nothing here needs a lease: each call is atomic and may be repeated at any time, also while the crawl runs.
"""

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence

import msgspec

from crawler.engine.client import Call, Engine
from crawler.frontier.arguments import AddArgs, DiscardArgs, LetterItem
from crawler.frontier.codec import DeadLetter, item_of_letter, pack, pairs_of, unpack_letter
from crawler.frontier.owner import Frontier
from crawler.frontier.runs import Runs

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
                run=run, default_delay_ms=f.default_delay_ms, urls=pack(items), hints=f.keys.hints,
                session="", is_limited=int(f.is_limited or run != ""), budget=b"", hash_key="", user=user,
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
