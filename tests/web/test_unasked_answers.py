"""Answers that nobody asked for: wherever their bytes lie when the next request is sent, they are no URL's page.

| who talks first          | where the bytes lie                        | plain | TLS |
|--------------------------|--------------------------------------------|-------|-----|
| the server, kept         | behind the response, in one segment        |   x   |  x  |
| the server, kept         | behind it, delivered before the next turn  |   x   |  x  |
| the server, kept         | delivered while the connection is idle     |   x   |  x  |
| the server, kept         | in the kernel when the connection is taken |   x   |  x  |
| the server, kept         | in the kernel since it was taken           |   x   |  x  |
| the server, kept         | read before the request was acknowledged   |   x   |  x  |
| the server, new          | in the kernel                              |   x   |     |
| the server, new          | delivered, or with the handshake's end     |   x   | 1.2 |
"""

import asyncio
import contextlib
import socket
import ssl
import termios
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
import uvloop

from crawler.model import FailureKind, FetchResult
from crawler.web import connection as connection_module
from crawler.web.fetcher import Fetcher
from tests.support.tls import Authority
from tests.web.fetching import fetching, kind_of, response_of


def answer(body: bytes, more: bytes = b"") -> bytes:
    return b"HTTP/1.1 200 OK\r\n%bContent-Length: %d\r\n\r\n%b" % (more, len(body), body)


STRAY = answer(b"stray")
BUSY = b"HTTP/1.1 408 Request Timeout\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"


class Peer:
    """The server's side of a connection. What it says is in the client's kernel when `say` returns."""

    def __init__(self, sock: socket.socket, tls: ssl.SSLContext | None) -> None:
        self.sock = sock
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = tls.wrap_bio(self._incoming, self._outgoing, server_side=True) if tls else None

    async def begin(self, *, before_end: bytes = b"") -> None:
        """The handshake; `before_end` is sent with its end."""
        while self._tls is not None:
            try:
                self._tls.do_handshake()
            except ssl.SSLWantReadError:
                self._flush()
                self._incoming.write(await self._received())
            else:
                break
        if before_end:
            self.say(before_end)
        self._flush()

    def _flush(self) -> None:
        if data := self._outgoing.read():
            self.sock.send(data)

    async def _received(self) -> bytes:
        data = await asyncio.get_running_loop().sock_recv(self.sock, 65_536)
        if not data:
            raise ConnectionError
        return data

    async def request(self) -> None:
        data = b""
        while not data.endswith(b"\r\n\r\n"):
            if self._tls is None:
                more = await self._received()
            else:
                try:
                    more = self._tls.read(65_536)
                except ssl.SSLWantReadError:
                    self._incoming.write(await self._received())
                    continue
            data += more

    def say(self, data: bytes) -> None:
        with contextlib.suppress(OSError):
            if self._tls is None:
                self.sock.send(data)
            else:
                self._tls.write(data)
                self._flush()


class Lab:
    """A fetcher, and a server that says what a test tells it to."""

    def __init__(self, fetcher: Fetcher, listener: socket.socket, tls: ssl.SSLContext | None) -> None:
        self.fetcher, self._listener, self.tls = fetcher, listener, tls
        self.peers: list[Peer] = []
        port = listener.getsockname()[1]
        self.url = f"http{'s' if tls else ''}://127.0.0.1:{port}/"

    async def peer(self, *, before_end: bytes = b"") -> Peer:
        """The next connection."""
        sock, _ = await asyncio.get_running_loop().sock_accept(self._listener)
        peer = Peer(sock, self.tls)
        self.peers.append(peer)
        await peer.begin(before_end=before_end)
        return peer

    async def first(self, data: bytes = b"") -> Peer:
        """A connection that has carried an exchange, and is kept."""
        fetching_it = asyncio.create_task(self.fetcher.fetch(self.url))
        peer = await self.peer()
        await peer.request()
        peer.say(data or answer(b"first"))
        assert response_of(await fetching_it).body == b"first"
        return peer

    async def second(self, before_send: Callable[[], None] | None = None) -> FetchResult:
        """The next URL, answered by itself on whatever connection it comes."""

        async def serve(peer: Peer | None) -> None:
            with contextlib.suppress(OSError):
                peer = peer or await self.peer()
                await peer.request()
                peer.say(answer(b"second"))

        serving = [asyncio.create_task(serve(peer)) for peer in (*self.peers, None)]
        try:
            return await self.fetcher.fetch(f"{self.url}second", before_send=before_send)
        finally:
            for one in serving:
                one.cancel()
            await asyncio.gather(*serving, return_exceptions=True)

    @property
    def connections(self) -> int:
        return len(self.peers)


@contextlib.asynccontextmanager
async def lab(tls: ssl.SSLContext | None) -> AsyncIterator[Lab]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(0)
        async with fetching(insecure_tls=True, connect_timeout_s=5.0, total_timeout_s=5.0) as fetcher:
            made = Lab(fetcher, listener, tls)
            try:
                yield made
            finally:
                for peer in made.peers:
                    peer.sock.close()


async def in_one_segment(on: Lab, more: bytes) -> FetchResult:
    await on.first(answer(b"first") + more)
    return await on.second()


async def delivered_at_once(on: Lab, more: bytes) -> FetchResult:
    """In a second piece, before the task that waits for the first had its turn."""
    fetching_it = asyncio.create_task(on.fetcher.fetch(on.url))
    peer = await on.peer()
    await peer.request()
    peer.say(answer(b"first"))
    peer.say(more)
    assert response_of(await fetching_it).body == b"first"
    return await on.second()


async def delivered_while_idle(on: Lab, more: bytes) -> FetchResult:
    peer = await on.first()
    peer.say(more)
    for _ in range(5):
        await asyncio.sleep(0)
    return await on.second()


async def swept_away(on: Lab, more: bytes) -> FetchResult:
    """Not taken again, but closed for its age."""
    peer = await on.first()
    peer.say(more)
    assert on.fetcher._pool is not None
    on.fetcher._pool._sweep()
    return await on.second()


async def in_the_kernel(on: Lab, more: bytes) -> FetchResult:
    peer = await on.first()
    peer.say(more)
    return await on.second()


async def closed_in_the_kernel(on: Lab, more: bytes) -> FetchResult:
    peer = await on.first()
    peer.say(more)
    peer.sock.shutdown(socket.SHUT_WR)
    return await on.second()


async def since_it_was_taken(on: Lab, more: bytes) -> FetchResult:
    peer = await on.first()
    return await on.second(lambda: peer.say(more) if on.connections == 1 else None)


WAYS = [
    in_one_segment, delivered_at_once, delivered_while_idle, swept_away, in_the_kernel, closed_in_the_kernel,
    since_it_was_taken,
]  # fmt: skip
MORE = {"a response": STRAY, "its first byte": b"H", "an empty line": b"\r\n", "408": BUSY}
LOOPS = {"asyncio": asyncio.run, "uvloop": uvloop.run}


@pytest.fixture(params=["plain", "tls"])
def tls(request: pytest.FixtureRequest, authority: Authority) -> ssl.SSLContext | None:
    return authority.server() if request.param == "tls" else None


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("more", MORE)
@pytest.mark.parametrize("way", WAYS)
def test_bytes_before_a_request_are_never_its_answer(
    way: Callable[[Lab, bytes], Awaitable[FetchResult]], more: str, loop: str, tls: ssl.SSLContext | None
) -> None:
    async def check() -> None:
        async with lab(tls) as on:
            result = await way(on, MORE[more])
            if way in (in_one_segment, delivered_at_once) and more == "an empty line":  # forgiven (RFC 9112 2.2)
                assert response_of(result).body == b"second"
                return
            if way is since_it_was_taken:
                assert result.failure is not None
                assert result.stale_connection, "the URL is not to blame"
                assert on.connections == 1, "nothing is sent again by itself"
                result = await on.second()
            assert response_of(result).body == b"second"
            assert on.connections == 2
            assert response_of(await on.second()).body == b"second"
            assert on.connections == 3, "a server that did it once gets a connection for each request"

    LOOPS[loop](check())


@pytest.mark.parametrize("loop", LOOPS)
def test_what_comes_before_the_request_is_acknowledged_is_not_its_answer(
    loop: str, tls: ssl.SSLContext | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On loopback all is acknowledged at once: the kernel's word is ours."""
    kernel = connection_module._bytes_in
    unacknowledged = 0

    def told(fd: int, queue: int) -> int:
        return unacknowledged if queue == termios.TIOCOUTQ else kernel(fd, queue)

    monkeypatch.setattr(connection_module, "_bytes_in", told)

    async def check() -> None:
        nonlocal unacknowledged
        async with lab(tls) as on:
            await on.first()
            unacknowledged = 40  # the end of a request that is answered early
            assert response_of(await on.second()).body == b"second"
            unacknowledged = 4000
            result = await on.second()
            assert result.failure is not None
            assert result.stale_connection

    LOOPS[loop](check())


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("is_delivered", [False, True])
def test_a_server_that_talks_first_is_not_one_of_http(is_delivered: bool, loop: str) -> None:
    async def check() -> None:
        async with lab(None) as on:
            before_send = None if is_delivered else lambda: peer.say(STRAY)
            fetching_it = asyncio.create_task(on.fetcher.fetch(on.url, before_send=before_send))
            peer = await on.peer(before_end=STRAY if is_delivered else b"")
            result = await fetching_it
            assert kind_of(result) is FailureKind.PROTOCOL
            assert not result.stale_connection

    LOOPS[loop](check())


@pytest.mark.parametrize("loop", LOOPS)
def test_nor_is_one_that_talks_with_the_end_of_the_handshake(loop: str, authority: Authority) -> None:
    """In TLS 1.2 the server ends it; in 1.3 its tickets follow, and what is with them can't be told from them."""
    context = authority.server()
    context.maximum_version = ssl.TLSVersion.TLSv1_2

    async def check() -> None:
        async with lab(context) as on:
            fetching_it = asyncio.create_task(on.fetcher.fetch(on.url))
            await on.peer(before_end=STRAY)
            assert kind_of(await fetching_it) is FailureKind.PROTOCOL

    LOOPS[loop](check())


@pytest.mark.parametrize("loop", LOOPS)
def test_a_connection_that_its_server_closed_is_not_taken_again(loop: str, tls: ssl.SSLContext | None) -> None:
    """Its FIN waits in the kernel: the request would be lost, and with it a turn."""

    async def check() -> None:
        async with lab(tls) as on:
            peer = await on.first()
            peer.sock.shutdown(socket.SHUT_WR)
            result = await on.second()
            assert response_of(result).body == b"second"
            assert response_of(await on.second()).body == b"second"
            assert on.connections == 2, "it is no fault"

    LOOPS[loop](check())
