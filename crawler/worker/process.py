"""Pages are parsed and handled here, in processes of their own where that is expensive or asked for."""

import asyncio
import contextlib
import logging
import signal
import sys
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple, Protocol

import msgspec
from msgspec.structs import replace
from selectolax.lexbor import LexborHTMLParser

from crawler.archive.inflight_log import Aside, InflightMark
from crawler.content.html import ExpensiveLinksError, Markup, markup_of, parse_with_tree
from crawler.content.parse_cost import BYTES_MAX, CHEAP_MS, INLINE_BYTES_MAX, Cost, cost_of
from crawler.content.sitemap import looks_like_one
from crawler.frontier.reads import Stats
from crawler.handlers.crawler import Crawler, Handler
from crawler.handlers.page import Page as HandlersPage
from crawler.handlers.run import (
    NOTHING_HANDLED,
    Handled,
    HandlerError,
    Limits,
    OutgoingRequest,
    prepare,
    run_handler,
)
from crawler.handlers.tasks import CodeFailure, Threads, end_users_tasks, guard_tasks
from crawler.media_type import declared_type, is_html
from crawler.model import LINK_RULES, PLAIN, Claim, ParsedPage, Request, Response
from crawler.redaction import learned
from crawler.rules.scope import SiteRules
from crawler.rules.urls import BYTES_MAX as URL_BYTES_MAX
from crawler.rules.urls import JoinCache, host_of, registrable_domain
from crawler.runtime.process import Loop, cpu_ms
from crawler.settings import Settings
from crawler.worker.handler_worker import HandlerAnswer, HandlerRequest
from crawler.worker.hooks import DomainsDone, Hooks
from crawler.worker.parse_worker import FAILED, HEAD, READY, framed
from crawler.worker.secret_urls import without_secrets

START_TIMEOUT_S = 60.0  # it loads the user's code, which may hang
END_TIMEOUT_S = 1.0  # between the end of a process's stdout and its own


class WorkerDiedError(Exception):
    """The process gave no answer: it took too long, was killed by the kernel, crashed, or failed on the request."""


class WorkerProcess:
    """Started on first use, and again after it died. One request at a time; others wait."""

    def __init__(self, *command: str, is_silent: bool = False) -> None:
        """`command`: arguments of the Python interpreter. `is_silent`: what it prints on stderr goes nowhere."""
        self._command = command
        self._stderr = asyncio.subprocess.DEVNULL if is_silent else None
        self._process: asyncio.subprocess.Process | None = None
        self._lock = asyncio.Lock()

    async def ask(self, request: Callable[[], bytes], timeout_s: float) -> bytes:
        """Its answer. Raises WorkerDiedError. The start of the process does not count towards the timeout.

        The request is encoded only when it is sent: those that wait hold no copy of their page.
        """
        async with self._lock:
            try:
                process = await self._running()
                async with asyncio.timeout(timeout_s):
                    return await _answer(process, request())
            except (TimeoutError, asyncio.IncompleteReadError, OSError) as error:
                died = await self._end_of_dead() if isinstance(error, asyncio.IncompleteReadError) else ""
                await self.close()
                raise WorkerDiedError(died or type(error).__name__) from None
            except (WorkerDiedError, asyncio.CancelledError):
                await self.close()  # it ends by itself, or half an answer may be in the pipe
                raise

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.returncode is None

    async def _running(self) -> asyncio.subprocess.Process:
        if self._process is None or not self.is_running:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable, *self._command,
                stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=self._stderr,
            )  # fmt: skip
            assert self._process.stdout is not None
            async with asyncio.timeout(START_TIMEOUT_S):
                await self._process.stdout.readexactly(len(READY))
        return self._process

    async def _end_of_dead(self) -> str:
        """How the process ended that closed its stdout: by which signal, or with which exit code; "" if it lives."""
        if self._process is None:
            return ""
        try:
            async with asyncio.timeout(END_TIMEOUT_S):
                code = await self._process.wait()
        except TimeoutError:
            return ""
        try:
            return signal.Signals(-code).name if code < 0 else f"exit code {code}"
        except ValueError:  # a real-time signal has no name
            return f"signal {-code}"

    def kill(self) -> None:
        """End the process, but don't wait for its end."""
        process, self._process = self._process, None
        if process is not None and process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()

    async def close(self) -> None:
        """End the process."""
        process = self._process
        self.kill()
        if process is not None:
            await process.wait()


class WorkerPool:
    """Worker processes for the pages of many domains. Each is started when no other has been free for a time.

    Those who wait take turns by domain. Domains that are known to take long come after the others and never hold the
    last process: however many they are, the page of another domain does not wait for theirs.
    """

    def __init__(
        self, workers: list[WorkerProcess], *, start_after_s: float = 0.0, idle_s: float | None = None
    ) -> None:
        """`start_after_s`: when pages have waited for so long without a break, the next process is started. `idle_s`:
        processes without a request for this long are ended.
        """
        self._workers = workers
        self._free = workers[::-1]  # the one that was used last is at the end
        self._start_after_s = start_after_s
        self._start_timer: asyncio.TimerHandle | None = None
        self._idle_s = idle_s
        self._idle_timer: asyncio.TimerHandle | None = None
        self._slow_active = 0
        self._slow_max = max(1, len(workers) - 1)
        self._waiting: dict[bool, dict[str, deque[asyncio.Future[WorkerProcess]]]] = {False: {}, True: {}}

    async def ask(self, domain: str, request: Callable[[], bytes], timeout_s: float, *, is_slow: bool = False) -> bytes:
        """The answer of a process, see `WorkerProcess.ask`. `is_slow`: pages of this domain are known to take long."""
        turn: asyncio.Future[WorkerProcess] = asyncio.get_running_loop().create_future()
        self._waiting[is_slow].setdefault(domain, deque()).append(turn)
        self._hand_out()
        try:
            worker = await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self._release(turn.result(), is_slow=is_slow)
            raise
        try:
            return await worker.ask(request, timeout_s)
        finally:
            self._release(worker, is_slow=is_slow)

    def _release(self, worker: WorkerProcess, *, is_slow: bool) -> None:
        self._slow_active -= is_slow
        self._free.append(worker)
        self._hand_out()
        if self._start_timer is not None and not any(self._waiting.values()):
            self._start_timer.cancel()
            self._start_timer = None
        if self._idle_s is not None and len(self._free) == len(self._workers):
            if self._idle_timer is not None:
                self._idle_timer.cancel()
            self._idle_timer = asyncio.get_running_loop().call_later(self._idle_s, self._end_idle)

    def _hand_out(self, *, may_start: bool = False) -> None:
        while self._free:
            is_slow = not self._waiting[False]
            if is_slow and (not self._waiting[True] or self._slow_active >= self._slow_max):
                return
            is_start = not self._free[-1].is_running and len(self._free) < len(self._workers)
            if is_start and self._start_after_s and not may_start:
                if self._start_timer is None:
                    self._start_timer = asyncio.get_running_loop().call_later(self._start_after_s, self._start)
                return
            may_start &= not is_start
            waiting = self._waiting[is_slow]
            domain = next(iter(waiting))
            turns = waiting.pop(domain)
            turn = turns.popleft()
            if turns:
                waiting[domain] = turns  # behind the others
            if not turn.done():  # cancelled
                self._slow_active += is_slow
                turn.set_result(self._free.pop())

    def _start(self) -> None:
        self._start_timer = None
        self._hand_out(may_start=True)

    def _end_idle(self) -> None:
        """No page came for long."""
        if len(self._free) == len(self._workers):
            for worker in self._workers:
                worker.kill()

    async def close(self) -> None:
        """End the processes."""
        for timer in (self._start_timer, self._idle_timer):
            if timer is not None:
                timer.cancel()
        for worker in self._workers:
            await worker.close()


async def _answer(process: asyncio.subprocess.Process, request: bytes) -> bytes:
    stdin, stdout = process.stdin, process.stdout
    assert stdin is not None
    assert stdout is not None
    stdin.write(framed(request))
    await stdin.drain()
    (length,) = HEAD.unpack(await stdout.readexactly(HEAD.size))
    if length == FAILED:
        (length,) = HEAD.unpack(await stdout.readexactly(HEAD.size))
        raise WorkerDiedError((await stdout.readexactly(length)).decode("utf-8", "replace"))
    return await stdout.readexactly(length)


# Step 5, parse: cheap bodies in the event loop, long ones in a thread, expensive ones in processes.
#
# In the event loop a few pages are parsed in each pass; then sockets, timers and everything else run. Otherwise fifty
# responses that arrive together would be parsed in a row, and whatever is due meanwhile would be late by their sum.


log = logging.getLogger(__name__)
PAGES_BEFORE_YIELD = 4  # 2 to 5 ms
SLOW_MS = 100  # of CPU time: after such a page in this process, those of its domain go to another until one is quick
SLOW_DOMAINS_MAX = 10_000  # the ones that were slow most recently are kept
HEAVY_MS = 1_000  # after such a page, a domain does not get the last process
SITEMAP_INLINE_BYTES = 64 * 1024  # of one that is read in this process: some ten milliseconds
GZIP = b"\x1f\x8b"
PROCESSES = 2
START_AFTER_S = 1.0  # the second one: its start takes as long as some pages, and 35 MiB
PROCESS_IDLE_S = 60.0
WORKER_TIMEOUT_S = 30.0  # wall clock; the kernel ends the worker after CPU_S, see parse_worker
CPU_S = 5  # of one page in a process
CHARGED_MS = 50  # the longest of 5,646 pages of documentation takes 27 ms
WAIT_PER_MS = 20  # a domain gets a twentieth of a core
WAIT_MAX_MS = 60_000


def wait_after(spent_ms: int) -> int:
    """How long a queue waits after a page that took so much CPU time, ms."""
    return min(spent_ms * WAIT_PER_MS, WAIT_MAX_MS) if spent_ms >= CHARGED_MS else 0


class ComputeLimiter:
    """A few computations in each pass of the event loop, first come, first served.

    Counts turns instead of milliseconds: a simulation must give the same result each time.
    """

    def __init__(self, pages_before_yield: int = PAGES_BEFORE_YIELD) -> None:
        self._pages_before_yield = pages_before_yield
        self._taken = 0  # in this pass of the loop
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._is_watching = False

    async def wait_turn(self) -> None:
        """Wait for a turn; none is needed while this pass has turns left."""
        if not self._is_watching:
            self._watch()
        if self._taken < self._pages_before_yield and not self._waiting:
            self._taken += 1
            return
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(waiter)
        await waiter

    def _watch(self) -> None:
        self._is_watching = True
        asyncio.get_running_loop().call_soon(self._next_pass)

    def _next_pass(self) -> None:
        """A new pass of the loop: release as many waiters as it has turns, the others in later passes."""
        self._taken, self._is_watching = 0, False
        while self._waiting and self._taken < self._pages_before_yield:
            waiter = self._waiting.popleft()
            if not waiter.done():  # cancelled
                waiter.set_result(None)
                self._taken += 1
        if self._waiting or self._taken:
            self._watch()


class ParseKilledError(Exception):
    """Parsing the body took too long, too much memory, or crashed the parser."""


class Queues(Protocol):
    """Where a queue is made to wait for its pages."""

    def hold(self, queue: str) -> None:
        """No further request of the queue starts, until as many calls of `release`."""

    def release(self, queue: str, *, wait_ms: int) -> None:
        """It goes on, `wait_ms` from now at the earliest."""


class SlowDomain(NamedTuple):
    """CPU time of its last page that took long, and whether one took long that was not rated expensive.

    Only then its next pages are parsed in a process, whatever they look like. One that was rated expensive says nothing
    about the others.
    """

    spent_ms: int
    is_underestimated: bool


class PageParser:
    """Parses inline, in one thread, or in worker processes that are started when needed.

    A process costs its start and two copies of the body, so it is for what may take too long. The thread is for what
    takes long but ends: the parser releases the interpreter's lock, so the event loop runs meanwhile.
    """

    def __init__(
        self,
        settings: Settings,
        queues: Queues | None = None,
        *,
        link_rules: int = LINK_RULES,
        reads_feeds: bool = False,
    ) -> None:
        """`queues`: those that wait while a page is parsed apart, and after it for what it took. `reads_feeds`: are the
        entries of sitemaps and feeds links?
        """
        self._link_rules = link_rules
        self._reads_feeds = reads_feeds
        self._links_max = settings.fetch.links_max
        self._nofollow = settings.scope.nofollow
        self._agent = settings.robots.agent
        self._queues = queues
        self._joins = JoinCache()
        command = ("-P", "-m", "crawler.worker.parse_worker")
        self._pool = WorkerPool(
            [WorkerProcess(*command, is_silent=True) for _ in range(PROCESSES)],
            start_after_s=START_AFTER_S,
            idle_s=PROCESS_IDLE_S,
        )
        self._compute_limiter = ComputeLimiter()
        self._long = asyncio.Lock()  # one at a time: the loop keeps at least half of its core
        self._slow: OrderedDict[str, SlowDomain] = OrderedDict()

    async def parse(self, response: Response, *, is_sitemap: bool = False) -> ParsedPage:
        """Raises ParseKilledError when the body can't be parsed within its limits."""
        return (await self.parse_with_tree(response, is_sitemap=is_sitemap))[0]

    async def parse_with_tree(
        self,
        response: Response,
        mark: InflightMark | None = None,
        *,
        guarded: bool = False,
        queue: str = "",
        is_sitemap: bool = False,
        keeps_tree: bool = False,
    ) -> tuple[ParsedPage, LexborHTMLParser | None]:
        """As `parse`, with the tree of HTML that was parsed inline; `keeps_tree`: or in a thread.

        Parsing in a thread sets `mark`. `guarded`: never in this process. `queue`: the one that waits for it.
        `is_sitemap`: it was asked for as one.
        """
        x_robots = "\n".join(
            value.decode("latin-1") for key, value in response.headers if key.lower() == b"x-robots-tag"
        )
        if self._slow and (slow := self._slow.get(_domain_of(response))) is not None:
            guarded = guarded or slow.is_underestimated
        cost, markup = self._cost_of(response, guarded=guarded, is_sitemap=is_sitemap)
        if cost is Cost.CHEAP:
            await self._compute_limiter.wait_turn()
            found, spent_ms = self._timed(response, x_robots, markup, is_sitemap=is_sitemap)
            if spent_ms >= CHARGED_MS:
                self._charge(response, spent_ms, queue, is_underestimated=True)
            if found is not None:
                return found
        with self._holding(queue):
            if cost is Cost.LONG:
                async with self._long:
                    with mark.aside(Aside.THREAD) if mark is not None else contextlib.nullcontext():
                        found, spent_ms = await asyncio.to_thread(self._timed, response, x_robots, markup)
                self._charge(response, spent_ms, queue, is_underestimated=True)
                if found is not None:
                    return found if keeps_tree else (found[0], None)
            del markup  # the process makes its own
            return await self._in_worker(response, x_robots, queue, is_sitemap=is_sitemap), None

    def _cost_of(self, response: Response, *, guarded: bool, is_sitemap: bool) -> tuple[Cost, Markup | None]:
        """The cost of a response, and its markup if it was needed to tell."""
        body, content_type = response.body, declared_type(response)
        if is_sitemap or (self._reads_feeds and not is_html(content_type, body) and looks_like_one(body)):
            is_long = len(body) > SITEMAP_INLINE_BYTES or body.startswith(GZIP)
            return (Cost.EXPENSIVE if guarded or is_long else Cost.CHEAP), None
        if not is_html(content_type, body):
            return Cost.CHEAP, None  # only HTML is parsed
        if guarded or len(body) > BYTES_MAX:
            return Cost.EXPENSIVE, None
        markup = markup_of(content_type, body, decoded_max=INLINE_BYTES_MAX)
        return (Cost.EXPENSIVE if markup is None else cost_of(markup.body)), markup

    def _timed(
        self, response: Response, x_robots: str, markup: Markup | None, *, is_sitemap: bool = False
    ) -> tuple[tuple[ParsedPage, LexborHTMLParser | None] | None, int]:
        """What was found, None if its links are too expensive for this process, and the CPU time in ms."""
        began_ms = cpu_ms()
        try:
            found = self._here(response, x_robots, markup, is_sitemap=is_sitemap)
        except ExpensiveLinksError:
            found = None
        return found, cpu_ms() - began_ms

    def _here(
        self, response: Response, x_robots: str, markup: Markup | None, *, is_sitemap: bool
    ) -> tuple[ParsedPage, LexborHTMLParser | None]:
        page, tree = parse_with_tree(
            response.url,
            declared_type(response),
            x_robots,
            response.body,
            links_max=self._links_max,
            obey_nofollow=self._nofollow,
            bytes_max=URL_BYTES_MAX,
            agent=self._agent,
            refresh=response.header("refresh"),
            joins=self._joins,
            markup=markup,
            join_ms_max=CHEAP_MS,
            link_rules=self._link_rules,
            reads_feeds=self._reads_feeds,
            is_sitemap=is_sitemap,
        )
        return without_secrets(page), tree

    @contextlib.contextmanager
    def _holding(self, queue: str) -> Iterator[None]:
        """Let the queue wait meanwhile: its pages would take all workers of the fetch stage."""
        if self._queues is None or not queue:
            yield
            return
        self._queues.hold(queue)
        try:
            yield
        finally:
            self._queues.release(queue, wait_ms=0)

    def _charge(self, response: Response, spent_ms: int, queue: str, *, is_underestimated: bool = False) -> None:
        """A page took this much CPU time."""
        domain = _domain_of(response)
        before = self._slow.pop(domain, None)
        if spent_ms >= SLOW_MS:
            is_underestimated = is_underestimated or (before is not None and before.is_underestimated)
            self._slow[domain] = SlowDomain(spent_ms, is_underestimated)
            if len(self._slow) > SLOW_DOMAINS_MAX:
                self._slow.popitem(last=False)
            extra = {"url": response.url, "bytes": len(response.body), "cpu_ms": spent_ms}
            log.warning("parse.slow", extra=extra)
        if self._queues is not None and queue and (wait_ms := wait_after(spent_ms)):
            self._queues.hold(queue)
            self._queues.release(queue, wait_ms=wait_ms)

    async def _in_worker(self, response: Response, x_robots: str, queue: str, *, is_sitemap: bool) -> ParsedPage:
        url, body = response.url, response.body
        content_type, refresh = declared_type(response), response.header("refresh")
        asked = (
            url,
            content_type,
            x_robots,
            refresh,
            body,
            self._links_max,
            self._nofollow,
            URL_BYTES_MAX,
            self._agent,
            self._link_rules,
            self._reads_feeds,
            is_sitemap,
            CPU_S,
        )
        domain, spent_ms = _domain_of(response), CPU_S * 1000
        slow = self._slow.get(domain)
        is_slow = slow is not None and slow.spent_ms >= HEAVY_MS
        try:
            encode = partial(msgspec.msgpack.encode, asked)
            answer = await self._pool.ask(domain, encode, WORKER_TIMEOUT_S, is_slow=is_slow)
            page, spent_ms = msgspec.msgpack.decode(answer, type=tuple[ParsedPage, int])
        except (WorkerDiedError, msgspec.MsgspecError) as error:
            log.warning("parse.killed", extra={"url": url, "bytes": len(body), "why": str(error)})
            raise ParseKilledError(f"parsing {len(body)} bytes was stopped") from None
        finally:
            self._charge(response, spent_ms, queue)
        return without_secrets(page)

    async def close(self) -> None:
        """End the worker processes."""
        await self._pool.close()


def _domain_of(response: Response) -> str:
    return registrable_domain(host_of(response.url))


# Step 6, handle: the user's function gets the page, if there is one for it.
#
# Its items and the links that it follows go on with the page; its failure is the page's failure.


KILL_AFTER_S = 2.0  # time for a worker process to report a timeout by itself


class HandlerStage:
    """Runs the handlers of an app; without one it does nothing."""

    def __init__(self, app: Crawler | None, settings: Settings, hooks: Hooks, threads: Threads) -> None:
        self._app = app
        self._hooks = hooks
        self._threads = threads
        self._limits = Limits(settings.handlers.items_max)
        self._follow_max = settings.fetch.links_max
        self._follows_links = settings.scope.follow == "links"
        self._labels = frozenset(app.labels) if app else frozenset()
        self._sites = SiteRules.of(settings.sites, "label")
        self._before_request = app.request_functions if app else []
        command = ("-P", "-m", "crawler.worker.handler_worker", settings.handlers.app)
        self._pool = WorkerPool([WorkerProcess(*command) for _ in range(settings.handlers.processes)])

    @property
    def prepares(self) -> bool:
        """Do users' functions see requests before they are sent?"""
        return bool(self._before_request)

    async def prepare(self, claim: Claim) -> Request | str | CodeFailure:
        """The request as they want it; why it is not sent; or how one of them failed."""
        request = claim.request or PLAIN
        outgoing = OutgoingRequest(claim.url, request, label=claim.label, depth=claim.depth, run=claim.run)
        failure = await prepare(self._before_request, outgoing, self._threads)
        if failure is not None:
            return failure
        return outgoing.refusal or replace(request, headers=outgoing.headers)

    async def handle(
        self,
        claim: Claim,
        response: Response,
        parsed: ParsedPage,
        tree: LexborHTMLParser | None,
        mark: InflightMark,
        *,
        guarded: bool,
    ) -> tuple[ParsedPage, Handled]:
        """The page with all links to follow, and the result of its handler. `guarded`: never in this process.

        Raises HandlerError.
        """
        handled = NOTHING_HANDLED
        if self._app is not None:
            handled = await self._handled(self._app, claim, response, parsed, tree, mark, guarded=guarded)
        links = parsed.links if self._follows_links else ()
        if handled.followed:
            links = tuple(dict.fromkeys((*(one.url for one in handled.followed if one.is_plain), *links)))
        if links is not parsed.links:
            dropped = parsed.links_dropped if self._follows_links else 0
            parsed = replace(parsed, links=links, links_dropped=dropped)
        return parsed, handled

    async def _handled(
        self, app: Crawler, claim: Claim, response: Response, parsed: ParsedPage, tree: LexborHTMLParser | None,
        mark: InflightMark, *, guarded: bool,
    ) -> Handled:  # fmt: skip
        if self._sites is not None and not claim.label:
            claim = replace(claim, label=self._sites.first(claim.url, "label") or "")
        handler = _handler_of(app, claim, response)
        if handler is None and not self._hooks.has_listeners("fetch"):
            return NOTHING_HANDLED
        is_expensive = tree is None and is_html(declared_type(response), response.body)
        page = HandlersPage(
            response, parsed, domain=claim.domain, depth=claim.depth, label=claim.label, run=claim.run,
            request=claim.request, fingerprint=claim.fingerprint, tree=tree, labels=self._labels,
            follow_max=self._follow_max, may_parse=not is_expensive,
        )  # fmt: skip
        try:
            if self._hooks.has_listeners("fetch"):
                with mark.aside(Aside.THREAD if self._hooks.has_plain_listeners("fetch") else Aside.HANDLER):
                    await self._hooks.call("fetch", page)
            if handler is None:
                return NOTHING_HANDLED
            if handler.processes or guarded or is_expensive:
                handled = await self._in_worker(app, handler, claim, response, parsed, is_slow=guarded or is_expensive)
            else:
                is_threaded = handler.is_plain and all(function.is_plain for function in app.pipeline)
                with mark.aside(Aside.THREAD if is_threaded else Aside.HANDLER):
                    handled = await run_handler(handler, page, self._limits, self._threads, app.pipeline)
        finally:
            page.close()
        if handled.invalid_count:
            _report(response.url, handler, handled)
        return handled

    async def _in_worker(
        self, app: Crawler, handler: Handler, claim: Claim, response: Response, parsed: ParsedPage, *, is_slow: bool
    ) -> Handled:
        """Run in a worker process: for handlers that request one, pages that are expensive to parse, and suspects."""
        request = HandlerRequest(
            app.handlers.index(handler), replace(response, raw_body=b"", request_head=b""), parsed, claim.domain,
            claim.depth, claim.label, claim.run, claim.request, claim.fingerprint, self._follow_max, self._limits,
            learned(),
        )  # fmt: skip
        try:
            answer = await self._pool.ask(
                claim.domain, partial(msgspec.msgpack.encode, request), handler.timeout_s + KILL_AFTER_S,
                is_slow=is_slow,
            )  # fmt: skip
        except WorkerDiedError as error:
            raise HandlerError(f"its process died ({error}, handler {handler.name})") from None
        try:
            found = msgspec.msgpack.decode(answer, type=HandlerAnswer)
        except msgspec.MsgspecError as error:
            raise HandlerError(f"its process gave an unreadable answer ({error}, handler {handler.name})") from None
        if found.failure:
            raise HandlerError(found.failure, found.trace)
        return found.handled

    async def close(self) -> None:
        """End the worker processes."""
        await self._pool.close()


def _handler_of(app: Crawler, claim: Claim, response: Response) -> Handler | None:
    """The handler of a response; one without a body only goes to a handler that declared its status."""
    handler = app.handler_for(claim.url, claim.label, response.status)
    return handler if handler is not None and (response.body or handler.statuses) else None


def _report(url: str, handler: Handler, handled: Handled) -> None:
    for one in handled.invalid:
        what = {"url": url, "handler": handler.name, "field": one.field, "reason": one.reason}
        log.warning("item.invalid", extra=what)
    if handled.invalid_count > len(handled.invalid):
        log.warning("item.invalid_too", extra={"url": url, "items": handled.invalid_count - len(handled.invalid)})


class HandlerRuntime:
    """The handlers and hooks of an instance, and what both need. `settings`: with the scope stored with the crawl."""

    def __init__(self, app: Crawler | None, settings: Settings, stats: Stats) -> None:
        if app is not None:
            guard_tasks(asyncio.get_running_loop())
        self.threads = threads = Threads(settings.handlers.threads)
        self.hooks = Hooks(app, threads)
        self.handling = HandlerStage(app, settings, self.hooks, threads)
        self._domains = DomainsDone(stats, self.hooks)
        self._is_there = app is not None

    def loops(self) -> dict[str, Loop]:
        """Loops to run next to the pipeline."""
        return {"hooks": self.hooks.run, "domains done": self._domains.run} if self._is_there else {}

    async def close(self, why: str) -> None:
        """Deliver the remaining events and the finish to the hooks; end the worker processes."""
        try:
            await self._domains.check_all()
            await self.hooks.finish(why)
        finally:
            await self.handling.close()
            if self._is_there:
                await end_users_tasks()
