"""Stage two: workers take claims from the workbench, obey robots.txt and the session's deadline, and fetch."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from functools import partial

from crawler.content.page import redirect_target
from crawler.errors import EngineError
from crawler.frontier.frontier import Settlement
from crawler.handlers.running import NOTHING_HANDLED, Handled, HandlerError
from crawler.instance.addresses import Addresses
from crawler.instance.aftermath import Aftermath
from crawler.instance.clock import monotonic_ms, wall_s
from crawler.instance.cookie_walls import CookieWalls
from crawler.instance.crash_points import reached
from crawler.instance.doors import Answered, Doors, Exchange
from crawler.instance.gate import Gate
from crawler.instance.names import Names
from crawler.instance.open_requests import OpenRequests
from crawler.instance.outcome import Committable, Failed, NotEntitledError, Outcome, Parked, Refused
from crawler.instance.parsing import ParseKilledError
from crawler.instance.permitting import Permits
from crawler.instance.robots import RobotsEntry
from crawler.instance.workbench import Lane
from crawler.model import REDIRECTS, Claim, FailureKind, Page, Refusal, Response
from crawler.rules.hosts import Turn
from crawler.rules.killers import Fate, fate_of
from crawler.settings import Settings

log = logging.getLogger(__name__)

PAUSE_S = 0.2  # while the engine does not answer or the heartbeat is late


class FetchStage:
    """A pool of workers."""

    def __init__(
        self,
        doors: Doors,
        settings: Settings,
        *,
        deliver: Callable[[Outcome], None],
        turn_away: Callable[[Claim], Awaitable[None]],
        members: Callable[[], int] = lambda: 1,
    ) -> None:
        """`members`: how many instances take part now."""
        self._d = doors
        self._settings = settings
        self._deliver = deliver
        self._turn_away = turn_away
        self._aftermath = Aftermath(settings)
        self._permits = Permits(
            doors.frontier, doors.ownership, doors.bench, doors.robots, doors.robots_reader, self._aftermath,
            settings.politeness, before_send=self._before_send, orders=lambda: doors.flow.orders,
            sites=settings.sites,
        )  # fmt: skip
        self._names = Names(doors.fetcher, doors.bench)
        politeness = settings.politeness
        self._addresses = Addresses(
            doors.bench, limit=politeness.concurrency_per_address,
            sharers=members if politeness.address_limit_of == "crawl" else lambda: 1,
        )  # fmt: skip
        self._cookie_walls = CookieWalls()
        self._requests = OpenRequests()
        self._workers: list[asyncio.Task[None]] = []
        # Also while a page is parsed. By worker: two may have one claim, when the first put it back and rests.
        self._in_turn: dict[int, Claim] = {}
        self._gate = Gate()

    def start(self) -> None:
        """Start the workers."""
        for n in range(self._settings.fetch.concurrency):
            self._workers.append(asyncio.create_task(self._work(n), name=f"fetch-{n}"))

    async def close(self) -> list[Claim]:
        """Cancel the workers; what is in flight is cut off. Returns the claims whose requests or look-ups were."""
        cut_off = self._requests.claims
        for worker in self._workers:
            worker.cancel()
        await asyncio.gather(*self._workers, return_exceptions=True)
        self._workers.clear()
        return cut_off + await self._names.close()

    @property
    def in_turn(self) -> list[Claim]:
        """Claims that are being worked on: fetched, or parsed after that."""
        return list(self._in_turn.values())

    @property
    def workers(self) -> list[asyncio.Task[None]]:
        """The workers; one that ends has met an error of ours."""
        return self._workers

    async def _work(self, worker: int) -> None:
        while True:
            lane, claim = await self._d.bench.take()
            self._in_turn[worker] = claim
            try:
                await self._isolated_turn(lane, claim)
            except EngineError as error:
                log.warning("fetch.engine_error", extra={"error": str(error)})
                self._d.bench.finished(lane, wait_ms=0, started=False)
                self._d.bench.put_back(claim)
                await asyncio.sleep(PAUSE_S)
            finally:
                del self._in_turn[worker]

    async def _isolated_turn(self, lane: Lane, claim: Claim) -> None:
        """What processes died with runs alone, and at last not at all."""
        fate = fate_of(claim.deaths, claim.deliveries)
        if fate is Fate.GIVEN_UP and self._d.ownership.holds(claim):
            self._d.bench.finished(lane, wait_ms=0, started=False)
            detail = f"the process that fetched it died {max(claim.deaths, 1)} times"
            self._deliver(Failed.finally_(claim, FailureKind.KILLER, detail))
            return
        await self._gate.enter(alone=fate is Fate.ALONE)
        try:
            if fate is Fate.ALONE:
                log.warning("fetch.alone", extra={"url": claim.url, "deaths": claim.deaths})
            await self._turn(lane, claim)
        finally:
            self._gate.leave()

    async def _turn(self, lane: Lane, claim: Claim) -> None:
        """One turn of a queue: a page, or what must come before it."""
        d = self._d
        if not self._d.ownership.holds(claim):
            d.bench.finished(lane, wait_ms=0, started=False)
            d.flow.ended(claim.partition)
            return
        if not d.heartbeat.may_start():
            d.bench.finished(lane, wait_ms=0, started=False)
            d.bench.put_back(claim)
            await asyncio.sleep(PAUSE_S)
            return
        if d.flow.orders.holds_back(claim.domain):
            d.bench.finished(lane, wait_ms=0, started=False)
            await self._turn_away(claim)
            return
        if reason := d.traps.parks(claim):
            d.bench.finished(lane, wait_ms=0, started=False)
            self._deliver(Parked(claim=claim, reason=reason))
            return
        if not self._may_ask(lane, claim):
            return
        address = await self._names.address_of(lane, claim)
        if address is None:
            return
        if not self._addresses.enter(address, lane, claim):
            return
        began_ms = monotonic_ms()
        slot = d.black_box.started(claim.partition, claim.fingerprint)
        try:
            try:
                answered = await self._request(lane, claim)
            finally:
                self._addresses.left(address, took_ms=monotonic_ms() - began_ms)
            if answered is not None:
                await self._judge(answered)
        finally:
            d.black_box.ended(slot)

    def _may_ask(self, lane: Lane, claim: Claim) -> bool:
        """Is the host worth a request? If not, the turn is over."""
        turn = self._aftermath.turn_of(lane)
        if turn is Turn.WAIT:
            self._d.bench.finished(lane, wait_ms=lane.standing.probe_ms - monotonic_ms())
            self._d.bench.put_back(claim)
        elif turn is Turn.GIVE_UP:
            for abandoned in (claim, *self._d.bench.abandon(lane)):
                self._deliver(self._aftermath.abandoned(lane, abandoned))
        return turn in (Turn.FETCH, Turn.PROBE)

    async def _request(self, lane: Lane, claim: Claim) -> Answered | None:
        """What came of asking for the page; None when it was not asked for, or nobody waits for the answer any more."""
        d = self._d
        entry = None
        if self._settings.robots.obey:
            entry = await self._permits.known(lane, claim)
            if entry is None:
                await self._ask_robots(lane, claim)
                return None
            if entry.rules is None:
                d.bench.finished(lane, wait_ms=0, started=False)
                self._robots_unreachable(lane, claim, entry)
                return None
            if not entry.rules.allows(claim.url):
                d.bench.finished(lane, wait_ms=0, started=False)
                self._deliver(Refused(claim=claim, reason=Refusal.ROBOTS))
                return None
        if await self._permits.learn_delay(lane, claim, entry):
            return await self._page(lane, claim)
        d.bench.put_back(claim)
        return None

    async def _ask_robots(self, lane: Lane, claim: Claim) -> None:
        entry = await self._permits.ask(lane, claim)
        if entry is not None and entry.rules is None:
            self._robots_unreachable(lane, claim, entry)  # now: the entry may not outlive the wait
        else:
            self._d.bench.put_back(claim, last=entry is None)  # others of its queue needn't wait for the same

    def _robots_unreachable(self, lane: Lane, claim: Claim, entry: RobotsEntry) -> None:
        kind = entry.failure or FailureKind.ROBOTS_UNREACHABLE
        detail = f"robots.txt: {entry.detail}"
        settled = Settlement(next_fetch_ms=0)
        self._deliver(self._aftermath.failed(lane, claim, kind, detail, settled, retry_after_ms=entry.retry_after_ms))

    def _before_send(self, claim: Claim, url: str) -> None:
        """Just before a request's bytes: much may have changed while it was prepared."""
        d = self._d
        if not d.heartbeat.may_start() or not d.ownership.holds(claim) or d.flow.orders.holds_back(claim.domain):
            raise NotEntitledError
        reached("fetch.checked", url)

    def _before_page(self, exchange: Exchange) -> None:
        self._before_send(exchange.claim, exchange.claim.url)
        exchange.is_sent, exchange.started_at = True, wall_s()

    async def _page(self, lane: Lane, claim: Claim) -> Answered | None:
        d = self._d
        cookies = self._cookie_walls.cookies_for(claim)
        exchange = Exchange(lane, claim, wall_s(), has_cookies=bool(cookies))
        before_send = partial(self._before_page, exchange)
        worker = self._requests.begin(claim)
        try:
            result = await d.fetcher.fetch(claim.url, cookies=cookies, before_send=before_send)
        except NotEntitledError:
            d.bench.finished(lane, wait_ms=0, started=False)
            d.bench.put_back(claim)
            return None
        except asyncio.CancelledError:
            d.bench.finished(lane, wait_ms=lane.delay_ms)
            if not self._requests.goes_on(worker):
                d.history.cut_off(claim, exchange.started_at)
                raise
            self._late(exchange)  # the claim is not ours to end any more
            return None
        finally:
            self._requests.ended(worker)
        reached("fetch.answered", claim.url)
        wait = self._aftermath.of_page(lane, result)
        finished_at = wall_s()
        d.bench.finished(lane, wait_ms=wait)
        if not self._d.ownership.holds(claim):
            self._late(exchange)
            return None
        settled = Settlement(next_fetch_ms=d.ownership.now_of(claim.partition) + wait, delay_ms=lane.delay_ms)
        return Answered(exchange, result, settled, finished_at)

    def _late(self, exchange: Exchange) -> None:
        """The lease was gone before the answer was read: the new owner's request may have overlapped with this one."""
        if exchange.is_sent:
            self._d.flow.late += 1
            log.warning("fetch.late", extra={"url": exchange.claim.url})
        self._d.history.cut_off(exchange.claim, exchange.started_at)
        self._d.flow.ended(exchange.claim.partition)

    def _fail(self, exchange: Exchange, failed: Failed) -> None:
        failed.started_at = exchange.started_at
        self._deliver(failed)

    async def _judge(self, answered: Answered) -> None:
        exchange, result, settled = answered.exchange, answered.result, answered.settled
        lane, claim = exchange.lane, exchange.claim
        failed = self._aftermath.judged(lane, claim, result, settled)
        if failed is not None:
            self._fail(exchange, failed)
            return
        response, target = result.response, ""
        assert response is not None
        if response.status in REDIRECTS:
            target = redirect_target(claim.url, response.header("location")) or ""
            sent = exchange.has_cookies
            if target == claim.url and self._cookie_walls.offers_another_try(claim, response, sent=sent):
                self._d.bench.put_back(claim)
                return
        try:
            page, handled = await self._parsed(claim, response)
        except ParseKilledError as error:
            self._fail(exchange, self._aftermath.failed(lane, claim, FailureKind.PARSE, str(error), settled))
            return
        except HandlerError as error:
            failed = self._aftermath.failed(lane, claim, FailureKind.HANDLER, str(error), settled)
            failed.trace = error.trace
            self._fail(exchange, failed)
            return
        self._deliver(
            Committable(
                claim=claim, response=response, page=page, settlement=settled, handled=handled, redirect_to=target,
                finished_at=answered.finished_at,
            )
        )  # fmt: skip

    async def _parsed(self, claim: Claim, response: Response) -> tuple[Page, Handled]:
        """Parsed, and handed to the user's function. Raises ParseKilledError, HandlerError."""
        if response.decode_error:
            return Page(), NOTHING_HANDLED
        page, tree = await self._d.parser.parse_with_tree(response, guarded=claim.deaths > 0)
        reached("page.parsed", claim.url)
        found = await self._d.handling.handle(claim, response, page, tree)
        reached("page.handled", claim.url)
        return found

    async def abort_when_silent(self) -> None:
        """Cut off what is in flight when this session has been silent for so long that others may own it."""
        while True:
            await asyncio.sleep(PAUSE_S)
            if self._d.heartbeat.must_abort():
                self._requests.cut_off_all()

    async def wait_idle(self, timeout_s: float) -> None:
        """Wait until nothing is in flight: neither a request nor a page that is being parsed."""
        deadline_ms = monotonic_ms() + int(timeout_s * 1000)
        while self._in_turn and monotonic_ms() < deadline_ms:  # noqa: ASYNC110 - asked once, at the end
            await asyncio.sleep(0.02)
