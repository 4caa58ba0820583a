"""The first domains of a crawl by pages, rate, queue, errors, bytes or how long they have been due.

Only candidates are compared, so that the work is bounded: the domains with most pages (up to 128 of a partition), the
busiest ones, and those with the longest queues or the oldest due time of each partition.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from crawler.engine.client import Engine
from crawler.frontier.busy import BusyQueues
from crawler.frontier.keys import Keys
from crawler.frontier.series import Rates, busiest_max
from crawler.frontier.stats import DomainStats, Stats

_Place = tuple[str, int]  # domain and partition


class DomainRow(msgspec.Struct, frozen=True):
    """`rates`: None for a domain that is not among the busiest, for which none are kept."""

    stats: DomainStats
    rates: Rates | None


class DomainLists:
    """Reads the lists of one crawl."""

    def __init__(self, engine: Engine, keys: Keys, partitions: int, stats: Stats) -> None:
        self._engine = engine
        self._keys = keys
        self._partitions = range(partitions)
        self._stats = stats
        self._busy = BusyQueues(engine, keys, partitions)
        self._each = busiest_max(partitions)  # candidates of a partition, of each kind

    async def top(self, sort: str, limit: int, now_s: float) -> list[DomainRow]:
        """The first `limit` domains by one of SORTS at a time of the wall clock."""
        busy = {(one.queue, one.partition): one for one in await self._busy.read()}
        if sort == "pages":
            first = await self._stats.top_domains(limit)
        elif sort == "rate":
            pages = {place: one.rates(now_s).pages for place, one in busy.items()}
            first = sorted(pages, key=lambda place: (-pages[place], place))[:limit]
        elif sort == "due":
            first = await self._oldest_due(limit)
        else:
            others = await self._ranked("long" if sort == "queue" else "top")
            first = await self._by_record(_KEYS[sort], {*busy, *others}, limit)
        found = await self._stats.domains(first)
        return [
            DomainRow(stats, busy[place].rates(now_s) if place in busy else None)
            for place, stats in zip(first, found, strict=True)
        ]

    async def overdue_ms(self) -> int:
        """For how long the queue that has waited longest could be fetched from; 0 when none is due.

        By the clock of its partition as it was last written, so it stands still while nobody claims there.
        """
        metas = await self._engine.commands(
            [("HMGET", self._keys.meta(p), "clock", "boosts") for p in self._partitions]
        )
        clocks, sets = list[int](), list[str]()
        for p, (clock, boosts) in zip(self._partitions, metas, strict=True):
            names = ["ready", *(f"ready:{boost}" for boost in (boosts or b"").decode().split())]
            sets += [self._keys.of(p, name) for name in names]
            clocks += [int(clock or 0)] * len(names)
        firsts = await self._engine.commands([("ZRANGE", key, 0, 0, "WITHSCORES") for key in sets])
        late = [clock - int(float(first[1])) for clock, first in zip(clocks, firsts, strict=True) if first]
        return max(0, *late) if late else 0

    async def _ranked(self, name: str) -> list[_Place]:
        """The highest of a sorted set of each partition."""
        raw = await self._engine.commands(
            [("ZREVRANGE", self._keys.of(p, name), 0, self._each - 1) for p in self._partitions]
        )
        return [(queue.decode(), p) for p, queues in zip(self._partitions, raw, strict=True) for queue in queues]

    async def _by_record(
        self, key: Callable[[Mapping[str, Any]], int], places: set[_Place], limit: int
    ) -> list[_Place]:
        candidates = sorted(places)
        values = [key(record) for record in await self._stats.records(candidates)]
        best = sorted(zip(values, candidates, strict=True), key=lambda one: (-one[0], one[1]))[:limit]
        return [place for value, place in best if value > 0]

    async def _oldest_due(self, limit: int) -> list[_Place]:
        """Those that have been due for longest, or will be first; by their partition's clock as it was last written."""
        each = min(limit, self._each)
        firsts = await self._engine.commands(
            [("ZRANGE", self._keys.of(p, "ready"), 0, each - 1, "WITHSCORES") for p in self._partitions]
        )
        clocks = await self._engine.commands([("HGET", self._keys.meta(p), "clock") for p in self._partitions])
        found: list[tuple[float, _Place]] = []
        for p, flat, clock in zip(self._partitions, firsts, clocks, strict=True):
            found += [(float(flat[i + 1]) - int(clock or 0), (flat[i].decode(), p)) for i in range(0, len(flat), 2)]
        return [place for _, place in sorted(found)[:limit]]


def _errors(record: Mapping[str, Any]) -> int:
    failures = sum(n for name, n in record.items() if name.startswith("e:"))
    return int(record.get("s4", 0) + record.get("s5", 0) + failures)


_KEYS: Mapping[str, Callable[[Mapping[str, Any]], int]] = {
    "queue": lambda record: int(record.get("n", 0)),
    "errors": _errors,
    "bytes": lambda record: int(record.get("bytes", 0)),
}
SORTS: Sequence[str] = ("pages", "rate", "due", *_KEYS)
