"""The share of the workers for origins that are slow, or were silent."""

from collections import OrderedDict
from typing import TypeVar

from crawler.runtime.clocks import monotonic_ms
from crawler.worker.address_limit import MAKE_WAY_MS, SLOW_SHARE, WARY_MS, AddressLimiter, Kind
from crawler.worker.schedule import Scheduler
from crawler.worker.turn import AwaitAddress, Requeue

_T = TypeVar("_T")

SLOW = ""  # in place of an address: among the slow hosts
PROMPT_MS = 3_000  # an origin that holds a worker for longer is slow
ANSWERED_MAX = 16_384  # origins remembered because they answered, and because not; the first is unknown again


class SlowHosts:
    """The share of the workers that slow origins may hold, however many there are; the others are served by the rest.

    An origin that has not answered yet is expected to be quick, and has its turn as any other. Once slow ones held more
    than their share, it counts as slow until it has answered.
    """

    def __init__(self, scheduler: Scheduler, *, workers: int) -> None:
        self.most = max(1, int(SLOW_SHARE * workers))
        self._wary_until_ms = 0
        self._limiter = AddressLimiter(scheduler, limit=self.most)
        self._held_ms: OrderedDict[str, int] = OrderedDict()  # origins that answered: how long that took
        self._silent: OrderedDict[str, None] = OrderedDict()  # those that did not, for longer than that

    def has_answered(self, origin: str) -> bool:
        """Has it answered lately, as far as known?"""
        return origin in self._held_ms

    def is_quick(self, origin: str) -> bool:
        """Has it answered lately, and quickly?"""
        return self._held_ms.get(origin, PROMPT_MS) < PROMPT_MS

    def kind_of(self, origin: str) -> Kind:
        """What is expected of a request to it, for its address."""
        if origin in self._held_ms:
            return Kind.QUICK if self.is_quick(origin) else Kind.SLOW
        return Kind.SLOW if origin in self._silent else Kind.UNTRIED

    def is_limited(self, origin: str) -> bool:
        """Does a request to it need a part of the share?"""
        if origin in self._held_ms:
            return not self.is_quick(origin)
        return monotonic_ms() < self._wary_until_ms

    @property
    def open(self) -> int:
        """How many workers they hold."""
        return self._limiter.open_at(SLOW)

    def beware(self) -> None:
        """Slow origins hold, or would hold, more than their share."""
        self._wary_until_ms = monotonic_ms() + WARY_MS

    def enter(self) -> AwaitAddress | Requeue | None:
        """None when a worker may be held, which `left` must end; otherwise how the turn ends."""
        full = self._limiter.enter(SLOW)
        if full is not None:
            self.beware()
        return full

    def wake(self) -> None:
        """As `AddressLimiter.wake`."""
        self._limiter.wake(SLOW)

    def left(self, *, took_ms: int) -> None:
        """It is free again."""
        self._limiter.left(SLOW, took_ms=took_ms)

    def note(self, origin: str, *, answered: bool, took_ms: int) -> None:
        """A worker was held for a request to this origin."""
        if not answered:
            self._held_ms.pop(origin, None)
            if took_ms >= MAKE_WAY_MS:
                _remember(self._silent, origin, None)
            return
        self._silent.pop(origin, None)
        _remember(self._held_ms, origin, took_ms)


def _remember(known: OrderedDict[str, _T], origin: str, value: _T) -> None:
    known[origin] = value
    known.move_to_end(origin)
    if len(known) > ANSWERED_MAX:
        known.popitem(last=False)
