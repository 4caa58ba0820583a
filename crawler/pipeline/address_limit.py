"""Requests open by server address, at most so many each. Many names may have one address: who comes too many waits.

A few claims wait in line at the bench. The queues of all others get a time to come again, one after the other as the
address can serve them: so a crowded address fills neither the line of claims in hand nor the time of the engine.
"""

import asyncio
from collections.abc import Callable
from functools import partial

import msgspec

from crawler.model import Claim
from crawler.pipeline.schedule import QueueSlot, Scheduler
from crawler.pipeline.turn import AwaitAddress, AwaitName, Requeue
from crawler.rules.politeness import share_of
from crawler.rules.urls import host_of
from crawler.runtime.clock import monotonic_ms
from crawler.web.fetcher import Fetcher

LINE_PER_REQUEST = 4  # claims that wait at hand, for each request that may be open
GUESS_MS = 100.0  # what a request takes, until one has ended
WEIGHT = 0.2  # of the last request in the mean
KEPT_MAX = 10_000  # addresses remembered although none of their requests is open


class Address(msgspec.Struct):
    """One server's: requests open, what they take on average, and up to when all its time is promised."""

    open: int = 0
    mean_ms: float = GUESS_MS
    promised_ms: float = 0.0


class AddressLimiter:
    """Who may go now, who waits, and who comes again. `sharers`: how many instances share the limit, this one too."""

    def __init__(self, scheduler: Scheduler, *, limit: int, sharers: Callable[[], int] = lambda: 1) -> None:
        self._scheduler = scheduler
        self._whole = self._limit = limit
        self._sharers = sharers
        self._known: dict[str, Address] = {}

    def enter(self, address: str) -> AwaitAddress | Requeue | None:
        """None when a request may be opened, which `left` must end; else how the turn ends."""
        self._follow()
        at = self._known.get(address)
        if at is None:
            at = self._known[address] = Address()
        if at.open < self._limit:
            at.open += 1
            return None
        waiting = self._scheduler.waiting_at(address)
        if waiting < LINE_PER_REQUEST * self._limit:
            return AwaitAddress(address)
        now_ms = monotonic_ms()
        each_ms = at.mean_ms / self._limit
        at.promised_ms = max(at.promised_ms, now_ms + waiting * each_ms) + each_ms
        return Requeue(wait_ms=int(at.promised_ms) - now_ms)

    def left(self, address: str, *, took_ms: int) -> None:
        """A request to this address has ended."""
        self._follow()
        at = self._known[address]
        at.open -= 1
        at.mean_ms += WEIGHT * (took_ms - at.mean_ms)
        if not at.open and (at.promised_ms <= monotonic_ms() or len(self._known) > KEPT_MAX):
            del self._known[address]
        if at.open < self._limit:  # a smaller share than before: who waits goes when enough have ended
            self._scheduler.wake_one(address)

    def _follow(self) -> None:
        """Instances come and go. Where the share has grown, as many more of those in line may go at once."""
        limit = share_of(self._whole, self._sharers())
        more, self._limit = limit - self._limit, limit
        for address in [*self._known] if more > 0 else ():
            for _ in range(more):
                self._scheduler.wake_one(address)


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
