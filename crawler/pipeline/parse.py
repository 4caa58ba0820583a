"""Stage three: a response becomes a page. Cheap bodies are parsed here, long ones in a thread, and those whose end is
not known where they can be killed.
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
from crawler.rules.urls import origin_of
from crawler.runtime.clock import cpu_ms
from crawler.runtime.worker_process import WorkerDiedError, WorkerProcess
from crawler.settings import Settings

log = logging.getLogger(__name__)
PAGES_BEFORE_YIELD = 4  # pages: 2 to 5 ms


class ComputeLimiter:
    """Who wants to compute waits for a turn, first come first served."""

    def __init__(self, pages_before_yield: int = PAGES_BEFORE_YIELD) -> None:
        self._pages_before_yield = pages_before_yield
        self._taken = 0  # in this pass of the loop
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._is_watching = False

    async def wait_turn(self) -> None:
        """At once while this pass has any left."""
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
        """The loop has been round: as many go on as have a turn, the next ones with the pass after that."""
        self._taken, self._is_watching = 0, False
        while self._waiting and self._taken < self._pages_before_yield:
            waiter = self._waiting.popleft()
            if not waiter.done():  # cancelled
                waiter.set_result(None)
                self._taken += 1
        if self._waiting or self._taken:
            self._watch()


SLOW_MS = 500  # of CPU: on a busy machine any page may take long
SLOW_ORIGINS_MAX = 10_000
WORKER_TIMEOUT_S = 10.0  # wall; the kernel ends it after some CPU seconds, see parse_worker


class ParseKilledError(Exception):
    """The body cost too much, or took the parser down with it."""


class PageParser:
    """Parses inline, in one thread, or in one worker process: started when needed, killed when it takes too long.

    The process costs its start and two copies of the body, so it is for what has to be killed. The thread is for what
    takes long and comes to its end: the parser lets the event loop run meanwhile.
    """

    def __init__(self, settings: Settings) -> None:
        self._links_max = settings.fetch.links_max
        self._bytes_max = settings.scope.url_bytes_max
        self._nofollow = settings.scope.nofollow
        self._agent = settings.robots.agent
        self._worker = WorkerProcess("-m", "crawler.pipeline.parse_worker")
        self._compute_limiter = ComputeLimiter()
        self._long = asyncio.Lock()  # one at a time: others wait, and the loop keeps half of its core at least
        self._slow_origins: set[str] = set()  # one page got past the estimate: the next ones of its site do not

    async def parse(self, response: Response) -> ParsedPage:
        """Raises ParseKilledError when the body can't be parsed within its limits."""
        return (await self.parse_with_tree(response))[0]

    async def parse_with_tree(
        self, response: Response, mark: InflightMark | None = None, *, guarded: bool = False
    ) -> tuple[ParsedPage, LexborHTMLParser | None]:
        """The same, and the tree of what is HTML and was parsed at once, in the event loop.

        A thread sets `mark`. `guarded`: never in this process.
        """
        x_robots = "\n".join(
            value.decode("latin-1") for key, value in response.headers if key.lower() == b"x-robots-tag"
        )
        is_slow = guarded or origin_of(response.url) in self._slow_origins
        cost = Cost.EXPENSIVE if is_slow else cost_of(response.body)
        if cost is not Cost.CHEAP and not is_html(response.header("content-type"), response.body):
            cost = Cost.CHEAP  # it is not parsed
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
