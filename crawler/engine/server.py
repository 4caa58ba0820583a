"""One server, or the primary that Sentinel names: a pool of connections, a timeout around each use, no repetition.

The library's own retries are off: a reply can be lost after a script ran, and only the caller knows whether a repeat is
safe.
"""

import asyncio
import contextlib
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterator, Sequence
from typing import Any, NamedTuple
from urllib.parse import SplitResult, parse_qs, urlsplit

import hiredis
import redis.asyncio as aioredis
import redis.exceptions as rex
from redis.asyncio.retry import Retry
from redis.asyncio.sentinel import Sentinel
from redis.backoff import NoBackoff

from crawler import process_tuning

CALLS_MAX = 48  # at the same time; further ones wait for their turn
CALLS_MIN, FILES_PER_CALL = 4, 16  # fewer where few files may be open: a call needs a connection, which is kept
WRITE_KEPT_MS = 1000
WAIT_SHARE = 0.5  # of a call's time-out: for a replica
REST_S = 0.25  # between two looks while something is wrong
CONNECTIONS_MAX = 64  # one of them for subscriptions; beyond this the library fails instead of waiting
ONLY = "only"  # the name of the shard, where there is but one

Command = tuple[Any, ...]
Hook = Callable[[Any], Awaitable[None]]


class Change(NamedTuple):
    """Some keys have another server than before, or theirs was restarted."""

    affects: Callable[[str], bool]
    may_have_lost: bool = True  # the last writes to them; where slots were moved, nothing is lost


def calls_max() -> int:
    """How many calls may run at a time, by the limit of open files."""
    return min(CALLS_MAX, max(CALLS_MIN, process_tuning.open_files_max() // FILES_PER_CALL))


def options_of(timeout_s: float) -> dict[str, Any]:
    """Of each connection."""
    return {
        "socket_timeout": None,  # one timeout around a whole pipeline instead of one per reply
        "socket_connect_timeout": timeout_s,
        "retry": Retry(NoBackoff(), 0),
        "protocol": 2,
    }


def parts_of(url: str) -> SplitResult:
    """Raises ValueError, whose text never contains a part of the password."""
    try:
        parts = urlsplit(url)
        for place in parts.netloc.rpartition("@")[2].split(","):
            _ = urlsplit(f"//{place}").port
    except ValueError:
        raise ValueError(
            "its port is not a number from 0 to 65535 (write / @ : in a password as %2F %40 %3A)"
        ) from None
    return parts


def client_of(url: str, parts: SplitResult, timeout_s: float, on_connect: Hook) -> Any:
    """redis://, rediss://, unix:// or redis+sentinel://host:port[,host:port]/service. Raises ValueError."""
    options = options_of(timeout_s)
    if parts.scheme == "redis+sentinel":
        return _sentinel_client(parts, options, on_connect)
    client = aioredis.Redis.from_url(url, redis_connect_func=on_connect, **options)
    client.connection_pool.max_connections = CONNECTIONS_MAX
    return client


def _sentinel_client(parts: SplitResult, options: dict[str, Any], on_connect: Hook) -> Any:
    service = parts.path.strip("/") or "mymaster"
    sentinels = [(h.rpartition(":")[0] or h, int(h.rpartition(":")[2] or 26379)) for h in parts.netloc.split(",")]
    password = parse_qs(parts.query).get("password", [None])[0]
    sentinel: Any = Sentinel(sentinels, **options)  # type: ignore[no-untyped-call]
    return sentinel.master_for(service, password=password, redis_connect_func=on_connect, **options)


async def greeting(connection: Any, *sections: str) -> tuple[str, bytes]:
    """The first words on a new connection: the server's run id, and these sections of INFO."""
    await connection.on_connect()
    await connection.send_command("INFO", *sections)
    said = bytes(await connection.read_response())
    found = re.search(rb"run_id:(\w+)", said)
    return (found[1].decode() if found else ""), said


def everything(_key: str) -> bool:
    return True


@contextlib.contextmanager
def closed_below() -> Iterator[None]:
    """Translates uvloop's error for a write to a connection that was just closed, which the library does not know."""
    try:
        yield
    except RuntimeError as error:
        if "the handler is closed" not in str(error):
            raise
        raise rex.ConnectionError("the connection was closed") from None


class NotRun(rex.ConnectionError):
    """The command did not run, so it may be sent again: no connection, or refused by who does not have its slot."""


class Server:
    """A pool of connections to one server."""

    def __init__(self, client: Any, timeout_s: float, turns: int) -> None:
        """`turns`: how many calls may run at a time; `timeout_s` covers the wait for a turn."""
        self.client = client
        self._timeout_s = timeout_s
        self._turns = asyncio.Semaphore(turns)

    @contextlib.asynccontextmanager
    async def _asking(self) -> AsyncIterator[None]:
        try:
            async with asyncio.timeout(self._timeout_s), self._turns:
                with closed_below():
                    yield
        except TimeoutError:
            raise rex.TimeoutError(f"nothing within {self._timeout_s:g} s") from None

    async def replies_of(self, commands: Sequence[Command]) -> list[Any]:
        """Send commands at once: their replies in order, with an error for each that was refused.

        Raises the library's errors when the outcome of the whole is unknown. Like the library's pipeline, which packs
        in Python and takes three times as long for each command.
        """
        async with self._asking():
            pool, callbacks = self.client.connection_pool, self.client.response_callbacks
            try:
                connection = await pool.get_connection()
            except (rex.ConnectionError, OSError) as error:
                if isinstance(error, rex.AuthenticationError):
                    raise
                raise NotRun(str(error)) from None
            try:
                await connection.send_packed_command(b"".join([hiredis.pack_command(command) for command in commands]))
                replies: list[Any] = []
                for command in commands:
                    try:
                        reply = await connection.read_response()
                    except rex.ResponseError as error:
                        replies.append(error)
                    else:
                        callback = callbacks.get(command[0])
                        replies.append(callback(reply) if callback else reply)
                return replies
            except BaseException:  # unread replies would be taken for those of other commands
                await connection.disconnect(nowait=True)
                raise
            finally:
                await pool.release(connection)


async def replicas_with(server: Server, tag: str, wait_ms: int) -> int:
    """How many replicas have all that was written to the server until now; waits for one. Raises the library's errors.

    WAIT is for the writes of its own connection: this one comes after all that were answered. `tag`: of a key that the
    server has.
    """
    write: Command = ("SET", f"{{{tag}}}~w", 1, "PX", WRITE_KEPT_MS)
    replies = await server.replies_of([write, ("WAIT", 1, wait_ms)])
    for reply in replies:
        if isinstance(reply, Exception):
            raise reply
    return int(replies[-1])


def has_online_replica(info: dict[str, Any]) -> bool:
    """By INFO of a primary: is one attached that can take over? One that is copying all keys can't."""
    replicas = (value for key, value in info.items() if key.startswith("slave") and isinstance(value, dict))
    return any(one.get("state") == "online" for one in replicas)


class OneServer:
    """An engine that is one server. `on_change` is called when that is another one than before."""

    is_cluster = False

    def __init__(self, url: str, parts: SplitResult, timeout_s: float, on_change: Callable[[Change], None]) -> None:
        self.run_id = ""
        self._had_replica = False
        self._timeout_s = timeout_s
        self._on_change = on_change
        self._server = Server(client_of(url, parts, timeout_s, self._on_connect), timeout_s, calls_max())

    async def _on_connect(self, connection: Any) -> None:
        """A new connection may lead to another engine than the last one: then the call that opened it must fail."""
        run_id, _ = await greeting(connection, "server")
        known, self.run_id = self.run_id, run_id
        if known and run_id != known:
            self._on_change(Change(everything))
            raise rex.ConnectionError("it was restarted")

    def run_id_of(self, key: str) -> str:  # noqa: ARG002 - of a cluster it decides
        """The run id of the server that has this key."""
        return self.run_id

    def shard_of(self, key: str) -> str:  # noqa: ARG002
        """A name for the server that has this key."""
        return ONLY

    def doubt(self) -> None:
        """Each new connection is checked anyway."""

    @property
    def primaries(self) -> list[Server]:
        return [self._server]

    async def replies_of(self, commands: Sequence[Command]) -> list[Any]:
        """As of `Server`."""
        return await self._server.replies_of(commands)

    async def each(self, *command: Any) -> list[Any]:
        """The reply of each primary; raises the library's errors."""
        return await self._server.replies_of([command])

    async def hear(self) -> None:
        """Raises the library's errors when it does not answer, or not with a reply."""
        await self.each("PING")

    async def confirm(self, keys: Collection[str], patience_s: float) -> list[str]:  # noqa: ARG002 - it has all
        """As of a cluster. A server that never had a replica is not named."""
        end_s = time.monotonic() + patience_s
        while True:
            (info,) = await self.each("INFO", "replication")
            if isinstance(info, Exception):
                raise info
            if has_online_replica(info):
                self._had_replica = True
                if await replicas_with(self._server, "~", int(self._timeout_s * WAIT_SHARE * 1000)):
                    return []
            if not self._had_replica:
                return []
            if time.monotonic() > end_s:
                return [ONLY]
            await asyncio.sleep(REST_S)

    @contextlib.asynccontextmanager
    async def listener(self) -> AsyncIterator[Any]:
        """A client for subscriptions."""
        yield self._server.client

    async def aclose(self) -> None:
        await self._server.client.aclose()
