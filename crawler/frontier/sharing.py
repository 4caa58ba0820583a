"""What a crawl's budget of URLs has parked, when there is room for some of it: shared out evenly among its rows.

Must not know how much room there is. Whoever owns partitions releases theirs: all who see the same rows come to the
same shares, so together they release no more than there is room for.
"""

from collections import Counter
from collections.abc import AsyncIterator, Collection

from crawler.frontier.parking import BLOCKED, CRAWL_URLS, Parked, Parking

PARTITIONS_MAX = 128  # a pipeline


class Sharing:
    """Reads all rows, by partitions in their order; a row's place among them decides on its share."""

    def __init__(self, parking: Parking, partitions: int) -> None:
        self._parking = parking
        self._partitions = partitions

    async def waiting(self) -> int:
        """How many URLs may be released: not those of queues that are blocked. Raises EngineError."""
        return sum([one.urls async for one in self._rows()])

    async def release(self, room: int, mine: Collection[int]) -> Counter[int]:
        """Put the shares of these partitions into their queues; partition -> how many URLs. EngineError, ArchiveError.

        Their owner is the one who asks, so no hint wakes it.
        """
        total, before, released = await self.waiting(), 0, Counter[int]()
        room = min(room, total)
        async for one in self._rows():
            upto = min(before + one.urls, total)  # whatever has come since
            if upto == before:
                break
            share, before = room * upto // total - room * before // total, upto
            if share > 0 and one.partition in mine:
                released[one.partition] += await self._parking.release(one.partition, one.queue, CRAWL_URLS, share)
        return released

    async def _rows(self) -> AsyncIterator[Parked]:
        for i in range(0, self._partitions, PARTITIONS_MAX):
            some = range(i, min(i + PARTITIONS_MAX, self._partitions))
            for _, stops, parked in await self._parking.survey(some):
                for one in sorted(parked, key=lambda one: one.queue):
                    if one.reason == CRAWL_URLS and stops.get(one.queue) != BLOCKED:
                        yield one
