"""Stage three: a response becomes a page. Cheap bodies are parsed here; expensive ones where they can be killed."""

import asyncio
import contextlib
import logging
import sys

import msgspec

from crawler.content.cost import looks_expensive
from crawler.content.page import parse_page
from crawler.instance.clock import monotonic_ms
from crawler.instance.parse_worker import HEAD, READY
from crawler.model import Page, Response
from crawler.rules.urls import origin_of
from crawler.settings import Settings

log = logging.getLogger(__name__)

SLOW_MS = 500
SLOW_ORIGINS_MAX = 10_000
WORKER_TIMEOUT_S = 10.0  # wall; the kernel ends it after some CPU seconds, see parse_worker


class ParseKilledError(Exception):
    """The body cost too much, or took the parser down with it."""


class PageParser:
    """Parses inline, or in one worker process that is killed when it takes too long and started when needed."""

    def __init__(self, settings: Settings) -> None:
        self._links_max = settings.fetch.links_max
        self._bytes_max = settings.scope.url_bytes_max
        self._nofollow = settings.scope.nofollow
        self._agent = settings.robots.agent
        self._worker: asyncio.subprocess.Process | None = None
        self._lock = asyncio.Lock()
        self._slow_origins: set[str] = set()  # one page got past the estimate: the next ones of its site do not
        self.killed = 0

    async def parse(self, response: Response, *, guarded: bool = False) -> Page:
        """Raises ParseKilledError when the body can't be parsed within its limits. `guarded`: never in this process."""
        content_type = response.header("content-type")
        x_robots = "\n".join(
            value.decode("latin-1") for key, value in response.headers if key.lower() == b"x-robots-tag"
        )
        origin = origin_of(response.url)
        if guarded or origin in self._slow_origins or looks_expensive(response.body):
            return await self._in_worker(response.url, content_type, x_robots, response.body)
        began_ms = monotonic_ms()
        page = parse_page(
            response.url,
            content_type,
            x_robots,
            response.body,
            links_max=self._links_max,
            obey_nofollow=self._nofollow,
            bytes_max=self._bytes_max,
            agent=self._agent,
        )
        if monotonic_ms() - began_ms > SLOW_MS and len(self._slow_origins) < SLOW_ORIGINS_MAX:
            self._slow_origins.add(origin)
            log.warning("parse.slow", extra={"url": response.url, "bytes": len(response.body)})
        return page

    async def _in_worker(self, url: str, content_type: str, x_robots: str, body: bytes) -> Page:
        request = msgspec.msgpack.encode(
            (url, content_type, x_robots, body, self._links_max, self._nofollow, self._bytes_max, self._agent)
        )
        async with self._lock:
            worker = await self._running_worker()
            try:
                async with asyncio.timeout(WORKER_TIMEOUT_S):
                    return await self._ask(worker, request)
            except (TimeoutError, asyncio.IncompleteReadError, OSError) as error:
                self.killed += 1
                await self.close()
                log.warning("parse.killed", extra={"url": url, "bytes": len(body), "why": type(error).__name__})
                raise ParseKilledError(f"parsing {len(body)} bytes was stopped") from None
            except asyncio.CancelledError:
                await self.close()  # half an answer may stand in the pipe
                raise

    async def _running_worker(self) -> asyncio.subprocess.Process:
        """A worker that is ready: its start does not count against the page's time."""
        if self._worker is None or self._worker.returncode is not None:
            self._worker = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "crawler.instance.parse_worker",
                stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
            )  # fmt: skip
            assert self._worker.stdout is not None
            await self._worker.stdout.readexactly(len(READY))
        return self._worker

    async def _ask(self, worker: asyncio.subprocess.Process, request: bytes) -> Page:
        stdin, stdout = worker.stdin, worker.stdout
        assert stdin is not None
        assert stdout is not None
        stdin.write(HEAD.pack(len(request)) + request)
        await stdin.drain()
        (length,) = HEAD.unpack(await stdout.readexactly(HEAD.size))
        return msgspec.msgpack.decode(await stdout.readexactly(length), type=Page)

    async def close(self) -> None:
        """End the worker process."""
        worker, self._worker = self._worker, None
        if worker is not None and worker.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                worker.kill()
            await worker.wait()
