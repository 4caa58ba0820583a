"""Requests open by server address, at most so many each. Many names may have one address: who comes too many waits.

A few claims wait in line at the bench. The queues of all others get a time to come again, one after the other as the
address can serve them: so a crowded address fills neither the line of claims in hand nor the time of the engine.
"""

from collections.abc import Callable

import msgspec

from crawler.pipeline.schedule import Scheduler
from crawler.pipeline.turn import AwaitAddress, Requeue
from crawler.rules.politeness import share_of
from crawler.runtime.clock import monotonic_ms

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
