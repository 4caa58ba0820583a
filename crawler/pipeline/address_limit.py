"""Addresses of requests: a name is looked up without a worker waiting, and each address has few open requests.

Many hosts may share one address. At a full address, a few claims wait in memory. The queues of all others get a time to
come again, one after the other as the address can serve them: so a busy address fills neither the memory for claims
nor the engine's time. A name may take seconds to look up: its queue stands still meanwhile, as during a request, and
then the claim is back at the head of its queue.
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

LINE_PER_REQUEST = 4  # claims that wait in memory, for each request that may be open
GUESS_MS = 100.0  # assumed duration of a request until one has ended
WEIGHT = 0.2  # of the last request in the mean
KEPT_MAX = 10_000  # addresses remembered although none of their requests is open


class Address(msgspec.Struct):
    """State of one address: open requests, their mean duration, and the time up to which all slots are promised."""

    open: int = 0
    mean_ms: float = GUESS_MS
    promised_ms: float = 0.0


class AddressLimiter:
    """Admits requests, lets claims wait or requeues them. `sharers`: number of instances that share the limit."""

    def __init__(self, scheduler: Scheduler, *, limit: int, sharers: Callable[[], int] = lambda: 1) -> None:
        self._scheduler = scheduler
        self._whole = self._limit = limit
        self._sharers = sharers
        self._known: dict[str, Address] = {}

    def enter(self, address: str) -> AwaitAddress | Requeue | None:
        """None when a request may be opened, which `left` must end; otherwise how the turn ends."""
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
        if at.open < self._limit:  # not so after the share has shrunk, until enough requests have ended
            self._scheduler.wake_one(address)

    def _follow(self) -> None:
        """Follow the number of instances. When the share has grown, wake as many waiting claims."""
        limit = share_of(self._whole, self._sharers())
        more, self._limit = limit - self._limit, limit
        for address in [*self._known] if more > 0 else ():
            for _ in range(more):
                self._scheduler.wake_one(address)


class NameLookups:
    """The running look-ups; at most one for each request that a queue allows at a time."""

    def __init__(self, fetcher: Fetcher) -> None:
        self._fetcher = fetcher
        self._running: dict[asyncio.Task[str], Claim] = {}

    async def address_of(self, slot: QueueSlot, claim: Claim) -> str | AwaitName:
        """The address for a claim, or the end of its turn: the claim is requeued when its name has been looked up."""
        known = self._fetcher.known_address_of(claim.url)
        if known is not None:
            return known
        if slot.looked_up == host_of(claim.url):
            slot.looked_up = ""
            return await self._fetcher.address_of(claim.url)  # an answer that may not be cached, or an error of ours
        return AwaitName(partial(self._look_up, slot, claim))

    def _look_up(self, slot: QueueSlot, claim: Claim, requeue: Callable[[], None]) -> None:
        task = asyncio.create_task(self._fetcher.address_of(claim.url), name="look-up")
        self._running[task] = claim
        task.add_done_callback(partial(self._answered, slot, claim, requeue))

    def _answered(self, slot: QueueSlot, claim: Claim, requeue: Callable[[], None], task: asyncio.Task[str]) -> None:
        self._running.pop(task, None)
        if task.cancelled():
            return
        task.exception()  # retrieved only: the same error is raised again in the claim's turn, where it counts
        slot.looked_up = host_of(claim.url)
        requeue()

    async def close(self) -> list[Claim]:
        """Cancel all look-ups; the claims that waited for them, without those that have just been requeued."""
        running = dict(self._running)
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        return [claim for task, claim in running.items() if task.cancelled()]
