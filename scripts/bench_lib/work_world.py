"""A crawl in which nothing depends on the machine's speed: virtual time, pages from memory, a real engine.

One instance is built by the crawl's own composition root, with its own fetcher, connections, parser, archive and client
of the engine. Only the event loop is another one: its timers take no time, its connections lead to fixed pages, and
what it writes to the engine's socket is answered before anything else runs. So the same code makes the same calls.
"""

import asyncio
import contextlib
import random
import re
import socket
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import hiredis

from crawler.crawl import build, opening
from crawler.crawl.url_input import GivenUrl
from crawler.frontier import record
from crawler.instance import vitals
from crawler.membership import node_names
from crawler.parsing import parse
from crawler.runtime.ticks import PHASE
from crawler.settings import Settings, load
from scripts.bench_lib.work_pages import Answer, FixedWeb
from tests.simulation.clocks import virtual_time
from tests.simulation.loop import VirtualLoop
from tests.simulation.wire import Wire

WEB_S, ENGINE_S, THREAD_S = 0.02, 0.0005, 0.001  # until an answer comes, in virtual time
PART_BYTES = 64 * 1024  # of an answer, that come together
ADDRESS = "192.0.2.1"
CONCURRENCY = 16
_CALLS = re.compile(r":calls=(\d+)")
_UNCOUNTED = frozenset(
    (b"INFO", b"HELLO", b"CLIENT", b"CONFIG", b"FUNCTION", b"TIME", b"ACL")
)  # replies vary in length


@dataclass
class Traffic:
    """What went to the engine and came back. Bytes are those of functions, whose replies are the same each time."""

    commands: Counter[str] = field(default_factory=Counter)
    bytes: int = 0
    operations: int = 0  # commands that the engine executed, those that its functions call included


class _Transport(asyncio.Transport):
    """The end of a connection that leads nowhere but to `take`, which gets what is written."""

    def __init__(self, loop: "WorkLoop", protocol: Any, take: Callable[[bytes], None], *sockets: socket.socket) -> None:
        """The first of the sockets is what the protocol may ask the kernel about."""
        super().__init__({"socket": sockets[0], "peername": (ADDRESS, 80)})
        self._loop, self._protocol, self._take, self._sockets = loop, protocol, take, sockets
        self._is_closed = False

    def write(self, data: Any) -> None:
        if not self._is_closed:
            self._take(bytes(data))

    def writelines(self, parts: Any) -> None:
        self.write(b"".join(parts))

    def receive(self, data: bytes, after_s: float) -> None:
        """Give the protocol what has come."""
        self._loop.call_later(after_s, self._deliver, data)

    def _deliver(self, data: bytes) -> None:
        if not self._is_closed:
            self._protocol.data_received(data)

    def is_closing(self) -> bool:
        return self._is_closed

    def abort(self) -> None:
        if not self._is_closed:
            self._is_closed = True
            self._loop.call_soon(self._lost)

    close = abort

    def _lost(self) -> None:
        self._protocol.connection_lost(None)
        for sock in self._sockets:
            sock.close()

    def pause_reading(self) -> None:
        """All of an answer is on its way."""

    resume_reading = pause_reading


class _Page:
    """The server's side of a connection to a host."""

    def __init__(self, answers: dict[tuple[str, str], Answer]) -> None:
        self._answers = answers
        self.transport: _Transport | None = None

    def take(self, request: bytes) -> None:
        head = request.decode("latin-1").split("\r\n")
        path = head[0].split(" ")[1]
        host = next(line[6:] for line in head if line.lower().startswith("host: "))
        answer = self._answers.get((host, path)) or Answer("404 Not Found", (), b"")
        raw = answer.raw
        assert self.transport is not None
        for at in range(0, len(raw), PART_BYTES):
            self.transport.receive(raw[at : at + PART_BYTES], WEB_S)


class _EngineSide:
    """A connection to the engine, over which one pipeline after the other is answered at once."""

    def __init__(self, path: str, traffic: Traffic) -> None:
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.socket.connect(path)
        self.transport: _Transport | None = None
        self._traffic = traffic
        self._asked, self._answered = hiredis.Reader(), hiredis.Reader()

    def take(self, data: bytes) -> None:
        self._asked.feed(data)
        commands = []
        while (command := self._asked.gets()) is not False:
            commands.append(command)
        self.socket.sendall(data)
        missing, parts = len(commands), []
        while missing:
            part = self.socket.recv(1 << 20)
            if not part:
                raise ConnectionError("the engine is gone")
            parts.append(part)
            self._answered.feed(part)
            while missing and self._answered.gets() is not False:
                missing -= 1
        reply = b"".join(parts)
        for command in commands:
            name = command[1] if command[0] == b"FCALL" else command[0]
            self._traffic.commands[name.decode()] += 1
        if not any(command[0].upper() in _UNCOUNTED for command in commands):
            self._traffic.bytes += len(data) + len(reply)
        assert self.transport is not None
        self.transport.receive(reply, ENGINE_S)


class WorkLoop(VirtualLoop):
    """A virtual loop with connections to fixed pages and to the engine."""

    def __init__(self, answers: dict[tuple[str, str], Answer]) -> None:
        super().__init__(thread_delay_s=lambda: THREAD_S)
        self._answers = answers
        self.traffic = Traffic()

    async def create_connection(self, protocol_factory: Any, *_: Any, **__: Any) -> Any:  # type: ignore[override]
        return self._connected(protocol_factory, _Page(self._answers), *socket.socketpair())

    async def create_unix_connection(self, protocol_factory: Any, path: Any = None, **_: Any) -> Any:  # type: ignore[override]
        side = _EngineSide(str(path), self.traffic)
        return self._connected(protocol_factory, side, side.socket)

    def _connected(self, protocol_factory: Any, side: Any, *sockets: socket.socket) -> Any:
        protocol = protocol_factory()
        side.transport = transport = _Transport(self, protocol, side.take, *sockets)
        protocol.connection_made(transport)
        return transport, protocol


class _Tokens:
    """Ids and keys in a row instead of random ones."""

    def __init__(self) -> None:
        self._last = 0

    def token_hex(self, length: int) -> str:
        self._last += 1
        return f"{self._last:0{2 * length}x}"

    def token_bytes(self, length: int) -> bytes:
        return bytes(range(length))


class _Names:
    """All hosts have one address, known without a name server."""

    answers = unanswered = 0
    nameservers: tuple[str, ...] = ()
    has_nameservers = True

    def cached(self, host: str) -> tuple[str, ...] | None:  # noqa: ARG002
        return (ADDRESS,)

    async def lookup(self, host: str) -> tuple[str, ...]:  # noqa: ARG002
        return (ADDRESS,)

    async def close(self) -> None:
        """Nothing is open."""


@contextlib.contextmanager
def _steady() -> Iterator[None]:
    """What the machine decides is the same each time."""
    tokens = _Tokens()
    steady: list[tuple[Any, str, Any]] = [
        (opening, "secrets", tokens),
        (record, "secrets", tokens),
        (opening, "host_id", lambda: "work"),
        (build, "host_id", lambda: "work"),
        (node_names, "host_id", lambda: "work"),
        (build, "CachingResolver", lambda settings, *, allow_private, clock: _Names()),  # noqa: ARG005
        (build, "tune_process", lambda: None),
        (vitals, "process_cpu_s", lambda: 0.0),
        (vitals, "free_bytes", lambda _: 1 << 40),
        (vitals, "_resident_bytes", lambda: 1 << 26),
        (parse, "cpu_ms", lambda: 0),
    ]
    before = [(owner, name, getattr(owner, name)) for owner, name, _ in steady]
    for owner, name, value in steady:
        setattr(owner, name, value)
    random.seed(0)
    try:
        yield
    finally:
        for owner, name, value in before:
            setattr(owner, name, value)


def crawled(
    web: FixedWeb,
    path: str,
    *,
    partitions: int,
    delay_s: float = 0.0,
    counted: Callable[[], Any] = contextlib.nullcontext,
    at_end: Callable[[], None] = lambda: None,
) -> Traffic:
    """Crawl the web to its end. `path`: the socket of an engine, which is emptied before. `counted`: the context in
    which the crawl runs. `at_end` is called before the files of its instance are closed.

    Raises CrawlerError, StuckError or AssertionError.
    """
    options = {
        "crawl.partitions": partitions,
        "fetch.allow_private": True,
        "fetch.concurrency": CONCURRENCY,
        "membership.node": "n0",
        "politeness.concurrency_per_queue": 1 if delay_s else CONCURRENCY,
        "politeness.delay_s": delay_s,
        "scope.mode": "any",
    }
    wire = Wire(path)
    for command in (("FLUSHALL",), ("FUNCTION", "FLUSH"), ("CONFIG", "RESETSTAT")):
        wire.one(*command)
    with contextlib.closing(wire), tempfile.TemporaryDirectory(prefix="work-") as folder:
        places = {"frontier.redis": f"unix://{path}", "archive.dir": folder}
        loop, settings = WorkLoop(web.answers()), load(options=options | places)
        with virtual_time(loop), _steady():
            with counted():
                committed = loop.run_until_complete(_crawl(settings, web, at_end))
            loop.bury()
        assert committed == web.pages, f"{committed} of {web.pages} pages were committed"
        statistics = wire.one("INFO", "commandstats").decode()
        loop.traffic.operations = sum(map(int, _CALLS.findall(statistics)))
        return loop.traffic


async def _crawl(settings: Settings, web: FixedWeb, at_end: Callable[[], None]) -> int:
    PHASE.set(0.0)
    async with opening.open_crawl(settings, create=True) as opened:
        await opening.make_seeder(opened).add_all([GivenUrl("seed", url) for url in web.seeds])
        crawl = await opened.reloaded()
        async with build.open_instance(crawl, node="n0", until_finished=True) as instance:
            await instance.run()
            at_end()
            return instance.counters.committed
