"""The whole crawl's budget of URLs: how many this instance may let in, and take up again.

No script sees more than one partition, so each instance has its share of the room until all is counted again
(docs/internals/decisions/quotas.md).
"""

import logging
import sys
from collections.abc import Collection

from crawler.quotas.distribute import DeferredShare

log = logging.getLogger(__name__)


class QuotaAdmission:
    """`budget`: 0 is no limit. `parked`: URLs that wait for room; what is new goes behind them."""

    def __init__(self, budget: int, share: DeferredShare) -> None:
        self.budget = budget
        self.deferred = 0
        self.admitted = 0  # let in since the engine was last asked
        self._total = 0
        self._room = 0  # less what was let in and may not be there yet
        self._share = share
        self._is_stuck = False  # what there is room for lies in files that can't be read
        self._unreadable: set[str] = set()  # queues that were named

    @property
    def room(self) -> int:
        """By the last sum."""
        return self.budget - self._total if self.budget else sys.maxsize

    def update(self, *, taken_in: int, deferred: int, asked: int) -> None:
        """The crawl's sums; `asked`: as it was when they were asked for."""
        self.admitted -= asked
        self._total, self.deferred = taken_in, deferred
        self._room = self.room - asked

    def admits(self, sharers: int) -> bool:
        """May one more be let in, by one of so many instances? Where URLs are parked it comes behind them."""
        if not self.budget:
            return True
        if self.deferred or self.admitted >= self._room // max(1, sharers):
            return False
        self.admitted += 1
        return True

    async def has_more(self) -> bool:
        """Is there room for what is parked, so that somebody will release it? Raises EngineError."""
        return self.deferred > 0 and self.room > 0 and not self._is_stuck and await self._share.waiting() > 0

    async def release_deferred(self, mine: Collection[int]) -> Collection[int]:
        """Release what there is room for in these partitions; in which of them something was. Raises EngineError."""
        if not self.deferred or self._room <= 0:
            return ()
        released = await self._share.release(self._room, mine)
        for queue, error in released.unreadable.items():  # what is left stays parked, and is asked for again
            if queue not in self._unreadable:
                log.warning("budget.unreadable", extra={"queue": queue, "error": error})
        self._unreadable = set(released.unreadable)
        self._is_stuck = bool(self._unreadable) and not released.urls.total()
        return released.urls
