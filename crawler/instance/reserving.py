"""Turns on the clocks of queues that this session does not own, or has no claim of: for robots.txt that redirect."""

import asyncio

from crawler.frontier.frontier import Frontier
from crawler.instance.clock import monotonic_ms
from crawler.instance.routing import Router
from crawler.model import Claim

PATIENCE_MS = 30_000
POLL_MS_MAX = 1_000


class Reserver:
    """Asks the engine for one request on the queue of a URL, whoever owns it."""

    def __init__(self, frontier: Frontier, router: Router) -> None:
        self._frontier = frontier
        self._router = router

    async def reserve(self, url: str, claim: Claim) -> bool:
        """Wait for a turn on the queue of `url`; False when none is to be had in time.

        The claim's own queue is held by its claim, so its turn is a wait of the default delay.
        """
        _, queue, partition = self._router.place(url)
        if queue == claim.queue:
            await asyncio.sleep(self._frontier.default_delay_ms / 1000)
            return True
        began_ms, clock_ms = monotonic_ms(), 0
        while (waited_ms := monotonic_ms() - began_ms) < PATIENCE_MS:
            wait_ms, clock = await self._frontier.reserve(partition, queue, now_ms=clock_ms + waited_ms)
            if wait_ms == 0:
                return True
            clock_ms = max(clock_ms, clock - waited_ms)
            await asyncio.sleep(min(wait_ms, POLL_MS_MAX) / 1000)
        return False
