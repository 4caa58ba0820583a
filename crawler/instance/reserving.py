"""Turns on the clocks of queues that this session does not own, or has no claim of: for robots.txt that redirect."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

from crawler.errors import EngineError
from crawler.frontier.frontier import Frontier
from crawler.frontier.guests import Guests, TurnRequest
from crawler.instance.clock import monotonic_ms
from crawler.instance.routing import Router
from crawler.model import Claim

PATIENCE_MS = 30_000
POLL_MS_MAX = 1_000


class Reserver:
    """Asks the engine for one request on the queue of a URL, whoever owns it."""

    def __init__(self, frontier: Frontier, router: Router) -> None:
        self._frontier = frontier
        self._guests = Guests(frontier.engine, frontier.keys, default_delay_ms=frontier.default_delay_ms)
        self._router = router
        self._serial = 0

    @contextlib.asynccontextmanager
    async def turn(self, url: str, claim: Claim) -> AsyncIterator[bool]:
        """A turn on the queue of `url`, for as long as the request in it lasts; False when none is to be had in time.

        The claim's own queue is held by its claim, so its turn is a wait of the default delay.
        """
        _, queue, partition = self._router.place(url)
        if queue == claim.queue:
            await asyncio.sleep(self._frontier.default_delay_ms / 1000)
            yield True
            return
        self._serial += 1
        guest = f"{self._frontier.session}-{self._serial}"
        if not await self._wait(partition, queue, guest):
            yield False
            return
        try:
            yield True
        finally:
            with contextlib.suppress(EngineError):
                await self._guests.visited(partition, queue, guest)

    async def _wait(self, partition: int, queue: str, guest: str) -> bool:
        """Ask until the turn is granted.

        What an answer says of the owner's clock was true before it came, and goes on as long as the owner is the same.
        """
        began_ms, epoch, clock_ms, mark, since_ms = monotonic_ms(), -1, 0, "", 0
        while (waited_ms := monotonic_ms() - began_ms) < PATIENCE_MS:
            asked = TurnRequest(
                guest=guest, now_ms=clock_ms + waited_ms, epoch=epoch, mark=mark, seen_ms=waited_ms - since_ms
            )
            reply = await self._guests.reserve(partition, queue, asked)
            if reply.wait_ms == 0:
                return True
            answered_ms = monotonic_ms() - began_ms
            if reply.mark != mark:
                mark, since_ms = reply.mark, answered_ms
            known_ms = reply.clock_ms - answered_ms
            epoch, clock_ms = reply.epoch, max(clock_ms, known_ms) if reply.epoch == epoch else known_ms
            await asyncio.sleep(min(reply.wait_ms, POLL_MS_MAX) / 1000)
        return False
