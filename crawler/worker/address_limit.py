"""Room at the addresses of hosts: how many requests may be open to each, and who waits for it.

Many hosts may share one address. At a full address, a few claims wait in memory. The queues of all others get a time to
come again, one after the other as the address can serve them: so a busy address fills neither the memory for claims
nor the engine's time.
"""

from enum import IntEnum

import msgspec

from crawler.runtime.clocks import monotonic_ms
from crawler.worker.schedule import Scheduler
from crawler.worker.turn import AwaitAddress, Requeue

LINE_PER_REQUEST = 4  # claims that wait in memory, for each request that may be open
GUESS_MS = 100.0  # assumed duration of a request until one has ended
WEIGHT = 0.2  # of the last request in the mean
PARTS = 8  # of an address, one of which slow origins may hold while others wait
QUICK_PARTS = 4  # one of which is for quick ones alone while they wait
SLOW_SHARE = 0.75  # of the workers
MAKE_WAY_MS = 1_000  # a request that takes longer makes way for others at its address, and is repeated as a slow one
PATIENT_MS = 10_000  # the same, at an address where slow ones answer, and nobody is known to be quicker
WARY_MS = 60_000  # after slow ones held more than their share, or others waited at an address
KEPT_MAX = 10_000  # addresses remembered although none of their requests is open


class Kind(IntEnum):
    """How long a request to an origin is expected to take; the later ones have a part of each address only."""

    QUICK = 0  # its last answer came promptly
    UNTRIED = 1  # it has not answered yet, and was not found to be slow
    SLOW = 2  # its last request took long, whether it was answered or not


class Address(msgspec.Struct):
    """State of one address. By kind: open requests, their mean duration, the time up to which all slots are promised,
    and until when origins of that kind rest while others wait.
    """

    open: list[int] = msgspec.field(default_factory=lambda: [0] * len(Kind))
    mean_ms: list[float] = msgspec.field(default_factory=lambda: [GUESS_MS] * len(Kind))
    promised_ms: list[float] = msgspec.field(default_factory=lambda: [0.0] * len(Kind))
    rest_until_ms: list[float] = msgspec.field(default_factory=lambda: [0.0] * len(Kind))
    wanted_until_ms: int = 0  # quick origins have waited for it a while ago
    prompt_until_ms: int = 0  # some requests ended promptly a while ago
    answers_until_ms: int = 0  # some were answered that took longer, a while ago
    next_kind: int = 0  # whose waiting claim is woken next


def line_of(address: str, kind: Kind) -> str:
    """Where claims of a kind wait for room at an address."""
    return f"{address} {kind.value}" if kind else address


def address_of(line: str) -> str:
    """The address of a line."""
    return line.partition(" ")[0]


class AddressLimiter:
    """Admits requests, lets claims wait or requeues them. `limit`: of open requests at an address, of this instance.

    While others wait, slow origins hold at most an eighth of an address, and a quarter is kept from untried ones, too.
    Where that is less than one request, they rest between two of them.
    """

    def __init__(self, scheduler: Scheduler, *, limit: int) -> None:
        self._scheduler = scheduler
        self._limit = limit
        self._known: dict[str, Address] = {}

    def enter(self, address: str, kind: Kind = Kind.QUICK) -> AwaitAddress | Requeue | None:
        """None when a request may be opened, which `left` must end; otherwise how the turn ends."""
        at = self._known.get(address)
        if at is None:
            at = self._known[address] = Address()
        now_ms = monotonic_ms()
        if self._room(address, at, kind, now_ms) > 0:
            at.open[kind] += 1
            return None
        if kind is Kind.QUICK:
            at.wanted_until_ms = now_ms + WARY_MS
        if kind is not Kind.SLOW and self._limit < PARTS and not at.rest_until_ms[Kind.SLOW]:
            at.rest_until_ms[Kind.SLOW] = now_ms + WARY_MS
        line = line_of(address, kind)
        waiting = self._waiting(address, kind)
        if waiting < LINE_PER_REQUEST * self._limit:
            return AwaitAddress(line)
        each_ms = at.mean_ms[kind] / max(1, self._limit >> kind)
        at.promised_ms[kind] = max(at.promised_ms[kind], now_ms + waiting * each_ms) + each_ms
        return Requeue(wait_ms=int(at.promised_ms[kind]) - now_ms)

    def _waiting(self, address: str, kind: Kind) -> int:
        return self._scheduler.waiting_at(line_of(address, kind))

    def _room(self, address: str, at: Address, kind: Kind, now_ms: int) -> int:
        """How many more requests of a kind may be opened."""
        limit, slow = self._limit, at.open[Kind.SLOW]
        room = limit - sum(at.open)
        if kind is Kind.QUICK or room <= 0:
            return room
        for_quick = at.wanted_until_ms > now_ms
        for_others = for_quick or (kind is Kind.SLOW and self._waiting(address, Kind.UNTRIED) > 0)
        if for_others and at.rest_until_ms[kind] > now_ms:
            return 0
        if kind is Kind.SLOW:
            room = min(room, max(1, limit // PARTS if for_others else int(SLOW_SHARE * limit)) - slow)
        if for_quick and limit > 1:
            room = min(room, limit - max(1, limit // QUICK_PARTS) - slow - at.open[Kind.UNTRIED])
        return room

    def open_at(self, address: str) -> int:
        """How many requests are open to an address."""
        return sum(self._known[address].open) if address in self._known else 0

    def patience_ms(self, address: str) -> int:
        """How long a request there may take before it makes way for others. Longer where slow ones are answered, and
        nobody was found to be quicker: what all hosts of an address do is not the fault of one.
        """
        at, now_ms = self._known.get(address), monotonic_ms()
        is_slow = at is not None and at.prompt_until_ms <= now_ms < at.answers_until_ms
        return PATIENT_MS if is_slow else MAKE_WAY_MS

    def make_way(self, address: str, held: int) -> int:
        """How many of `held` requests there, which took longer than patience lasts, are to make way: others wait, and
        they hold more than the share of slow ones.
        """
        at, now_ms = self._known.get(address), monotonic_ms()
        waiting = [kind for kind in (Kind.QUICK, Kind.UNTRIED) if self._waiting(address, kind)]
        if at is None or all(self._room(address, at, kind, now_ms) > 0 for kind in waiting):
            return 0
        return min(held, max(0, at.open[Kind.SLOW] + held - self._limit // PARTS))

    def left(self, address: str, kind: Kind = Kind.QUICK, *, took_ms: int | None, answered: bool = False) -> None:
        """A request to this address has ended; `took_ms`: None when there was none after all."""
        at, now_ms = self._known[address], monotonic_ms()
        at.open[kind] -= 1
        if took_ms is not None:
            at.mean_ms[kind] += WEIGHT * (took_ms - at.mean_ms[kind])
            at.rest_until_ms[kind] = now_ms + self._rest_factor(kind) * took_ms
            if took_ms < MAKE_WAY_MS:
                at.prompt_until_ms = now_ms + WARY_MS
            elif answered:
                at.answers_until_ms = now_ms + WARY_MS
        is_over = max(*at.promised_ms, *at.rest_until_ms, at.wanted_until_ms) <= now_ms
        if not sum(at.open) and (is_over or len(self._known) > KEPT_MAX):
            del self._known[address]
        if sum(at.open) < self._limit:  # not so after the share has shrunk, until enough requests have ended
            self._wake_one(address, at, now_ms)

    def _rest_factor(self, kind: Kind) -> int:
        if kind is Kind.SLOW and self._limit < PARTS:
            return PARTS - 1
        return 1 if kind is Kind.UNTRIED and self._limit == 1 else 0

    def _wake_one(self, address: str, at: Address, now_ms: int) -> None:
        """Wake a claim that waits at an address, of each kind in turn that has room."""
        if not self._scheduler.awaits_room:
            return
        for n in range(len(Kind)):
            kind = Kind((at.next_kind + n) % len(Kind))
            if self._waiting(address, kind) and self._room(address, at, kind, now_ms) > 0:
                at.next_kind = (kind + 1) % len(Kind)
                self._scheduler.wake_one(line_of(address, kind))
                return

    def wake(self, address: str) -> None:
        """Wake as many claims that wait at an address as it has room for: those that were woken before may have ended
        without a request.
        """
        at, now_ms = self._known.get(address) or Address(), monotonic_ms()
        if self._waiting(address, Kind.QUICK):
            at.wanted_until_ms = now_ms + WARY_MS
        for _ in range(self._limit - sum(at.open)):
            self._wake_one(address, at, now_ms)
