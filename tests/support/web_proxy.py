"""Proxies on loopback, for HTTP (whole URLs and CONNECT) and SOCKS5: they know every name, and misbehave as told.

    async with WebProxy("http", login=("me", "secret")) as proxy:
        ... fetch.proxy = proxy.url ...
        proxy.asked   # (host, port) of each target, in order

Every name is 127.0.0.1 for them. `fault` is what they do to all requests, `faults` what to those for single hosts:

- a number: the status of the answer to a CONNECT, the reply of SOCKS5
- bytes: the answer
- "drop", "reset", "hang", "garbage", "endless", "slow": instead of an answer
- "liar": says that it has connected, and closes
"""

import asyncio
import contextlib
import socket
import struct
from base64 import b64encode
from collections.abc import MutableMapping
from types import TracebackType
from typing import Literal, Self

Fault = int | bytes | Literal["", "drop", "reset", "hang", "garbage", "endless", "slow", "liar"]
LOOPBACK = "127.0.0.1"
FILLER = b"X-Filler: " + 1000 * b"x" + b"\r\n"
ESTABLISHED = b"HTTP/1.1 200 Connection established\r\nVia: 1.1 test\r\n\r\n"


class _DropError(Exception):
    """Close the connection at once."""


class _AnsweredError(Exception):
    """The answer is given; another request may come."""


class WebProxy:
    """An async context manager. `heads` has what clients said before the first byte for a target."""

    def __init__(self, kind: Literal["http", "socks5"], *, login: tuple[str, str] | None = None, port: int = 0) -> None:
        self.kind = kind
        self.login = login
        self.port = port
        self.fault: Fault = ""
        self.faults: MutableMapping[str, Fault] = {}
        self.asked: list[tuple[str, int]] = []
        self.heads: list[bytes] = []
        self.connections = 0
        self._server: asyncio.Server | None = None
        self._open: set[asyncio.Task[None]] = set()

    @property
    def url(self) -> str:
        login = f"{self.login[0]}:{self.login[1]}@" if self.login else ""
        return f"{self.kind}://{login}{LOOPBACK}:{self.port}"

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, LOOPBACK, self.port)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._server is not None
        self._server.close()
        for task in tuple(self._open):
            task.cancel()
        await asyncio.gather(*self._open, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._open.add(task)
        self.connections += 1
        try:
            await (self._http(reader, writer) if self.kind == "http" else self._socks(reader, writer))
        except _AnsweredError:
            with contextlib.suppress(OSError, asyncio.CancelledError):
                await reader.read()  # until the client ends it
        except (_DropError, OSError, EOFError, asyncio.CancelledError):
            pass
        finally:
            self._open.discard(task)
            writer.close()

    async def _misbehave(self, host: str, writer: asyncio.StreamWriter) -> int:
        """The number that is to be answered; 0: all is well. Returns only then."""
        fault = self.faults.get(host, self.fault)
        if isinstance(fault, int):
            return fault
        if isinstance(fault, bytes):
            writer.write(fault)
            await writer.drain()
            raise _AnsweredError
        if fault in ("drop", "reset"):
            if fault == "reset":
                one: socket.socket = writer.get_extra_info("socket")
                one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            raise _DropError
        if fault == "hang":
            await asyncio.Event().wait()
        if fault == "garbage":
            writer.write(b"SSH-2.0-OpenSSH_9.2\r\n\r\n" if self.kind == "http" else b"HTTP/1.1 400 Bad\r\n\r\n")
            await writer.drain()
            raise _DropError
        if fault == "endless":
            writer.write(b"HTTP/1.1 200 OK\r\n" if self.kind == "http" else b"")
            while True:
                writer.write(FILLER)
                await writer.drain()
        if fault == "slow":
            for byte in ESTABLISHED if self.kind == "http" else bytes((5,)):
                writer.write(bytes((byte,)))
                await asyncio.sleep(0.2)
            await asyncio.Event().wait()
        return 0

    async def _http(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            head = await reader.readuntil(b"\r\n\r\n")
            self.heads.append(head)
            method, target, _ = head.split(b"\r\n")[0].decode().split(" ")
            place = target if method == "CONNECT" else target.split("/", 3)[2]
            host, _, port = place.rpartition(":")
            self.asked.append((host.strip("[]"), int(port)))
            try:
                status = await self._misbehave(host.strip("[]"), writer)
            except _AnsweredError:
                continue
            if not status and self.login and _basic(*self.login) not in head:
                status = 407
            if status:
                writer.write(b"HTTP/1.1 %d No\r\nContent-Length: 2\r\n\r\nno" % status)
                await writer.drain()
                continue
            if method == "CONNECT":
                await self._tunnel(host, int(port), ESTABLISHED, reader, writer)
                return
            there, back = await asyncio.open_connection(LOOPBACK, int(port))
            lines = [line for line in head.split(b"\r\n") if not line.lower().startswith(b"proxy-authorization:")]
            lines[0] = f"{method} /{target.split('/', 3)[3]} HTTP/1.1".encode()
            back.write(b"\r\n".join(lines))
            with contextlib.closing(back):
                answer = await there.readuntil(b"\r\n\r\n")
                length = int(answer.lower().partition(b"content-length:")[2].partition(b"\r\n")[0])
                writer.write(answer + await there.readexactly(length))
                await writer.drain()

    async def _socks(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        _, count = await reader.readexactly(2)
        methods = await reader.readexactly(count)
        wanted = 2 if self.login else 0
        if wanted not in methods:
            writer.write(bytes((5, 0xFF)))
            return
        if self.fault and not isinstance(self.fault, int) and self.fault != "liar":
            await self._misbehave("", writer)
        writer.write(bytes((5, wanted)))
        if self.login:
            _, length = await reader.readexactly(2)
            user = await reader.readexactly(length)
            password = await reader.readexactly((await reader.readexactly(1))[0])
            is_right = (user.decode(), password.decode()) == self.login
            writer.write(bytes((1, 0 if is_right else 1)))
            if not is_right:
                return
        _, _, _, kind = await reader.readexactly(4)
        if kind == 3:
            host = (await reader.readexactly((await reader.readexactly(1))[0])).decode()
        else:
            packed = await reader.readexactly(4 if kind == 1 else 16)
            host = ".".join(map(str, packed)) if kind == 1 else packed.hex()
        port = int.from_bytes(await reader.readexactly(2), "big")
        self.asked.append((host, port))
        if reply := await self._misbehave(host, writer):
            writer.write(bytes((5, reply, 0, 1, 0, 0, 0, 0, 0, 0)))
            return
        await self._tunnel(host, port, bytes((5, 0, 0, 3, 1)) + b"p" + b"\0\0", reader, writer)

    async def _tunnel(
        self, host: str, port: int, answer: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        writer.write(answer)
        if self.faults.get(host, self.fault) == "liar":
            raise _DropError
        there, back = await asyncio.open_connection(LOOPBACK, port)
        with contextlib.closing(back):
            await asyncio.gather(_copy(reader, back), _copy(there, writer))


def _basic(user: str, password: str) -> bytes:
    return b"Proxy-Authorization: Basic " + b64encode(f"{user}:{password}".encode())


async def _copy(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    while data := await source.read(65_536):
        target.write(data)
        await target.drain()
    with contextlib.suppress(OSError):
        target.write_eof()
