"""What a request needs before it begins: an address, maybe a connection, and room at the address and among the workers.

Many hosts may share one address. At a full address, a few claims wait in memory. The queues of all others get a time to
come again, one after the other as the address can serve them: so a busy address fills neither the memory for claims
nor the engine's time. A name may take seconds to look up, and so may a connection to an address that is dead: neither a
worker nor the other claims of the queue wait for it, and then the claim is back at the head of its queue.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from enum import IntEnum
from functools import partial
from typing import TypeVar

import msgspec

from crawler.model import OURS, Claim, Failure
from crawler.rules.urls import host_of, origin_of
from crawler.runtime.clocks import monotonic_ms
from crawler.web.fetcher import Fetcher
from crawler.worker.schedule import Scheduler
from crawler.worker.turn import AwaitAddress, AwaitReach, Requeue

LINE_PER_REQUEST = 4  # claims that wait in memory, for each request that may be open
GUESS_MS = 100.0  # assumed duration of a request until one has ended
WEIGHT = 0.2  # of the last request in the mean
PARTS = 8  # of an address, one of which slow origins may hold while others wait
QUICK_PARTS = 4  # one of which is for quick ones alone while they wait
_T = TypeVar("_T")
SLOW = ""  # in place of an address: among the slow hosts
SLOW_SHARE = 0.75  # of the workers
PROMPT_MS = 3_000  # an origin that holds a worker for longer is slow
MAKE_WAY_MS = 1_000  # a request that takes longer makes way for others at its address, and is repeated as a slow one
PATIENT_MS = 10_000  # the same, at an address where slow ones answer, and nobody is known to be quicker
WARY_MS = 60_000  # after slow ones held more than their share, or others waited at an address
ANSWERED_MAX = 16_384  # origins remembered because they answered, and because not; the first is unknown again
ATTEMPTS_MAX = 10_000  # look-ups that have begun: claims wait for a part of their time only
RESULTS_MAX = 4_096  # kept for claims that have not had their turn since
LATE_S = 0.5  # how long a claim waits for a name or a connection
LATE_KEPT_MS = 60_000  # how long what came later counts
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


class Reached(msgspec.Struct, frozen=True):
    """What is known before a request: its address, or why there can be none. `is_connected`: a connection was opened;
    `is_late`: nothing is known yet, and the claim should not wait for it here.
    """

    address: str = ""
    failure: Failure | None = None
    is_connected: bool = False
    is_late: bool = False


LATE = Reached(is_late=True)
Key = tuple[str, str]  # queue, and the host or the origin: others wait for the same
Work = Callable[[], Awaitable[Reached]]
Requeued = Callable[[], None]


class _Attempt(msgspec.Struct):
    """A look-up, or an attempt to connect, and the claims that wait for it."""

    task: asyncio.Future[Reached]
    waiting: list[tuple[Claim, Requeued]] = []
    timer: asyncio.TimerHandle | None = None


class Reaching:
    """Look-ups of names, and attempts to connect to origins that may not answer. Neither holds a worker or a queue.

    A claim waits for it here only for a while (LATE_S): a queue gets no others before its claims have ended.
    """

    def __init__(self, fetcher: Fetcher, *, claims_max: int, connects_max: int) -> None:
        """`claims_max`: how many claims may wait; `connects_max`: attempts to connect at a time."""
        self._fetcher = fetcher
        self._claims_max = claims_max
        self._connects_max = connects_max
        self._connects = 0
        self._attempts: dict[Key, _Attempt] = {}
        self._count = 0
        # What the claims that were requeued have waited for, by token: an answer that may not be cached counts, too.
        self._results: OrderedDict[str, Reached | BaseException] = OrderedDict()
        # What came late, and until when it counts (ms).
        self._late: OrderedDict[Key, tuple[Reached, int]] = OrderedDict()

    def of(self, claim: Claim) -> Reached | AwaitReach:
        """The address for a claim, or how its turn ends: the claim is requeued when its name was looked up. Raises what
        a look-up raised.
        """
        result = self._results.pop(claim.token, None) if self._results else None
        if isinstance(result, BaseException):
            raise result
        if result is not None:
            return result
        name, origin = (claim.queue, host_of(claim.url)), (claim.queue, origin_of(claim.url))
        if self._late and (late := self._came_late(origin) or self._came_late(name)) is not None:
            return late
        known = self._fetcher.known_address_of(claim.url)
        if known is not None:
            return _reached(known)
        return AwaitReach(partial(self._begin, name, claim, self._look_up(claim.url)))

    def _came_late(self, key: Key) -> Reached | None:
        reached, until_ms = self._late.get(key, (None, 0))
        return reached if until_ms > monotonic_ms() else None

    @property
    def is_full(self) -> bool:
        """Do so many claims wait that others can't be claimed, or has so much begun that nothing else may?"""
        return self._count >= self._claims_max or len(self._attempts) >= ATTEMPTS_MAX

    @property
    def may_connect(self) -> bool:
        """May one more connection be tried?"""
        return self._connects < self._connects_max

    def connect(self, claim: Claim, reached: Reached) -> AwaitReach:
        """Connect to the claim's origin, while its queue goes on."""
        key = claim.queue, origin_of(claim.url)
        return AwaitReach(partial(self._begin, key, claim, self._connect(claim.url, reached)))

    def _look_up(self, url: str) -> Work:
        async def work() -> Reached:
            return _reached(await self._fetcher.address_of(url))

        return work

    def _connect(self, url: str, before: Reached) -> Work:
        async def work() -> Reached:
            self._connects += 1
            try:
                failure = await self._fetcher.reach(url)
            finally:
                self._connects -= 1
            return Reached(before.address, failure, is_connected=failure is None)

        return work

    def _begin(self, key: Key, claim: Claim, work: Work, requeue: Requeued) -> None:
        attempt = self._attempts.get(key)
        if attempt is None:
            attempt = self._attempts[key] = _Attempt(asyncio.ensure_future(work()))
            attempt.task.add_done_callback(partial(self._ended, key))
        if attempt.timer is None:
            attempt.timer = asyncio.get_running_loop().call_later(LATE_S, self._is_late, key)
        attempt.waiting.append((claim, requeue))
        self._count += 1

    def _is_late(self, key: Key) -> None:
        self._release(self._attempts[key], LATE)

    def _ended(self, key: Key, task: asyncio.Future[Reached]) -> None:
        attempt = self._attempts.pop(key)
        if task.cancelled():
            self._count -= len(attempt.waiting)
        elif attempt.waiting:
            self._release(attempt, task.exception() or task.result())
        elif task.exception() is None and not _is_ours(task.result()):
            self._late[key] = task.result(), monotonic_ms() + LATE_KEPT_MS
            self._late.move_to_end(key)
            if len(self._late) > RESULTS_MAX:
                self._late.popitem(last=False)

    def _release(self, attempt: _Attempt, result: Reached | BaseException) -> None:
        waited, attempt.waiting = attempt.waiting, []
        if attempt.timer is not None:
            attempt.timer.cancel()
            attempt.timer = None
        self._count -= len(waited)
        for claim, requeue in reversed(waited):  # each goes to the head of its queue
            self._results[claim.token] = result
            if len(self._results) > RESULTS_MAX:
                self._results.popitem(last=False)
            requeue()

    async def close(self) -> list[Claim]:
        """Cancel all; the claims that waited, without those that have just been requeued."""
        running = list(self._attempts.values())
        waited = {attempt.task: attempt.waiting for attempt in running}
        for attempt in running:
            if attempt.timer is not None:
                attempt.timer.cancel()
            attempt.task.cancel()
        await asyncio.gather(*waited, return_exceptions=True)
        # Of tasks that had ended before, gather does not await the callbacks from Python 3.12 on. They are next.
        while self._attempts:  # noqa: ASYNC110
            await asyncio.sleep(0)
        return [claim for task, some in waited.items() if task.cancelled() for claim, _ in some]


def _is_ours(reached: Reached) -> bool:
    return reached.failure is not None and reached.failure.kind in OURS


def _reached(found: str | Failure) -> Reached:
    return Reached(failure=found) if isinstance(found, Failure) else Reached(found)
