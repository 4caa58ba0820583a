"""How a crawl went over time: samples of its totals, every 5 s for 15 minutes and every 5 minutes for a day.

A sample has the totals at the beginning of its slot, read from the counters of the scripts. So the difference of two
is exact, whichever instances crashed between them, and all viewers compute the same rates.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple, Self

import msgspec
from msgspec.structs import replace

from crawler.engine.client import Engine
from crawler.frontier.codec import pairs_of
from crawler.frontier.keys import Keys
from crawler.frontier.lookup import Progress

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
