"""The connection to the engine: one server, Sentinel or a cluster, with one interface.

Nothing that may have run is repeated here. If the engine does not know a script (it is new, or after FUNCTION FLUSH),
the library is loaded and the call repeated, also inside pipelines: the script has not run then.
"""

import asyncio
import contextlib
import logging
import re
import time
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Sequence
from typing import Any, NamedTuple

import msgspec
import redis.exceptions as rex

from crawler.engine.address import Kind, read_url
from crawler.engine.cluster import KEYLESS, Cluster, spare_key
from crawler.engine.server import (
    ONLY,
    REPLICA_PATIENCE_S,
    WAIT_MS,
    Change,
    NotRun,
    OneServer,
    PasswordFileError,
    SentinelRefusedError,
    check_files,
    closed_below,
    errors_in,
    everything,
    online_replicas,
)
from crawler.errors import EngineDown, EngineError, EngineFull, EngineUnfit
from crawler.redaction import shown_server

REDIS_MIN = (7, 0)
VALKEY_MIN = (7, 2)
log = logging.getLogger(__name__)

LIBRARY_ERRORS = (rex.RedisError, OSError)
PIPELINE_MAX = 512  # calls sent before replies are read: bounds the engine's output buffer
SCAN_COUNT = 500  # keys that one call of a scan looks at
PATIENCE_S, AGAIN_S = 10.0, 0.1  # of people for a cluster: a failover with a node time-out of 5 s
READS = frozenset(
    ("EXISTS", "GET", "HEXISTS", "HGET", "HGETALL", "HKEYS", "HLEN", "HMGET", "HRANDFIELD", "HVALS", "LINDEX", "LRANGE",
     "SCAN", "SCARD", "SMEMBERS", "TIME", "ZCARD", "ZRANGE", "ZRANGEBYLEX", "ZRANGEBYSCORE", "ZREVRANGE",
     "ZREVRANGEBYSCORE", "ZSCORE")
)  # fmt: skip
SUBSCRIBED_S = 10.0  # between two looks whether a subscription still leads to the primary
LOADS_MAX = 5  # times that one pipeline loads the library, if it is gone each time


class Call(msgspec.Struct, frozen=True):
    """One script call: the script's name, its keys (one slot) and its arguments."""

    name: str
    keys: tuple[str, ...]
    args: tuple[Any, ...]


class Library(msgspec.Struct, frozen=True):
    """Scripts that the engine stores as functions.

    `name` is derived from the text, so that different releases may share an engine. `reads`: those that write nothing.
    """

    name: str
    text: str
    reads: frozenset[str] = frozenset()

    def function_of(self, script: str) -> str:
        """The name of a script's function in the engine."""
        return f"{self.name}_{script}"


class EngineInfo(msgspec.Struct, frozen=True, kw_only=True):
    """Facts about the engine; `version` like (9, 1, 2); `product` is redis or valkey."""

    product: str
    version: tuple[int, ...]
    run_id: str
    policy: str
    persistent: bool
    used_bytes: int
    max_bytes: int
    cpu_s: float
    intset_max: int = 512
    is_clustered: bool = False  # one node of a cluster
    replicas: int = 0  # that can take over
    replicas_needed: int = -1  # connected ones, or it takes no writes; -1: not known


class ShardInfo(msgspec.Struct, frozen=True, kw_only=True):
    """Facts about a primary of a cluster; `error`: why it told none. `validity`: a replica that was cut off from it for
    longer than so many node time-outs is not promoted; 0: it always is.
    """

    name: str
    slots: int
    has_replica: bool
    error: str = ""
    policy: str = ""
    is_persistent: bool = False
    used_bytes: int = 0
    needs_all_slots: bool = False
    node_timeout_s: float = 0.0
    validity: int = 0


class Memory(NamedTuple):
    """Memory that the engine uses (in a cluster: all primaries), and its share of maxmemory; 0 without a limit.

    In a cluster the share is that of the fullest primary.
    """

    used_bytes: int
    share: float


REFUSED = ("NOAUTH", "WRONGPASS", "Authentication required", "invalid username-password", "invalid password")
HOW_TO_LOG_IN = (
    "give user and password: CRAWLER_FRONTIER_REDIS=redis://USER:PASSWORD@HOST/ (USER may be empty), or redis://USER@HOST/"
    "?password_file=FILE"
)
HOW_TO_LOG_IN_THERE = "its login is behind the ?: sentinel_username=, sentinel_password= or sentinel_password_file="
FULL = "the engine is out of memory: raise maxmemory or wait until it drains"
# What the first word of an engine's answer means, by whom it is to be mended (docs/operate/recovery.md has the table).
ANSWERS: dict[str, tuple[type[EngineError], str]] = {
    "OOM": (EngineFull, FULL),
    "MISCONF": (EngineFull, "the engine can't write to its disk (MISCONF): free space there"),
    "READONLY": (EngineUnfit, "the engine is a read-only replica; connect to its primary"),
    "MASTERDOWN": (EngineUnfit, "the engine is a replica without its primary (MASTERDOWN); connect to the primary"),
    "NOREPLICAS": (EngineDown, "the engine takes no writes: too few replicas are connected (min-replicas-to-write)"),
    "LOADING": (EngineDown, "the engine reads its files (LOADING)"),
    "BUSY": (EngineDown, "the engine is busy with somebody's script (BUSY)"),
    "CLUSTERDOWN": (EngineDown, "a part of the cluster is down (CLUSTERDOWN)"),
    "TRYAGAIN": (EngineDown, "a part of the cluster is being moved (TRYAGAIN)"),
    "NOPERM": (EngineUnfit, "the user of the engine lacks a permission (NOPERM): {text}"),
}
IN_SCRIPT = "ACL failure in script: "  # before what the script's user may not do
_WORDS: dict[type[BaseException | None], str] = {
    rex.OutOfMemoryError: "OOM", rex.ReadOnlyError: "READONLY", rex.MasterDownError: "MASTERDOWN",
    rex.BusyLoadingError: "LOADING", rex.ClusterDownError: "CLUSTERDOWN", rex.TryAgainError: "TRYAGAIN",
    rex.NoPermissionError: "NOPERM",
}  # fmt: skip


def translate(error: Exception) -> EngineError:
    """A redis-py error as one of ours, with one line on what to do."""
    text = str(error).strip() or type(error).__name__
    hidden = type(error.__context__)  # the library may raise another one when a connection ends with it
    word = _WORDS.get(hidden) or _WORDS.get(type(error)) or text.partition(" ")[0]
    if text.startswith(IN_SCRIPT):
        word, text = "NOPERM", text.removeprefix(IN_SCRIPT).partition(" script: ")[0]
    kind, said = ANSWERS.get(word, (None, ""))
    if kind is not None:
        return kind(said.format(text=text))
    if isinstance(error, PasswordFileError):
        return EngineUnfit(text)
    if isinstance(error, SentinelRefusedError):
        return EngineUnfit(f"a Sentinel refused the login: {text.rstrip('.')}; {HOW_TO_LOG_IN_THERE}")
    refused = any(word in text for word in REFUSED)
    if refused or isinstance(error, rex.AuthenticationError | rex.AuthorizationError):
        return EngineUnfit(f"the engine refused the login: {text.rstrip('.')}; {HOW_TO_LOG_IN}")
    if found := re.match(r"unknown command [`'](\w+)", text):
        return EngineUnfit(f"the engine has no command {found[1]}: it was renamed or switched off (rename-command)")
    if "DB index is out of range" in text:
        return EngineUnfit(
            "the engine has fewer databases than its URL names (DB index is out of range): name a lower one"
        )
    if isinstance(error, rex.ConnectionError | rex.TimeoutError | OSError):
        return EngineDown(f"no answer from the engine: {text}")
    if "cluster support disabled" in text:
        return EngineUnfit("the engine is not a cluster: use redis:// instead of redis+cluster://")
    if isinstance(error, rex.AskError):  # or MOVED
        return EngineUnfit("the engine is one node of a cluster: use redis+cluster:// instead of redis://")
    return EngineError(f"the engine answered: {text}")


class Trouble(NamedTuple):
    """What is wrong with an engine, and since when (monotonic, s). `calls`: how many have failed."""

    text: str
    since_s: float
    calls: int


class _Service:
    """Which servers answer reads, and which take writes? A replica does one of them."""

    def __init__(self) -> None:
        self._troubles: dict[tuple[bool, str], Trouble] = {}  # of (reads or writes, server)

    @property
    def trouble(self) -> Trouble | None:
        """The one that lasts longest."""
        return min(self._troubles.values(), key=lambda one: one.since_s, default=None)

    @property
    def is_whole(self) -> bool:
        return not self._troubles

    def keep_only(self, shards: Collection[str]) -> None:
        """Forget servers that are asked no more."""
        self._troubles = {place: one for place, one in self._troubles.items() if place[1] in shards}

    def note(self, place: tuple[bool, str], reply: Any) -> None:
        """How a call ended. That memory is full is no trouble: it is waited for in other ways."""
        before = self._troubles.get(place)
        if isinstance(reply, EngineDown | EngineUnfit | EngineFull) and str(reply) != FULL:
            since_s, calls = (before.since_s, before.calls) if before else (time.monotonic(), 0)
            self._troubles[place] = Trouble(str(reply), since_s, calls + 1)
        elif before is not None:
            del self._troubles[place]
            after_s = round(time.monotonic() - before.since_s, 1)
            log.warning("engine.serves_again", extra={"after_s": after_s, "failed_calls": before.calls})


class RestartSignal:
    """Tells listeners that a server was restarted or replaced, before any other call reaches it."""

    def __init__(self) -> None:
        self._listeners: list[Callable[[Change], None]] = []

    @contextlib.contextmanager
    def listen(self, listener: Callable[[Change], None]) -> Iterator[None]:
        """`listener` is called for each restart while in this context, with what it affects."""
        self._listeners.append(listener)
        try:
            yield
        finally:
            self._listeners.remove(listener)

    @property
    def has_listeners(self) -> bool:
        return bool(self._listeners)

    def __call__(self, change: Change) -> None:
        for listener in self._listeners:
            listener(change)


class Engine:
    """An open connection.

    `fails_in_parts`: may a part of it be down, lose its last writes or be wiped while the rest goes on? One server
    loses the end of its file as a whole: with a write all that was written because of it. `partitions_min`: of a crawl
    that is created, unless its settings name a number.
    """

    def __init__(
        self,
        url: str,
        library: Library,
        *,
        call_timeout_s: float = 2.0,
        durability: str = "fast",
        patience_s: float = PATIENCE_S,
    ) -> None:
        """`library`: the scripts that `run` may name. `durability`: as `frontier.durability`. `patience_s`: for how
        long calls that a cluster did not run, as while a slot moves, are sent again.
        """
        self.url = url
        self.restarts = RestartSignal()
        self._library = library
        self._of_people_s = patience_s
        self._waited_in_vain = False  # by the last call: the next ones then don't wait as well
        self._touched: set[str] = set()  # a key of each shard that people's commands wrote to
        self._service = _Service()
        self._reading = {library.function_of(name) for name in library.reads}
        self._servers = servers_of(url, call_timeout_s, self.restarts, waits_for_replica=durability == "replicated")
        self._is_cluster = self.fails_in_parts = self._servers.is_cluster
        self.partitions_min = self._servers.partitions_min

    async def connect(self) -> EngineInfo:
        """Check that the engine can serve; EngineDown, EngineUnfit otherwise."""
        info = await self.info()
        _check_fit(info, is_cluster=self._is_cluster)
        return info

    async def close(self) -> None:
        with contextlib.suppress(*LIBRARY_ERRORS):
            await self._servers.aclose()

    @property
    def _patience_s(self) -> float:
        """0 for who listens for changes: an old call of whoever holds leases must not run after one."""
        return 0.0 if self.restarts.has_listeners else self._of_people_s

    @property
    def run_id(self) -> str:
        """Changes when the engine, or a primary of it, was restarted or replaced."""
        return self._servers.run_id

    def run_id_of(self, key: str) -> str:
        """The run id of the server that has this key."""
        return self._servers.run_id_of(key)

    def doubt(self) -> None:
        """Look whether the primaries are still those that we know."""
        self._servers.doubt()

    @property
    def is_in_doubt(self) -> bool:
        """May another server be the primary by now? Then nothing may start that rests on what this one said."""
        return self._servers.is_in_doubt

    @property
    def trouble(self) -> Trouble | None:
        """Why calls fail now; None while all is well."""
        return self._service.trouble

    def shard_of(self, key: str) -> str:
        """A name for the server that has this key."""
        return self._servers.shard_of(key)

    async def info(self) -> EngineInfo:
        """Facts from the engine (in a cluster from all primaries; the run id is made of theirs)."""
        nodes = await self._info("everything")
        policy, intset, needed = await self._config()
        first = nodes[0]
        return EngineInfo(
            product="valkey" if "valkey_version" in first else "redis",
            version=_version(str(first.get("valkey_version") or first.get("redis_version", "0"))),
            run_id="+".join(sorted(str(node["run_id"]) for node in nodes)),
            policy=policy,
            persistent=bool(first.get("aof_enabled")),
            used_bytes=sum(int(node.get("used_memory", 0)) for node in nodes),
            max_bytes=sum(int(node.get("maxmemory", 0)) for node in nodes),
            cpu_s=sum(float(n.get("used_cpu_user", 0)) + float(n.get("used_cpu_sys", 0)) for n in nodes),
            intset_max=intset,
            is_clustered=bool(first.get("cluster_enabled")),
            replicas=sum(map(online_replicas, nodes)),
            replicas_needed=needed,
        )

    async def shards(self) -> list[ShardInfo]:
        """Of a cluster; [] of another engine. Raises EngineError when nobody tells which there are."""
        if not isinstance(self._servers, Cluster):
            return []
        asked: list[tuple[Any, ...]] = [("INFO", "everything")]
        asked += [("CONFIG", "GET", name) for name in SHARD_SETTINGS]
        with _translated():
            return [_shard_of(*found) for found in await self._servers.of_each(asked)]

    async def _config(self) -> tuple[str, int, int]:
        """Eviction policy, intset limit, needed replicas. Managed engines may forbid CONFIG: then assume defaults."""
        names = ("maxmemory-policy", "set-max-intset-entries", "min-replicas-to-write")
        with _translated():
            found = (await self._servers.each("CONFIG", "GET", *names))[0]
        if isinstance(found, rex.ResponseError):
            return "noeviction", 512, -1
        text = dict(zip(map(_text, found[::2]), map(_text, found[1::2]), strict=True))
        policy, intset, needed = (text.get(name, "") for name in names)
        return policy or "noeviction", int(intset or 512), int(needed or -1)

    async def memory(self) -> Memory:
        """How much memory the engine uses."""
        nodes = await self._info("memory")
        shares = [int(n["used_memory"]) / int(n["maxmemory"]) for n in nodes if int(n.get("maxmemory", 0))]
        return Memory(sum(int(n["used_memory"]) for n in nodes), max(shares, default=0.0))

    async def is_disk_full(self) -> bool:
        """Does it refuse all writes (MISCONF), because its append-only file can't be written? Raises EngineError, also
        where it has become a replica: who only reads would not notice, and see what it had then for ever.
        """
        nodes = await self._info("persistence", "replication")
        if not self._is_cluster and any(node.get("role") == "slave" for node in nodes):
            self.doubt()
            raise translate(rex.ReadOnlyError("it is a replica"))
        return any(node.get("aof_last_write_status") == "err" for node in nodes)

    async def persistence(self) -> dict[str, Any]:
        """What a single server tells of its files. Raises EngineError."""
        return (await self._info("persistence"))[0]

    async def _info(self, *sections: str) -> list[dict[str, Any]]:
        """Sections of INFO, of all primaries."""
        with _translated():
            replies = await self._servers.each("INFO", *sections)
        for reply in replies:
            if isinstance(reply, Exception):
                raise translate(reply) from None
        return replies

    async def written(self, keys: Collection[str]) -> set[str]:
        """Those of the keys whose acknowledged writes survive the end of their server: has the kernel received them?
        And where a replica may take over, does one have them?
        """
        with _translated():
            return await self._servers.replicated(keys)

    async def dependable(self, keys: Collection[str]) -> set[str]:
        """Those of the keys whose acknowledged writes are kept whenever a later write to another key is."""
        return await self.written(keys) if self.fails_in_parts else {*keys}

    def change_at(self, key: str) -> Change:
        """What is affected when an answer shows that this key lost writes: in a cluster, no more is known of."""
        return Change(key.__eq__ if self.fails_in_parts else everything)

    async def may_exist(self, groups: Sequence[Sequence[str]]) -> list[bool]:
        """May any key of each group exist? One server is asked, by a command for each; a cluster is not."""
        if self.fails_in_parts:
            return [True] * len(groups)
        return [bool(count) for count in await self.commands([("EXISTS", *group) for group in groups])]

    async def confirm(self, keys: Collection[str]) -> list[str]:
        """Wait until a replica has all that was written to the servers of these keys. The names of servers without one
        that has it: none works, or one that worked is silent for long. A single server that never had one is not named.
        Raises EngineError.
        """
        if not keys:
            return []
        with _translated():
            alone = await self._servers.confirm(keys, REPLICA_PATIENCE_S)
        return [shown_server(self.url) if name == ONLY else name for name in alone]

    async def _load_scripts(self) -> Exception | None:
        """Why a server refuses them: no memory, or no right. The call would only say that it is not known."""
        with _translated():
            replies = await self._servers.each("FUNCTION", "LOAD", "REPLACE", self._library.text)
        return next((reply for reply in replies if isinstance(reply, Exception)), None)

    async def run(self, name: str, keys: tuple[str, ...], *args: Any) -> Any:
        """Run one script; raises EngineError."""
        (reply,) = await self.run_many([Call(name, keys, args)])
        if isinstance(reply, EngineError):
            raise reply
        return reply

    async def run_many(self, calls: Sequence[Call]) -> list[Any]:
        """Run scripts in pipelines; replies in order, an EngineError in the place of a call that failed.

        Raises EngineDown when the outcome of the whole is unknown.
        """
        replies: list[Any] = []
        for start in range(0, len(calls), PIPELINE_MAX):
            replies.extend(await self._run_pipeline(calls[start : start + PIPELINE_MAX]))
        return replies

    async def run_all(self, calls: Sequence[Call]) -> list[Any]:
        """Like `run_many`, but raises the EngineError of the first failed call."""
        replies = await self.run_many(calls)
        for error in errors_in(replies):
            raise error
        return replies

    async def run_repeatable(self, calls: Sequence[Call]) -> list[Any]:
        """Like `run_many`, for scripts that know a repeat by an id of the request: those of unknown outcome are sent
        once more, if there is patience. It raises nothing.
        """
        replies = await self._tried(calls)
        if self._patience_s and (unknown := [i for i, reply in enumerate(replies) if isinstance(reply, EngineDown)]):
            await asyncio.sleep(AGAIN_S)
            for i, reply in zip(unknown, await self._tried([calls[i] for i in unknown]), strict=True):
                replies[i] = reply
        return replies

    async def _tried(self, calls: Sequence[Call]) -> list[Any]:
        try:
            return await self.run_many(calls)
        except EngineError as error:
            return [error] * len(calls)

    async def is_confirmed(self) -> bool:
        """Does a replica have what was written for people? Waits for about half a second; True where there is none."""
        touched, self._touched = self._touched, set()
        if not touched:
            return True
        with contextlib.suppress(EngineError), _translated():
            if isinstance(self._servers, Cluster):
                return await self._servers.replicated(touched, wait_ms=WAIT_MS) == touched
            return not await self._servers.confirm(touched, 0.0)
        return False

    def _note_written(self, commands: Sequence[tuple[Any, ...]]) -> None:
        if self._patience_s and (self._is_cluster or not self._touched):
            writes = (c for c in commands if len(c) > 1 and c[0] not in KEYLESS and not self._is_read(c))
            keys = (_text(c[3 if c[0] == "FCALL" else 1]) for c in writes)
            by_shard = {self._servers.shard_of(key): key for key in keys}
            known = {self._servers.shard_of(key) for key in self._touched}
            self._touched |= {key for shard, key in by_shard.items() if shard not in known}

    def _is_read(self, command: tuple[Any, ...]) -> bool:
        return command[0] in READS or (command[0] == "FCALL" and command[1] in self._reading)

    def _judged(self, commands: Sequence[tuple[Any, ...]], replies: list[Any]) -> list[Any]:
        """The replies with our errors."""
        if self._service.is_whole and not errors_in(replies):
            return replies
        found = [translate(reply) if isinstance(reply, Exception) else reply for reply in replies]
        self._service.keep_only(self._servers.shards)
        for command, reply in zip(commands, found, strict=True):
            self._service.note(self._place_of(command), reply)
        return found

    def _place_of(self, command: tuple[Any, ...]) -> tuple[bool, str]:
        key = command[3] if command[0] == "FCALL" else command[1] if len(command) > 1 else ""
        return self._is_read(command), self._servers.shard_of(_text(key))

    async def _run_pipeline(self, calls: Sequence[Call]) -> list[Any]:
        commands = [("FCALL", self._library.function_of(c.name), *self._keys_of(c), *c.args) for c in calls]
        replies = await self._pipeline(commands)
        for _ in range(LOADS_MAX):
            unknown = [i for i, reply in enumerate(replies) if _is_unknown(reply)]
            if not unknown:
                break
            refusal = await self._load_scripts()
            for i, reply in zip(unknown, await self._pipeline([commands[i] for i in unknown]), strict=True):
                replies[i] = refusal if refusal is not None and _is_unknown(reply) else reply
        return self._judged(commands, replies)

    def _keys_of(self, call: Call) -> tuple[Any, ...]:
        """In a cluster with a key that never exists, so that the script is refused while its slot moves."""
        keys = (*call.keys, spare_key(call.keys[0])) if self._is_cluster else call.keys
        return len(keys), *keys

    async def commands(self, commands: Sequence[tuple[Any, ...]]) -> list[Any]:
        """Plain commands in pipelines; raises the first error."""
        replies = await self.replies_of(commands)
        for error in errors_in(replies):
            raise error
        return replies

    async def replies_of(self, commands: Sequence[tuple[Any, ...]]) -> list[Any]:
        """Plain commands in pipelines; an EngineError in the place of each that failed, as where one shard of a cluster
        is down. Raises EngineDown like `run_many`.
        """
        replies: list[Any] = []
        for start in range(0, len(commands), PIPELINE_MAX):
            replies.extend(await self._pipeline(commands[start : start + PIPELINE_MAX]))
        return self._judged(commands, replies)

    async def command(self, *command: Any) -> Any:
        """One plain command; raises EngineError."""
        return (await self.commands([command]))[0]

    async def scan(self, pattern: str) -> AsyncIterator[list[bytes]]:
        """The keys that match a glob pattern, on all primaries, some at a time; one may come twice.

        It takes time for every key of the engine, whatever matches: for what people do once in a while.
        """
        for server in self._servers.primaries:
            cursor = None
            while cursor != 0:
                with _translated():
                    (reply,) = await server.replies_of([("SCAN", cursor or 0, "MATCH", pattern, "COUNT", SCAN_COUNT)])
                if isinstance(reply, Exception):
                    raise translate(reply) from None
                cursor, keys = reply
                if keys:
                    yield keys

    async def _pipeline(self, commands: Sequence[tuple[Any, ...]]) -> list[Any]:
        if not commands:
            return []
        try:
            return await self._sent(commands)
        except EngineError as error:
            self._service.note(self._place_of(commands[0]), error)
            raise

    async def _sent(self, commands: Sequence[tuple[Any, ...]]) -> list[Any]:
        with _translated():
            self._note_written(commands)
            replies = await self._servers.replies_of(commands)
            if not (self._is_cluster and self._patience_s):
                return replies
            deadline_s = time.monotonic() + (0.0 if self._waited_in_vain else self._patience_s)
            while not_run := [i for i, reply in enumerate(replies) if isinstance(reply, NotRun)]:
                if time.monotonic() > deadline_s:
                    break
                await asyncio.sleep(AGAIN_S)
                again = await self._servers.replies_of([commands[i] for i in not_run])
                for i, reply in zip(not_run, again, strict=True):
                    replies[i] = reply
            self._waited_in_vain = bool(not_run)
            return replies

    async def subscribe(self, channel: str) -> AsyncIterator[bytes | None]:
        """Messages of a channel, without end; the first is None: what was sent before is lost. Raises EngineDown when
        the connection breaks.
        """
        with _translated():
            async with self._servers.listener() as client, client.pubsub(ignore_subscribe_messages=True) as pubsub:
                with closed_below():
                    await pubsub.subscribe(channel)
                    yield None
                    while True:
                        message = await pubsub.get_message(timeout=SUBSCRIBED_S)
                        if not self._servers.is_current(pubsub.connection):
                            raise rex.ConnectionError("another server has taken over")
                        if message is not None:
                            yield message["data"]


def servers_of(
    url: str, timeout_s: float, on_change: Callable[[Change], None], *, waits_for_replica: bool = False
) -> OneServer | Cluster:
    """Of a URL as `read_url` takes it. Raises UsageError."""
    address = read_url(url)
    check_files(address)
    if address.kind is Kind.CLUSTER:
        return Cluster(address, timeout_s, on_change, waits_for_replica=waits_for_replica)
    return OneServer(address, timeout_s, on_change)


async def does_answer(url: str, timeout_s: float) -> bool:
    """Is there an engine at this URL, in whatever state? Raises UsageError."""
    servers = servers_of(url, timeout_s, lambda _change: None)
    try:
        await servers.hear()
    except LIBRARY_ERRORS as error:
        return _is_of_reply(error)
    finally:
        with contextlib.suppress(*LIBRARY_ERRORS):
            await servers.aclose()
    return True


def _is_of_reply(error: BaseException | None) -> bool:
    """Did the engine refuse, as without a password or while it loads? The library may wrap that."""
    while error is not None:
        if isinstance(error, rex.ResponseError | rex.AuthenticationError | rex.BusyLoadingError):
            return True
        error = error.__context__
    return False


@contextlib.contextmanager
def _translated() -> Iterator[None]:
    """Errors of the library become ours."""
    try:
        yield
    except LIBRARY_ERRORS as error:
        raise translate(error) from None


SHARD_SETTINGS = (
    "maxmemory-policy", "cluster-require-full-coverage", "cluster-node-timeout", "cluster-replica-validity-factor",
)  # fmt: skip


def _shard_of(name: str, has_replica: bool, slots: int, replies: list[Any]) -> ShardInfo:
    info, *found = replies
    if isinstance(info, Exception):
        return ShardInfo(name=name, slots=slots, has_replica=has_replica, error=str(info))
    # Managed engines may forbid CONFIG.
    policy, full, timeout, validity = (
        _text(one[1]) if isinstance(one, list) and len(one) == 2 else "" for one in found
    )
    return ShardInfo(
        name=name, slots=slots, has_replica=has_replica or online_replicas(info) > 0, policy=policy,
        is_persistent=bool(info.get("aof_enabled")), used_bytes=int(info.get("used_memory", 0)),
        needs_all_slots=full == "yes",
        node_timeout_s=int(timeout or 0) / 1000, validity=int(validity or 0),
    )  # fmt: skip


def _is_unknown(reply: Any) -> bool:
    """Does the engine not have the script?"""
    return isinstance(reply, rex.ResponseError) and str(reply) == "Function not found"


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


def _version(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", text)[:3])


def _check_fit(info: EngineInfo, *, is_cluster: bool) -> None:
    least = VALKEY_MIN if info.product == "valkey" else REDIS_MIN
    if info.version < least:
        raise EngineUnfit(
            f"the engine is {info.product} {'.'.join(map(str, info.version))}: "
            f"{info.product} {least[0]}.{least[1]} or newer is needed"
        )
    if info.is_clustered and not is_cluster:
        raise EngineUnfit("the engine is one node of a cluster: use redis+cluster:// instead of redis://")
    if info.policy != "noeviction":
        raise EngineUnfit(
            f"the engine may evict keys (maxmemory-policy {info.policy}): run CONFIG SET maxmemory-policy noeviction"
        )


_Asked = tuple[Call, asyncio.Future[Any]]


class Gathering:
    """Combines single calls of many tasks into pipelines: calls made while one is under way go into the next.

    A pipeline of one call costs the client as much as one of ten. Each primary of a cluster has its own, so that calls
    to others do not wait for one that does not answer.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._waiting: dict[str, list[_Asked]] = {}
        self._senders: dict[str, asyncio.Task[None]] = {}

    async def run(self, call: Call) -> Any:
        """The reply to one call; raises EngineError. If its task is cancelled, the call may still be made."""
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        shard = self._engine.shard_of(call.keys[0])
        self._waiting.setdefault(shard, []).append((call, answer))
        if shard not in self._senders:
            self._senders[shard] = asyncio.create_task(self._send(shard), name="gathered calls")
        return await answer

    async def _send(self, shard: str) -> None:
        asked: list[_Asked] = []
        try:
            while asked := self._waiting.pop(shard, []):
                for (_, answer), reply in zip(asked, await self._replies([call for call, _ in asked]), strict=True):
                    _settle(answer, reply)
        finally:
            del self._senders[shard]
            for _, answer in (*asked, *self._waiting.pop(shard, [])):  # without a result: this task was cancelled
                answer.cancel()

    async def _replies(self, calls: Sequence[Call]) -> Sequence[Any]:
        try:
            return await self._engine.run_many(calls)
        except Exception as error:  # noqa: BLE001 - the callers get it
            return [error] * len(calls)


def _settle(answer: asyncio.Future[Any], reply: Any) -> None:
    if answer.done():  # its task was cancelled
        return
    if isinstance(reply, Exception):
        answer.set_exception(reply)
    else:
        answer.set_result(reply)
