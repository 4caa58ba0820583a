"""Distributes the room in a crawl's budget of URLs over the deferred rows.

Each owner releases the shares of its partitions. All instances compute the same shares from the same rows, so
together they release no more than there is room for.
"""

from collections import Counter
from collections.abc import AsyncIterator, Collection

import msgspec

from crawler.errors import ArchiveError
from crawler.frontier.deferred import (
    BLOCKED,
    CRAWL_URLS,
    DeferredRow,
    DeferredUrls,
)

PARTITIONS_MAX = 128  # a pipeline


class Released(msgspec.Struct, frozen=True):
    """Released URLs by partition, and the queues whose file could not be read, with the error.

    The count of a partition with such a queue may be too low.
    """

    urls: Counter[int] = msgspec.field(default_factory=Counter)
    unreadable: dict[str, str] = msgspec.field(default_factory=dict)


class DeferredShare:
    """Reads all rows in the order of partitions; a row's place among them determines its share."""

    def __init__(self, deferred_urls: DeferredUrls, partitions: int) -> None:
        self._deferred_urls = deferred_urls
        self.partitions = partitions

    async def waiting(self) -> int:
        """How many URLs may be released; none of blocked queues. Raises EngineError."""
        return sum([one.urls async for one in self._rows()])

    async def release(self, room: int, mine: Collection[int]) -> Released:
        """Release the shares of these partitions into their queues. Raises EngineError.

        Owners get hints, but for the caller.
        """
        total, before, released = await self.waiting(), 0, Released()
        room = min(room, total)
        async for one in self._rows():
            upto = min(before + one.urls, total)  # rows may have grown since
            share, before = (room * upto // total - room * before // total) if total else 0, upto
            if share > 0 and one.partition in mine:
                await self._release(one, share, released)
        return released

    async def _release(self, one: DeferredRow, n: int, released: Released) -> None:
        try:
            released.urls[one.partition] += await self._deferred_urls.release(one.partition, one.queue, one.reason, n)
        except ArchiveError as error:  # the rest stays deferred
            released.urls[one.partition] += 0
            released.unreadable[one.queue] = str(error)

    async def _rows(self) -> AsyncIterator[DeferredRow]:
        for i in range(0, self.partitions, PARTITIONS_MAX):
            some = range(i, min(i + PARTITIONS_MAX, self.partitions))
            for _, stops, deferred in await self._deferred_urls.survey(some):
                rows = [one for one in deferred if one.reason == CRAWL_URLS and stops.get(one.queue) != BLOCKED]
                for row in sorted(rows, key=lambda one: one.queue):
                    yield row
