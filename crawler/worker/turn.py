"""One turn of a queue: a worker has a claim. How the turn ends is a value, and only `TurnRunner` applies it.

A stage without a return value is a type error, and a turn can't end twice: so a claim is neither lost nor processed
twice in one process.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from functools import partial

import msgspec

from crawler.archive.inflight_log import InflightMark
from crawler.errors import EngineError, InvariantError
from crawler.frontier.owner import Settlement
from crawler.hosts.session_loss import Watch
from crawler.membership.held import HeldPartitions
from crawler.model import Claim, Request
from crawler.rules.pace import TICK_MS
from crawler.rules.poison import crash_action_of
from crawler.rules.site_rights import SiteRights
from crawler.rules.urls import origin_of
from crawler.runtime.clocks import ENGINE_PAUSE_S
from crawler.worker.internal_errors import InternalErrors
from crawler.worker.open_claims import ClaimPlace, OpenClaims
from crawler.worker.outcomes import Failed, Outcome
from crawler.worker.schedule import QueueSlot, Scheduler

log = logging.getLogger(__name__)

EVENTS = {
    ClaimPlace.IN_TURN: "turn.began",
    ClaimPlace.REQUESTED: "turn.requested",
    ClaimPlace.ANSWERED: "turn.answered",
}


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
        "is_sent",
        "mark",
        "moved",
        "request",
        "said",
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
        self.is_sent = False  # a request, which is not answered yet
        self.moved: Callable[[ClaimPlace], None] = lambda _: None  # by `TurnRunner`
        self.request: Request | None = None  # where users' functions have changed it
        self.is_quick = False  # a quick answer is expected
        self.address = ""  # where its request may have to make way for others
        self.is_apart = False  # the queue goes on once the request is sent: its origin may not answer
        self.said: SiteRights | None = None  # by the site, about the use of its pages
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
        self.is_sent = True
        self.moved(ClaimPlace.REQUESTED)
        slot = self.slot
        if self.is_apart and slot.delay_ms >= 0 and not self.is_request_over:
            self.request_over(wait_ms=max(slot.delay_ms, slot.adaptive_delay.delay_ms) + TICK_MS)

    def answered(self) -> None:
        """The request has come to its end, with an answer or a failure; what is left is work here."""
        if self.is_sent:
            self.is_sent = False
            self.moved(ClaimPlace.ANSWERED)

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
        """Run a turn and apply its end.

        Debug events: `turn.began`, `turn.requested`, `turn.answered`, `turn.ended` (with the name of its end).
        """
        is_told = log.isEnabledFor(logging.DEBUG)
        turn.moved = partial(self._tell if is_told else self._open_claims.moved, turn.claim)
        turn.moved(ClaimPlace.IN_TURN)
        try:
            end = await work(turn)
        except EngineError as error:
            log.warning("fetch.engine_error", extra={"error": str(error)})
            end = Requeue(pause_s=ENGINE_PAUSE_S)
        except Exception as error:  # noqa: BLE001 - an error caused by one URL's content is that URL's failure
            end = self._failed(turn, error)
        if is_told:
            log.debug("turn.ended", extra={"url": turn.claim.url, "end": type(end).__name__})
        await self._apply(turn, end)

    def _tell(self, claim: Claim, place: ClaimPlace) -> None:
        self._open_claims.moved(claim, place)
        if place in EVENTS:
            log.debug(EVENTS[place], extra={"url": claim.url})

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
                scheduler.give_back(claim, at_tail=end.at_tail)
                if end.pause_s:
                    await asyncio.sleep(end.pause_s)
            case AwaitAddress():
                self._close(turn)
                scheduler.wait_at(end.address, claim)
            case AwaitReach():
                self._close(turn)
                turn.moved(ClaimPlace.REACHING)
                end.began(lambda: scheduler.give_back(claim))
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
