"""What must be known before a page is asked for: its origin's robots.txt, and the delay that its queue keeps.

A turn of a queue that has to read robots.txt first is spent on that; the claim goes back to the head of its lane.
"""

import logging
from collections.abc import Callable

from crawler.errors import EngineError
from crawler.frontier.frontier import Frontier, Settlement
from crawler.instance.clock import ENGINE_PAUSE_S, monotonic_ms
from crawler.instance.crash_points import reached
from crawler.instance.outcome import NotEntitledError
from crawler.instance.ownership import Ownership
from crawler.instance.robots import RobotsCache, RobotsEntry
from crawler.instance.workbench import Lane, Workbench
from crawler.model import Claim
from crawler.rules.politeness import TICK_MS, delay_ms, wait_ms
from crawler.rules.urls import origin_of
from crawler.settings import PolitenessSettings

log = logging.getLogger(__name__)

PAUSE_MS = int(ENGINE_PAUSE_S * 1000)


class Permits:
    """Asks robots.txt for a claim and stores its queue's delay; `before_send(url)` is called before each request."""

    def __init__(
        self,
        frontier: Frontier,
        ownership: Ownership,
        bench: Workbench,
        robots: RobotsCache,
        settings: PolitenessSettings,
        *,
        before_send: Callable[[str], None],
    ) -> None:
        self._frontier = frontier
        self._ownership = ownership
        self._bench = bench
        self._robots = robots
        self._before_send = before_send
        self._factor = settings.factor
        self._min_delay_ms = int(settings.delay_s * 1000)
        self._delay_max_ms = int(settings.delay_max_s * 1000)

    async def known(self, claim: Claim) -> RobotsEntry | None:
        """What some session has read for the claim's origin, if it still holds."""
        origin = origin_of(claim.url)
        return self._robots.known(origin) or await self._robots.shared(claim, origin)

    async def ask(self, lane: Lane, claim: Claim) -> RobotsEntry | None:
        """Spend this turn of the lane on robots.txt; None when nothing was sent. The turn is over in either case."""
        origin, sent = origin_of(claim.url), []

        def before_send() -> None:
            self._before_send(origin)
            sent.append(origin)

        try:
            entry, blob, fetch_ms = await self._robots.fetch(claim, origin, before_send)
        except (NotEntitledError, EngineError) as error:  # maybe only before the request that a redirect asked for
            log.warning("robots.not_read", extra={"origin": origin, "error": str(error)})
            self._bench.finished(lane, wait_ms=max(self._min_delay_ms, lane.delay_ms, PAUSE_MS), started=bool(sent))
            return None
        reached("robots.answered", origin)
        delay = self.delay_of(entry)
        if entry.rules is None:
            delay = max(delay, lane.delay_ms)  # what another origin of the queue has asked for still holds
        lane.delay_ms = max(delay, 0)
        wait = wait_ms(delay_ms=delay, factor=self._factor, fetch_ms=fetch_ms)
        self._bench.finished(lane, wait_ms=wait)
        await self._share(lane, claim, wait, delay, origin if blob else "", blob)
        return entry

    async def _share(self, lane: Lane, claim: Claim, wait: int, delay: int, origin: str, blob: bytes) -> None:
        """Book the request on its queue's clock, and let the others have what it brought."""
        fence = self._ownership.fence_of(claim.partition)
        if fence is None or not self._ownership.holds(claim):
            return
        try:
            settled = Settlement(next_fetch_ms=fence.now_ms + wait, delay_ms=delay)
            await self._frontier.pace(fence, claim.queue, settled, origin=origin, robots=blob)
        except EngineError as error:
            lane.delay_ms = -1  # not stored: the next turn does it, before any page is asked for
            log.warning("robots.not_shared", extra={"origin": origin, "error": str(error)})

    def delay_of(self, entry: RobotsEntry | None) -> int:
        """The delay that a queue keeps under this entry, ms."""
        return delay_ms(
            min_delay_ms=self._min_delay_ms,
            crawl_delay_s=entry.crawl_delay_s if entry else None,
            delay_max_ms=self._delay_max_ms,
        )

    async def learn_delay(self, lane: Lane, claim: Claim, entry: RobotsEntry | None) -> None:
        """The queue's delay is stored before its first page request, so that a new owner can keep it."""
        delay = self.delay_of(entry)
        if lane.delay_ms == delay:
            return
        fence = self._ownership.fence_of(claim.partition)
        if fence is not None:
            await self._frontier.pace(fence, claim.queue, Settlement(next_fetch_ms=0, delay_ms=delay))
        lane.delay_ms = delay
        if delay > 0:  # the turn was taken under another one: with several requests at a time the next may be near
            lane.next_ms = max(lane.next_ms, monotonic_ms() + delay + TICK_MS)
