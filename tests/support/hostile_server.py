"""A raw TCP server on loopback that answers every request with exactly the bytes it was given, well-formed or not.

    async with HostileServer(b"HTTP/1.1 200 OK\\r\\n\\r\\nhello", Close()) as server:
        await fetcher.fetch(server.url)

Steps are bytes to send, seconds to wait (a number), `Close()`, `Cut()`, `Reset()`, `Repeat(step, pause_s)`, `Hold()`.
After the last step the connection stays open for the next request; `Close()` ends it. `by_path` has the steps of single
paths ("/x"), hosts ("h.test") or both ("h.test/x"), which go before all others. `requests` keeps what was received,
`paths` and `urls` the targets; `connections` counts.
"""

import asyncio
import contextlib
import socket
import ssl
import struct
from collections.abc import MutableMapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Self


@dataclass(frozen=True)
class Close:
    """Send FIN."""


@dataclass(frozen=True)
class Cut:
    """Send FIN, without the close_notify that ends TLS."""


@dataclass(frozen=True)
class Reset:
    """Send RST."""


@dataclass(frozen=True)
class Hold:
    """Say nothing more and keep the connection open."""


@dataclass
class AllArrived:
    """Go on once so many requests have come to this step."""

    count: int

    def __post_init__(self) -> None:
        self._are_here = asyncio.Event()

    async def wait(self) -> None:
        self.count -= 1
        if self.count == 0:
            self._are_here.set()
        await self._are_here.wait()


@dataclass(frozen=True)
class Repeat:
    """Send the same bytes until the client goes away."""

    data: bytes
    pause_s: float = 0.0


Step = bytes | float | Close | Cut | Reset | Hold | Repeat | AllArrived


class HostileServer:
    """An async context manager; `url` ends in a slash."""

    def __init__(
        self,
        *steps: Step,
        per_request: Sequence[Sequence[Step]] = (),
        by_path: MutableMapping[str, Sequence[Step]] | None = None,
        tls: ssl.SSLContext | None = None,
        wait_for_request: bool = True,
        host: str = "127.0.0.1",
        port: int = 0,
    ) -> None:
        self.requests: list[bytes] = []
        self.connections = 0
        self.answering = self.answering_max = 0  # requests that are being answered, and the most at a time
        self.host = host
        self.port = port
        self._steps = steps
        self._per_request = per_request
        self._by_path = by_path if by_path is not None else {}
        self._tls = tls
        self._wait_for_request = wait_for_request
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None

    @property
    def url(self) -> str:
        return f"http{'s' if self._tls else ''}://{self.host}:{self.port}/"

    @property
    def paths(self) -> list[str]:
        """The targets of all requests, in order."""
        return [_host_and_path(head)[1] for head in self.requests]

    @property
    def urls(self) -> list[str]:
        """Hosts and targets of all requests, in order: "h.test/x"."""
        return ["".join(_host_and_path(head)) for head in self.requests]

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, self.host, self.port, ssl=self._tls, backlog=4096)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._server is not None
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        task = asyncio.get_running_loop().create_task(self._serve(reader, writer))
        self._tasks.add(task)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            # Hostile tests end connections in every possible way.
            with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
                while True:
                    if self._wait_for_request:
                        self.requests.append(await reader.readuntil(b"\r\n\r\n"))
                    self.answering += 1
                    self.answering_max = max(self.answering_max, self.answering)
                    try:
                        if not await self._play(self._steps_now(), reader, writer):
                            return
                    finally:
                        self.answering -= 1
        finally:
            writer.transport.abort()

    def _steps_now(self) -> Sequence[Step]:
        if self._by_path:
            host, path = _host_and_path(self.requests[-1])
            for key in (f"{host}{path}", path, host):
                if key in self._by_path:
                    return self._by_path[key]
        turn = len(self.requests) - 1
        return self._per_request[turn] if 0 <= turn < len(self._per_request) else self._steps

    async def _play(self, steps: Sequence[Step], reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Whether the connection goes on."""
        for step in steps:
            match step:
                case bytes():
                    writer.write(step)
                    await writer.drain()
                case Repeat(data, pause_s):
                    while not writer.is_closing():
                        writer.write(data)
                        await writer.drain()
                        await asyncio.sleep(pause_s)
                case Close():
                    if writer.can_write_eof():
                        writer.write_eof()
                        await reader.read()
                    else:
                        writer.close()
                        await writer.wait_closed()
                    return False
                case Cut():
                    writer.transport.abort()
                    return False
                case Reset():
                    sock: socket.socket = writer.get_extra_info("socket")
                    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                    writer.transport.abort()
                    return False
                case AllArrived():
                    await step.wait()
                case Hold():
                    await reader.read()
                    return False
                case _:
                    await asyncio.sleep(step)
        return True


def _host_and_path(head: bytes) -> tuple[str, str]:
    """Host without port, and target, of a request."""
    path = head.split(b" ", 2)[1].decode("ascii")
    host = head.partition(b"\r\nHost: ")[2].partition(b"\r\n")[0].decode("ascii")
    return host.partition(":")[0], path
