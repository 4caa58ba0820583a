"""A web on loopback: an HTTP server that takes whole URLs, and the name server that knows its hosts.

The crawler sends everything there when `fetch.gateway` names it: hosts, ports and https are as in the URLs, and
nothing needs a certificate or a port of the system's. Other programs may use it as their HTTP proxy, for http URLs.
"""

import asyncio
import contextlib
import threading
from collections import deque
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from types import TracebackType
from typing import Any, Protocol, Self

from crawler.errors import CrawlerError, UsageError
from crawler.rules.urls import canonicalize, host_of
from crawler.testing.dns_server import DnsServer
from crawler.testing.generated_web import GeneratedWeb, Resource

LOOPBACK = "127.0.0.1"
ASKED_MAX = 100_000
ASKED_CHARS_MAX = 2_000
HEAD_BYTES_MAX = 65_536
BODY_BYTES_MAX = 1 << 20
NOTE = b"X-Crawler-Replay"  # the reason of an answer that is not the web's own
_WITHOUT_BODY = frozenset({204, 304})


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """A response. `headers` without those of the connection and without Content-Length, which the server adds."""

    status: int = 200
    reason: str = ""
    headers: Sequence[tuple[bytes, bytes]] = ()
    body: bytes = b""
    delay_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A request, for a canonical URL. `headers`: by lower-case names."""

    method: str
    url: str
    headers: Mapping[str, str]
    body: bytes = b""


class WebSource(Protocol):
    """Where answers come from. `hosts`: the names that exist, in ASCII.

    One with a method `respond(asked)` gets whole requests instead of URLs, also others than GET and HEAD.
    """

    @property
    def hosts(self) -> Collection[str]: ...

    def answer(self, url: str) -> Answer | None:
        """For a canonical URL; None where there is nothing."""


class Table:
    """A web in memory: by URL what it answers. Some fail a number of times first, so requests are counted."""

    def __init__(self, pages: Mapping[str, Resource | str]) -> None:
        """A text is an HTML page. Raises InvalidUrl."""
        self._pages = {
            canonicalize(url): Resource(body=page) if isinstance(page, str) else page for url, page in pages.items()
        }
        self._asked: dict[str, int] = {}

    @classmethod
    def of(cls, web: GeneratedWeb) -> "Table":
        return cls({web.url(host, target): resource for (host, target), resource in web.resources.items()})

    @property
    def hosts(self) -> Collection[str]:
        return {host_of(url) for url in self._pages}

    def answer(self, url: str) -> Answer | None:
        found = self._pages.get(url)
        if found is None:
            return None
        self._asked[url] = self._asked.get(url, 0) + 1
        if self._asked[url] <= found.fails:
            return Answer(status=found.fail_status, body=b"<p>failed</p>")
        lines = {"Content-Type": found.content_type, **found.headers}
        headers = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in lines.items()]
        return Answer(status=found.status, headers=headers, body=found.body.encode(), delay_s=found.delay_s)


class WebServer:
    """An async context manager. `settings`: what a crawler must be told to crawl it; `asked`: the last URLs, in order,
    at most `asked_max` and some megabytes.
    """

    def __init__(self, source: WebSource, *, port: int = 0, asked_max: int = ASKED_MAX) -> None:
        self.asked: deque[str] = deque(maxlen=asked_max)
        self._source = source
        self._port = port
        self._stack = contextlib.AsyncExitStack()
        self._busy: set[asyncio.Task[Any]] = set()
        self.settings: dict[str, Any] = {}

    async def __aenter__(self) -> Self:
        """Raises UsageError when the port is taken."""
        names = DnsServer({host: (_address_of(host),) for host in self._source.hosts})
        try:
            server = await asyncio.start_server(self._serve, LOOPBACK, self._port, limit=HEAD_BYTES_MAX)
        except OSError as error:
            raise UsageError(f"can't listen on port {self._port}: {error.strerror}; leave --port out") from None
        self._stack.callback(server.close)
        await self._stack.enter_async_context(names)
        self._port = server.sockets[0].getsockname()[1]
        self.settings = {
            "dns.nameservers": (names.address,),
            "fetch.gateway": f"{LOOPBACK}:{self._port}",
            "fetch.allow_private": True,
            "politeness.delay_s": 0.0,
        }
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stack.aclose()
        for task in self._busy:
            task.cancel()
        await asyncio.gather(*self._busy, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._busy.add(task)
        try:
            with contextlib.suppress(OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
                while await self._exchange(reader, writer):
                    pass
        except asyncio.CancelledError:
            pass  # the server closes, and nobody waits for this task
        finally:
            self._busy.discard(task)
            writer.close()

    async def _exchange(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """One request and its answer; may another follow?"""
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        line, *fields = head.split("\r\n")
        method, _, rest = line.partition(" ")
        target = rest.rpartition(" ")[0]
        headers = {name.lower(): value.strip() for name, _, value in (field.partition(":") for field in fields)}
        length = headers.get("content-length", "")
        body = await reader.readexactly(int(length)) if length.isdigit() and int(length) <= BODY_BYTES_MAX else b""
        answer = self._answer(method, target, headers, body)
        if answer.delay_s:
            await asyncio.sleep(answer.delay_s)
        writer.write(_head_of(answer))
        if method != "HEAD" and answer.status not in _WITHOUT_BODY:
            writer.write(answer.body)
        await writer.drain()
        is_read = len(body) == int(length) if length.isdigit() else not length
        return is_read and method != "CONNECT" and headers.get("connection", "").lower() != "close"

    def _answer(self, method: str, target: str, headers: Mapping[str, str], body: bytes) -> Answer:
        respond = getattr(self._source, "respond", None)
        if method == "CONNECT":
            return _refusal(501, "request https URLs directly, without CONNECT")
        if method not in ("GET", "HEAD") and respond is None:
            return _refusal(405, "only GET and HEAD")
        try:
            whole = "://" in target.partition("?")[0]
            url = canonicalize(target if whole else f"http://{headers.get('host', '')}{target}")
        except UsageError as error:
            return _refusal(400, str(error))
        self.asked.append(url[:ASKED_CHARS_MAX])
        try:
            if respond is None:
                found = self._source.answer(url)
            else:
                found = respond(Asked(method=method, url=url, headers=headers, body=body))
            return found or _refusal(404, "this web has no such URL")
        except CrawlerError as error:
            return _refusal(502, str(error))


def environment_of(settings: Mapping[str, Any]) -> dict[str, str]:
    """Settings as environment variables."""
    return {f"CRAWLER_{key.replace('.', '_').upper()}": _as_text(value) for key, value in settings.items()}


def _as_text(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return ",".join(map(str, value)) if isinstance(value, tuple) else f"{value:g}" if value == 0 else str(value)


def _refusal(status: int, why: str) -> Answer:
    said = why.encode("ascii", "replace")
    return Answer(status=status, headers=((NOTE, said), (b"Content-Type", b"text/plain")), body=said + b"\n")


def _head_of(answer: Answer) -> bytes:
    lines = [f"HTTP/1.1 {answer.status} {answer.reason}".encode("latin-1", "replace")]
    lines += [b"%b: %b" % header for header in answer.headers]
    if answer.status not in _WITHOUT_BODY:
        lines.append(b"Content-Length: %d" % len(answer.body))
    return b"\r\n".join([*lines, b"", b""])


def _address_of(host: str) -> str:
    """Each host has an address of its own, as most have: limits of addresses are to hold between them. Nobody
    connects to it.
    """
    one, two, three = blake2b(host.encode(), digest_size=3).digest()
    return f"127.{one}.{two}.{three}"


class ServedWeb:
    """A web that is served now. `settings` and `environment`: what a crawler must be told to crawl it."""

    def __init__(self, server: WebServer, web: GeneratedWeb | None) -> None:
        self._server = server
        self._web = web

    @property
    def web(self) -> GeneratedWeb:
        """What is served, where it was generated. Raises LookupError where it was not."""
        if self._web is None:
            raise LookupError("this web was given by its pages: there is no definition of it")
        return self._web

    @property
    def settings(self) -> dict[str, Any]:
        return dict(self._server.settings)

    @property
    def environment(self) -> dict[str, str]:
        return environment_of(self._server.settings)

    @property
    def asked(self) -> list[str]:
        """URLs that were requested, in order, robots.txt among them: the last 100,000, cut to 2,000 characters."""
        return list(self._server.asked)


@contextlib.contextmanager
def serve(web: GeneratedWeb | WebSource | Mapping[str, Resource | str]) -> Iterator[ServedWeb]:
    """Serve a web until the context ends: a generated one, or what is answered by URL (a text is an HTML page).

    Everything else is 404, and a host that is in none of the URLs does not exist. Runs in a thread of this process.
    """
    generated = web if isinstance(web, GeneratedWeb) else None
    server = WebServer(
        Table.of(web) if isinstance(web, GeneratedWeb) else Table(web) if isinstance(web, Mapping) else web
    )
    ready = threading.Event()
    loop = asyncio.new_event_loop()
    over = asyncio.Event()
    errors: list[BaseException] = []

    async def run() -> None:
        async with server:
            ready.set()
            await over.wait()

    def work() -> None:
        try:
            with asyncio.Runner(loop_factory=lambda: loop) as runner:
                runner.run(run())
        except BaseException as error:
            errors.append(error)
        finally:
            ready.set()

    thread = threading.Thread(target=work, name="crawler.testing.serve", daemon=True)
    thread.start()
    ready.wait()
    if errors:
        raise errors[0]
    try:
        yield ServedWeb(server, generated)
    finally:
        loop.call_soon_threadsafe(over.set)
        thread.join()
