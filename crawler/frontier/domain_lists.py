"""The first domains of a crawl by pages, rate, queue, errors, bytes or how long they have been due.

Only candidates are compared, so that the work is bounded: the domains with most pages (up to 128 of a partition), the
busiest ones, and those with the longest queues or the oldest due time of each partition.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from crawler.engine.client import Engine
from crawler.frontier.busy import BusyQueue, BusyQueues
from crawler.frontier.codec import split_row
from crawler.frontier.keys import Keys
from crawler.frontier.series import busiest_max
from crawler.frontier.stats import DomainStats, Stats
from crawler.rules.places import partition_of, registrable_domain

_Place = tuple[str, int]  # domain and partition


class DomainRow(msgspec.Struct, frozen=True):
    """`busy`: what happened lately; None for a domain that is not among the busiest, for which it is not kept."""

    stats: DomainStats
    busy: BusyQueue | None


class DomainLists:
    """Reads the lists of one crawl."""

    def __init__(self, engine: Engine, keys: Keys, partitions: int, stats: Stats) -> None:
        self._engine = engine
        self._keys = keys
        self._partitions = range(partitions)
        self._stats = stats
        self.busy = BusyQueues(engine, keys, partitions)
        self._each = busiest_max(partitions)  # candidates of a partition, of each kind

    async def top(self, sort: str, limit: int, now_s: float) -> list[DomainRow]:
        """The first `limit` domains by one of SORTS at a time of the wall clock."""
        if sort == "pages":
            return await self.rows(await self._stats.top_domains(limit))
        if sort == "due":
            return await self.rows(await self._oldest_due(limit))
        busy = await self.busy.read()
        if sort == "rate":
            rates = {(one.queue, one.partition): one.rates(now_s) for one in busy}
            pages = {place: found.pages if found else 0.0 for place, found in rates.items()}
            return await self.rows(sorted(pages, key=lambda place: (-pages[place], place))[:limit])
        others = await self._ranked("long" if sort == "queue" else "top")
        places = {*((one.queue, one.partition) for one in busy), *others}
        return await self.rows(await self._by_record(_KEYS[sort], places, limit))

    async def rows(self, places: Sequence[_Place]) -> list[DomainRow]:
        """What is known of these domains."""
        found = await self._stats.domains(list(places))
        return [DomainRow(stats, busy) for stats, busy in zip(found, await self.busy.of(places), strict=True)]

    async def containing(self, text: str, limit: int) -> list[_Place]:
        """The first domains by name that begin with a text, or are among the busiest and those with most pages and
        contain it.
        """
        here = (text, partition_of(registrable_domain(text), len(self._partitions)))
        named = [place for place in await self._stats.domains_by_name(text, limit) if place[0].startswith(text)]
        exact = [here] if (await self._stats.records([here]))[0] else []
        busy = [(one.queue, one.partition) for one in await self.busy.read()]
        others = {place for place in (*busy, *await self._ranked("top")) if text in place[0]}
        return sorted({*exact, *named, *others})[:limit]

    async def overdue_ms(self) -> int:
        """For how long the queue that has waited longest could be fetched from; 0 when none is due.

        By the clock of its partition as it was last written, so it stands still while nobody claims there.
        """
        metas = [("HMGET", self._keys.meta(p), "clock", "boosts") for p in self._partitions]
        found = await self._engine.commands([*metas, *self._users_of_each()])
        clocks, sets = list[int](), list[str]()
        for p in self._partitions:
            (clock, boosts), users = found[p], found[len(metas) + p]
            boosted = ["ready", *(f"ready:{boost}" for boost in (boosts or b"").decode().split())]
            names = [name for one in boosted for name in (one, *(f"{one}@{user.decode()}" for user in users))]
            sets += [self._keys.of(p, name) for name in names]
            clocks += [int(clock or 0)] * len(names)
        firsts = await self._engine.commands([("ZRANGE", key, 0, 0, "WITHSCORES") for key in sets])
        late = [clock - int(float(first[1])) for clock, first in zip(clocks, firsts, strict=True) if first]
        return max(0, *late) if late else 0

    def _users_of_each(self) -> list[tuple[str, str]]:
        """Commands that read the users with URLs in queues, one for each partition."""
        return [("HKEYS", self._keys.of(p, "users")) for p in self._partitions]

    async def _ranked(self, name: str) -> list[_Place]:
        """The highest of a sorted set of each partition, a queue for each row."""
        raw = await self._engine.commands(
            [("ZREVRANGE", self._keys.of(p, name), 0, self._each - 1) for p in self._partitions]
        )
        found = ((split_row(row.decode())[0], p) for p, rows in zip(self._partitions, raw, strict=True) for row in rows)
        return list(dict.fromkeys(found))

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
        clock_reads = [("HGET", self._keys.meta(p), "clock") for p in self._partitions]
        found = await self._engine.commands([*clock_reads, *self._users_of_each()])
        clocks, users = found[: len(clock_reads)], found[len(clock_reads) :]
        sets = [
            (p, name) for p in self._partitions for name in ("ready", *(f"ready@{user.decode()}" for user in users[p]))
        ]
        firsts = await self._engine.commands(
            [("ZRANGE", self._keys.of(*one), 0, each - 1, "WITHSCORES") for one in sets]
        )
        due: dict[_Place, float] = {}
        for (p, _), flat in zip(sets, firsts, strict=True):
            for i in range(0, len(flat), 2):
                place, since = (flat[i].decode(), p), float(flat[i + 1]) - int(clocks[p] or 0)
                due[place] = min(since, due.get(place, since))
        return [place for _, place in sorted((since, place) for place, since in due.items())[:limit]]


def _errors(record: Mapping[str, Any]) -> int:
    failures = sum(n for name, n in record.items() if name.startswith("e:"))
    return int(record.get("s4", 0) + record.get("s5", 0) + failures)


_KEYS: Mapping[str, Callable[[Mapping[str, Any]], int]] = {
    "queue": lambda record: int(record.get("n", 0)),
    "errors": _errors,
    "bytes": lambda record: int(record.get("bytes", 0)),
}
SORTS: Sequence[str] = ("pages", "rate", "due", *_KEYS)
