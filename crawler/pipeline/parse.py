"""Step 5, parse: cheap bodies in the event loop, long ones in a thread, expensive ones in a process.

In the event loop a few pages are parsed in each pass; then sockets, timers and everything else run. Otherwise fifty
responses that arrive together would be parsed in a row, and whatever is due meanwhile would be late by their sum.
"""

import asyncio
import contextlib
import logging
from collections import deque
from functools import partial

import msgspec
from selectolax.lexbor import LexborHTMLParser

from crawler.archive.inflight_log import Aside, InflightMark
from crawler.content.html import parse_with_tree
from crawler.content.parse_cost import Cost, cost_of
from crawler.content.sniff import is_html
from crawler.model import ParsedPage, Response
from crawler.rules.urls import JoinCache, origin_of
from crawler.runtime.clock import cpu_ms
from crawler.runtime.worker_process import WorkerDiedError, WorkerProcess
from crawler.settings import Settings

log = logging.getLogger(__name__)
PAGES_BEFORE_YIELD = 4  # 2 to 5 ms
SLOW_MS = 500  # of CPU time: on a busy machine any page may take long
SLOW_ORIGINS_MAX = 10_000
WORKER_TIMEOUT_S = 10.0  # wall clock; the kernel ends the worker after some CPU seconds, see parse_worker


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


class PageParser:
    """Parses inline, in one thread, or in one worker process that is started when needed.

    The process costs its start and two copies of the body, so it is for those that may take too long. The thread is for
    those that take long but end: the parser releases the interpreter's lock, so the event loop runs meanwhile.
    """

    def __init__(self, settings: Settings) -> None:
        self._links_max = settings.fetch.links_max
        self._bytes_max = settings.scope.url_bytes_max
        self._nofollow = settings.scope.nofollow
        self._agent = settings.robots.agent
        self._joins = JoinCache()
        self._worker = WorkerProcess("-m", "crawler.pipeline.parse_worker")
        self._compute_limiter = ComputeLimiter()
        self._long = asyncio.Lock()  # one at a time: the loop keeps at least half of its core
        self._slow_origins: set[str] = set()  # with a page that took longer than estimated: the next go to the worker

    async def parse(self, response: Response) -> ParsedPage:
        """Raises ParseKilledError when the body can't be parsed within its limits."""
        return (await self.parse_with_tree(response))[0]

    async def parse_with_tree(
        self, response: Response, mark: InflightMark | None = None, *, guarded: bool = False
    ) -> tuple[ParsedPage, LexborHTMLParser | None]:
        """As `parse`, with the tree of HTML that was parsed inline.

        Parsing in a thread sets `mark`. `guarded`: never in this process.
        """
        x_robots = "\n".join(
            value.decode("latin-1") for key, value in response.headers if key.lower() == b"x-robots-tag"
        )
        is_slow = guarded or origin_of(response.url) in self._slow_origins
        cost = Cost.EXPENSIVE if is_slow else cost_of(response.body)
        if cost is not Cost.CHEAP and not is_html(response.header("content-type"), response.body):
            cost = Cost.CHEAP  # only HTML is parsed
        if cost is Cost.EXPENSIVE:
            return await self._in_worker(response, x_robots), None
        if cost is Cost.LONG:
            async with self._long:
                with mark.aside(Aside.THREAD) if mark is not None else contextlib.nullcontext():
                    page, _ = await asyncio.to_thread(self._here, response, x_robots)
            return page, None
        await self._compute_limiter.wait_turn()
        return self._here(response, x_robots)

    def _here(self, response: Response, x_robots: str) -> tuple[ParsedPage, LexborHTMLParser | None]:
        began_ms = cpu_ms()
        found = parse_with_tree(
            response.url,
            response.header("content-type"),
            x_robots,
            response.body,
            links_max=self._links_max,
            obey_nofollow=self._nofollow,
            bytes_max=self._bytes_max,
            agent=self._agent,
            refresh=response.header("refresh"),
            joins=self._joins,
        )
        if cpu_ms() - began_ms > SLOW_MS and len(self._slow_origins) < SLOW_ORIGINS_MAX:
            self._slow_origins.add(origin_of(response.url))
            log.warning("parse.slow", extra={"url": response.url, "bytes": len(response.body)})
        return found

    async def _in_worker(self, response: Response, x_robots: str) -> ParsedPage:
        url, body = response.url, response.body
        content_type, refresh = response.header("content-type"), response.header("refresh")
        asked = (
            url,
            content_type,
            x_robots,
            refresh,
            body,
            self._links_max,
            self._nofollow,
            self._bytes_max,
            self._agent,
        )
        try:
            answer = await self._worker.ask(partial(msgspec.msgpack.encode, asked), WORKER_TIMEOUT_S)
        except WorkerDiedError as error:
            log.warning("parse.killed", extra={"url": url, "bytes": len(body), "why": str(error)})
            raise ParseKilledError(f"parsing {len(body)} bytes was stopped") from None
        return msgspec.msgpack.decode(answer, type=ParsedPage)

    async def close(self) -> None:
        """End the worker process."""
        await self._worker.close()
