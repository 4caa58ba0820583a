"""What a crawl's budget of URLs or of hosts has parked, when there is room for some of it: shared out evenly.

Must not know how much room there is. Whoever owns partitions releases theirs: all who see the same rows come to the
same shares, so together they release no more than there is room for.
"""

from collections import Counter
from collections.abc import AsyncIterator, Collection, Sequence

import msgspec

from crawler.errors import ArchiveError
from crawler.frontier.deferred import BLOCKED, CRAWL_HOSTS, CRAWL_URLS, Parked, Parking, kind_of

PARTITIONS_MAX = 128  # a pipeline


class Released(msgspec.Struct, frozen=True):
    """Partition -> how many URLs; and queues of which some could not be: their file could not be read, and why.

    Of a partition with such a queue, some more may have been.
    """

    urls: Counter[int] = msgspec.field(default_factory=Counter)
    unreadable: dict[str, str] = msgspec.field(default_factory=dict)


class Sharing:
    """Of URLs. Reads all rows, by partitions in their order; a row's place among them decides on its share."""

    kind = CRAWL_URLS

    def __init__(self, parking: Parking, partitions: int) -> None:
        self._parking = parking
        self._partitions = partitions

    async def waiting(self) -> int:
        """How much may be released, where there is room: nothing of queues that are blocked. Raises EngineError."""
        return sum([takes async for _, takes in self._rows()])

    async def release(self, room: int, mine: Collection[int]) -> Released:
        """Put the shares of these partitions into their queues. Raises EngineError.

        Their owner is the one who asks, so no hint wakes it.
        """
        total, before, released = await self.waiting(), 0, Released()
        room = min(room, total)
        async for one, takes in self._rows():
            upto = min(before + takes, total)  # whatever has come since
            share, before = (room * upto // total - room * before // total) if total else 0, upto
            n = one.urls if share == takes else share
            if n > 0 and one.partition in mine:
                await self._release(one, n, released)
        return released

    async def _release(self, one: Parked, n: int, released: Released) -> None:
        try:
            released.urls[one.partition] += await self._parking.release(one.partition, one.queue, one.reason, n)
        except ArchiveError as error:  # what is left stays parked
            released.urls[one.partition] += 0
            released.unreadable[one.queue] = str(error)

    async def _rows(self) -> AsyncIterator[tuple[Parked, int]]:
        """Each row, and how much room all of it takes."""
        for i in range(0, self._partitions, PARTITIONS_MAX):
            some = range(i, min(i + PARTITIONS_MAX, self._partitions))
            for _, stops, parked in await self._parking.survey(some):
                rows = [one for one in parked if kind_of(one.reason) == self.kind and stops.get(one.queue) != BLOCKED]
                rows.sort(key=lambda one: (one.queue, one.reason))
                for row in zip(rows, await self._room_of(rows), strict=True):
                    yield row

    async def _room_of(self, rows: Sequence[Parked]) -> list[int]:
        return [one.urls for one in rows]


class HostSharing(Sharing):
    """Of hosts, each with a row of its own that is released as a whole: so it is never looked into.

    What is left of a row when its host is taken in (somebody died while it was released, or people gave a URL of the
    host) takes no room.
    """

    kind = CRAWL_HOSTS

    async def is_left(self) -> bool:
        """Are URLs parked whose host is taken in? Raises EngineError."""
        return any([takes == 0 async for _, takes in self._rows()])

    async def _room_of(self, rows: Sequence[Parked]) -> list[int]:
        hosts = [one.host for one in rows]
        taken = await self._parking.taken_in(rows[0].partition, hosts) if rows else set[str]()
        return [int(host not in taken) for host in hosts]
