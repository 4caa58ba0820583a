"""Turns of a queue that are spent on what comes before its pages: robots.txt, its delay, a login, our own network."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from functools import partial
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from crawler.archive.inflight_log import InflightLog
from crawler.errors import EngineError
from crawler.frontier.owner import Fence
from crawler.hosts.login import BODY_BYTES_MAX as LOGIN_BYTES_MAX
from crawler.hosts.login import WAIT_MS as LOGIN_WAIT_MS
from crawler.hosts.login import Attempt, Logins
from crawler.hosts.login_plans import LoginPlan
from crawler.hosts.robots_cache import RobotsEntry
from crawler.hosts.robots_gate import RobotsGate
from crawler.hosts.robots_reader import RobotsResult
from crawler.hosts.sessions import NotEntitledError, Session, Sessions
from crawler.membership.heartbeat import SessionLiveness
from crawler.model import (
    OURS,
    AckOutcome,
    Claim,
    Failure,
    FailureKind,
)
from crawler.parsing.parse import PageParser
from crawler.rules.pace import TICK_MS
from crawler.rules.urls import origin_of
from crawler.runtime.clocks import ENGINE_PAUSE_S, monotonic_ms, wall_s
from crawler.runtime.crash_points import reached
from crawler.web.fetcher import Fetcher
from crawler.worker import url_lines
from crawler.worker.address_limit import AddressLimiter
from crawler.worker.attempts import AttemptNotes
from crawler.worker.counters import LastError
from crawler.worker.exchanges import Exchanges
from crawler.worker.handle import HandlerStage
from crawler.worker.page_requests import OpenRequests
from crawler.worker.requisite_budget import RequisiteBudget
from crawler.worker.response_policy import Recall, ResponsePolicy
from crawler.worker.revisits import Revisits
from crawler.worker.schedule import QueueSlot
from crawler.worker.turn import LeaseLost, Requeue, ReturnToEngine, SetAside, Turn, TurnEnd
from crawler.worker.work import Work

log = logging.getLogger(__name__)


class Means(msgspec.Struct, frozen=True, kw_only=True):
    """What a page is got with."""

    fetcher: Fetcher
    gate: RobotsGate
    parser: PageParser
    handling: HandlerStage
    sessions: Sessions
    logins: Logins
    revisits: Revisits | None  # None: nothing is archived
    requisites: RequisiteBudget


class Hosts(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of hosts. `recall` puts what was set aside of a claim's origin back into its queue."""

    policy: ResponsePolicy
    addresses: AddressLimiter
    recall: Callable[[Claim, Recall], Awaitable[None]]


class SessionNotes(msgspec.Struct, frozen=True, kw_only=True):
    """How long this session may send requests, and where it notes them. `note_sent`: in the engine, before one that
    must not be repeated. `give_up`: ends it, since our own network has failed for long.
    """

    liveness: SessionLiveness
    inflight_log: InflightLog
    notes: AttemptNotes
    exchanges: Exchanges
    note_sent: Callable[[Fence, Claim], Awaitable[AckOutcome]]
    give_up: Callable[[], None]


PAUSE_MS = int(ENGINE_PAUSE_S * 1000)
BEAT_PAUSE_S = 0.2  # while the heartbeat is late
BEAT_PAUSE_MS = int(1000 * BEAT_PAUSE_S)


class RobotsTurns:
    """Decides how such turns end. `before_send(claim, url)` is called just before a request, `on_sent` afterwards, with
    the time (monotonic ms), if it was one on the queue of the turn.
    """

    def __init__(
        self,
        gate: RobotsGate,
        hosts: Hosts,
        *,
        before_send: Callable[[Claim, str], None],
        on_sent: Callable[[QueueSlot, int], None],
    ) -> None:
        self._gate = gate
        self._hosts = hosts
        self._before_send = before_send
        self._on_sent = on_sent
        self.requests = OpenRequests()

    async def read(
        self, turn: Turn, of: Claim | None = None, *, known: RobotsEntry | None = None
    ) -> RobotsEntry | Requeue | RobotsResult:
        """Use this turn for robots.txt, of its claim or of another URL of the same site: the entry, or how the turn
        ends when another one is needed; or the result with the failure of a proxy. `known`: the entry, whose origin's
        tdmrep.json is read.
        """
        slot, claim = turn.slot, of or turn.claim
        origin, sent = origin_of(claim.url), list[int]()

        def before_send() -> None:
            self._before_send(claim, origin)
            sent.append(monotonic_ms())
            turn.sent()

        worker = self.requests.add(claim, is_quick=turn.is_quick, address=turn.address)
        try:
            request = partial(self._gate.read_tdmrep, known) if known is not None else self._gate.read
            result = await request(claim, before_send, working=turn.mark)
        except (NotEntitledError, EngineError, asyncio.CancelledError) as error:
            if isinstance(error, asyncio.CancelledError) and not self.requests.is_only_cut_off(worker):
                raise
            if not self.requests.has_made_way(worker):
                log.warning("robots.not_read", extra={"origin": origin, "error": str(error)})
            # A request may have been sent, also on another queue.
            wait_ms = max(self._gate.min_delay_ms, slot.delay_ms, PAUSE_MS) if sent else 0
            return Requeue(wait_ms=wait_ms, started=bool(sent), at_tail=True)
        finally:
            self.requests.remove(worker)
        turn.answered()
        entry = result.entry
        if result.ours is not None:
            if sent:
                self._on_sent(slot, sent[-1])
                turn.request_over(wait_ms=max(self._gate.min_delay_ms, slot.delay_ms))
            return result
        if entry is None and not result.is_requested:  # no slot yet for the target of its redirect
            return Requeue(wait_ms=result.wait_ms, at_tail=True)
        reached("robots.answered", origin)
        if result.is_requested and sent:
            self._on_sent(slot, sent[-1])
        learned_ms = -1
        delay_ms = max(self._gate.min_delay_ms, slot.delay_ms)  # another origin of the queue may have a longer one
        if entry is not None and entry.rules is not None:
            learned_ms = delay_ms = slot.delay_ms = self._gate.delay_of(claim, entry)
        url_lines.robots_read(origin, result, delay_ms=delay_ms)
        wait_ms, recall = self._hosts.policy.of_robots(slot, claim, result, delay_ms=delay_ms)
        # Without a delay the queue keeps its place, so its page goes over the same connection.
        turn.request_over(wait_ms=wait_ms, started=wait_ms > 0)
        if recall is not None:
            await self._hosts.recall(claim, recall)
        if not await self._gate.share(claim, result, wait_ms=wait_ms, delay_ms=learned_ms):
            slot.delay_ms = -1  # not stored: the next turn stores it before any page is fetched
        return (
            Requeue(at_tail=True) if entry is None else entry
        )  # at the tail: other origins of the queue need not wait

    async def learn_delay(self, turn: Turn, entry: RobotsEntry | None) -> Requeue | None:
        """Store the queue's delay before its first page request.

        A Requeue when it is longer than the one that this turn waited for: a request for another origin's robots.txt
        may have been sent recently in a borrowed slot.
        """
        slot, claim = turn.slot, turn.claim
        delay_ms, known_ms = self._gate.delay_of(claim, entry), slot.delay_ms
        if known_ms == delay_ms:
            return None
        wait_ms = delay_ms + TICK_MS if delay_ms > max(known_ms, self._gate.min_delay_ms) else 0
        await self._gate.store_delay(claim, delay_ms, wait_ms=wait_ms)
        slot.delay_ms = delay_ms
        if wait_ms:
            return Requeue(wait_ms=wait_ms, started=True)
        if delay_ms > 0:  # with several requests at a time the next may be near
            slot.next_ms = max(slot.next_ms, monotonic_ms() + delay_ms + TICK_MS)
        return None


class Events(NamedTuple):
    """Names of log events."""

    awaited: str
    failed: str
    back: str


EVENTS = {
    FailureKind.PROXY: Events("proxy.awaited", "proxy.failed", "proxy.back"),
    FailureKind.NETWORK: Events("network.awaited", "network.failed", "network.back"),
}


class OwnWaits:
    """Ends turns for which a proxy, or our own network, failed: that is no attempt, and not the failure of the origin.

    `give_up` is called when nothing was fetched for `hosts.give_up_s` because of that.
    """

    def __init__(
        self, work: Work, means: Means, hosts: Hosts, *, give_up_s: float, give_up: Callable[[], None]
    ) -> None:
        self._work = work
        self._fetcher = means.fetcher
        self._policy = hosts.policy
        self._give_up_ms = int(give_up_s * 1000)
        self._give_up = give_up
        self._since: tuple[int, int] | None = None  # when that began, loop's ms, and what had been committed then

    def wait_ms(self, claim: Claim) -> int:
        """How long a claim waits for what its requests go through, ms; 0 for most."""
        return self._fetcher.own_wait_ms(claim.url)

    def awaited(self, claim: Claim, failure: Failure, wait_ms: int = 0) -> SetAside:
        """How the turn ends."""
        self._work.counters.note_error(LastError(failure.kind, failure.detail, claim.url, wall_s()))
        wait_ms = max(wait_ms, self._fetcher.own_wait_ms(claim.url), BEAT_PAUSE_MS)
        log.info(EVENTS[failure.kind].awaited, extra={"url": claim.url, "error": failure.detail, "wait_ms": wait_ms})
        return self._policy.set_aside(claim, monotonic_ms() + wait_ms)

    def watch(self) -> None:
        """Note and log when nothing comes through a proxy or our own network any more, and when something does again;
        give up after a long time.
        """
        self._fetcher.network.look()
        counters = self._work.counters
        for kind, trouble in (
            (FailureKind.NETWORK, self._fetcher.network.trouble), (FailureKind.PROXY, self._fetcher.proxy_trouble()),
        ):  # fmt: skip
            before = counters.trouble.get(kind, "")
            if trouble and not before:
                log.warning(EVENTS[kind].failed, extra={"error": trouble})
            elif before and not trouble:
                log.warning(EVENTS[kind].back, extra={"error": before})
            counters.trouble[kind] = trouble
        if not any(counters.trouble.values()) or counters.overrides.is_paused:
            self._since = None
            return
        now_ms, committed = int(asyncio.get_running_loop().time() * 1000), counters.committed
        if self._since is None or self._since[1] != committed:
            self._since = now_ms, committed
        elif now_ms - self._since[0] >= self._give_up_ms:
            self._give_up()


class LoginTurns:
    """Decides how turns end that are spent on a login. `before_send` and `on_sent`: as for `RobotsTurns`."""

    def __init__(
        self,
        work: Work,
        means: Means,
        hosts: Hosts,
        robots: RobotsTurns | None,
        own: OwnWaits,
        *,
        before_send: Callable[[Claim, str], None],
        on_sent: Callable[[QueueSlot, int], None],
    ) -> None:
        """`robots`: None where robots.txt is not obeyed."""
        self._work = work
        self._means = means
        self._hosts = hosts
        self._robots = robots
        self._own = own
        self._before_send = before_send
        self._on_sent = on_sent

    async def take(self, turn: Turn, session: Session, plan: LoginPlan) -> TurnEnd:
        """Use this turn for the next request of a login. Cancelling cuts it off."""
        logins, slot = self._means.logins, turn.slot
        attempt = logins.begin(session, plan)
        if attempt is None:
            return Requeue(wait_ms=LOGIN_WAIT_MS)
        # What is noted of the request has no more of its URL than the origin: the rest may bear the password.
        claim = replace(turn.claim, url=f"{attempt.origin}/", request=None)
        worker = self._work.requests.add(turn.claim, is_quick=False)
        try:
            if (end := await self._why_no_login(turn, claim, session, plan, attempt)) is not None:
                return end
            sent = list[int]()

            def before_send() -> None:
                self._before_send(turn.claim, claim.url)
                sent.append(monotonic_ms())
                self._on_sent(slot, sent[-1])
                turn.sent()

            await logins.count(session, attempt)
            cookies = session.jar.sent_to(attempt.url, wall_s()) if not attempt.is_anonymous else []
            result = await self._means.fetcher.fetch(
                attempt.url, request=attempt.request, cookies=cookies, body_bytes_max=LOGIN_BYTES_MAX,
                before_send=before_send, working=turn.mark,
            )  # fmt: skip
            turn.answered()
            if result.failure is not None and result.failure.kind in OURS:
                logins.begins_again(session)
                turn.request_over(wait_ms=max(slot.delay_ms, 0), started=bool(sent))
                return self._own.awaited(turn.claim, result.failure)
            wait, recall = self._hosts.policy.of_page(slot, claim, result)
            turn.request_over(wait_ms=wait, started=bool(sent))
            if recall is not None:
                await self._hosts.recall(claim, recall)
            if not self._work.held.holds(turn.claim):
                return LeaseLost()
            wait_ms = await logins.answered(session, plan, attempt, result)
            if wait_ms:
                return self._hosts.policy.set_aside(turn.claim, monotonic_ms() + wait_ms)
            return Requeue()
        except NotEntitledError:
            return Requeue()
        except asyncio.CancelledError:
            if not turn.is_request_over:
                turn.request_over(wait_ms=max(slot.delay_ms, 0))
            if not self._work.requests.is_only_cut_off(worker):
                raise
            return LeaseLost()
        finally:
            self._work.requests.remove(worker)
            logins.end(session)

    async def _why_no_login(
        self, turn: Turn, claim: Claim, session: Session, plan: LoginPlan, attempt: Attempt
    ) -> TurnEnd | None:  # fmt: skip
        """How a turn ends instead of a login's request: there were too many logins, or robots.txt has to be read first,
        or forbids it.
        """
        if wait_ms := await self._means.logins.wait_ms(session, attempt):
            if wait_ms < 0:
                return ReturnToEngine()
            return self._hosts.policy.set_aside(turn.claim, monotonic_ms() + wait_ms)
        if self._robots is None or plan.ignores_robots:
            return None
        entry = await self._means.gate.known(claim, is_delay_known=turn.slot.delay_ms >= 0)
        if entry is None:
            read = await self._robots.read(turn, claim)
            if isinstance(read, RobotsResult) and read.ours is not None:
                return self._own.awaited(turn.claim, read.ours, read.wait_ms)
            return read if isinstance(read, Requeue) else Requeue()
        if entry.rules is None:
            wait_ms = await self._means.logins.unreadable(session, attempt, entry.detail)
            return self._hosts.policy.set_aside(turn.claim, monotonic_ms() + wait_ms) if wait_ms else ReturnToEngine()
        if entry.rules.allows(attempt.url):
            return None
        await self._means.logins.refused(session, attempt)
        return ReturnToEngine()
