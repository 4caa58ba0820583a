"""Step 5, parse: cheap bodies in the event loop, long ones in a thread, expensive ones in processes.

In the event loop a few pages are parsed in each pass; then sockets, timers and everything else run. Otherwise fifty
responses that arrive together would be parsed in a row, and whatever is due meanwhile would be late by their sum.
"""

import asyncio
import contextlib
import logging
from collections import OrderedDict, deque
from collections.abc import Iterator
from functools import partial
from typing import NamedTuple, Protocol

import msgspec
from selectolax.lexbor import LexborHTMLParser

from crawler.archive.inflight_log import Aside, InflightMark
from crawler.content.html import ExpensiveLinksError, Markup, markup_of, parse_with_tree
from crawler.content.parse_cost import BYTES_MAX, CHEAP_MS, INLINE_BYTES_MAX, Cost, cost_of
from crawler.content.sitemap import looks_like_one
from crawler.media_type import declared_type, is_html
from crawler.model import LINK_RULES, ParsedPage, Response
from crawler.parsing.processes import WorkerDiedError, WorkerPool, WorkerProcess
from crawler.parsing.secret_urls import without_secrets
from crawler.rules.places import registrable_domain
from crawler.rules.urls import BYTES_MAX as URL_BYTES_MAX
from crawler.rules.urls import JoinCache, host_of
from crawler.runtime.clocks import cpu_ms
from crawler.settings import Settings

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


class Wanted(NamedTuple):
    """What a body is read for: as a sitemap; as many requisites; what it was requested as."""

    is_sitemap: bool
    requisites_max: int
    requested_as: str


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
        command = ("-P", "-m", "crawler.parsing.parse_worker")
        self._pool = WorkerPool(
            [WorkerProcess(*command, is_silent=True) for _ in range(PROCESSES)],
            start_after_s=START_AFTER_S,
            idle_s=PROCESS_IDLE_S,
        )
        self._compute_limiter = ComputeLimiter()
        self._long = asyncio.Lock()  # one at a time: the loop keeps at least half of its core
        self._slow: OrderedDict[str, SlowDomain] = OrderedDict()

    async def parse(
        self, response: Response, *, is_sitemap: bool = False, requisites_max: int = 0, requested_as: str = ""
    ) -> ParsedPage:
        """Raises ParseKilledError when the body can't be parsed within its limits."""
        found = self.parse_with_tree(
            response, is_sitemap=is_sitemap, requisites_max=requisites_max, requested_as=requested_as
        )
        return (await found)[0]

    async def parse_with_tree(
        self,
        response: Response,
        mark: InflightMark | None = None,
        *,
        guarded: bool = False,
        queue: str = "",
        is_sitemap: bool = False,
        keeps_tree: bool = False,
        requisites_max: int = 0,
        requested_as: str = "",
    ) -> tuple[ParsedPage, LexborHTMLParser | None]:
        """As `parse`, with the tree of HTML that was parsed inline; `keeps_tree`: or in a thread.

        Parsing in a thread sets `mark`. `guarded`: never in this process. `queue`: the one that waits for it.
        `is_sitemap`: it was asked for as one. `requisites_max`: how many URLs are returned of what it loads;
        `requested_as`: the kind of requisite that it was requested as, or "".
        """
        x_robots = "\n".join(
            value.decode("latin-1") for key, value in response.headers if key.lower() == b"x-robots-tag"
        )
        if self._slow and (slow := self._slow.get(_domain_of(response))) is not None:
            guarded = guarded or slow.is_underestimated
        wanted = Wanted(is_sitemap, requisites_max, requested_as)
        cost, markup = self._cost_of(response, wanted, guarded=guarded)
        if cost is Cost.CHEAP:
            await self._compute_limiter.wait_turn()
            found, spent_ms = self._timed(response, x_robots, markup, wanted)
            if spent_ms >= CHARGED_MS:
                self._charge(response, spent_ms, queue, is_underestimated=True)
            if found is not None:
                return found
        with self._holding(queue):
            if cost is Cost.LONG:
                async with self._long:
                    with mark.aside(Aside.THREAD) if mark is not None else contextlib.nullcontext():
                        found, spent_ms = await asyncio.to_thread(self._timed, response, x_robots, markup, wanted)
                self._charge(response, spent_ms, queue, is_underestimated=True)
                if found is not None:
                    return found if keeps_tree else (found[0], None)
            del markup  # the process makes its own
            return await self._in_worker(response, x_robots, queue, wanted), None

    def _cost_of(self, response: Response, wanted: Wanted, *, guarded: bool) -> tuple[Cost, Markup | None]:
        """The cost of a response, and its markup if it was needed to tell."""
        body, content_type = response.body, declared_type(response)
        if wanted.is_sitemap or (self._reads_feeds and not is_html(content_type, body) and looks_like_one(body)):
            is_long = len(body) > SITEMAP_INLINE_BYTES or body.startswith(GZIP)
            return (Cost.EXPENSIVE if guarded or is_long else Cost.CHEAP), None
        if not is_html(content_type, body):
            if not wanted.requisites_max:
                return Cost.CHEAP, None  # only HTML is parsed
            from crawler.content.requisite_bodies import requisites_cost

            return requisites_cost(content_type, body, wanted.requested_as, guarded=guarded), None
        if guarded or len(body) > BYTES_MAX:
            return Cost.EXPENSIVE, None
        markup = markup_of(content_type, body, decoded_max=INLINE_BYTES_MAX)
        return (Cost.EXPENSIVE if markup is None else cost_of(markup.body)), markup

    def _timed(
        self, response: Response, x_robots: str, markup: Markup | None, wanted: Wanted
    ) -> tuple[tuple[ParsedPage, LexborHTMLParser | None] | None, int]:
        """What was found, None if its links are too expensive for this process, and the CPU time in ms."""
        began_ms = cpu_ms()
        try:
            found = self._here(response, x_robots, markup, wanted)
        except ExpensiveLinksError:
            found = None
        return found, cpu_ms() - began_ms

    def _here(
        self, response: Response, x_robots: str, markup: Markup | None, wanted: Wanted
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
            is_sitemap=wanted.is_sitemap,
            requisites_max=wanted.requisites_max,
            requested_as=wanted.requested_as,
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

    async def _in_worker(self, response: Response, x_robots: str, queue: str, wanted: Wanted) -> ParsedPage:
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
            *wanted,
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
