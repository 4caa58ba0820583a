"""What the rebuild of a lost crawl does to the frontier: commits known from disk become done, queues keep their delay.

Must not know where the commits are known from.
"""

import enum
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from crawler.errors import EngineError
from crawler.frontier.client import Call, Engine
from crawler.frontier.keys import Keys
from crawler.frontier.records import UrlRecord, pack, unpack_record

RESTORE_MAX = 256  # URLs per call: below a millisecond of the engine


class Restored(enum.IntEnum):
    """Shared with lua/restore.lua."""

    ENDED = 0  # the engine had it already as done, or as given up
    UNKNOWN = 1
    PENDING = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class DoneUrl:
    """A committed URL, and what its commit counts."""

    fingerprint: str
    partition: int
    domain: str
    queue: str
    status: int
    body_bytes: int
    fetch_ms: int


class Restoring:
    """The calls of a rebuild on one crawl. Any session may make them; each may be repeated."""

    def __init__(self, engine: Engine, keys: Keys, *, run: int) -> None:
        self._engine = engine
        self._keys = keys
        self._run = run

    async def restore(self, urls: Iterable[DoneUrl]) -> Counter[Restored]:
        """Make these URLs seen and done; what the engine knew of them. Raises EngineError."""
        by_partition: dict[int, list[tuple[str, str, str, int, int, int]]] = {}
        for u in urls:
            item = (u.fingerprint, u.queue, u.domain, u.status // 100, u.body_bytes, u.fetch_ms)
            by_partition.setdefault(u.partition, []).append(item)
        calls = [
            Call("restore", (self._keys.meta(partition),), (self._run, pack(items[start : start + RESTORE_MAX])))
            for partition, items in by_partition.items()
            for start in range(0, len(items), RESTORE_MAX)
        ]
        found: Counter[Restored] = Counter()
        for digits in await self._engine.run_many(calls):
            if isinstance(digits, EngineError):
                raise digits
            found.update(Restored(digit - 48) for digit in digits)
        return found

    async def pending(self, wanted: Mapping[int, Sequence[str]]) -> dict[str, UrlRecord]:
        """The records of those fingerprints, given by partition, that are pending now."""
        asked = [(partition, fps) for partition, fps in wanted.items() if fps]
        rows = await self._engine.commands([("HMGET", self._keys.of(p, "u"), *fps) for p, fps in asked])
        return {
            fp: unpack_record(packed)
            for (_, fps), row in zip(asked, rows, strict=True)
            for fp, packed in zip(fps, row, strict=True)
            if packed
        }

    async def hold(self, partitions: int) -> None:
        """Nobody knows when the lost crawl made its last requests: the first ones wait for their queue's delay.

        As after a takeover; a partition that has a hold keeps it.
        """
        await self._engine.commands([("HSETNX", self._keys.meta(p), "hold", 0) for p in range(partitions)])
