"""Usage of the crawl's quotas and limits: every instance sums it up twice a second. Quotas are not for runs of jobs.

No script sees more than one partition, so all instances together may exceed a quota by what is in flight
(docs/internals/decisions/quotas.md).
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable

from crawler.errors import EngineError
from crawler.frontier.messages import QuotaReached
from crawler.frontier.reads import Stats, Totals
from crawler.frontier.record import Crawls
from crawler.membership.ownership import HeldPartitions
from crawler.quotas.admit import QuotaAdmission
from crawler.runtime.clock import monotonic_ms, wall_s
from crawler.runtime.counters import Counters
from crawler.settings import Settings

log = logging.getLogger(__name__)

COUNT_EVERY_S = 0.5
POLL_S = 0.05


class QuotaUsage:
    """Updates what `counters` knows of other instances, and notices when the crawl's limits are reached.

    `limit`: "" until one is reached, "pages" for that of a run, "budget" for one that is stored in the engine.
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
        sharers: Callable[[], frozenset[str]] = frozenset,
        on_room: Callable[[], None] = lambda: None,
    ) -> None:
        """`wake`: called with a partition whose queues may be claimed now. `sharers`: the sessions that claim, as
        far as this one knows. `on_room`: called when more may be claimed.
        """
        self._sharers = sharers
        self._on_room = on_room
        self._stats = stats
        self._crawls = crawls
        self._urls = admission
        self._held = held
        self._counters = counters
        self._wake = wake
        self._budget = settings.budget
        self._pages_max = settings.crawl.pages_max
        self._is_needed = any((self._pages_max, self._urls.budget, *self._crawl_budgets.values()))
        self._is_shared = bool(self._pages_max or self._budget.crawl_pages)
        self.limit = ""
        counters.pages_max, counters.own_pages_max = self._pages_max, self._budget.crawl_pages
        counters.bytes_max = self._budget.crawl_bytes

    @property
    def _crawl_budgets(self) -> dict[str, int]:
        return {"crawl:pages": self._budget.crawl_pages, "crawl:bytes": self._budget.crawl_bytes}

    async def prepare(self) -> None:
        """Count before anything is claimed; a raised quota is no longer used up. Raises EngineError."""
        await self.count()
        self._is_needed = self._is_needed or self._urls.deferred > 0
        if self.limit != "budget":
            await self._crawls.note_quota_reached(None)

    async def run(self) -> None:
        """Count and release until cancelled."""
        while self._is_needed:
            await self._pause()
            with contextlib.suppress(EngineError):
                await self.count()
                await self._release_deferred()
        await asyncio.Event().wait()

    async def _pause(self) -> None:
        """Wait until the next count; less when a limit seems to be reached."""
        for _ in range(int(COUNT_EVERY_S / POLL_S)):
            await asyncio.sleep(POLL_S)
            if self._counters.is_limit_near and not self.limit:
                return

    async def count(self) -> None:
        """Read the crawl's totals. Raises EngineError.

        None of our acks may be in flight meanwhile: it would be counted as another instance's.
        """
        async with self._counters.acking:
            admitted, counters = self._urls.admitted, self._counters
            ever, counted_s, sharers = counters.ever, wall_s(), self._sharers()
            # A session without partitions may not be known to those that have them: they claim as if it was not there.
            counters.counted_for = sharers if len(self._held) else frozenset()
            claimed = await self._claimed()  # first: a claim that ends meanwhile counts twice, and not never
            totals = await self._stats.totals()
            counters.committed_before = totals.fetched - counters.committed
            counters.own_committed_before = totals.own_fetched - counters.own_committed
            counters.own_bytes_before = totals.own_bytes - counters.own_bytes
            limits = (self._pages_max, totals.fetched), (self._budget.crawl_pages, totals.own_fetched)
            left = min((limit - fetched for limit, fetched in limits if limit), default=0)
            counters.pages_room, counters.claimed_before = max(0, left - claimed), ever
            counters.counted_s, counters.counted_ms = counted_s, monotonic_ms()
        if counters.pages_room:
            self._on_room()
        self._urls.update(total=totals.own_taken_in, deferred=totals.beyond, admitted=admitted)
        if not self.limit:
            self.limit = await self._reached(totals)

    async def _claimed(self) -> int:
        """The open claims of all instances, where these share a limit of pages."""
        claims = self._counters.open_claims
        if not self._is_shared or len(self._sharers()) <= 1:
            return claims.total if self._pages_max else claims.own
        return await self._stats.claimed()

    async def _reached(self, totals: Totals) -> str:
        used = {"crawl:pages": totals.own_fetched, "crawl:bytes": totals.own_bytes}
        for reason, budget in self._crawl_budgets.items():
            if 0 < budget <= used[reason]:
                await self._crawls.note_quota_reached(QuotaReached(reason=reason, budget=budget))
                return "budget"
        return "pages" if 0 < self._pages_max <= totals.fetched else ""

    async def has_more(self) -> bool:
        """Is there room for deferred URLs, so that an instance will release them? Raises EngineError."""
        if not self._is_needed:
            return False
        await self.count()
        return await self._urls.has_more()

    async def _release_deferred(self) -> None:
        if self.limit:
            return
        for partition in await self._urls.release_deferred(self._held):
            self._wake(partition)
