"""A budget of what the whole crawl takes in, URLs or hosts: what this instance may let in of it, and take up again.

No script sees more than one partition, so each instance has its share of the room until all is counted again
(docs/decisions/0025-a-crawls-budgets-stop-claims-not-queues.md). Must not know what it is that is taken in.
"""

import logging
import sys
from collections.abc import Collection

from crawler.quotas.distribute import HostSharing, Sharing
from crawler.runtime.clock import monotonic_ms

log = logging.getLogger(__name__)

LOOK_EVERY_MS = 10_000  # at all rows of hosts, where it is not asked for: there may be a million


class TakingIn:
    """`budget`: 0 is no limit. `parked`: URLs that wait for room; what is new goes behind them."""

    def __init__(self, budget: int, sharing: Sharing) -> None:
        self.budget = budget
        self.parked = 0
        self.asked = 0  # let in since the engine was last asked
        self._taken_in = 0
        self._room = 0  # less what was let in and may not be there yet
        self._sharing = sharing
        self._is_stuck = False  # what there is room for lies in files that can't be read
        self._unreadable: set[str] = set()  # queues that were named

    @property
    def room(self) -> int:
        """By the last sum."""
        return self.budget - self._taken_in if self.budget else sys.maxsize

    def counted(self, *, taken_in: int, parked: int, asked: int) -> None:
        """The crawl's sums; `asked`: as it was when they were asked for."""
        self.asked -= asked
        self._taken_in, self.parked = taken_in, parked
        self._room = self.room - asked

    def lets_in(self, sharers: int) -> bool:
        """May one more be let in, by one of so many instances? Where URLs are parked it comes behind them."""
        if not self.budget:
            return True
        if self.parked or self.asked >= self._room // max(1, sharers):
            return False
        self.asked += 1
        return True

    async def has_more(self) -> bool:
        """Is there room for what is parked, so that somebody will release it? Raises EngineError."""
        return self.parked > 0 and self.room > 0 and not self._is_stuck and await self._sharing.waiting() > 0

    async def take_up(self, mine: Collection[int]) -> Collection[int]:
        """Release what there is room for in these partitions; in which of them something was. Raises EngineError."""
        if not self.parked or self._room <= 0:
            return ()
        return await self._release(self._room, mine)

    async def _release(self, room: int, mine: Collection[int]) -> Collection[int]:
        released = await self._sharing.release(room, mine)
        for queue, error in released.unreadable.items():  # what is left stays parked, and is asked for again
            if queue not in self._unreadable:
                log.warning("budget.unreadable", extra={"queue": queue, "error": error})
        self._unreadable = set(released.unreadable)
        self._is_stuck = bool(self._unreadable) and not released.urls.total()
        return released.urls


class HostsTakingIn(TakingIn):
    """Of hosts. One that was let in stays so until all is counted again, whatever URLs of it follow.

    Nobody says that URLs of a host are parked which is taken in. So all rows are looked at once more when a host was
    taken in or partitions have come, and when the crawl would end.
    """

    def __init__(self, budget: int, sharing: HostSharing) -> None:
        super().__init__(budget, sharing)
        self._hosts = sharing
        self._let_in: set[str] = set()
        self._is_left = True
        self._looked_at_ms = -LOOK_EVERY_MS
        self._known: tuple[int, frozenset[int]] = (0, frozenset())  # hosts, partitions: when the rows were looked at

    def counted(self, *, taken_in: int, parked: int, asked: int) -> None:
        super().counted(taken_in=taken_in, parked=parked, asked=asked)
        self._let_in.clear()

    def lets_in_host(self, host: str, sharers: int) -> bool:
        """May this host be taken in, if it is not yet?"""
        if host not in self._let_in:
            if not self.lets_in(sharers):
                return False
            self._let_in.add(host)
        return True

    async def has_more(self) -> bool:
        if await super().has_more():
            return True
        self._is_left = self.parked > 0 and await self._hosts.is_left()
        return self._is_left

    async def take_up(self, mine: Collection[int]) -> Collection[int]:
        known, at_ms = (self._taken_in, frozenset(mine)), monotonic_ms()
        is_due = known != self._known and at_ms - self._looked_at_ms >= LOOK_EVERY_MS
        if not self.parked or not (self._room > 0 or self._is_left or is_due):
            return ()
        self._known, self._looked_at_ms, self._is_left = known, at_ms, False
        return await self._release(max(0, self._room), mine)
