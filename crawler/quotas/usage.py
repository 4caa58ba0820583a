"""What of the whole crawl's budgets and limits is used up: asked of the engine twice a second, by every instance.

No script sees more than one partition, so all instances together may pass a budget by what is under way
(docs/decisions/0025-a-crawls-budgets-stop-claims-not-queues.md).
"""

import asyncio
import contextlib
import logging

from crawler.app.parts import Parts
from crawler.errors import EngineError
from crawler.frontier.budgets import Spent
from crawler.frontier.stats import Totals
from crawler.membership.ownership import Ownership
from crawler.membership.peers import Neighbours
from crawler.pipeline.claim import Claimer
from crawler.pipeline.router import Router
from crawler.quotas.admit import TakingIn
from crawler.quotas.distribute import Sharing
from crawler.runtime.counters import Flow
from crawler.settings import Settings

log = logging.getLogger(__name__)

COUNT_EVERY_S = 0.5
GLANCE_S = 0.05


class Spending:
    """Keeps what `flow` knows of other instances, and says when the crawl's limits are reached.

    `limit`: "" until one is reached, "pages" for that of a run, "budget" for what outlasts it and stands in the engine.
    """

    def __init__(
        self,
        parts: Parts,
        ownership: Ownership,
        neighbours: Neighbours,
        claimer: Claimer,
        flow: Flow,
        settings: Settings,
    ) -> None:
        self._stats = parts.stats
        self._crawls = parts.crawls
        self._ownership = ownership
        self._claimer = claimer
        self._flow = flow
        self._budget = settings.budget
        self._pages_max = settings.crawl.pages_max
        parking, partitions = parts.operator.parking, parts.record.partitions
        self._urls = TakingIn(self._budget.crawl_urls, Sharing(parking, partitions))
        self._is_needed = any((self._pages_max, self._urls.budget, *self._spendable.values()))
        self._neighbours = neighbours
        self.limit = ""
        flow.pages_max = min(filter(None, (self._pages_max, self._budget.crawl_pages)), default=0)
        flow.bytes_max = self._budget.crawl_bytes

    @property
    def _spendable(self) -> dict[str, int]:
        return {"crawl:pages": self._budget.crawl_pages, "crawl:bytes": self._budget.crawl_bytes}

    async def begin(self) -> None:
        """Before anything is claimed; a budget that was raised is not used up any more. Raises EngineError."""
        await self.count()
        self._is_needed = self._is_needed or self._urls.parked > 0
        if self.limit != "budget":
            await self._crawls.note_spent(None)

    async def run(self) -> None:
        """Follow what others do, for as long as the instance lives."""
        while self._is_needed:
            await self._pause()
            with contextlib.suppress(EngineError):
                await self.count()
                await self._take_up()
        await asyncio.Event().wait()

    async def _pause(self) -> None:
        """Shorter where a limit seems to be reached."""
        for _ in range(int(COUNT_EVERY_S / GLANCE_S)):
            await asyncio.sleep(GLANCE_S)
            if self._flow.is_limit_near and not self.limit:
                return

    async def count(self) -> None:
        """Ask for the crawl's totals. Raises EngineError.

        No ack of ours is under way meanwhile: it would be taken for another's.
        """
        async with self._flow.acking:
            asked = self._urls.asked
            totals = await self._stats.totals()
            self._flow.committed_before = totals.fetched - self._flow.committed
            self._flow.bytes_before = totals.bytes - self._flow.bytes
        self._urls.counted(taken_in=totals.taken_in, parked=totals.beyond, asked=asked)
        if not self.limit:
            self.limit = await self._reached(totals)

    async def _reached(self, totals: Totals) -> str:
        used = {"crawl:pages": totals.fetched, "crawl:bytes": totals.bytes}
        for reason, budget in self._spendable.items():
            if 0 < budget <= used[reason]:
                await self._crawls.note_spent(Spent(reason=reason, budget=budget))
                return "budget"
        return "pages" if 0 < self._pages_max <= totals.fetched else ""

    # --- what is taken in ---

    def bound(self, router: Router) -> None:
        """Have it ask before it takes in a URL."""
        router.takes_in = self.takes_in

    def takes_in(self) -> bool:
        """May one more URL be let in? What may not is parked: `run` takes it up."""
        return self._urls.lets_in(len(self._neighbours.alive))

    async def has_more(self) -> bool:
        """Is there room for URLs that are parked, so that somebody will release them? Raises EngineError."""
        if not self._is_needed:
            return False
        await self.count()
        return await self._urls.has_more()

    async def _take_up(self) -> None:
        if self.limit:
            return
        for partition in await self._urls.take_up(self._ownership.held):
            self._claimer.hint(partition)
