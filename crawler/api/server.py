"""The server process's inside: sockets, connections, and how it all ends."""

import asyncio
import contextlib
import hashlib
import socket
from collections.abc import AsyncIterator, Callable
from http import HTTPStatus
from typing import Any

import msgspec
from aiohttp import web

from crawler.api.access import Access, TokenReader
from crawler.api.browser_sessions import BrowserSessions
from crawler.api.call import Context
from crawler.api.event_hub import EventHub
from crawler.api.frame import Frame, add_headers, bug
from crawler.api.front import BACKLOG, PLAIN, Front, is_loopback, reachable, shown
from crawler.api.idempotency import Idempotency
from crawler.api.live_crawl import LiveCrawl
from crawler.api.places import Places
from crawler.api.problem import Limits, ProblemError, of_aiohttp, response_of
from crawler.api.request_rate import RateLimit
from crawler.api.routes import ROUTES
from crawler.api.shared_answers import SharedAnswers
from crawler.crawl.opening import OpenCrawl
from crawler.errors import UsageError
from crawler.frontier.api_answers import ApiAnswers
from crawler.frontier.api_tokens import ApiTokens

LETTER_SUMS_S = 3.0  # they are kept so long: each reads all dead letters
RING_S = 1.0  # each waits for heartbeats
NO_ROOM = b"HTTP/1.1 503 Service Unavailable\r\nConnection: close\r\nRetry-After: 5\r\nContent-Length: 0\r\n\r\n"


class Listening(msgspec.Struct, frozen=True, kw_only=True):
    """A server that answers. `url` ends with a slash; through a proxy, its place is that of the proxy.

    `port`: 0 of a Unix socket.
    """

    url: str
    port: int
    login_url: Callable[[], str]  # the link for a browser that works now


async def check_tokens(crawl: OpenCrawl, address: str) -> None:
    """Raises UsageError where others could connect and nobody could be let in."""
    if not is_loopback(address) and not await ApiTokens(crawl.engine, crawl.keys).read():
        raise UsageError(
            f"others can connect to {address}, and this crawl has no token: make one with 'crawler token add' first"
        )


@contextlib.asynccontextmanager
async def serving(
    crawl: OpenCrawl,
    sock: socket.socket,
    *,
    front: Front = PLAIN,
    metrics_domains: int = 0,
    limits: Limits | None = None,
    announce: Callable[[str], None] = lambda _: None,
) -> AsyncIterator[Listening]:
    """Answer requests while in this context.

    `metrics_domains`: how many of the busiest domains have metrics.
    `announce` is called with each new link for a browser.
    """
    limits = limits or Limits()
    name = sock.getsockname()
    address, port = ("", 0) if isinstance(name, str) else name[:2]
    url = f"{_place(address, port, front)}{front.root}/"
    live = LiveCrawl(crawl)
    sessions = BrowserSessions(_mark(name, front), lambda code: announce(f"{url}login?code={code}"))
    hub = EventHub(live, limits)
    context = Context(
        root=front.root, live=live, limits=limits, sessions=sessions, hub=hub,
        idempotency=Idempotency(ApiAnswers(crawl.engine, crawl.keys)),
        seed_places=Places(limits.seed_streams, "uploads of seeds", again_s=5),
        event_places=Places(limits.event_clients, "streams of events", again_s=60),
        letter_sums=SharedAnswers(LETTER_SUMS_S), rings=SharedAnswers(RING_S), metrics_domains=metrics_domains,
    )  # fmt: skip
    tokens = TokenReader(ApiTokens(crawl.engine, crawl.keys))
    await tokens.begin()
    access = Access(
        address=address, port=port, front=front, tokens=tokens,
        sessions=sessions, rate=RateLimit(limits.requests_per_s, limits.requests_burst),
    )  # fmt: skip
    runner = web.AppRunner(
        Frame(access, context).application(ROUTES), access_log=None, keepalive_timeout=limits.header_s,
        auto_decompress=False, shutdown_timeout=limits.shutdown_s, lingering_time=limits.linger_s,
    )  # fmt: skip
    await runner.setup()
    try:
        async with asyncio.TaskGroup() as group:
            background = [group.create_task(hub.run(), name="events"), group.create_task(access.watch(), name="access")]
            await _Site(runner, sock, limits.connections).start()
            try:
                yield Listening(url=url, port=port, login_url=lambda: f"{url}login?code={sessions.code}")
            finally:
                hub.close()
                await runner.cleanup()
                for task in background:
                    task.cancel()
    except BaseExceptionGroup as errors:
        from crawler.runtime.tasks import first_error

        raise first_error(errors) from None


def _place(address: str, port: int, front: Front) -> str:
    """What a URL begins with that people can open: of the proxy, where one is told of that has a name."""
    if front.names and (front.proxies or not address):
        return f"https://{front.names[0]}"
    return f"http://{shown(reachable(address), port)}" if address else "http://localhost"


def _mark(name: str | tuple[Any, ...], front: Front) -> str:
    """Which server it is among all that browsers may know by one host name: by port, socket and path."""
    port = "" if isinstance(name, str) else str(name[1])
    if port and not front.root:
        return port
    return f"{port}{hashlib.sha256(f'{name}{front.root}'.encode()).hexdigest()[:8]}"


class _Site(web.SockSite):
    """Makes our protocol for each connection, and closes those that are too many."""

    def __init__(self, runner: web.AppRunner, sock: socket.socket, connections: int) -> None:
        super().__init__(runner, sock)
        self._connections = connections

    async def start(self) -> None:
        self._runner._reg_site(self)  # noqa: SLF001 - what the class above all sites does
        server = self._runner.server
        assert server is not None
        kwargs, loop = server._kwargs, asyncio.get_running_loop()  # noqa: SLF001 - as its own factory

        def protocol() -> asyncio.Protocol:
            if len(server.connections) >= self._connections:
                return _NoRoom()
            return _Protocol(server, loop=loop, **kwargs)

        if self._sock.family == socket.AF_UNIX:
            self._server = await loop.create_unix_server(protocol, sock=self._sock, backlog=BACKLOG)
        else:
            self._server = await loop.create_server(protocol, sock=self._sock, backlog=BACKLOG)


class _NoRoom(asyncio.Protocol):
    """Ends a connection at once."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.WriteTransport)
        transport.write(NO_ROOM)
        transport.close()


class _Protocol(web.RequestHandler):
    """The library's, whose own errors are problems as well."""

    __slots__ = ()

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,  # noqa: ARG002 - the library calls it so
    ) -> web.StreamResponse:
        """The answer to a request that can't be read."""
        if isinstance(exc, ConnectionError) or request.writer.output_size > 0:
            raise ConnectionResetError("the connection is gone")
        if status >= HTTPStatus.INTERNAL_SERVER_ERROR:
            response = response_of(bug(exc, request))
        else:
            response = response_of(ProblemError(HTTPStatus(status), "this is not a valid HTTP/1.1 request"))
        add_headers(response)
        response.force_close()
        return response

    async def finish_response(
        self, request: web.BaseRequest, resp: web.StreamResponse, start_time: float | None
    ) -> tuple[web.StreamResponse, bool]:
        """Send the answer; errors that the library raised before our frame was reached become problems here."""
        if isinstance(resp, web.HTTPException):
            resp = response_of(of_aiohttp(resp))
        return await super().finish_response(request, resp, start_time)

    def log_exception(self, *args: object, **kw: object) -> None:
        """What the library would log has been logged, or is of no use."""
