"""What must be known before a page is asked for: its origin's robots.txt, and the delay that its queue keeps.

A turn of a queue that has to read robots.txt first is spent on that; the claim goes back to the head of its lane.
"""

import logging
from collections.abc import Callable, Sequence

from crawler.errors import EngineError
from crawler.frontier.frontier import Frontier, Settlement
from crawler.frontier.overrides import Orders
from crawler.membership.ownership import Ownership
from crawler.model import Claim
from crawler.pipeline.outcome import NotEntitledError
from crawler.pipeline.response_policy import Aftermath
from crawler.pipeline.schedule import Lane
from crawler.pipeline.turn import Requeue, Turn
from crawler.robots.cache import RobotsCache, RobotsEntry
from crawler.robots.reader import RobotsReader
from crawler.rules.politeness import TICK_MS, delay_ms
from crawler.rules.site_rules import of_queues
from crawler.rules.urls import origin_of
from crawler.runtime.clock import ENGINE_PAUSE_S, monotonic_ms
from crawler.runtime.crash_points import reached
from crawler.settings import PolitenessSettings, SiteSettings

log = logging.getLogger(__name__)

PAUSE_MS = int(ENGINE_PAUSE_S * 1000)


class Permits:
    """Asks robots.txt for a claim and stores its queue's delay; `before_send(claim, url)` is called first."""

    def __init__(
        self,
        frontier: Frontier,
        ownership: Ownership,
        robots: RobotsCache,
        reader: RobotsReader,
        aftermath: Aftermath,
        settings: PolitenessSettings,
        *,
        before_send: Callable[[Claim, str], None],
        orders: Callable[[], Orders],
        sites: Sequence[SiteSettings] = (),
    ) -> None:
        self._frontier = frontier
        self._ownership = ownership
        self._robots = robots
        self._reader = reader
        self._before_send = before_send
        self._orders = orders
        self._aftermath = aftermath
        self._min_delay_ms = int(settings.delay_s * 1000)
        self._own_delay_s = of_queues(sites, "delay_s")
        self._delay_max_ms = int(settings.delay_max_s * 1000)

    async def known(self, lane: Lane, claim: Claim) -> RobotsEntry | None:
        """What some session has read for the claim's origin, if it still holds."""
        origin = origin_of(claim.url)
        found = self._robots.known(origin)
        if found is None and lane.delay_ms >= 0:  # the delay is stored with the first robots.txt of a queue
            found = await self._robots.shared(claim.partition, origin)
        return found

    async def ask(self, turn: Turn) -> RobotsEntry | Requeue:
        """Spend this turn on robots.txt: what was read, or how the turn ends, when it takes another one."""
        lane, claim = turn.lane, turn.claim
        origin, sent = origin_of(claim.url), []

        def before_send() -> None:
            self._before_send(claim, origin)
            sent.append(origin)

        try:
            reading = await self._reader.turn(claim, origin, before_send, working=turn.mark)
        except (NotEntitledError, EngineError) as error:  # maybe only after a request elsewhere
            log.warning("robots.not_read", extra={"origin": origin, "error": str(error)})
            wait = max(self._min_delay_ms, lane.delay_ms, PAUSE_MS) if sent else 0
            return Requeue(wait_ms=wait, started=bool(sent), at_tail=True)
        entry = reading.entry
        if entry is None and not reading.is_asked:  # no turn yet where its redirect leads
            return Requeue(wait_ms=reading.wait_ms, at_tail=True)
        reached("robots.answered", origin)
        learned = -1
        delay = max(self._min_delay_ms, lane.delay_ms)  # another origin of the queue may have asked for more
        if entry is not None and entry.rules is not None:
            learned = delay = lane.delay_ms = self.delay_of(claim, entry)
        wait = self._aftermath.of_robots(lane, reading, delay_ms=delay)
        turn.request_over(wait_ms=wait)
        await self._share(lane, claim, (wait, learned), origin if reading.blob else "", reading.blob)
        return Requeue(at_tail=True) if entry is None else entry  # others of its queue needn't wait for the same

    async def _share(self, lane: Lane, claim: Claim, settled: tuple[int, int], origin: str, blob: bytes) -> None:
        """Book the request on its queue's clock, and let the others have what it brought. `settled`: wait, delay (ms;
        -1: not known yet).
        """
        fence = self._ownership.fence_of(claim.partition)
        if fence is None or not self._ownership.holds(claim):
            return
        wait, delay = settled
        try:
            settlement = Settlement(next_fetch_ms=fence.now_ms + wait, delay_ms=delay)
            await self._frontier.pace(fence, claim.queue, settlement, origin=origin, robots=blob)
        except EngineError as error:
            lane.delay_ms = -1  # not stored: the next turn does it, before any page is asked for
            log.warning("robots.not_shared", extra={"origin": origin, "error": str(error)})

    def delay_of(self, claim: Claim, entry: RobotsEntry | None) -> int:
        """The delay that a claim's queue keeps under this entry, ms: the longest of what the settings say for all, what
        they say for this queue, and what robots.txt asks for. An operator's word is the last.
        """
        ordered_ms = self._orders().delays_ms.get(claim.domain)
        if ordered_ms is not None:
            return ordered_ms
        return delay_ms(
            min_delay_ms=max(self._min_delay_ms, int((self._own_delay_s(claim.queue) or 0) * 1000)),
            crawl_delay_s=entry.crawl_delay_s if entry else None,
            delay_max_ms=self._delay_max_ms,
        )

    async def learn_delay(self, turn: Turn, entry: RobotsEntry | None) -> Requeue | None:
        """The queue's delay is stored before its first page request, so that a new owner can keep it.

        A Requeue when it is longer than what the turn was taken under: a request for another origin's robots.txt may
        have been made in a borrowed slot not so long ago.
        """
        lane, claim = turn.lane, turn.claim
        delay, known = self.delay_of(claim, entry), lane.delay_ms
        if known == delay:
            return None
        wait = delay + TICK_MS if delay > max(known, self._min_delay_ms) else 0
        fence = self._ownership.fence_of(claim.partition)
        if fence is not None:
            next_ms = fence.now_ms + wait if wait else 0
            await self._frontier.pace(fence, claim.queue, Settlement(next_fetch_ms=next_ms, delay_ms=delay))
        lane.delay_ms = delay
        if wait:
            return Requeue(wait_ms=wait, started=True)
        if delay > 0:  # with several requests at a time the next may be near
            lane.next_ms = max(lane.next_ms, monotonic_ms() + delay + TICK_MS)
        return None
