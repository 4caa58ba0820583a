"""Where requests will go to. A name may take seconds to look up: its queue waits for that, no worker does.

While the look-up runs the queue stands still, as during a request; then the claim is back at the head of its lane.
"""

import asyncio
from collections.abc import Callable
from functools import partial

from crawler.model import Claim
from crawler.pipeline.schedule import QueueSlot
from crawler.pipeline.turn import AwaitName
from crawler.rules.urls import host_of
from crawler.web.fetcher import Fetcher


class NameLookups:
    """The look-ups that run for claims whose turn it was; at most one for each turn that a queue allows at a time."""

    def __init__(self, fetcher: Fetcher) -> None:
        self._fetcher = fetcher
        self._running: dict[asyncio.Task[str], Claim] = {}

    async def address_of(self, slot: QueueSlot, claim: Claim) -> str | AwaitName:
        """The address for a claim, or the end of its turn: the claim comes back when its name was looked up."""
        known = self._fetcher.known_address_of(claim.url)
        if known is not None:
            return known
        if slot.looked_up == host_of(claim.url):
            slot.looked_up = ""
            return await self._fetcher.address_of(claim.url)  # an answer that may not be kept, or an error of ours
        return AwaitName(partial(self._look_up, slot, claim))

    def _look_up(self, slot: QueueSlot, claim: Claim, come_back: Callable[[], None]) -> None:
        task = asyncio.create_task(self._fetcher.address_of(claim.url), name="look-up")
        self._running[task] = claim
        task.add_done_callback(partial(self._answered, slot, claim, come_back))

    def _answered(self, slot: QueueSlot, claim: Claim, come_back: Callable[[], None], task: asyncio.Task[str]) -> None:
        self._running.pop(task, None)
        if task.cancelled():
            return
        task.exception()  # an error is met again in the claim's turn, where it counts
        slot.looked_up = host_of(claim.url)
        come_back()

    async def close(self) -> list[Claim]:
        """End all look-ups; the claims that waited for them."""
        waiting, tasks = list(self._running.values()), list(self._running)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        return waiting
