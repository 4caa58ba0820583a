"""What every test is held to: sockets reach loopback only, and no asyncio task outlives its test."""

import asyncio
import contextlib
import socket
from collections.abc import Iterator
from typing import Any

import pytest

GRACE_S = 0.25


class NetworkUsedError(AssertionError):
    """A test tried to reach something beyond this machine."""


def refuse_beyond_loopback(family: int, address: Any) -> None:
    if family not in (socket.AF_INET, socket.AF_INET6):
        return
    host = str(address[0])
    if not (host.startswith("127.") or host in {"::1", "::ffff:127.0.0.1", "localhost"}):
        raise NetworkUsedError(f"a test tried to reach {host}; only loopback is allowed")


@contextlib.contextmanager
def loopback_only() -> Iterator[None]:
    """Guard the sockets of Python code. Libraries that open their own (c-ares, libuv) are not seen."""
    connect, connect_ex, sendto = socket.socket.connect, socket.socket.connect_ex, socket.socket.sendto

    def guarded_connect(self: socket.socket, address: Any) -> None:
        refuse_beyond_loopback(self.family, address)
        connect(self, address)

    def guarded_connect_ex(self: socket.socket, address: Any) -> int:
        refuse_beyond_loopback(self.family, address)
        return connect_ex(self, address)

    def guarded_sendto(self: socket.socket, *arguments: Any) -> int:
        refuse_beyond_loopback(self.family, arguments[-1])
        return sendto(self, *arguments)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(socket.socket, "connect", guarded_connect)
        patch.setattr(socket.socket, "connect_ex", guarded_connect_ex)
        patch.setattr(socket.socket, "sendto", guarded_sendto)
        yield


async def leaked_tasks(before: set[asyncio.Task[Any]]) -> set[asyncio.Task[Any]]:
    """Tasks that began after `before` was taken and don't end by themselves within the grace time."""
    left = asyncio.all_tasks() - before
    if left:
        _, left = await asyncio.wait(left, timeout=GRACE_S)
    return left
