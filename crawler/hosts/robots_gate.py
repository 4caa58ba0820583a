"""The robots gate: whether a URL may be fetched, and with which delay between requests of its queue."""

import logging
from collections import OrderedDict
from collections.abc import Callable, Sequence

from crawler.errors import EngineError
from crawler.frontier.operator import Overrides
from crawler.frontier.owner import Frontier, Settlement
from crawler.hosts.robots_cache import RobotsCache, RobotsEntry
from crawler.hosts.robots_reader import RobotsReader, RobotsResult, Working
from crawler.membership.held import HeldPartitions
from crawler.model import REQUISITE, Claim
from crawler.rules.pace import delay_ms
from crawler.rules.sites import of_queues
from crawler.rules.urls import join, origin_of
from crawler.settings import PolitenessSettings, SiteSettings

log = logging.getLogger(__name__)
ANNOUNCED_MAX = 10_000  # origins; what is forgotten is announced again, and known to the engine


class RobotsGate:
    """Reads, caches and shares robots.txt; stores the delays of queues."""

    def __init__(
        self,
        frontier: Frontier,
        held: HeldPartitions,
        cache: RobotsCache,
        reader: RobotsReader,
        settings: PolitenessSettings,
        *,
        overrides: Callable[[], Overrides],
        sites: Sequence[SiteSettings] = (),
        reads_sitemaps: bool = False,
    ) -> None:
        """`reads_sitemaps`: are those that robots.txt names a part of the crawl?"""
        self._frontier = frontier
        self._held = held
        self._cache = cache
        self._reader = reader
        self._overrides = overrides
        self.min_delay_ms = int(settings.delay_s * 1000)
        self._own_delay_s = of_queues(sites, "delay_s")
        self._delay_max_ms = int(settings.delay_max_s * 1000)
        self._reads_sitemaps = reads_sitemaps
        self._announced: OrderedDict[str, None] = OrderedDict()  # origins whose sitemaps are in the frontier

    async def known(self, claim: Claim, *, is_delay_known: bool) -> RobotsEntry | None:
        """The valid entry of the claim's origin, read here or by another session. Raises EngineError.

        `is_delay_known`: is the queue's delay known? It is stored with the queue's first robots.txt; without it, there
        is nothing to look up.
        """
        origin = origin_of(claim.url)
        found = self._cache.known(origin)
        if found is None and is_delay_known:
            found = await self._cache.shared(claim.partition, origin)
        return found

    def allows(self, url: str) -> bool:
        """Does the cached robots.txt allow this URL? False when none is cached."""
        entry = self._cache.known(origin_of(url))
        return entry is not None and entry.rules is not None and entry.rules.allows(url)

    def sitemaps(self, claim: Claim) -> list[str]:
        """What the robots.txt of the claim's origin names, until a page has brought it into the frontier. Not for runs,
        which would fetch the whole site each time: a job says which sitemap it reads.
        """
        origin = origin_of(claim.url)
        if not self._reads_sitemaps or claim.run or claim.label == REQUISITE or origin in self._announced:
            return []
        entry = self._cache.known(origin)
        if entry is None or entry.rules is None or not entry.rules.sitemaps:
            return []
        named = (join(f"{origin}/", value) for value in entry.rules.sitemaps)
        return list(dict.fromkeys(url for url in named if url))

    def announced(self, claim: Claim) -> None:
        """The claim's page was committed with the sitemaps of its origin."""
        self._announced[origin_of(claim.url)] = None
        if len(self._announced) > ANNOUNCED_MAX:
            self._announced.popitem(last=False)

    async def read(self, claim: Claim, before_send: Callable[[], None], *, working: Working) -> RobotsResult:
        """Use a turn of the claim's queue to read robots.txt of its origin. Raises EngineError, and what `before_send`
        raises just before a request.
        """
        return await self._reader.read(claim.queue, origin_of(claim.url), before_send, working=working)

    async def read_tdmrep(
        self, entry: RobotsEntry, claim: Claim, before_send: Callable[[], None], *, working: Working
    ) -> RobotsResult:
        """The same for tdmrep.json, once `entry` has the rules of the origin."""
        return await self._reader.read_tdmrep(origin_of(claim.url), entry, before_send, working=working)

    async def share(self, claim: Claim, result: RobotsResult, *, wait_ms: int, delay_ms: int) -> bool:
        """Move the queue's clock after the request, and share its result; False when the engine did not answer.

        `delay_ms`: -1 when it is not known yet.
        """
        fence = self._held.fence_of(claim.partition)
        if fence is None or not self._held.holds(claim):
            return True
        origin = origin_of(claim.url)
        settlement = Settlement(next_fetch_ms=fence.now_ms + wait_ms, delay_ms=delay_ms)
        try:
            shared = origin if result.blob else ""
            await self._frontier.book_request(fence, claim.queue, settlement, origin=shared, robots=result.blob)
        except EngineError as error:
            log.warning("robots.not_shared", extra={"origin": origin, "error": str(error)})
            return False
        return True

    def delay_of(self, claim: Claim, entry: RobotsEntry | None) -> int:
        """The delay of a claim's queue under this entry, ms: the maximum of the general setting, the site's setting and
        the Crawl-delay. An operator's override replaces all three.
        """
        ordered_ms = self._overrides().delays_ms.get(claim.domain)
        if ordered_ms is not None:
            return ordered_ms
        return delay_ms(
            min_delay_ms=max(self.min_delay_ms, int((self._own_delay_s(claim.queue) or 0) * 1000)),
            crawl_delay_s=entry.crawl_delay_s if entry else None,
            delay_max_ms=self._delay_max_ms,
        )

    async def store_delay(self, claim: Claim, delay_ms: int, *, wait_ms: int) -> None:
        """Store a queue's delay for its next owner; the queue waits `wait_ms` from now. Raises EngineError."""
        fence = self._held.fence_of(claim.partition)
        if fence is not None:
            next_ms = fence.now_ms + wait_ms if wait_ms else 0
            await self._frontier.book_request(fence, claim.queue, Settlement(next_fetch_ms=next_ms, delay_ms=delay_ms))
