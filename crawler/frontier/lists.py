"""Domains by name, by what they have done lately, and how a crawl went over time: read page by page."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Self

import msgspec
from msgspec.structs import replace

from crawler.engine.client import Engine
from crawler.frontier.codec import pairs_of, split_row
from crawler.frontier.reads import DomainStats, Progress, Stats
from crawler.frontier.record import Keys
from crawler.rules.urls import partition_of, registrable_domain

# How a crawl went over time: samples of its totals, every 5 s for 15 minutes and every 5 minutes for a day.
#
# A sample has the totals at the beginning of its slot, read from the counters of the scripts. So the difference of two
# is exact, whichever instances crashed between them, and all viewers compute the same rates.

RATE_SLOTS = 2  # whole slots that a rate is measured over
RATE_MIN_S = 3.0  # a rate of less than this would be chance
STALE_SLOTS = 3  # after so many without a sample nothing runs
SKEW_SLOTS = 12  # clocks that differ by more were set: the newest sample is not from the future


class Resolution(NamedTuple):
    """Slots of so many seconds, of which the newest are kept."""

    slot_s: int
    slots: int

    def slot_of(self, at_s: float) -> int:
        """Number of the slot that a time is in (seconds since 1970)."""
        return int(at_s // self.slot_s)


FINE, COARSE = Resolution(5, 180), Resolution(300, 288)
RESOLUTIONS = (FINE, COARSE)


def busiest_max(partitions: int) -> int:
    """How many queues of a partition have rates of their own: some 4,096 in all, and 8 at least."""
    return max(8, min(64, 4096 // partitions))


class Sample(NamedTuple):
    """Totals of a crawl at a time (s since 1970). `failures`: attempts without a response."""

    at_s: float
    added: int = 0
    done: int = 0
    pages: int = 0  # responses with any status
    bytes: int = 0
    client_errors: int = 0  # 4xx
    server_errors: int = 0  # 5xx
    failures: int = 0
    dead: int = 0

    @classmethod
    def of(cls, at_s: float, p: Progress) -> Self:
        """The totals at that time."""
        return cls(at_s, p.added, p.done, p.fetched, p.bytes, p.client_errors, p.server_errors, p.failures, p.dead)

    @property
    def pending(self) -> int:
        return self.added - self.done


class Rates(msgspec.Struct, frozen=True):
    """Each per second, over `seconds`."""

    seconds: float
    pages: float = 0.0
    bytes: float = 0.0
    client_errors: float = 0.0
    server_errors: float = 0.0
    failures: float = 0.0

    @classmethod
    def between(cls, older: Sample, newer: Sample) -> Self:
        """The mean of the time between two samples. Totals that an engine lost with a rollback count as nothing."""
        seconds = newer.at_s - older.at_s
        if seconds <= 0:
            return cls(0.0)
        return cls(
            seconds, *(max(0, getattr(newer, f) - getattr(older, f)) / seconds for f in cls.__struct_fields__[1:])
        )


class Samples(msgspec.Struct, frozen=True):
    """The samples of both resolutions, oldest first, and the totals when they were read."""

    now: Sample
    fine: Sequence[Sample]
    coarse: Sequence[Sample]

    def since(self, began_s: float) -> Self:
        """Without the fine samples of before, when no instance that runs now did."""
        return replace(self, fine=[sample for sample in self.fine if sample.at_s >= began_s])

    @property
    def rates(self) -> Rates | None:
        """Over the last two whole slots; in the first ones since the first sample; None while nothing can be told."""
        if not self.fine:
            return None
        newest = self.fine[-1]
        slot = FINE.slot_of(newest.at_s)
        if FINE.slot_of(self.now.at_s) - slot >= STALE_SLOTS:
            return None
        older = next(sample for sample in self.fine if FINE.slot_of(sample.at_s) >= slot - RATE_SLOTS)
        for end in (newest, self.now):
            if end.at_s - older.at_s >= RATE_MIN_S:
                return Rates.between(older, end)
        return None


class Series:
    """Reads and writes the samples of one crawl."""

    def __init__(self, engine: Engine, keys: Keys) -> None:
        self._engine = engine
        self._key = keys.series

    async def is_wanted(self, at_s: float) -> bool:
        """Is there no sample of the slot of that time yet?"""
        ahead = FINE.slot_of(at_s) - int(await self._engine.command("HGET", self._key, "last") or 0)
        return ahead > 0 or ahead < -SKEW_SLOTS

    async def write(self, sample: Sample) -> None:
        """Keep a sample, also for its five minutes when it is the first in them."""
        slot, of_day = FINE.slot_of(sample.at_s), COARSE.slot_of(sample.at_s)
        packed, field = msgspec.msgpack.encode(tuple(sample)), f"{COARSE.slot_s}:{of_day % COARSE.slots}"
        old = await self._engine.command("HGET", self._key, field)
        fields = ["last", slot, f"{FINE.slot_s}:{slot % FINE.slots}", packed]
        if old is None or COARSE.slot_of(sample_of(old).at_s) != of_day:
            fields += [field, packed]
        await self._engine.command("HSET", self._key, *fields)

    async def read(self, now: Sample) -> Samples:
        """All samples that are kept."""
        flat = pairs_of(await self._engine.command("HGETALL", self._key))
        found: dict[int, list[Sample]] = {r.slot_s: [] for r in RESOLUTIONS}
        for name, packed in flat:
            slot_s, _, number = name.decode().partition(":")
            if number:
                found[int(slot_s)].append(sample_of(packed))
        fine, coarse = (_kept(found[r.slot_s], r, now.at_s) for r in RESOLUTIONS)
        return Samples(now, fine, coarse)


def sample_of(packed: bytes) -> Sample:
    """A sample as it was written."""
    return Sample(*msgspec.msgpack.decode(packed))


def _kept(samples: Iterable[Sample], resolution: Resolution, now_s: float) -> list[Sample]:
    slot = resolution.slot_of(now_s)
    return sorted(one for one in samples if -resolution.slots < resolution.slot_of(one.at_s) - slot <= SKEW_SLOTS)


# The busiest queues of each partition, and what happened in them lately: what lua/drain_log.lua keeps.
#
# Pages, bytes and errors of the last 15 minutes in slots of 5 s, and of the last day in slots of 5 minutes.


SETTLED_S = 1.0  # owners send what happened in a slot at most this long after its end
_FINE_SIZES, _COARSE_SIZES = (4, 2, 5, 2, 2, 2), (4, 3, 6, 3, 3, 3)  # bytes of each number of a slot
_HEAD = 7  # values of an entry before its slots


class Slot(NamedTuple):
    """What happened in one slot. `number`: since 1970. `failures`: attempts without a response."""

    number: int
    pages: int = 0
    bytes: int = 0
    client_errors: int = 0
    server_errors: int = 0
    failures: int = 0


class BusyQueue(msgspec.Struct, frozen=True):
    """A queue with its newest slots, open requests, and the last failure with its slot's time (s since 1970)."""

    queue: str
    partition: int
    newest: Sequence[Slot]
    in_flight: int = 0
    last_error: str = ""
    last_error_at: float = 0.0
    first: int = 0  # the slot in which it became one of the busiest

    def rates(self, now_s: float, began_s: float = 0.0) -> Rates | None:
        """Over the last two whole slots, or one; None before there is one. `began_s`: when instances began to run.

        The slot in which it became one of the busiest is not whole, nor is that in which they began.
        """
        end = FINE.slot_of(now_s - SETTLED_S)
        begin = max(end - RATE_SLOTS, self.first + 1, FINE.slot_of(began_s) + 1)
        if begin >= end:
            return None
        whole = (one for one in self.newest if begin <= one.number < end)
        return _mean(whole, float((end - begin) * FINE.slot_s))


class BusyQueues:
    """Reads them."""

    def __init__(self, engine: Engine, keys: Keys, partitions: int) -> None:
        self._engine = engine
        self._keys = keys
        self._partitions = partitions

    async def read(self) -> list[BusyQueue]:
        """All there are: some 4,096, and at most eight for each partition when there are many partitions."""
        raw = await self._engine.commands([("HGETALL", self._keys.of(p, "busy")) for p in range(self._partitions)])
        return [
            _busy_queue(name.decode(), partition, packed)
            for partition, flat in enumerate(raw)
            for name, packed in pairs_of(flat)
        ]

    async def of(self, places: Sequence[tuple[str, int]]) -> list[BusyQueue | None]:
        """The given (queue, partition) pairs; None for those that are not among the busiest."""
        raw = await self._engine.commands([("HGET", self._keys.of(p, "busy"), queue) for queue, p in places])
        return [packed and _busy_queue(queue, p, packed) for (queue, p), packed in zip(places, raw, strict=True)]

    async def slots(self, partition: int, queue: str, now_s: float) -> tuple[list[Slot], list[Slot]]:
        """The last 15 minutes and the last day of a queue, oldest slot first, without those in which nothing happened.
        Empty for a queue that is not among the busiest.
        """
        keys = (self._keys.of(partition, f"v:{queue}"), self._keys.of(partition, f"d:{queue}"))
        fine, coarse = await self._engine.commands([("GET", key) for key in keys])
        return _kept_slots(fine, _FINE_SIZES, FINE, now_s), _kept_slots(coarse, _COARSE_SIZES, COARSE, now_s)


def _mean(slots: Iterable[Slot], seconds: float) -> Rates:
    sums = [sum(values) / seconds for values in zip(*(slot[1:] for slot in slots), strict=True)]
    return Rates(seconds, *sums)


def _busy_queue(queue: str, partition: int, packed: bytes) -> BusyQueue:
    values = msgspec.msgpack.decode(packed)
    width = len(Slot._fields)
    newest = [Slot(*map(int, values[i : i + width])) for i in range(_HEAD, len(values), width)]
    first, _, in_flight, error, error_at = values[_HEAD - 5 : _HEAD]
    return BusyQueue(queue, partition, newest, int(in_flight), error, float(error_at), int(first))


def _kept_slots(ring: bytes | None, sizes: Sequence[int], resolution: Resolution, now_s: float) -> list[Slot]:
    last = resolution.slot_of(now_s)
    slots = (Slot(*_numbers(part, sizes)) for part in _parts(ring or b"", sum(sizes)))
    return sorted(slot for slot in slots if last - resolution.slots < slot.number <= last)


def _parts(ring: bytes, size: int) -> Iterator[bytes]:
    for start in range(0, len(ring), size):
        yield ring[start : start + size]


def _numbers(part: bytes, sizes: Sequence[int]) -> Iterator[int]:
    start = 0
    for size in sizes:
        yield int.from_bytes(part[start : start + size], "little")
        start += size


# The first domains of a crawl by pages, rate, queue, errors, bytes or how long they have been due.
#
# Only candidates are compared, so that the work is bounded: the domains with most pages (up to 128 of a partition), the
# busiest ones, and those with the longest queues or the oldest due time of each partition.


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
