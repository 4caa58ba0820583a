"""What of the whole crawl's budgets and limits is used up: asked of the engine twice a second, by every instance.

No script sees more than one partition, so all instances together may pass a budget by what is under way
(docs/internals/decisions/quotas.md).
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable

from crawler.errors import EngineError
from crawler.frontier.budgets import QuotaReached
from crawler.frontier.crawl_record import Crawls
from crawler.frontier.stats import Stats, Totals
from crawler.membership.held_partitions import HeldPartitions
from crawler.quotas.admit import QuotaAdmission
from crawler.runtime.counters import Counters
from crawler.settings import Settings

log = logging.getLogger(__name__)

COUNT_EVERY_S = 0.5
GLANCE_S = 0.05


class QuotaUsage:
    """Keeps what `counters` knows of other instances, and says when the crawl's limits are reached.

    `limit`: "" until one is reached, "pages" for that of a run, "budget" for what outlasts it and stands in the engine.
    """

    def __init__(
        self,
        stats: Stats,
        crawls: Crawls,
        admission: QuotaAdmission,
        held: HeldPartitions,
        counters: Counters,
        settings: Settings,
        *,
        wake: Callable[[int], None],
    ) -> None:
        """`wake`: queues of this partition may be claimed from now."""
        self._stats = stats
        self._crawls = crawls
        self._urls = admission
        self._held = held
        self._counters = counters
        self._wake = wake
        self._budget = settings.budget
        self._pages_max = settings.crawl.pages_max
        self._is_needed = any((self._pages_max, self._urls.budget, *self._spendable.values()))
        self.limit = ""
        counters.pages_max = min(filter(None, (self._pages_max, self._budget.crawl_pages)), default=0)
        counters.bytes_max = self._budget.crawl_bytes

    @property
    def _spendable(self) -> dict[str, int]:
        return {"crawl:pages": self._budget.crawl_pages, "crawl:bytes": self._budget.crawl_bytes}

    async def prepare(self) -> None:
        """Before anything is claimed; a budget that was raised is not used up any more. Raises EngineError."""
        await self.count()
        self._is_needed = self._is_needed or self._urls.deferred > 0
        if self.limit != "budget":
            await self._crawls.note_quota_reached(None)

    async def run(self) -> None:
        """Follow what others do, for as long as the instance lives."""
        while self._is_needed:
            await self._pause()
            with contextlib.suppress(EngineError):
                await self.count()
                await self._release_deferred()
        await asyncio.Event().wait()

    async def _pause(self) -> None:
        """Shorter where a limit seems to be reached."""
        for _ in range(int(COUNT_EVERY_S / GLANCE_S)):
            await asyncio.sleep(GLANCE_S)
            if self._counters.is_limit_near and not self.limit:
                return

    async def count(self) -> None:
        """Ask for the crawl's totals. Raises EngineError.

        No ack of ours is under way meanwhile: it would be taken for another's.
        """
        async with self._counters.acking:
            asked = self._urls.admitted
            totals = await self._stats.totals()
            self._counters.committed_before = totals.fetched - self._counters.committed
            self._counters.bytes_before = totals.bytes - self._counters.bytes
        self._urls.update(taken_in=totals.taken_in, deferred=totals.beyond, asked=asked)
        if not self.limit:
            self.limit = await self._reached(totals)

    async def _reached(self, totals: Totals) -> str:
        used = {"crawl:pages": totals.fetched, "crawl:bytes": totals.bytes}
        for reason, budget in self._spendable.items():
            if 0 < budget <= used[reason]:
                await self._crawls.note_quota_reached(QuotaReached(reason=reason, budget=budget))
                return "budget"
        return "pages" if 0 < self._pages_max <= totals.fetched else ""

    async def has_more(self) -> bool:
        """Is there room for URLs that are parked, so that somebody will release them? Raises EngineError."""
        if not self._is_needed:
            return False
        await self.count()
        return await self._urls.has_more()

    async def _release_deferred(self) -> None:
        if self.limit:
            return
        for partition in await self._urls.release_deferred(self._held):
            self._wake(partition)
