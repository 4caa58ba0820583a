"""A plain synchronous connection to the real engine: commands out, replies in, in one go. And its pub/sub side."""

import contextlib
import socket
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import hiredis

from crawler.frontier.scripts import library
from tests.support.engine import running_engine

# Hashes and sorted sets keep the order in which they were filled, instead of one that a random seed gave them.
OPTIONS = (
    "--hash-max-listpack-entries", "100000", "--hash-max-listpack-value", "1000000",
    "--zset-max-listpack-entries", "100000", "--zset-max-listpack-value", "1000000",
)  # fmt: skip


class Wire:
    """One connection."""

    def __init__(self, path: str) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.connect(path)
        self._reader = hiredis.Reader()

    def ask(self, commands: Sequence[tuple[Any, ...]]) -> list[Any]:
        """Replies in order; an error of the engine takes the place of its reply."""
        self._socket.sendall(b"".join(map(hiredis.pack_command, commands)))
        return [self._reply() for _ in commands]

    def _reply(self) -> Any:
        while True:
            reply = self._reader.gets()
            if reply is not False:
                return reply
            data = self._socket.recv(1 << 20)
            if not data:
                raise ConnectionError("the engine of the simulation is gone")
            self._reader.feed(data)

    def one(self, *command: Any) -> Any:
        """One command that must succeed."""
        (reply,) = self.ask([command])
        if isinstance(reply, Exception):
            raise reply
        return reply

    def published(self) -> list[tuple[str, bytes]]:
        """What was published up to now on the channels this connection listens to."""
        self._socket.sendall(hiredis.pack_command(("PING",)))
        heard = []
        while (reply := self._reply())[0] != b"pong":
            if reply[0] == b"pmessage":
                heard.append((reply[2].decode(), reply[3]))
        return heard

    def close(self) -> None:
        self._socket.close()


class RealEngine:
    """The real engine behind all simulated ones: scripts and data."""

    def __init__(self, path: str) -> None:
        self.wire, self.ear = Wire(path), Wire(path)
        self.ear.one("PSUBSCRIBE", "*")

    def reset(self) -> None:
        """Empty it."""
        self.wire.one("FLUSHALL")
        self.wire.one("FUNCTION", "FLUSH")
        self.wire.one("FUNCTION", "LOAD", library().text)
        self.ear.published()

    def snapshot(self, of: Callable[[bytes], bool] = lambda _: True) -> list[tuple[bytes, bytes]]:
        """All keys, or some, as they are."""
        keys = sorted(filter(of, self.wire.one("KEYS", "*")))
        return list(zip(keys, self.wire.ask([("DUMP", key) for key in keys]), strict=True))

    def restore(self, snapshot: list[tuple[bytes, bytes]], of: Callable[[bytes], bool] | None = None) -> None:
        """All keys, or some, as they were."""
        if of is None:
            self.wire.one("FLUSHALL")
        elif there := sorted(filter(of, self.wire.one("KEYS", "*"))):
            self.wire.one("DEL", *there)
        for reply in self.wire.ask([("RESTORE", key, 0, value) for key, value in snapshot]):
            if isinstance(reply, Exception):
                raise reply

    def close(self) -> None:
        self.wire.close()
        self.ear.close()


@contextlib.contextmanager
def real_engine() -> Iterator[RealEngine]:
    """One for any number of runs, one after the other."""
    with running_engine(*OPTIONS) as engine:
        opened = RealEngine(engine.url.removeprefix("unix://"))
        try:
            yield opened
        finally:
            opened.close()
