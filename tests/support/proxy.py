"""A TCP proxy in front of an engine that fails as networks do: cuts, swallows, stalls, delays, trickles, loses replies.

It also fails as balancers do, which forget connections and lead new ones elsewhere (`upstream`), and answers in the
place of an engine that can't serve.

    with tcp_proxy(engine.url) as proxy:
        ... talk to proxy.url ...
        proxy.blackhole("replies")
        proxy.heal()

It runs in a thread with an event loop of its own, so a test may be a coroutine or not, and may block. Every method
takes effect at once, also on open connections, from any thread. It knows of RESP only where a message ends.
"""

import asyncio
import contextlib
import random
import socket
import struct
import threading
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from typing import Literal
from urllib.parse import unquote, urlsplit

from tests.support.patience import others_run

Direction = Literal["requests", "replies", "both"]
CHUNK = 1 << 16
STEP_S = 0.02  # a wait looks this often whether it still holds
LINGER_NOT = struct.pack("ii", 1, 0)  # close() sends a reset and no goodbye


class Messages:
    """Cuts a stream of RESP into whole messages (https://redis.io/docs/latest/develop/reference/protocol-spec/)."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._at = 0  # up to here the message under way is known
        self._missing = 1  # elements of it that are still to come

    def feed(self, data: bytes) -> list[bytes]:
        self._buffer += data
        found = []
        while self._step():
            if not self._missing:
                found.append(bytes(self._buffer[: self._at]))
                del self._buffer[: self._at]
                self._at, self._missing = 0, 1
        return found

    def _step(self) -> bool:
        """Pass one element; False if it is not all there."""
        end = self._buffer.find(b"\r\n", self._at) + 2
        if end < 2:
            return False
        kind, size = chr(self._buffer[self._at]), self._buffer[self._at + 1 : end - 2]
        if kind in "$=!" and int(size) >= 0:
            end += int(size) + 2
            if len(self._buffer) < end:
                return False
        self._at = end
        self._missing -= 1
        if kind in "*~>%":
            self._missing += max(0, int(size)) * (2 if kind == "%" else 1)
        return True


@dataclass
class Lane:
    """What happens to bytes of one direction."""

    delay_s: float = 0.0
    rate: float = 0.0  # bytes a second; 0 is unlimited
    swallows: bool = False
    stalls: bool = False


@dataclass(eq=False)
class Link:
    """One client's connection and its counterpart at the engine."""

    client: asyncio.StreamWriter
    engine: asyncio.StreamWriter
    asked: deque[bytes] = field(default_factory=deque)  # requests whose replies are to come
    refused: deque[tuple[int, bytes]] = field(default_factory=deque)  # answers of ours, behind so many replies
    talks_freely: bool = False  # subscribed: its messages answer no request
    lost_bytes: bool = False
    is_forgotten: bool = False

    def abort(self) -> None:
        for writer in (self.client, self.engine):
            reset(writer)


class Proxy:
    """`url` leads through it. `replies` counts those that were passed on, `lost` those that were not, `refusals` those
    that are its own.
    """

    def __init__(self, upstream: str, loop: asyncio.AbstractEventLoop) -> None:
        self.upstream = upstream
        self.replies = 0
        self.lost = 0
        self.refusals = 0
        self._loop = loop
        self._holder = socket.socket()  # never listens: while nobody else does, who connects is refused
        self._holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._holder.bind(("127.0.0.1", 0))
        self.port: int = self._holder.getsockname()[1]
        self._server: asyncio.Server | None = None
        self._links: set[Link] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._clients: set[asyncio.StreamWriter] = set()
        self._heal_lanes()

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}"

    @property
    def connections(self) -> int:
        """How many are open."""
        return len(self._links)

    def cut(self) -> None:
        """End all connections with a reset and refuse new ones until `heal`."""
        self._call(self._cut)

    def heal(self) -> None:
        """All is well again. A connection that bytes were swallowed of is ended: its sides no longer agree."""
        self._heal_lanes()
        self._call(self._heal)

    def blackhole(self, direction: Direction = "both") -> None:
        """Swallow bytes; connections stay open, new ones are accepted."""
        for lane in self._lanes_of(direction):
            lane.swallows = True

    def stall(self, direction: Direction = "both") -> None:
        """Keep bytes back and deliver them all at `heal`, as TCP does after an outage: requests may arrive late."""
        for lane in self._lanes_of(direction):
            lane.stalls = True

    def forget(self) -> None:
        """Swallow the bytes of all open connections, as a balancer does after their idle time; new ones are served."""
        for link in list(self._links):
            link.is_forgotten = True

    def end_idle(self) -> None:
        """Close all open connections in order."""

        async def end() -> None:
            for link in list(self._links):
                link.client.close()

        self._call(end)

    def refuse(self, reply: bytes, *, without: bytes = b"") -> None:
        """Answer all requests like this, without asking the engine; but those that contain `without` reach it."""
        self._refusal = (reply, without)

    def delay(self, ms: float, direction: Direction = "both") -> None:
        for lane in self._lanes_of(direction):
            lane.delay_s = ms / 1000

    def trickle(self, bytes_per_s: float, direction: Direction = "both") -> None:
        for lane in self._lanes_of(direction):
            lane.rate = bytes_per_s

    def drop_reply(self, n: int = 1, of: bytes = b"") -> None:
        """Lose the n-th reply from now (to requests that contain `of`) after the engine sent it; its link is closed."""
        self._drop_after, self._drop_of = n, of

    def drop_replies(self, probability: float, seed: int = 0) -> None:
        """As `drop_reply`, each reply with this probability."""
        self._luck, self._drop_probability = random.Random(seed), probability

    def hold_replies_of(self, pattern: bytes, seconds: float) -> None:
        """Each reply to a request that contains `pattern` waits; what follows it on its connection waits behind it."""
        self._hold_of, self._hold_s = pattern, seconds

    def _heal_lanes(self) -> None:
        self._lanes = {"requests": Lane(), "replies": Lane()}
        self._drop_after, self._drop_of = 0, b""
        self._luck, self._drop_probability = random.Random(0), 0.0
        self._hold_of, self._hold_s = b"", 0.0
        self._refusal: tuple[bytes, bytes] | None = None

    def _lanes_of(self, direction: Direction) -> list[Lane]:
        return list(self._lanes.values()) if direction == "both" else [self._lanes[direction]]

    def _call(self, action: Callable[[], Awaitable[None]]) -> None:
        async def act() -> None:
            await action()

        asyncio.run_coroutine_threadsafe(act(), self._loop).result(10)

    async def _cut(self) -> None:
        if self._server is not None:
            closing, self._server = self._server, None
            await close_server(closing)
        for link in list(self._links):
            link.abort()

    async def _heal(self) -> None:
        for link in [link for link in self._links if link.lost_bytes]:
            link.abort()
        if self._server is None:
            listener = socket.socket()
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(("127.0.0.1", self.port))
            self._server = await asyncio.start_server(self._accept, sock=listener, backlog=1024)

    async def _close(self) -> None:
        await self._cut()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for writer in self._clients:  # also of those whose task had not begun, or had no engine yet
            writer.transport.abort()
        await others_run()  # their sockets are closed
        self._holder.close()

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = self._loop.create_task(self._serve(reader, writer))
        self._tasks.add(task)
        self._clients.add(writer)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            answers, engine = await self._connect()
        except OSError:
            reset(writer)
            return
        link = Link(writer, engine)
        self._links.add(link)
        if self._server is None:  # cut while it connected
            link.abort()
        to_engine = asyncio.create_task(self._pass_requests(link, reader))
        to_client = asyncio.create_task(self._pass_replies(link, answers))
        try:
            await asyncio.wait({to_engine, to_client}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            to_engine.cancel()
            to_client.cancel()
            await asyncio.gather(to_engine, to_client, return_exceptions=True)
            self._links.discard(link)
            for one in (writer, engine):
                one.close()

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        parts = urlsplit(self.upstream)
        if parts.scheme == "unix":
            return await asyncio.open_unix_connection(unquote(parts.path))
        return await asyncio.open_connection(parts.hostname, parts.port)

    async def _pass_requests(self, link: Link, reader: asyncio.StreamReader) -> None:
        messages = Messages()
        with contextlib.suppress(OSError):
            while data := await reader.read(CHUNK):
                passed = b""
                for request in messages.feed(data):
                    if self._is_refused(request):
                        self._refuse(link)
                        continue
                    link.talks_freely |= b"SUBSCRIBE" in request[:32].upper()
                    link.asked.append(request)
                    passed += request
                await self._deliver(link, "requests", link.engine, data if self._refusal is None else passed)

    def _is_refused(self, request: bytes) -> bool:
        return self._refusal is not None and not (self._refusal[1] and self._refusal[1] in request)

    def _refuse(self, link: Link) -> None:
        """Behind the replies that are still to come."""
        assert self._refusal is not None
        self.refusals += 1
        if link.asked:
            link.refused.append((len(link.asked), self._refusal[0]))
        else:
            link.client.write(self._refusal[0])

    async def _pass_replies(self, link: Link, reader: asyncio.StreamReader) -> None:
        messages = Messages()
        with contextlib.suppress(OSError):
            while data := await reader.read(CHUNK):
                for reply in messages.feed(data):
                    pushed = link.talks_freely or reply.startswith(b">")
                    request = b"" if pushed or not link.asked else link.asked.popleft()
                    if self._is_lost(request):
                        self.lost += 1
                        return
                    if self._hold_of and self._hold_of in request:
                        await self._rest("replies", self._hold_s)
                    await self._deliver(link, "replies", link.client, reply)
                    self.replies += 1
                    link.refused = deque((behind - 1, answer) for behind, answer in link.refused)
                    while link.refused and link.refused[0][0] <= 0:
                        link.client.write(link.refused.popleft()[1])

    def _is_lost(self, request: bytes) -> bool:
        if self._drop_after and self._drop_of in request:
            self._drop_after -= 1
            return not self._drop_after
        return self._luck.random() < self._drop_probability

    async def _deliver(self, link: Link, direction: str, writer: asyncio.StreamWriter, data: bytes) -> None:
        """Lanes are looked up anew each time: `heal` replaces them."""
        arrived = time.monotonic()
        while self._lanes[direction].stalls or time.monotonic() < arrived + self._lanes[direction].delay_s:
            left = arrived + self._lanes[direction].delay_s - time.monotonic()
            await asyncio.sleep(min(STEP_S, left) if left > 0 else STEP_S)
        while data:
            lane = self._lanes[direction]
            if lane.swallows or link.is_forgotten:
                link.lost_bytes = True
                return
            size = max(1, int(lane.rate * STEP_S)) if lane.rate else len(data)
            writer.write(data[:size])
            await writer.drain()
            data = data[size:]
            if lane.rate:
                await self._rest(direction, size / lane.rate)

    async def _rest(self, direction: str, seconds: float) -> None:
        until, lane = time.monotonic() + seconds, self._lanes[direction]
        while self._lanes[direction] is lane and (left := until - time.monotonic()) > 0:
            await asyncio.sleep(min(STEP_S, left))


def reset(writer: asyncio.StreamWriter) -> None:
    """End a connection so that its other side sees an error, not an end."""
    found = writer.get_extra_info("socket")
    if found is not None and found.family != socket.AF_UNIX:
        with contextlib.suppress(OSError):
            found.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, LINGER_NOT)
    writer.transport.abort()


async def close_server(server: asyncio.Server) -> None:
    """Close it when all whom it has accepted are served: from Python 3.13 on, asyncio loses a connection between the
    two, and complains when it is collected.
    """
    for listener in server.sockets:
        asyncio.get_running_loop().remove_reader(listener.fileno())
    await others_run()
    server.close()


@contextlib.contextmanager
def tcp_proxy(upstream_url: str) -> Iterator[Proxy]:
    """A proxy that passes everything on to `redis://HOST:PORT` or `unix:///PATH`; gone, with its thread, at the end."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="proxy", daemon=True)
    thread.start()
    proxy = Proxy(upstream_url, loop)
    try:
        proxy.heal()
        yield proxy
    finally:
        asyncio.run_coroutine_threadsafe(proxy._close(), loop).result(10)
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
