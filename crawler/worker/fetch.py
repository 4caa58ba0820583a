"""Step 4, fetch: workers take claims from the scheduler, obey robots.txt and the session's deadline, and fetch."""

import asyncio
import logging
from collections.abc import Collection
from functools import partial

from msgspec.structs import replace

from crawler.archive.earlier_pages import EarlierPage
from crawler.errors import EngineError
from crawler.frontier.deferred import REQUISITES, RIGHTS
from crawler.frontier.owner import Settlement
from crawler.hosts.login import WAIT_MS as LOGIN_WAIT_MS
from crawler.hosts.login_plans import LoginPlan
from crawler.hosts.robots_cache import RobotsEntry
from crawler.hosts.robots_reader import RobotsResult
from crawler.hosts.sessions import NotEntitledError, Session
from crawler.model import (
    NOT_ALLOWED,
    OURS,
    REQUISITE,
    SITEMAP,
    SITEMAP_BYTES_MAX,
    UNSENT,
    AckOutcome,
    Claim,
    Failure,
    FailureKind,
    FetchResult,
    RefusalReason,
    Request,
)
from crawler.routing.runs_known import RunBook
from crawler.rules.cookies import Jar
from crawler.rules.origin_health import HostAction
from crawler.rules.poison import CrashAction
from crawler.rules.robots import RobotsRules
from crawler.rules.site_rights import SiteRights
from crawler.rules.urls import origin_of
from crawler.runtime.clocks import monotonic_ms, wall_s
from crawler.runtime.crash_points import reached
from crawler.runtime.ticks import tick
from crawler.settings import Settings
from crawler.worker.address_limit import Kind, address_of
from crawler.worker.answers import Answers, attempt_failed, delivered
from crawler.worker.before_page import BEAT_PAUSE_S, Hosts, LoginTurns, Means, OwnWaits, RobotsTurns, SessionNotes
from crawler.worker.cookie_walls import CookieWalls
from crawler.worker.isolation import Isolation
from crawler.worker.lateness import PolitenessMargin
from crawler.worker.open_claims import ClaimPlace
from crawler.worker.outcomes import Deferred, Failed, Refused
from crawler.worker.page_requests import Answered, PageRequest, StaleRequests, Step
from crawler.worker.page_rights import RightsRules
from crawler.worker.reaching import LATE_S, Reached, Reaching
from crawler.worker.response_policy import is_once, why_not_sent
from crawler.worker.schedule import QueueSlot
from crawler.worker.slow_hosts import PROMPT_MS, SLOW, SlowHosts
from crawler.worker.turn import (
    AwaitReach,
    Deliver,
    LeaseLost,
    OriginGivenUp,
    Requeue,
    ReturnToEngine,
    SetAside,
    Turn,
    TurnEnd,
    TurnRunner,
)
from crawler.worker.work import Work

log = logging.getLogger(__name__)

CLAIMS_PER_WORKER = 8  # that may wait for names: half of all that may be open
RESTING_S = 1.0  # between looks at what is on the way while nothing is fetched
# Where the same URL is as a page, or as a requisite, when the other one waits for it. A requisite waits for its page
# wherever that is, and a page for what is past this: so never both.
BEFORE_A_PAGE = frozenset(
    (ClaimPlace.IN_TURN, ClaimPlace.REQUESTED, ClaimPlace.ANSWERED, ClaimPlace.OUTCOME, ClaimPlace.STORING,
     ClaimPlace.COMMITTING)
)  # fmt: skip
BEFORE_A_REQUISITE = BEFORE_A_PAGE | {
    ClaimPlace.ARRIVED, ClaimPlace.QUEUED, ClaimPlace.AT_ADDRESS, ClaimPlace.REACHING,
}  # fmt: skip
TWIN_WAIT_MS = 100
FULL_MS = 2_000  # until a claim is tried again for which there was no room


class FetchStage:
    """A pool of workers."""

    def __init__(
        self,
        turns: TurnRunner,
        work: Work,
        means: Means,
        hosts: Hosts,
        session: SessionNotes,
        runs: RunBook,
        settings: Settings,
    ) -> None:
        self._turns = turns
        self._work = work
        self._means = means
        self._hosts = hosts
        self._session = session
        self._runs = runs
        self._settings = settings
        self.margin = PolitenessMargin()
        self._own = OwnWaits(work, means, hosts, give_up_s=settings.hosts.give_up_s, give_up=session.give_up)
        self._robots = RobotsTurns(means.gate, hosts, before_send=self._before_send, on_sent=self.margin.sent)
        self._login_turns = LoginTurns(
            work, means, hosts, self._robots if settings.robots.obey else None, self._own,
            before_send=self._before_send, on_sent=self.margin.sent,
        )  # fmt: skip
        workers = settings.fetch.concurrency
        self._reaching = Reaching(means.fetcher, claims_max=CLAIMS_PER_WORKER * workers, connects_max=workers)
        self._slow_hosts = SlowHosts(work.scheduler, workers=workers)
        # When a name that is late, or a connection, has been given up.
        name_s = settings.dns.timeout_s * settings.dns.tries
        self._late_ms = int(1000 * (max(name_s, settings.fetch.connect_timeout_s) + LATE_S))
        self._cookie_walls = CookieWalls()
        self._rights = RightsRules(settings)
        self._has_requisites = settings.requisites.fetch
        self._bytes_max = {SITEMAP: SITEMAP_BYTES_MAX, REQUISITE: settings.requisites.body_bytes_max}
        self._answers = Answers(
            means, hosts, session, runs, self._cookie_walls, self._rights, obeys_robots=settings.robots.obey,
            requisites_max=settings.requisites.page_max if self._has_requisites else 0,
        )  # fmt: skip
        # Also while a page is parsed. By worker, because two may have one claim: the first requeued it and pauses.
        self._in_turn: dict[int, Claim] = {}
        self._began = asyncio.Event()  # set when one comes
        self._isolation = Isolation()
        self._stale = StaleRequests()
        self.cut_off: list[Claim] = []  # claims whose requests or look-ups were cancelled with the workers

    async def run(self) -> None:
        """Work until cancelled; requests in flight are cut off then."""
        try:
            async with asyncio.TaskGroup() as group:
                for number in range(self._settings.fetch.concurrency):
                    group.create_task(self._take_turns(number), name=f"fetch-{number}")
                group.create_task(self._watch())
        finally:
            for claim in await self._reaching.close():
                self._cut_off(claim)

    def _cut_off(self, claim: Claim) -> None:
        self._work.open_claims.moved(claim, ClaimPlace.CUT_OFF)
        self.cut_off.append(claim)

    @property
    def in_turn(self) -> list[Claim]:
        """Claims that are being worked on: fetched, or parsed after that."""
        return list(self._in_turn.values())

    async def _take_turns(self, worker: int) -> None:
        mark = self._session.inflight_log.mark()
        while True:
            slot, claim = await self._work.scheduler.next()
            self._in_turn[worker] = claim
            self._began.set()
            mark.set(claim.partition, claim.fingerprint, claim.url)
            try:
                await mark.during(self._turns.run(Turn(self._work.scheduler, slot, claim, mark), self._isolated_turn))
            finally:
                del self._in_turn[worker]

    async def _isolated_turn(self, turn: Turn) -> TurnEnd:
        """A URL that processes died with is fetched alone, and finally given up."""
        claim, action = turn.claim, turn.crash_action
        if action is CrashAction.GIVEN_UP and self._work.held.holds(claim):
            detail = "its content crashed or stalled the process that worked on it (see session.* in the logs)"
            return Deliver(Failed.finally_(claim, FailureKind.POISON_URL, detail))
        await self._isolation.enter(alone=action is CrashAction.ALONE)
        try:
            if action is CrashAction.ALONE:
                log.warning("fetch.alone", extra={"url": claim.url, "deaths": claim.deaths})
            end = await self._turn(turn)
        finally:
            self._isolation.leave()
        if isinstance(end, Deliver) and isinstance(end.outcome, Refused | Deferred):
            recall = self._hosts.policy.unrequested(claim)
            if recall is not None:
                await self._hosts.recall(claim, recall)
        return end

    async def _turn(self, turn: Turn) -> TurnEnd:
        """One turn of a queue: a page, or what must come before it."""
        claim = turn.claim
        if not self._work.held.holds(claim):
            return LeaseLost()
        if claim.request is not None and (reason := why_not_sent(claim.request)):
            return Deliver(Failed.finally_(claim, FailureKind.OUTCOME_UNKNOWN, reason))
        if not self._session.liveness.may_start():
            return Requeue(pause_s=BEAT_PAUSE_S)
        if self._work.counters.overrides.holds_back(claim.domain):
            return ReturnToEngine()
        if claim.run and (ended := await self._run_ends(claim)) is not None:
            return ended
        end = self._unwanted(claim) or (await self._shown_else(turn) if self._has_requisites else None)
        if end is not None:
            return end
        reached = self._origin_refuses(claim) or self._reaching.of(claim)
        if not isinstance(reached, Reached):
            return self._hosts.policy.set_aside(claim, monotonic_ms() + FULL_MS) if self._is_full(reached) else reached
        if reached.is_late:
            return self._hosts.policy.set_aside(claim, monotonic_ms() + self._late_ms)
        if reached.failure is not None:
            return await self._unreached(turn, reached.failure)
        origin = origin_of(claim.url)
        if reached.is_connected:
            turn.slot.reached = origin
        elif self._is_doubtful(turn.slot, origin):
            return self._connect(turn.slot, claim, reached)
        return await self._exchange(turn, reached.address)

    def _unwanted(self, claim: Claim) -> Deliver | None:
        """How the turn ends when it is known since the URL was queued that it is not to be fetched."""
        if claim.is_given_sitemap:
            return (
                Deliver(Refused(claim=claim, reason=RefusalReason.EXCLUDED)) if self._runs.forgets(claim.url) else None
            )
        if self._runs.excludes(claim.url):
            return Deliver(Refused(claim=claim, reason=RefusalReason.EXCLUDED))
        if reason := self._work.traps.reason_to_defer(claim):
            return Deliver(Deferred(claim=claim, reason=reason))
        return None

    async def _shown_else(self, turn: Turn) -> TurnEnd | None:
        """How the turn ends of a URL that is on its way here as a page and as a requisite, of a requisite that is
        archived as a page, or of one of whose queue enough was fetched; None: it goes on.
        """
        claim, is_requisite = turn.claim, turn.claim.is_requisite
        if self._work.open_claims.place_of_twin(claim) in (BEFORE_A_REQUISITE if is_requisite else BEFORE_A_PAGE):
            turn.claim = replace(claim, has_twin=True)
            return Requeue(at_tail=True, wait_ms=TWIN_WAIT_MS)
        if not is_requisite:
            return None
        revisits, is_released = self._means.revisits, self._work.traps.is_released(claim.queue, REQUISITES)
        if claim.has_twin and revisits is not None and await revisits.is_a_page_here(claim):
            return Deliver(Refused(claim=claim, reason=RefusalReason.ARCHIVED))
        if not is_released and await self._means.requisites.is_used_up(claim):
            return Deliver(Deferred(claim=claim, reason=REQUISITES))
        return None

    async def _session_of(self, claim: Claim) -> Session | None:
        """The session whose cookies go along; None: none. Any page may show a URL, so requisites have none."""
        if claim.label == REQUISITE or not self._means.sessions.wants(claim):
            return None
        return await self._means.sessions.of(claim)

    async def _of_requisite(self, turn: Turn, session: Session | None) -> Answered | None:
        """The answer that was archived when the page was requested as a requisite; None: it is to be requested."""
        claim, revisits = turn.claim, self._means.revisits
        is_same = not (claim.is_requisite or session or turn.request or claim.request)
        if (
            not (claim.has_twin and is_same)
            or revisits is None
            or (found := await revisits.of_requisite(claim)) is None
        ):
            return None
        earlier, response = found
        page_request = PageRequest(turn.slot, claim, response.started_at, earlier=earlier)
        result = FetchResult(url=claim.url, response=response)
        return Answered(page_request, result, Settlement(next_fetch_ms=0), wall_s())

    def _is_full(self, end: TurnEnd) -> bool:
        """Do too many claims wait for names?"""
        return isinstance(end, AwaitReach) and self._reaching.is_full

    async def _exchange(self, turn: Turn, address: str) -> TurnEnd:
        """The request of a turn, and what its answer means; another end while there is no room for it."""
        slot, origin = turn.slot, origin_of(turn.claim.url)
        kind = self._slow_hosts.kind_of(origin)
        if (full := self._hosts.addresses.enter(address, kind)) is not None:
            return full
        was_quick = kind is Kind.QUICK
        turn.address = "" if kind is Kind.SLOW else address
        turn.is_quick = not self._slow_hosts.is_limited(origin)
        if not turn.is_quick and (full := self._slow_hosts.enter()) is not None:
            self._hosts.addresses.left(address, kind, took_ms=None)
            return full
        turn.is_apart = slot.doubts > 0 and not was_quick and slot.answered not in ("", origin)
        slot.is_apart = slot.is_apart or turn.is_apart
        began_ms, answered = monotonic_ms(), None
        try:
            answered = await self._request(turn)
        except BaseException:
            turn.session_page_over()
            raise
        finally:
            took_ms = monotonic_ms() - began_ms
            has_answered = slot.answered == origin and not self._hosts.policy.has_failed(origin)
            self._hosts.addresses.left(address, kind, took_ms=took_ms, answered=has_answered)
            if not turn.is_quick:
                self._slow_hosts.left(took_ms=took_ms)
            if turn.is_apart:
                slot.is_apart = False
            if has_answered and not self._slow_hosts.has_answered(origin):
                slot.doubts = max(0, slot.doubts - 1)
            is_ours = isinstance(answered, SetAside)  # nothing came through a proxy or our own network
            self._slow_hosts.note(origin, answered=has_answered, took_ms=0 if is_ours else took_ms)
        try:
            return await self._answers.judge(turn, answered) if isinstance(answered, Answered) else answered
        finally:
            turn.session_page_over()

    def _is_doubtful(self, slot: QueueSlot, origin: str) -> bool:
        """May connecting to this origin be in vain, so that the others of its queue should not wait for it?"""
        if slot.reached == origin:
            return False
        if self._hosts.policy.has_failed(origin):
            return True
        return slot.doubts > 0 and not self._slow_hosts.has_answered(origin)

    def _connect(self, slot: QueueSlot, claim: Claim, reached: Reached) -> TurnEnd:
        """How a turn ends that is for an origin which may not answer: it is connected to first, if it is its turn."""
        now_ms = monotonic_ms()
        if not self._reaching.may_connect:
            return self._hosts.policy.set_aside(claim, now_ms + FULL_MS)
        at_ms = slot.try_doubtful(now_ms, self._hosts.policy.promised_ms(claim))
        if at_ms > now_ms:
            return self._hosts.policy.promise(claim, at_ms)
        return self._reaching.connect(claim, reached)

    async def _unreached(self, turn: Turn, failure: Failure) -> TurnEnd:
        """The end of a claim whose name can't be resolved, for which its queue does not wait, or that could not be
        connected to.
        """
        slot, claim, is_unsent = turn.slot, turn.claim, failure.kind in UNSENT
        if failure.kind in OURS:
            return self._own.awaited(claim, failure)
        result = FetchResult(url=claim.url, failure=failure)
        wait, recall = self._hosts.policy.of_page(slot, claim, result)
        turn.request_over(wait_ms=0 if is_unsent else wait, started=not is_unsent)
        if recall is not None:
            await self._hosts.recall(claim, recall)
        next_ms = 0 if is_unsent else self._work.held.now_of(claim.partition) + wait
        failed = self._hosts.policy.judged(claim, result, Settlement(next_fetch_ms=next_ms))
        assert failed is not None
        return delivered(failed)

    async def _run_ends(self, claim: Claim) -> TurnEnd | None:
        """How the turn ends when nothing more of the claim's run is to be fetched."""
        try:
            reason = await self._runs.refusal_of(claim)
        except EngineError:
            return Requeue(pause_s=BEAT_PAUSE_S)
        return Deliver(Refused(claim=claim, reason=reason)) if reason else None

    def _origin_refuses(self, claim: Claim) -> SetAside | OriginGivenUp | None:
        """How the turn ends when the origin, or what is on the way, is not worth a request now."""
        if wait_ms := self._own.wait_ms(claim):
            return self._hosts.policy.set_aside(claim, monotonic_ms() + wait_ms)
        action = self._hosts.policy.action_for(claim)
        if action is HostAction.WAIT:
            return self._hosts.policy.set_aside(claim)
        if action is HostAction.GIVE_UP:
            return OriginGivenUp(origin_of(claim.url), self._hosts.policy.abandoned)
        return None

    async def _request(self, turn: Turn) -> Answered | TurnEnd:
        """The answer to the request for the page, or how the turn ends without one."""
        claim, entry = turn.claim, None
        if self._settings.robots.obey:
            entry = await self._means.gate.known(claim, is_delay_known=turn.slot.delay_ms >= 0)
            if entry is None:
                return await self._ask_robots(turn)
            if entry.rules is None:
                return self._origin_refuses(claim) or self._robots_unreachable(claim, entry)
            if (forbidden := self._forbidden(turn, entry.rules)) is not None:
                return forbidden
            if self._rights.lacks_tdmrep(entry.rules):
                return await self._ask_robots(turn, entry)
        longer = await self._robots.learn_delay(turn, entry)
        if longer is not None:
            return longer
        if self._means.handling.prepares and claim.label != REQUISITE:
            prepared = await self._prepared(turn)
            if not isinstance(prepared, Request):
                return prepared
            turn.request = prepared
        session = await self._session_of(claim)
        plan = self._means.logins.plan_of(session) if session is not None else None
        if session is not None and plan is not None:
            end = await self._before_session_page(turn, session, plan)
            if end is not None:
                return end
        return await self._known_answer(turn, session) or await self._page(turn, session)

    async def _known_answer(self, turn: Turn, session: Session | None) -> Answered | None:
        """The answer, where no request is needed for it."""
        claim, known = turn.claim, self._cookie_walls.answer_for(turn.claim, wall_s())
        if known is None:
            return await self._of_requisite(turn, session) if claim.has_twin else None
        step = Step(url=claim.url, jar=Jar())  # the chain led nowhere, so none is started again
        page_request = PageRequest(turn.slot, claim, known.page_request.started_at, step=step)
        return Answered(page_request, known.result, Settlement(next_fetch_ms=0), known.finished_at)

    def _forbidden(self, turn: Turn, rules: RobotsRules) -> Requeue | Deliver | None:
        """How the turn ends when robots.txt forbids the request, or says no to the purpose of the crawl."""
        claim = turn.claim
        if not rules.allows(self._cookie_walls.url_of(claim)):
            if self._cookie_walls.take(claim) is not None:
                return Requeue()  # robots.txt has changed since the step was noted
            return Deliver(Refused(claim=claim, reason=RefusalReason.ROBOTS))
        turn.said = rules.said
        if rules.said is not None and self._is_not_ours(claim, rules.said):
            return Deliver(Deferred(claim=claim, reason=RIGHTS))
        return None

    def _is_not_ours(self, claim: Claim, said: SiteRights) -> bool:
        """Does robots.txt say no to the purpose of the crawl, and no operator yes?"""
        if self._rights.forbidden(claim, said) is None:
            return False
        return not self._work.traps.is_released(claim.queue, RIGHTS)

    async def _prepared(self, turn: Turn) -> Request | Deliver:
        """The turn's request as the user's functions want it, or how the turn ends when they don't."""
        claim = turn.claim
        prepared = await self._means.handling.prepare(claim)
        if isinstance(prepared, Request):
            return prepared
        if isinstance(prepared, str):
            return Deliver(Refused(claim=claim, reason=prepared))
        failed = self._hosts.policy.failed(claim, FailureKind.HANDLER, prepared.detail, Settlement(next_fetch_ms=0))
        return Deliver(replace(failed, trace=prepared.trace))

    async def _before_session_page(self, turn: Turn, session: Session, plan: LoginPlan) -> TurnEnd | None:
        """How a turn ends instead of a request for a page of a session with a login; None: it is its turn."""
        logins = self._means.logins
        if (fate := await logins.fate_of(turn.claim, session)) is not None:
            return Deliver(Failed.finally_(turn.claim, fate.kind, fate.detail))
        if logins.must_log_in(session, turn.claim):
            return await self._login(turn, session, plan)
        if logins.must_wait(session, turn.claim):
            return Requeue(wait_ms=LOGIN_WAIT_MS)
        turn.watch = logins.watch(session)
        return None

    async def _login(self, turn: Turn, session: Session, plan: LoginPlan) -> TurnEnd:
        try:
            return await self._login_turns.take(turn, session, plan)
        except asyncio.CancelledError:
            self._cut_off(turn.claim)
            raise

    async def _ask_robots(self, turn: Turn, known: RobotsEntry | None = None) -> TurnEnd:
        found = await self._robots.read(turn, known=known)
        if isinstance(found, Requeue):
            return found
        if isinstance(found, RobotsResult):
            assert found.ours is not None
            return self._own.awaited(turn.claim, found.ours, found.wait_ms)
        if turn.claim.is_requisite:
            self._means.requisites.robots_read(turn.claim)
        if found.rules is None:
            return self._robots_unreachable(turn.claim, found)  # now: the entry may not outlive the wait
        return Requeue()

    def _robots_unreachable(self, claim: Claim, entry: RobotsEntry) -> Deliver:
        kind = entry.failure or FailureKind.ROBOTS_UNREACHABLE
        detail = f"robots.txt: {entry.detail.removeprefix(f'{kind}: ')}"
        if kind in NOT_ALLOWED:  # a failure of the host: robots.txt was only the first request
            detail = entry.detail
        settled, retry_after_ms = Settlement(next_fetch_ms=0), entry.retry_after_ms
        return delivered(self._hosts.policy.failed(claim, kind, detail, settled, retry_after_ms=retry_after_ms))

    def _before_send(self, claim: Claim, url: str) -> None:
        """Last check before a request's bytes are sent: much may have changed while it was prepared."""
        is_held_back = self._work.counters.overrides.holds_back(claim.domain)
        if is_held_back or not self._session.liveness.may_start() or not self._work.held.holds(claim):
            raise NotEntitledError
        reached("fetch.checked", url)

    async def _note_sent(self, claim: Claim) -> None:
        """Note that the request of a claim is about to be sent, which must not be repeated."""
        self._before_send(claim, claim.url)
        fence = self._work.held.fence_of(claim.partition)
        if fence is None or await self._session.note_sent(fence, claim) is not AckOutcome.COMMITTED:
            raise NotEntitledError
        reached("request.noted", claim.url)

    def _before_page(self, turn: Turn, page_request: PageRequest) -> None:
        self._before_send(page_request.claim, page_request.claim.url)
        self.margin.sent(page_request.slot, monotonic_ms())
        turn.sent()
        page_request.is_sent, page_request.started_at = True, wall_s()

    async def _page(self, turn: Turn, session: Session | None) -> Answered | TurnEnd:
        slot, claim = turn.slot, turn.claim
        step = self._cookie_walls.take(claim)
        url = claim.url if step is None else step.url
        cookies = [] if step is None else step.jar.sent_to(url, wall_s())
        request, earlier = turn.request or claim.request, None
        if claim.run and step is None and session is None and turn.request is None:
            earlier = await self._earlier(claim)
            request = request if earlier is None else Request(headers=earlier.validators.headers)
        page_request = PageRequest(slot, claim, wall_s(), step=step, earlier=earlier)
        if session is not None:
            page_request.session, page_request.login = session, session.login
            cookies = session.jar.sent_to(url, wall_s())  # it has those of the step, too
        before_send = partial(self._before_page, turn, page_request)
        note_sent = partial(self._note_sent, claim) if is_once(claim) else None
        is_repeatable = note_sent is None
        worker = self._work.requests.add(
            claim, is_quick=turn.is_quick and is_repeatable, address=turn.address if is_repeatable else ""
        )  # fmt: skip
        try:
            bytes_max = self._bytes_max.get(claim.label)
            result = await self._means.fetcher.fetch(
                url, request=request, cookies=cookies, hides_cookies=session is not None,
                body_bytes_max=bytes_max, note_sent=note_sent, before_send=before_send, working=turn.mark,
            )  # fmt: skip
        except NotEntitledError:
            self._cookie_walls.put_back(claim, step)
            return Requeue()
        except asyncio.CancelledError:
            turn.request_over(wait_ms=slot.delay_ms)
            if not self._work.requests.is_only_cut_off(worker):
                self._session.notes.cut_off(claim, page_request.started_at)
                self._cut_off(claim)
                raise
            if self._work.requests.has_made_way(worker):
                self._session.notes.cut_off(claim, page_request.started_at)
                self._cookie_walls.put_back(claim, step)
                return Requeue(at_tail=True)  # among those that may be slow; no attempt is counted
            return self._late(page_request)  # the claim is not ours to end any more
        finally:
            self._work.requests.remove(worker)
        turn.answered()
        reached("fetch.answered", claim.url)
        if result.failure is not None and result.failure.kind in OURS:
            return self._not_through(turn, page_request, result.failure)
        if session is not None and result.response is not None:
            self._means.sessions.take(session, url, result.response.headers)
        wait, recall = self._hosts.policy.of_page(slot, claim, result)
        finished_at = wall_s()
        is_unsent = result.failure is not None and result.failure.kind in UNSENT
        turn.request_over(wait_ms=0 if is_unsent else wait, started=not is_unsent)
        if recall is not None:
            await self._hosts.recall(claim, recall)
        if not self._work.held.holds(claim):
            return self._late(page_request)
        if result.wants_signature or self._stale.is_first(claim, result):
            status = result.response.status if result.response is not None else 0
            self._session.notes.cut_off(claim, page_request.started_at, status)
            self._cookie_walls.put_back(claim, step)
            return Requeue()  # its queue waits as after any request
        settled = Settlement(next_fetch_ms=self._work.held.now_of(claim.partition) + wait, delay_ms=slot.delay_ms)
        return Answered(page_request, result, settled, finished_at)

    async def _earlier(self, claim: Claim) -> EarlierPage | None:
        return await self._means.revisits.page_of(claim) if self._means.revisits is not None else None

    def _not_through(self, turn: Turn, page_request: PageRequest, failure: Failure) -> TurnEnd:
        """The end of a page's turn for which a proxy, or our own network, failed. The request may have been sent: then
        its queue waits.
        """
        claim = page_request.claim
        if page_request.is_sent:
            turn.request_over(wait_ms=max(turn.slot.delay_ms, turn.slot.adaptive_delay.delay_ms, 0))
        if not self._work.held.holds(claim):
            return self._late(page_request)
        if page_request.is_sent and is_once(claim):
            return attempt_failed(page_request, Failed.finally_(claim, FailureKind.OUTCOME_UNKNOWN, failure.detail))
        if page_request.is_sent:
            self._session.notes.cut_off(claim, page_request.started_at)
        self._cookie_walls.put_back(claim, page_request.step)
        return self._own.awaited(claim, failure)

    def _late(self, page_request: PageRequest) -> LeaseLost:
        """The lease was gone before the answer was read: the new owner's request may have overlapped with this one."""
        if page_request.is_sent:
            self._work.counters.late += 1
            log.warning("fetch.late", extra={"url": page_request.claim.url})
        self._session.notes.cut_off(page_request.claim, page_request.started_at)
        return LeaseLost()

    async def _watch(self) -> None:
        """Cut off what is in flight once this session has been silent long enough that others may own it, and what is
        slow while others wait.
        """
        while True:
            if self._in_turn or self._work.scheduler.waited_for():
                await asyncio.sleep(BEAT_PAUSE_S)
            else:
                self._began.clear()
                await tick(RESTING_S, self._began)
            if self._session.liveness.must_abort():
                self._work.requests.cut_off_all()
            self._own.watch()
            self._make_way()
            waited_for = {address_of(line) for line in self._work.scheduler.waited_for()}
            self._make_way_at(waited_for)
            for address in waited_for:
                if address == SLOW:
                    self._slow_hosts.wake()
                else:
                    self._hosts.addresses.wake(address)

    def _make_way(self) -> None:
        """Cut off some requests that were expected to be quick and are not, when slow ones hold more than their share
        while others wait. They are repeated in that share.
        """
        if len(self._in_turn) < self._settings.fetch.concurrency or not self._work.scheduler.has_due:
            return
        slow = [(requests, requests.slow(PROMPT_MS)) for requests in (self._work.requests, self._robots.requests)]
        more = self._slow_hosts.open + sum(len(workers) for _, workers in slow) - self._slow_hosts.most
        for requests, workers in slow if more > 0 else ():
            self._slow_hosts.beware()
            requests.make_way(workers[:more])
            more -= len(workers[:more])

    def _make_way_at(self, waited_for: Collection[str]) -> None:
        """The same at addresses that others wait for."""
        if not waited_for:
            return
        addresses = self._hosts.addresses
        slow = [
            (one, one.slow_at(waited_for, addresses.patience_ms))
            for one in (self._work.requests, self._robots.requests)
        ]
        for address in {address for _, found in slow for address in found}:
            more = addresses.make_way(address, sum(len(found.get(address, ())) for _, found in slow))
            for requests, found in slow:
                workers = found.get(address, [])[:more]
                requests.make_way(workers)
                more -= len(workers)

    async def wait_idle(self, timeout_s: float) -> None:
        """Wait until nothing is in flight: neither a request nor a page that is being parsed."""
        deadline_ms = monotonic_ms() + int(timeout_s * 1000)
        while self._in_turn and monotonic_ms() < deadline_ms:  # noqa: ASYNC110 - asked once, at the end
            await asyncio.sleep(0.02)
