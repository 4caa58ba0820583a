"""One server, or the primary that Sentinel names: its connections, a timeout around each use, no repetition.

The library's own retries are off: a reply can be lost after a script ran, and only the caller knows whether a repeat is
safe.

The address is a name for whichever server is the primary, and may lead to another one while the old one lives on as a
replica. Each connection belongs to the server that it was opened to. Whatever hints at another primary makes one look
where the address leads now; until it has, no request to a site starts (`is_in_doubt`).
"""

import asyncio
import contextlib
import os
import re
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import hiredis
import redis.asyncio as aioredis
import redis.exceptions as rex
from redis._parsers.hiredis import NOT_ENOUGH_DATA
from redis.asyncio.retry import Retry
from redis.asyncio.sentinel import Sentinel
from redis.backoff import NoBackoff
from redis.credentials import CredentialProvider

from crawler import process_tuning
from crawler.engine.address import TLS_FILES, EngineUrl, Kind, Login, Place
from crawler.errors import UsageError
from crawler.redaction import learn

CALLS_MAX = 48  # at the same time; further ones wait for their turn
CALLS_MIN, FILES_PER_CALL = 4, 16  # fewer where few files may be open: a call needs a connection, which is kept
ONLY = "only"  # the name of the shard, where there is but one
REST_S = 0.25  # between two looks while something is wrong
REPLICA_PATIENCE_S = 30.0  # with a replica that seems to work and confirms nothing
WAIT_SHARE = 0.5  # of a call's time-out: for a replica
WAIT_MS = 500  # the same for people, or by settings
WRITE_KEPT_MS = 1000
# A balancer or a firewall that forgets an idle connection tells nobody: this finds out within a minute.
KEEPALIVE = {"TCP_KEEPIDLE": 30, "TCP_KEEPINTVL": 10, "TCP_KEEPCNT": 3}
# A primary answers none of these, or one that others may have replaced does.
DEMOTED = (rex.ReadOnlyError, rex.MasterDownError, rex.BusyLoadingError)
TOO_FEW_REPLICAS = "NOREPLICAS"
PASSWORD_BYTES_MAX = 4096  # of a file
NAMES_MAX = 5  # of services, in a message
CLOSED = "the connection to the engine was closed"

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
        "driver_info": None,  # tells the engine its name, by a command that some users may not give
    }


def tcp_options_of(timeout_s: float) -> dict[str, Any]:
    """Of each connection that is not a Unix socket."""
    probes = {getattr(socket, name): value for name, value in KEEPALIVE.items() if hasattr(socket, name)}
    return options_of(timeout_s) | {"socket_keepalive": True, "socket_keepalive_options": probes}


class PasswordFileError(rex.AuthenticationError):
    """A file that should have a password can't be read, or has none."""


class FilePassword(CredentialProvider):
    """A password that is read from its file at each new connection, so that a new one needs no restart."""

    def __init__(self, login: Login) -> None:
        self._login = login

    def get_credentials(self) -> tuple[str] | tuple[str, str]:
        """Raises PasswordFileError."""
        password = password_in(self._login.file)
        learn((password,))
        return (self._login.user, password) if self._login.user else (password,)

    async def get_credentials_async(self) -> tuple[str] | tuple[str, str]:
        return self.get_credentials()


def password_in(file: str) -> str:
    """The password in a file, without the end of its line. Raises PasswordFileError."""
    try:
        with Path(file).open("rb") as opened:
            found = opened.read(PASSWORD_BYTES_MAX + 1)
        text = found.decode()
    except OSError as error:
        raise PasswordFileError(f"can't read the password file {file}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise PasswordFileError(f"the password file {file} is not text in UTF-8") from None
    password = text.rstrip("\r\n")
    if not password or len(found) > PASSWORD_BYTES_MAX or "\n" in password:
        raise PasswordFileError(f"the password file {file} must have one line, which is the password")
    return password


def _credentials(login: Login) -> dict[str, Any]:
    if login.file:
        return {"credential_provider": FilePassword(login)}
    return {"username": login.user or None, "password": login.password or None}


def check_files(url: EngineUrl) -> None:
    """Can the files be read that a URL names? Raises UsageError."""
    try:
        for login in (url.login, url.sentinel):
            if login.file:
                password_in(login.file)
    except PasswordFileError as error:
        raise UsageError(str(error)) from None
    for name in TLS_FILES:
        if (file := str(url.tls.get(name, ""))) and not os.access(file, os.R_OK):
            raise UsageError(f"{name}: can't read {file}")


def pool_of(url: EngineUrl, place: Place | None, timeout_s: float, on_connect: Hook | None = None) -> Any:
    """What makes connections to one place, or to the socket. It keeps none."""
    options = (options_of if place is None else tcp_options_of)(timeout_s) | _credentials(url.login) | {**url.tls}
    if on_connect is not None:
        options["redis_connect_func"] = on_connect
    if place is None:
        return aioredis.ConnectionPool(aioredis.UnixDomainSocketConnection, path=url.path, db=url.db, **options)
    kind = aioredis.SSLConnection if url.is_tls else aioredis.Connection
    return aioredis.ConnectionPool(kind, host=place.host, port=place.port, db=url.db, **options)


def client_of(url: EngineUrl, timeout_s: float, on_connect: Hook) -> Any:
    """Of one server, or of the primary that Sentinel names."""
    if url.kind is not Kind.SENTINEL:
        return aioredis.Redis.from_pool(pool_of(url, url.places[0] if url.places else None, timeout_s, on_connect))
    sentinels = Sentinels(url, tcp_options_of(timeout_s))
    options = tcp_options_of(timeout_s) | _credentials(url.login)
    return sentinels.master_for(url.service, db=url.db, redis_connect_func=on_connect, **options)


class Sentinels(Sentinel):
    """Asks one after the other for the primary, first the one that knew it last. One that is silent leaves time for the
    next, and for the primary; by default the library asks one that is gone again until nobody waits any more.
    """

    def __init__(self, url: EngineUrl, options: dict[str, Any]) -> None:
        places = [(place.host, place.port) for place in url.places]
        super().__init__(places, sentinel_kwargs=options | _credentials(url.sentinel), **options)  # type: ignore[no-untyped-call]
        self._share_s = options["socket_connect_timeout"] / (len(places) + 1)

    async def discover_master(self, service_name: str) -> tuple[str, int]:
        why, refusal = "none of them answers", None
        for client in list(self.sentinels):
            # Not by a time-out of the library's: it uses wait_for, which loses cancellations before Python 3.12.
            try:
                async with asyncio.timeout(self._share_s):
                    known: Any = await client.sentinel_masters()
            except (rex.AuthenticationError, rex.NoPermissionError) as error:
                refusal = error
                continue
            except (rex.RedisError, OSError):
                continue
            state = known.get(service_name)
            if state and self.check_master_state(state, service_name):
                self.sentinels.remove(client)
                self.sentinels.insert(0, client)
                return state["ip"], state["port"]
            names = ", ".join(sorted(known)[:NAMES_MAX]) or "none"
            why = "it is down" if state else f"those that they know: {names}"
        if refusal is not None:
            raise SentinelRefusedError(str(refusal))
        raise rex.ConnectionError(f"no Sentinel names a primary of {service_name!r} ({why})")


class SentinelRefusedError(rex.AuthenticationError):
    """A Sentinel wants another login, which is not the engine's."""


class Greeting(NamedTuple):
    run_id: str
    is_primary: bool


async def greeting(connection: Any) -> Greeting:
    """What a server tells of itself on a new connection."""
    await connection.on_connect()
    await connection.send_command("INFO", "server", "replication")
    said = bytes(await connection.read_response())
    found = re.search(rb"run_id:(\w+)", said)
    return Greeting(found[1].decode() if found else "", b"role:slave" not in said)


def online_replicas(info: dict[str, Any]) -> int:
    """By INFO of a primary: how many are attached that can take over. One that is copying all keys can't."""
    replicas = (value for key, value in info.items() if key.startswith("slave") and isinstance(value, dict))
    return sum(one.get("state") == "online" for one in replicas)


def errors_in(replies: Sequence[Any]) -> list[Exception]:
    """Those of many replies that are errors. Mostly there is none, which the few types that there are tell soonest."""
    if not any(issubclass(kind, Exception) for kind in set(map(type, replies))):
        return []
    return [reply for reply in replies if isinstance(reply, Exception)]


def tag_of(key: str) -> str:
    """What decides the slot: what the first braces hold, if anything, or all of it."""
    start = key.find("{")
    end = key.find("}", start + 1) if start >= 0 else -1
    return key[start + 1 : end] if end > start + 1 else key


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


def cut(connection: Any) -> None:
    """Close a connection now: what is not sent yet is not sent, and the other side is not waited for.

    The library's own ways wait for both, so that a server that stands still would keep the socket.
    """
    if hasattr(connection, "transport"):
        connection.transport.abort()
    connection._close()  # noqa: SLF001 - its public ways are coroutines, which may be cancelled
    connection._parser.on_disconnect()  # noqa: SLF001


class Server:
    """The connections to one server: used again only if all replies were read. None outlives `close`."""

    def __init__(self, client: Any, timeout_s: float, turns: int) -> None:
        """`client`: the library's, whose pool makes connections and keeps none of them. `turns`: how many calls may
        run at a time; `timeout_s` covers the wait for a turn.
        """
        self.client = client
        self.run_id = ""  # of the process that last answered as a primary
        self.unconfirmed_since_s: float | None = None  # monotonic; when no replica confirmed writes for the first time
        self._timeout_s = timeout_s
        self._callbacks: dict[str, Callable[[Any], Any]] = {**client.response_callbacks}  # by command, in capitals
        self._turns = asyncio.Semaphore(turns)
        self._idle: list[Any] = []
        self._limits = set[asyncio.Timeout]()  # of the calls under way
        self.is_closed = False

    async def replies_of(self, commands: Sequence[Command]) -> list[Any]:
        """Send commands at once: their replies in order, with an error for each that was refused.

        What was prepared for one server is answered by that one: if another has taken its place by then, they are not
        sent, or their outcome is unknown. Raises the library's errors when that of the whole is. Like the library's
        pipeline, which packs in Python and takes three times as long for each command.
        """
        known = self.run_id
        if self.is_closed:
            raise NotRun(CLOSED)
        try:
            async with asyncio.timeout(self._timeout_s) as limit:
                self._limits.add(limit)
                try:
                    async with self._turns:
                        with closed_below():
                            return await self._said(commands, known)
                finally:
                    self._limits.discard(limit)
        except TimeoutError:
            if self.is_closed:
                raise rex.ConnectionError(CLOSED) from None
            raise rex.TimeoutError(f"nothing within {self._timeout_s:g} s") from None

    async def _said(self, commands: Sequence[Command], known: str) -> list[Any]:
        connection = await self._connection(known)
        try:
            await connection.send_packed_command(b"".join([hiredis.pack_command(command) for command in commands]))
            replies = await self._read(connection, commands)
            if known not in ("", self.run_id):
                raise rex.ConnectionError("another server has taken over meanwhile")
        except BaseException:  # unread replies would be taken for those of other commands
            cut(connection)
            raise
        if self.is_closed or any(isinstance(error, rex.AuthenticationError) for error in errors_in(replies)):
            cut(connection)  # the next one logs in with the password of that time
        else:
            self._idle.append(connection)
        return replies

    async def _read(self, connection: Any, commands: Sequence[Command]) -> list[Any]:
        """The reply to each. One that has arrived is taken from the library's parser: its own way to it is four
        coroutines, and twice the time.
        """
        arrived, callback_of = connection._parser._reader.gets, self._callbacks.get  # noqa: SLF001
        replies: list[Any] = []
        for command in commands:
            reply = arrived()
            if reply is NOT_ENOUGH_DATA:
                try:
                    reply = await connection.read_response()
                except rex.ResponseError as error:
                    reply = error
            if isinstance(reply, Exception):
                if not isinstance(reply, rex.ResponseError):
                    raise reply
            elif callback := callback_of(command[0]):
                reply = callback(reply)
            replies.append(reply)
        return replies

    async def _connection(self, known: str) -> Any:
        """One to the server of this run id ("": to any). Raises NotRun."""
        while self._idle and known in ("", self.run_id):
            connection = self._idle.pop()
            if await self._is_usable(connection):
                return connection
            cut(connection)
        connection = self.client.connection_pool.make_connection()
        try:
            if known in ("", self.run_id):
                await connection.connect()
                connection.transport = connection._writer.transport  # noqa: SLF001 - which it forgets when it is closed
            if known not in ("", self.run_id):
                raise rex.ConnectionError("another server has taken over")
        except BaseException as error:
            cut(connection)
            if isinstance(error, rex.ConnectionError | OSError) and not isinstance(error, rex.AuthenticationError):
                raise NotRun(str(error)) from None
            raise
        return connection

    async def _is_usable(self, connection: Any) -> bool:
        """It leads to the server that was answering last, which has neither closed it nor said anything unasked."""
        if not self.is_current(connection) or connection.transport.is_closing():
            return False
        try:
            return not await connection.can_read()
        except (rex.RedisError, OSError):
            return False

    def is_current(self, connection: Any) -> bool:
        """Does a connection lead to the server that was answering last?"""
        return getattr(connection, "run_id", self.run_id) == self.run_id

    def forget_idle(self) -> None:
        """Close the connections that nobody uses: they may be half open."""
        while self._idle:
            cut(self._idle.pop())

    def close(self) -> None:
        """End the calls under way, and close all connections. Later calls fail."""
        self.is_closed = True
        self.forget_idle()
        for limit in self._limits:
            if not limit.expired():
                limit.reschedule(0)

    async def aclose(self) -> None:
        """As `close`, and wait until the calls under way have ended."""
        self.close()
        while self._limits:  # noqa: ASYNC110 - for some turns of the event loop
            await asyncio.sleep(0)
        manager = getattr(self.client.connection_pool, "sentinel_manager", None)
        for client in (self.client, *(manager.sentinels if manager else ())):  # it had subscriptions
            with contextlib.suppress(rex.RedisError, OSError):
                await client.aclose()

    async def replicas_with(self, key: str, wait_ms: int) -> int:
        """How many replicas have all that was written to the server until now; waits for one. `key`: any that may be
        written. Raises the library's errors.

        WAIT is for the writes of its own connection: this one comes after all that were answered.
        """
        write: Command = ("SET", f"{{{tag_of(key)}}}~w", 1, "PX", WRITE_KEPT_MS)
        replies = await self.replies_of([write, ("WAIT", 1, wait_ms)])
        for reply in replies:
            if isinstance(reply, Exception):
                raise reply
        return int(replies[-1])

    def is_safe(self, *, is_there: bool) -> bool:
        """Does what was written count as safe? `is_there`: a replica has it. Also if none has confirmed anything for
        long: nothing can be done about it then.
        """
        if is_there:
            self.unconfirmed_since_s = None
            return True
        if self.unconfirmed_since_s is None:
            self.unconfirmed_since_s = time.monotonic()
        return time.monotonic() - self.unconfirmed_since_s > REPLICA_PATIENCE_S


class OneServer:
    """An engine that is one server. `on_change` is called when that is another one than before."""

    is_cluster = False
    partitions_min = 0

    def __init__(self, url: EngineUrl, timeout_s: float, on_change: Callable[[Change], None]) -> None:
        self.is_in_doubt = False
        self._had_replica = False
        self._on_change = on_change
        self._timeout_s = timeout_s
        self._server = Server(client_of(url, timeout_s, self._on_connect), timeout_s, calls_max())
        self._looking: asyncio.Task[None] | None = None
        # When one was connected last, monotonic. Sentinel is there for replicas: that one was is taken for granted.
        self._replica_seen_s = time.monotonic() if url.kind is Kind.SENTINEL else -REPLICA_PATIENCE_S

    async def _on_connect(self, connection: Any) -> None:
        """A new connection may lead to another engine than the last one: then the call that opened it must fail."""
        run_id, is_primary = await greeting(connection)
        if not is_primary:  # its run id says nothing about the crawl's data
            raise rex.ReadOnlyError("it is a replica")
        known, self._server.run_id = self._server.run_id, run_id
        connection.run_id = run_id
        self.is_in_doubt = False
        if known and run_id != known:
            self._replica_seen_s = -REPLICA_PATIENCE_S  # who was connected to the other one is not to this one yet
            self._on_change(Change(everything))
            raise rex.ConnectionError("it was restarted, or replaced by another one")

    @property
    def run_id(self) -> str:
        return self._server.run_id

    def run_id_of(self, key: str) -> str:  # noqa: ARG002 - of a cluster it decides
        """The run id of the server that has this key."""
        return self.run_id

    def shard_of(self, key: str) -> str:  # noqa: ARG002
        """A name for the server that has this key."""
        return ONLY

    @property
    def shards(self) -> frozenset[str]:
        """All that `shard_of` may return."""
        return frozenset((ONLY,))

    def doubt(self) -> None:
        """Another server may be the primary: look in the background where the address leads now."""
        self.is_in_doubt = True
        if not self._server.is_closed and (self._looking is None or self._looking.done()):
            self._looking = asyncio.create_task(self._look(), name="engine")

    async def _look(self) -> None:
        while self.is_in_doubt:
            connection = self._server.client.connection_pool.make_connection()
            try:
                with contextlib.suppress(rex.RedisError, OSError), closed_below():
                    async with asyncio.timeout(self._timeout_s):
                        await connection.connect()
            finally:
                cut(connection)
            if self.is_in_doubt:
                await asyncio.sleep(REST_S)

    @property
    def primaries(self) -> list[Server]:
        return [self._server]

    async def replies_of(self, commands: Sequence[Command]) -> list[Any]:
        """As of `Server`. What only a replica answers casts doubt on the server."""
        try:
            replies = await self._server.replies_of(commands)
        except (rex.RedisError, OSError) as error:
            hidden = error.__context__  # by the library, with Sentinel
            if isinstance(error, DEMOTED) or isinstance(hidden, DEMOTED):
                self.doubt()
            elif not isinstance(error, NotRun):
                self._server.forget_idle()
            raise
        if any(map(_is_of_no_primary, errors_in(replies))):
            self.doubt()
        return replies

    async def each(self, *command: Any) -> list[Any]:
        """The reply of each primary; raises the library's errors."""
        return await self.replies_of([command])

    async def replicated(self, keys: Collection[str], *, wait_ms: int | None = None) -> set[str]:
        """All of the keys, if their writes until now survive the end of the server; none otherwise.

        Raises the library's errors.

        While an fsync of its append-only file runs, the engine replies and buffers writes in memory, for up to two
        seconds. When it reports that none runs, the buffer is written before that reply is sent. A replica that is
        connected, or was a moment ago, may take over: then it must have them, too.
        """
        if not keys:
            return set()
        (info,) = await self.each("INFO", "persistence", "replication")
        if isinstance(info, Exception):
            raise info
        if int(info.get("aof_enabled", 0)) and int(info.get("aof_pending_bio_fsync", 0)):
            return set()
        if online_replicas(info):
            self._replica_seen_s = time.monotonic()
        elif time.monotonic() - self._replica_seen_s >= REPLICA_PATIENCE_S:
            return set(keys)
        wait_ms = int(self._timeout_s * WAIT_SHARE * 1000) if wait_ms is None else wait_ms
        is_there = await self._server.replicas_with(min(keys), wait_ms) > 0
        return set(keys) if self._server.is_safe(is_there=is_there) else set()

    def is_current(self, connection: Any) -> bool:
        """Does a connection lead to the server that is the primary now?"""
        return self._server.is_current(connection)

    async def hear(self) -> None:
        """Raises the library's errors when it does not answer, or not with a reply."""
        await self.each("PING")

    async def confirm(self, keys: Collection[str], patience_s: float) -> list[str]:
        """As of a cluster. A server that never had a replica is not named."""
        end_s = time.monotonic() + patience_s
        while True:
            (info,) = await self.each("INFO", "replication")
            if isinstance(info, Exception):
                raise info
            if online_replicas(info):
                self._had_replica = True
                if await self._server.replicas_with(min(keys), WAIT_MS):
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
        self._server.close()
        if self._looking is not None:
            self._looking.cancel()
            await asyncio.gather(self._looking, return_exceptions=True)
        await self._server.aclose()


def _is_of_no_primary(error: Exception) -> bool:
    return isinstance(error, DEMOTED) or str(error).startswith(TOO_FEW_REPLICAS)
