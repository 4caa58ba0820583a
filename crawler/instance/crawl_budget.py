"""The crawl's budget of URLs: how many this instance may admit, and release from the deferred ones.

No script sees more than one partition, so each instance has a share of the room until the next count
(docs/internals/decisions/budgets.md).
"""

import logging
import sys
from collections.abc import Collection

from crawler.instance.deferred_share import DeferredShare

log = logging.getLogger(__name__)


class BudgetAdmission:
    """`budget`: 0 for no limit. `deferred`: URLs that wait for room; new ones go behind them."""

    def __init__(self, budget: int, share: DeferredShare) -> None:
        self.budget = budget
        self.deferred = 0
        self.admitted = 0  # since the last count
        self._total = 0
        self._room = 0  # without what was admitted and may not be counted yet
        self._share = share
        self._is_stuck = False  # the URLs there is room for are in files that can't be read
        self._unreadable: set[str] = set()  # queues that were logged

    @property
    def partitions(self) -> int:
        return self._share.partitions

    @property
    def room(self) -> int:
        """As of the last count."""
        return self.budget - self._total if self.budget else sys.maxsize

    def update(self, *, total: int, deferred: int, admitted: int) -> None:
        """Take over the crawl's totals; `admitted`: its value when they were requested."""
        self.admitted -= admitted
        self._total, self.deferred = total, deferred
        self._room = self.room - admitted

    def admits(self, sharers: int) -> bool:
        """May one of `sharers` instances admit one more URL? Never while others are deferred: they go first."""
        if not self.budget:
            return True
        if self.deferred or self.admitted >= self._room // max(1, sharers):
            return False
        self.admitted += 1
        return True

    async def has_more(self) -> bool:
        """Is there room for deferred URLs, so that an instance will release them? Raises EngineError."""
        return self.deferred > 0 and self.room > 0 and not self._is_stuck and await self._share.waiting() > 0

    async def release_deferred(self, mine: Collection[int]) -> Collection[int]:
        """Release what there is room for in these partitions; those that got some. Raises EngineError."""
        if not self.deferred or self._room <= 0:
            return ()
        released = await self._share.release(self._room, mine)
        for queue, error in released.unreadable.items():  # the rest stays deferred, and is tried again
            if queue not in self._unreadable:
                log.warning("budget.unreadable", extra={"queue": queue, "error": error})
        self._unreadable = set(released.unreadable)
        self._is_stuck = bool(self._unreadable) and not released.urls.total()
        return released.urls
