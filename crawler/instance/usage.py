"""Usage of the crawl's budgets and limits: every instance sums it up twice a second. Budgets are not for runs of jobs.

No script sees more than one partition, so all instances together may exceed a budget by what is in flight
(docs/internals/decisions/budgets.md).
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Collection

import msgspec

from crawler.errors import EngineError
from crawler.frontier.messages import BudgetReached
from crawler.frontier.record import Crawls
from crawler.frontier.stats import Stats, Totals
from crawler.instance.crawl_budget import BudgetAdmission
from crawler.membership.peers import Peers
from crawler.rules.remaining import share_of
from crawler.runtime.clocks import monotonic_ms, wall_s
from crawler.runtime.tasks import Gate, open_gate
from crawler.runtime.ticks import tick
from crawler.settings import Settings
from crawler.worker.counters import Counters
from crawler.worker.work import CLAIMS_MIN, Work

log = logging.getLogger(__name__)


# A share of a small room is used at once or not at all, in less than half of the time between two counts: so who counts
# again knows what the others did with theirs.
SHARE_VALID_MS = 200
COUNT_EVERY_S = 0.5
POLL_S = 0.05
# An owner that began without budgets, and without deferred URLs, does not count: then others release for it.
UNRELEASED_MS = 5_000


class RoomShare(msgspec.Struct, frozen=True):
    """The part of this session in a room that several sessions claim from; None: nobody else does."""

    session: str
    peers: Peers
    counters: Counters

    def pages_left(self) -> int | None:
        """As `Counters.pages_left`."""
        return self.counters.pages_left(self.of)

    def of(self, room: int, counted_s: float) -> int | None:
        """`counted_s`: when the room was counted (wall clock, s)."""
        peers, counters = self.peers, self.counters
        if peers.taking <= {self.session}:
            return None
        is_stale = monotonic_ms() - counters.counted_ms > SHARE_VALID_MS and room < CLAIMS_MIN * len(peers.taking)
        if is_stale or peers.taking != counters.counted_for:
            return 0  # until the next count: others may have claimed by shares of the same room
        return share_of(room, peers.taking, self.session, counted_s=counted_s, now_s=wall_s())


class BudgetUsage:
    """Updates what `counters` knows of other instances, and notices when the crawl's limits are reached.

    `is_needed`: is there a limit, or may deferred URLs be released? `limit`: "" until one is reached, "pages" for that
    of a run, "budget" for one that is stored in the engine.
    """

    def __init__(
        self,
        stats: Stats,
        crawls: Crawls,
        admission: BudgetAdmission,
        work: Work,
        settings: Settings,
        *,
        sharers: Callable[[], frozenset[str]] = frozenset,
        pause: Gate = open_gate,
    ) -> None:
        """`sharers`: the sessions that claim, as far as this one knows. `pause`: awaited before each count."""
        self._gate = pause
        self._sharers = sharers
        self._work = work
        self._stats = stats
        self._crawls = crawls
        self._urls = admission
        self._budget = settings.budget
        self._pages_max = settings.crawl.pages_max
        self.is_needed = any((self._pages_max, self._urls.budget, *self._crawl_budgets.values()))
        self._is_shared = bool(self._pages_max or self._budget.crawl_pages)
        self.limit = ""
        self._asked_ms = self._more_since_ms = 0  # as of `has_more`
        counters = work.counters
        counters.pages_max, counters.own_pages_max = self._pages_max, self._budget.crawl_pages
        counters.bytes_max = self._budget.crawl_bytes

    @property
    def _crawl_budgets(self) -> dict[str, int]:
        return {"crawl:pages": self._budget.crawl_pages, "crawl:bytes": self._budget.crawl_bytes}

    async def prepare(self) -> None:
        """Count before anything is claimed; a raised budget is no longer used up. Raises EngineError."""
        await self.count()
        self.is_needed = self.is_needed or self._urls.deferred > 0
        if self.limit != "budget":
            await self._crawls.note_budget_reached(None)

    async def run(self) -> None:
        """Count and release until cancelled."""
        while self.is_needed:
            await self._pause()
            await self._gate()
            with contextlib.suppress(EngineError):
                await self.count()
                await self._release_deferred(self._work.held)
        await asyncio.Event().wait()

    async def _pause(self) -> None:
        """Wait until the next count; less when a limit seems to be reached."""
        claims = self._work.open_claims
        if not claims.total:
            await tick(COUNT_EVERY_S, claims.some)
            if not claims.total:
                return
        for _ in range(int(COUNT_EVERY_S / POLL_S)):
            await asyncio.sleep(POLL_S)
            if self._work.counters.is_limit_near and not self.limit:
                return

    async def count(self) -> None:
        """Read the crawl's totals. Raises EngineError.

        None of our acks may be in flight meanwhile: it would be counted as another instance's.
        """
        async with self._work.counters.acking:
            admitted, counters = self._urls.admitted, self._work.counters
            ever, counted_s, sharers = counters.ever, wall_s(), self._sharers()
            # A session without partitions may not be known to those that have them: they claim as if it was not there.
            counters.counted_for = sharers if len(self._work.held) else frozenset()
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
            self._work.due.room_changed()
        self._urls.update(total=totals.own_taken_in, deferred=totals.beyond, admitted=admitted)
        if not self.limit:
            self.limit = await self._reached(totals)

    async def _claimed(self) -> int:
        """The open claims of all instances, where these share a limit of pages."""
        claims = self._work.counters.open_claims
        if not self._is_shared or len(self._sharers()) <= 1:
            return claims.total if self._pages_max else claims.own
        return await self._stats.claimed()

    async def _reached(self, totals: Totals) -> str:
        used = {"crawl:pages": totals.own_fetched, "crawl:bytes": totals.own_bytes}
        for reason, budget in self._crawl_budgets.items():
            if 0 < budget <= used[reason]:
                await self._crawls.note_budget_reached(BudgetReached(reason=reason, budget=budget))
                return "budget"
        return "pages" if 0 < self._pages_max <= totals.fetched else ""

    async def has_more(self) -> bool:
        """Is there room for deferred URLs, so that an instance will release them? Raises EngineError."""
        if not self.is_needed:
            return False
        await self.count()
        has_more, now_ms = await self._urls.has_more(), monotonic_ms()
        if not has_more or now_ms - self._asked_ms > UNRELEASED_MS:
            self._more_since_ms = now_ms
        self._asked_ms = now_ms
        if now_ms - self._more_since_ms > UNRELEASED_MS:
            await self._release_deferred(range(self._urls.partitions))
        return has_more

    async def _release_deferred(self, partitions: Collection[int]) -> None:
        if self.limit:
            return
        for partition in await self._urls.release_deferred(partitions):
            self._work.due.hint(partition)
