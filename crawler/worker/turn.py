"""One turn of a queue: the claim, its request, and the ways in which it ends."""

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Any

import msgspec

from crawler.archive.earlier_pages import EarlierPage
from crawler.archive.inflight_log import InflightMark
from crawler.errors import EngineError, InvariantError
from crawler.frontier.owner import Settlement
from crawler.membership.ownership import HeldPartitions
from crawler.model import Claim, FetchResult, Request, Response
from crawler.rules.cookies import Jar
from crawler.rules.health import TICK_MS, crash_action_of
from crawler.rules.urls import origin_of
from crawler.runtime.process import ENGINE_PAUSE_S, monotonic_ms
from crawler.worker.outcomes import Failed, InternalErrors, Outcome
from crawler.worker.schedule import QueueSlot, Scheduler
from crawler.worker.session_loss import Watch
from crawler.worker.sessions import Session
from crawler.worker.watch import OpenClaims


class Isolation:
    """A shared-exclusive lock: many turns together, or one alone, which goes before those that come later."""

    def __init__(self) -> None:
        self._inside = 0
        self._is_alone = False
        self._alone_waiting = 0
        self._waiters: list[asyncio.Future[None]] = []

    async def enter(self, *, alone: bool) -> None:
        """Wait to enter with others, or `alone`; `leave` must follow."""
        if not self._may_enter(alone=alone):
            await self._wait(alone=alone)
        self._inside += 1
        self._is_alone = alone

    def leave(self) -> None:
        """End what `enter` began."""
        self._inside -= 1
        self._is_alone = False
        self._wake()

    def _may_enter(self, *, alone: bool) -> bool:
        if alone:
            return not self._inside
        return not self._is_alone and not self._alone_waiting

    async def _wait(self, *, alone: bool) -> None:
        self._alone_waiting += alone
        entered = False
        try:
            while not self._may_enter(alone=alone):
                waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
                self._waiters.append(waiter)
                await waiter
            entered = True
        finally:
            self._alone_waiting -= alone
            if not entered:
                self._wake()  # those that waited behind us may enter

    def _wake(self) -> None:
        if not self._waiters:
            return
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)


# Requests for pages: the state of one while it runs, its answer, and how open requests are cut off.
#
# A request has no task of its own: to cut it off, its worker is cancelled, learns that only the request was meant, and
# goes on with its next turn.


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """The next request of a claim at a cookie wall (see cookie_walls). `number`: place of the URL in the chain (0: the
    page itself). `first`: the page's own redirect, its result when the chain leads nowhere.
    """

    url: str
    jar: Jar
    first: Response | None = None
    number: int = 0


class PageRequest(msgspec.Struct):
    """A request for a page, from connecting to the end of its answer. `started_at` is wall clock, s."""

    slot: QueueSlot
    claim: Claim
    started_at: float
    step: Step | None = None  # at a cookie wall
    earlier: EarlierPage | None = None  # it asks whether this has changed
    is_sent: bool = False  # the last check has passed; `started_at` is the time of it then
    session: Session | None = None  # whose cookies went along
    login: int = 0  # of that session


class Answered(msgspec.Struct, frozen=True):
    """The end of a page request: its result, the settlement of its queue, and the time (wall clock, s)."""

    page_request: PageRequest
    result: FetchResult
    settled: Settlement
    finished_at: float


Worker = asyncio.Task[Any]
MET_STALE_MAX = 10_000  # URLs


class StaleRequests:
    """URLs whose last request met a connection that its server had closed. The claims of some never come back."""

    def __init__(self) -> None:
        self._urls: OrderedDict[str, None] = OrderedDict()  # by fingerprint

    def is_first(self, claim: Claim, result: FetchResult) -> bool:
        """Was a reused connection found closed? The first time for a URL, that does not count as an attempt."""
        was_stale = claim.fingerprint in self._urls
        self._urls.pop(claim.fingerprint, None)
        if was_stale or not result.stale_connection:
            return False
        self._urls[claim.fingerprint] = None
        if len(self._urls) > MET_STALE_MAX:
            self._urls.popitem(last=False)
        return True


class OpenRequests:
    """The open requests of one instance, by the worker that waits for the answer."""

    def __init__(self) -> None:
        self._claims: dict[Worker, Claim] = {}
        self._began_ms: dict[Worker, int] = {}  # of those that are expected to end quickly, oldest first
        self._places: dict[Worker, tuple[str, int]] = {}  # with an address: since when
        self._cut_off: set[Worker] = set()
        self._made_way: set[Worker] = set()

    @property
    def claims(self) -> list[Claim]:
        """Claims with an open request."""
        return list(self._claims.values())

    def add(self, claim: Claim, *, is_quick: bool, address: str = "") -> Worker:
        """The running task waits for an answer from here until `remove`. `is_quick`: a quick one is expected.
        `address`: where it may have to make way for others.
        """
        worker = asyncio.current_task()
        assert worker is not None
        self._claims[worker] = claim
        if is_quick:
            self._began_ms[worker] = monotonic_ms()
        if address:
            self._places[worker] = address, monotonic_ms()
        return worker

    def remove(self, worker: Worker) -> None:
        """The worker has its answer, or gave up."""
        del self._claims[worker]
        self._began_ms.pop(worker, None)
        self._places.pop(worker, None)

    def slow_at(self, addresses: Collection[str], patience_ms: Callable[[str], int]) -> dict[str, list[Worker]]:
        """By address, those that have been open for longer than patience lasts there, the oldest first."""
        now_ms, found = monotonic_ms(), dict[str, list[Worker]]()
        for worker, (address, began_ms) in self._places.items():
            is_there = address in addresses and worker not in self._cut_off
            if is_there and now_ms - began_ms >= patience_ms(address):
                found.setdefault(address, []).append(worker)
        return found

    def slow(self, age_ms: int) -> list[Worker]:
        """Those that were expected to end quickly and have been open for longer, the oldest first."""
        before_ms = monotonic_ms() - age_ms
        return [w for w, began_ms in self._began_ms.items() if began_ms <= before_ms and w not in self._cut_off]

    def make_way(self, workers: Sequence[Worker]) -> None:
        """Cut these off, so that their workers are free for others."""
        for worker in workers:
            self._cut_off.add(worker)
            self._made_way.add(worker)
            worker.cancel()

    def has_made_way(self, worker: Worker) -> bool:
        """Was it cut off for that? Asked once."""
        found = worker in self._made_way
        self._made_way.discard(worker)
        return found

    def cut_off_all(self) -> None:
        """Cut off every open request; CancelledError is raised in each of the workers."""
        for worker in self._claims.keys() - self._cut_off:
            self._cut_off.add(worker)
            worker.cancel()

    def is_only_cut_off(self, worker: Worker) -> bool:
        """On a CancelledError: was only the request cut off? Then the cancellation is cleared."""
        if worker not in self._cut_off:
            return False
        self._cut_off.discard(worker)
        return worker.uncancel() == 0


# One turn of a queue: a worker has a claim. How the turn ends is a value, and only `TurnRunner` applies it.
#
# A stage without a return value is a type error, and a turn can't end twice: so a claim is neither lost nor processed
# twice in one process.

log = logging.getLogger(__name__)


class Requeue(msgspec.Struct, frozen=True, kw_only=True):
    """The claim goes back to the head of its queue here, or to its tail. `wait_ms`: how long the queue waits, as in
    `Scheduler.finished`; ignored once the request is over. `pause_s`: how long the worker pauses.
    """

    wait_ms: int = 0
    started: bool = False
    at_tail: bool = False
    pause_s: float = 0.0


class AwaitAddress(msgspec.Struct, frozen=True):
    """The claim waits for room at its server's address, until `Scheduler.wake_one`."""

    address: str


class AwaitReach(msgspec.Struct, frozen=True):
    """The claim waits for a look-up or a connection; others of its queue go on meanwhile. `began` takes the callback
    that requeues it.
    """

    began: Callable[[Callable[[], None]], None]


class SetAside(msgspec.Struct, frozen=True):
    """The claim's origin does not answer, or may not be tried now: this claim and those that wait here for the same
    origin go back to the engine, into the row of the origin, until `due_ms`. `since_ms`: since when it has been silent,
    None: not known to be. Both are monotonic ms.
    """

    origin: str
    due_ms: int
    since_ms: int | None


class ReturnToEngine(msgspec.Struct, frozen=True):
    """An operator stopped the domain: the claim goes back to the engine."""


class LeaseLost(msgspec.Struct, frozen=True):
    """The claim belongs to another instance by now."""


class OriginGivenUp(msgspec.Struct, frozen=True):
    """Neither this claim nor those that wait here for its origin are fetched. `outcome_of` gives the end of each."""

    origin: str
    outcome_of: Callable[[Claim], Failed]


class Deliver(msgspec.Struct, frozen=True):
    """The claim has an outcome, which the committer writes to the engine."""

    outcome: Outcome


TurnEnd = Requeue | AwaitAddress | AwaitReach | ReturnToEngine | LeaseLost | SetAside | OriginGivenUp | Deliver


class Turn:
    """A claim and the queue slot in which it is worked on."""

    __slots__ = (
        "_scheduler",
        "address",
        "claim",
        "crash_action",
        "is_apart",
        "is_quick",
        "is_request_over",
        "mark",
        "request",
        "slot",
        "watch",
    )

    def __init__(self, scheduler: Scheduler, slot: QueueSlot, claim: Claim, mark: InflightMark) -> None:
        self._scheduler = scheduler
        self.mark = mark  # in the in-flight log, for the claim's content
        self.slot = slot
        self.claim = claim
        self.crash_action = crash_action_of(claim.deaths, claim.deliveries)
        self.is_request_over = False
        self.request: Request | None = None  # where users' functions have changed it
        self.is_quick = False  # a quick answer is expected
        self.address = ""  # where its request may have to make way for others
        self.is_apart = False  # the queue goes on once the request is sent: its origin may not answer
        self.watch: Watch | None = None  # of the session whose page is requested

    def session_page_over(self) -> None:
        """The answer of its session's page is judged, if it was for one."""
        if self.watch is not None:
            self.watch.open, self.watch.is_alone = self.watch.open - 1, False
            self.watch = None

    def sent(self) -> None:
        """The request is sent just now. The next one may follow after the queue's delay, if it is apart and the delay
        is known: what is requested may be the robots.txt that tells it.
        """
        slot = self.slot
        if self.is_apart and slot.delay_ms >= 0 and not self.is_request_over:
            self.request_over(wait_ms=max(slot.delay_ms, slot.adaptive_delay.delay_ms) + TICK_MS)

    def request_over(self, *, wait_ms: int, started: bool = True) -> None:
        """The queue may go on from here, `wait_ms` from now; parsing does not hold it up. Once a turn."""
        if self.is_request_over:
            if self.is_apart:
                return
            raise InvariantError(f"the request of a turn was over before: {self.claim.url}")
        self.is_request_over = True
        self._scheduler.finished(self.slot, wait_ms=wait_ms, started=started)


class TurnRunner:
    """Runs turns and applies their ends. Nothing else ends turns or requeues claims."""

    def __init__(
        self,
        scheduler: Scheduler,
        held: HeldPartitions,
        open_claims: OpenClaims,
        internal_errors: InternalErrors,
        *,
        deliver: Callable[[Outcome], None],
        return_claim: Callable[[Claim], Awaitable[None]],
        set_aside: Callable[[list[Claim], SetAside], Awaitable[None]],
        delay_ms: int,
    ) -> None:
        """`return_claim` returns a claim to the engine, `set_aside` some of one origin; `delay_ms`: the delay of a
        queue whose own is not known.
        """
        self._scheduler = scheduler
        self._held = held
        self._open_claims = open_claims
        self._internal_errors = internal_errors
        self._deliver = deliver
        self._return_claim = return_claim
        self._set_aside = set_aside
        self._delay_ms = delay_ms

    async def run(self, turn: Turn, work: Callable[[Turn], Awaitable[TurnEnd]]) -> None:
        """Run a turn and apply its end."""
        try:
            end = await work(turn)
        except EngineError as error:
            log.warning("fetch.engine_error", extra={"error": str(error)})
            end = Requeue(pause_s=ENGINE_PAUSE_S)
        except Exception as error:  # noqa: BLE001 - an error caused by one URL's content is that URL's failure
            end = self._failed(turn, error)
        await self._apply(turn, end)

    def _failed(self, turn: Turn, error: Exception) -> Deliver:
        """How a turn with an unexpected error ends. Raises the error if the content can't be its cause."""
        slot, claim = turn.slot, turn.claim
        wait_ms = max(slot.delay_ms, slot.adaptive_delay.delay_ms, self._delay_ms)
        fence = self._held.fence_of(claim.partition)
        next_ms = fence.now_ms + wait_ms if fence is not None else 0
        settled = Settlement(next_fetch_ms=next_ms, delay_ms=slot.delay_ms)
        failed = self._internal_errors.failed(claim, error, settled)
        if not turn.is_request_over:
            turn.request_over(wait_ms=wait_ms)  # a request may have been sent
        return Deliver(failed)

    async def _apply(self, turn: Turn, end: TurnEnd) -> None:
        scheduler, claim = self._scheduler, turn.claim
        match end:
            case Requeue():
                self._close(turn, wait_ms=end.wait_ms, started=end.started)
                scheduler.requeue(claim, at_tail=end.at_tail)
                if end.pause_s:
                    await asyncio.sleep(end.pause_s)
            case AwaitAddress():
                self._close(turn)
                scheduler.wait_at(end.address, claim)
            case AwaitReach():
                self._close(turn)
                end.began(lambda: scheduler.requeue(claim))
            case ReturnToEngine():
                self._close(turn)
                await self._return_claim(claim)
            case LeaseLost():
                self._close(turn)
                self._open_claims.ended(claim)
            case SetAside():
                claims = self._with_those_of(turn, end.origin)
                self._close(turn)
                await self._set_aside(claims, end)
            case OriginGivenUp():
                claims = self._with_those_of(turn, end.origin)
                self._close(turn)
                for one in claims:
                    self._deliver(end.outcome_of(one))
            case Deliver():
                self._close(turn)
                self._deliver(end.outcome)

    def _close(self, turn: Turn, *, wait_ms: int = 0, started: bool = False) -> None:
        if not turn.is_request_over:
            turn.request_over(wait_ms=wait_ms, started=started)

    def _with_those_of(self, turn: Turn, origin: str) -> list[Claim]:
        """The turn's claim, and those of an origin that wait in its slot, which are taken out."""
        return [turn.claim, *self._scheduler.take_of(turn.slot, lambda one: origin_of(one.url) == origin)]
