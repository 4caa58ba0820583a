"""The seeds of a crawl by number, with counts of the URLs that descend from each.

A URL has the number of the seed from which it was first found.
"""

from collections import defaultdict
from collections.abc import AsyncIterator, Sequence

import msgspec

from crawler.engine.client import Engine
from crawler.frontier.codec import pairs_of
from crawler.frontier.keys import Keys

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
