"""A cluster: which primary has which slot, and a pool of connections to each primary.

Nothing that may have run is sent again, and a call waits for no other primary than its own. A primary that fails takes
no calls until it has answered a probe: meanwhile they fail at once. Whenever a slot gets another primary, or a primary
was restarted, `on_change` is called before another call goes there: restart, failover and moving slots are one case.

Each script call names a key that never exists (`spare_key`). While a slot moves key by key, a script would otherwise
run where some of its keys are gone; because of that key both servers refuse it.
"""

import asyncio
import contextlib
import random
import re
import time
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from functools import lru_cache, partial
from typing import Any, NamedTuple

import redis.asyncio as aioredis
import redis.exceptions as rex
from redis.crc import key_slot

from crawler.engine.address import EngineUrl, Place
from crawler.engine.server import (
    CALLS_MIN,
    REST_S,
    WAIT_MS,
    WAIT_SHARE,
    Change,
    Command,
    NotRun,
    Server,
    calls_max,
    greeting,
    online_replicas,
    pool_of,
    tag_of,
)

SLOTS = 16384
SLOTS_KEPT = 10_000  # hash tags whose slot is kept
PROBE_SHARE = WAIT_SHARE  # of a call's time-out: for the answer to a look or a probe
ASKED_MAX = 16  # nodes that one look asks for the map
MAP_AGE_S = 1.0  # then it is read again before it is believed that a primary has no replica
TURNS_SHARE = 3  # of the calls at a time that one server may have, a primary may have this part
LOOK = (("CLUSTER", "INFO"), ("CLUSTER", "SLOTS"))
KEYLESS = frozenset(("CONFIG", "ECHO", "FUNCTION", "INFO", "PING", "TIME", "WAIT"))
# These say that the command did not run here and now.
REFUSALS = (rex.AskError, rex.TryAgainError, rex.ClusterDownError, rex.MasterDownError, rex.ReadOnlyError)


def spare_key(key: str) -> str:
    """A key of the same slot that never exists: each call of a script names it, too.

    A script gets one key, the meta hash of its partition, and makes the others from it, all of one slot. While a slot
    moves key by key (CLUSTER SETSLOT, MIGRATE), they are at either end, and the engine judges by the keys that are
    named: it lets the script run, and then refuses a key that is elsewhere, or takes it for absent. Half of a script's
    writes stayed, and the move failed. When one of several named keys is missing, the engine answers TRYAGAIN while the
    slot moves, at both ends, before the script begins. So a partition rests for milliseconds to seconds, and its calls
    are repeated; with atomic migration (Valkey 9) nothing is refused. That makes moving slots safe, not failover.
    """
    return f"{key}~"


@lru_cache(maxsize=SLOTS_KEPT)
def _slot_of_tag(tag: str) -> int:
    return key_slot(tag.encode())


def slot_of(key: str | bytes) -> int:
    """The slot of a key."""
    return key_slot(key) if isinstance(key, bytes) else _slot_of_tag(tag_of(key))


class Node(Server):
    """A primary, or a server that was one. `run_id`: of the process that last answered as a primary."""

    def __init__(self, name: str, client: Any, timeout_s: float) -> None:
        super().__init__(client, timeout_s, max(CALLS_MIN, calls_max() // TURNS_SHARE))
        self.name = name
        self.is_up = False
        self.trouble = "not asked yet"
        self.has_replica = False
        self.had_replica = False


class SlotMap(NamedTuple):
    """What one node says: the names of primaries by ranges of slots. The greatest (is_ok, epoch) is believed."""

    is_ok: bool
    epoch: int
    ranges: list[tuple[int, int, str]]
    replicas: dict[str, list[str]]  # of each primary, those that work


class Cluster:
    """An engine that is a cluster. The map is read at the first use, and kept up to date while anything is wrong."""

    is_cluster = True
    partitions_min = 4096  # of a new crawl: each of many primaries then has enough
    is_in_doubt = False  # of a shard: its calls fail until it has answered a probe

    def __init__(
        self,
        url: EngineUrl,
        timeout_s: float,
        on_change: Callable[[Change], None],
        *,
        waits_for_replica: bool = False,
    ) -> None:
        """`waits_for_replica`: scripts are answered when a replica has what they wrote, or after half a second."""
        self._waits_for_replica = waits_for_replica
        self._url = url
        self._timeout_s = timeout_s
        self._probe_s = timeout_s * PROBE_SHARE
        self._on_change = on_change
        self._known = dict.fromkeys(place.name for place in url.places)
        self._nodes: dict[str, Node] = {}
        self._strangers = set[Server]()  # nodes that are asked for the map only
        self._slots: list[Node | None] = [None] * SLOTS
        self._primaries: list[Node] = []
        self._ranges: list[tuple[int, int, str]] = []  # of the map as last applied
        self._is_known = False
        self._first = asyncio.Lock()
        self._is_stale = False
        self._read_s = 0.0  # monotonic; when the map was asked for last
        self._mending: asyncio.Task[None] | None = None
        self._is_closed = False
        self._error: Exception = rex.ConnectionError("no node of the cluster answers")

    # Who has what.

    @property
    def run_id(self) -> str:
        """Of all primaries together."""
        return "+".join(sorted(node.run_id for node in self._primaries))

    def run_id_of(self, key: str) -> str:
        """The run id of the primary that has this key; "" where none is known."""
        node = self._slots[slot_of(key)]
        return node.run_id if node else ""

    def shard_of(self, key: str) -> str:
        """A name for the primary that has this key."""
        node = self._slots[slot_of(key)]
        return node.name if node else ""

    @property
    def shards(self) -> frozenset[str]:
        """All that `shard_of` may return."""
        unknown = ("",) if None in self._slots else ()
        return frozenset((*(node.name for node in self._primaries), *unknown))

    @property
    def primaries(self) -> list[Server]:
        """Those that have slots; some may not answer."""
        return list(self._primaries)

    def _node(self, name: str) -> Node:
        if name not in self._nodes:
            pool = self._pool(name)
            node = self._nodes[name] = Node(name, aioredis.Redis.from_pool(pool), self._timeout_s)
            pool.connection_kwargs["redis_connect_func"] = partial(self._on_connect, node)
            if self._is_closed:
                node.close()
        return self._nodes[name]

    def _pool(self, name: str) -> Any:
        return pool_of(self._url, _place(name), self._timeout_s)

    async def _on_connect(self, node: Node, connection: Any) -> None:
        """A new connection leads to a primary, and to the process that we know there; else its call must fail."""
        run_id, is_primary = await greeting(connection)
        if not is_primary:  # its run id says nothing about the crawl's data
            raise rex.ConnectionError(f"{node.name} is a replica now")
        known, node.run_id = node.run_id, run_id
        connection.run_id = run_id
        if known and known != run_id:
            self._on_change(Change(lambda key: self._slots[slot_of(key)] is node))
            raise rex.ConnectionError(f"{node.name} was restarted")

    def _believe(self, ranges: list[tuple[int, int, str]]) -> None:
        """These names of primaries have these slots now."""
        found: list[Node | None] = [None] * SLOTS
        for first, last, name in ranges:
            found[first : last + 1] = [self._node(name)] * (last - first + 1)
        before, self._slots, self._ranges = self._slots, found, ranges
        self._primaries = sorted({node for node in found if node}, key=lambda node: node.name)
        moved, failed_over = set[int](), set[int]()
        for slot, node in enumerate(before):
            if node is not None and node is not found[slot]:
                (moved if node in self._primaries else failed_over).add(slot)
        if moved:
            self._on_change(Change(lambda key: slot_of(key) in moved, may_have_lost=False))
        if failed_over:
            self._on_change(Change(lambda key: slot_of(key) in failed_over))

    # What is wrong is looked at in one task, for which no call waits but the first.

    async def _ready(self) -> None:
        """Waits for the first map; raises the library's errors when nobody tells it."""
        if self._is_known:
            return
        async with self._first:
            if not self._is_known:
                await self._read_map(self._timeout_s)
            if not self._is_known:
                raise self._error

    def doubt(self) -> None:
        """Something may be wrong: look at it in the background."""
        self._is_stale = True
        if not self._is_closed and (self._mending is None or self._mending.done()):
            self._mending = asyncio.create_task(self._mend_all(), name="cluster")

    async def _mend_all(self) -> None:
        """Read the map and probe what is down, until all is well."""
        while self._is_stale or None in self._slots or not all(node.is_up for node in self._primaries):
            self._is_stale = False
            await self._read_map(self._probe_s)
            await asyncio.sleep(REST_S)

    async def _read_map(self, timeout_s: float) -> None:
        """Ask all nodes who has what, and believe the one that knows most."""
        if self._is_closed:
            return
        self._read_s = time.monotonic()
        names = dict.fromkeys((*(node.name for node in self._primaries), *self._known))
        said = await asyncio.gather(*(self._map_by(name, timeout_s) for name in list(names)[:ASKED_MAX]))
        maps = [one for one in said if one is not None]
        if not maps:
            return
        best = max(maps, key=lambda one: (one.is_ok, one.epoch))
        primaries = [self._node(name) for name in dict.fromkeys(name for _, _, name in best.ranges)]
        for node in primaries:
            node.has_replica = bool(best.replicas.get(node.name))
            node.had_replica |= node.has_replica
        replicas = (name for one in maps for some in one.replicas.values() for name in some)
        self._known |= dict.fromkeys((*(node.name for node in primaries), *replicas))
        await asyncio.gather(*(self._probe(node, timeout_s) for node in primaries if not node.is_up))
        if best.ranges != self._ranges:
            self._believe(best.ranges)
        self._is_known = bool(self._primaries)

    async def _map_by(self, name: str, timeout_s: float) -> SlotMap | None:
        """What this node says; None when it does not answer."""
        node = self._nodes.get(name)
        try:
            async with asyncio.timeout(timeout_s):
                if node and node.is_up:
                    info, rows = await node.replies_of(LOOK)
                else:
                    stranger = Server(aioredis.Redis.from_pool(self._pool(name)), timeout_s, 1)
                    self._strangers.add(stranger)
                    try:
                        info, rows = await stranger.replies_of(LOOK)
                    finally:
                        stranger.close()
                        self._strangers.discard(stranger)
        except (rex.RedisError, OSError) as error:
            self._error = error
            return None
        for reply in (info, rows):
            if isinstance(reply, Exception):
                self._error = reply
                return None
        return _map_of(info, rows, asked=name)

    async def _probe(self, node: Node, timeout_s: float) -> None:
        """Does it answer as a primary? Its run id is known from then on."""
        try:
            node.forget_idle()
            async with asyncio.timeout(timeout_s):
                (reply,) = await node.replies_of([("PING",)])
        except (rex.RedisError, OSError) as error:
            node.trouble = str(error) or type(error).__name__
            self._error = error
        else:
            node.is_up = not isinstance(reply, Exception)

    # Calls.

    async def replies_of(self, commands: Sequence[Command]) -> list[Any]:
        """The replies in order, with an error in the place of each that failed.

        Raises the library's errors only before the first map is known.
        """
        await self._ready()
        by_node: dict[Node | None, list[int]] = {}
        for i, command in enumerate(commands):
            by_node.setdefault(self._node_for(command), []).append(i)
        if len(by_node) == 1:
            return await self._ask(next(iter(by_node)), commands)
        replies: list[Any] = [None] * len(commands)
        parts = [self._ask(node, [commands[i] for i in some]) for node, some in by_node.items()]
        for some, part in zip(by_node.values(), await asyncio.gather(*parts), strict=True):
            for i, reply in zip(some, part, strict=True):
                replies[i] = reply
        return replies

    async def each(self, *command: Any) -> list[Any]:
        """The replies of those primaries that answer, also refusals; raises the library's errors when none does."""
        await self._ready()
        parts = await asyncio.gather(*(self._ask(node, [command]) for node in self._primaries))
        said = [reply for (reply,) in parts]
        replies = [one for one in said if not isinstance(one, Exception) or isinstance(one, rex.ResponseError)]
        if not replies:
            raise said[0]
        return replies

    async def of_each(self, commands: Sequence[Command]) -> list[tuple[str, bool, int, list[Any]]]:
        """Of each primary its name, whether a replica of it works, its number of slots, and its replies."""
        await self._ready()
        await self._read_map(self._probe_s)
        parts = await asyncio.gather(*(self._ask(node, commands) for node in self._primaries))
        return [
            (node.name, node.has_replica, self._slots.count(node), replies)
            for node, replies in zip(self._primaries, parts, strict=True)
        ]

    def _node_for(self, command: Command) -> Node | None:
        if command[0] == "FCALL":
            return self._slots[slot_of(command[3])]
        if command[0] in KEYLESS:
            return next((node for node in self._primaries if node.is_up), self._primaries[0])
        return self._slots[slot_of(command[1])]

    async def _ask(self, node: Node | None, commands: Sequence[Command]) -> list[Any]:
        """The replies of one primary, with an error in the place of each that failed."""
        if node is None or not node.is_up:
            self.doubt()
            why = f"{node.name}: {node.trouble}" if node else "no primary of the cluster has this key"
            return [NotRun(why)] * len(commands)
        waits = self._waits_for_replica and node.has_replica and commands[0][0] == "FCALL"
        try:
            replies = await node.replies_of([*commands, ("WAIT", 1, WAIT_MS)] if waits else commands)
            if waits and not replies.pop():
                self.doubt()  # is there still a replica?
        except (rex.RedisError, OSError) as error:
            node.is_up, node.trouble = False, str(error) or type(error).__name__
            self.doubt()
            if isinstance(error, NotRun) and commands[0][0] != "FCALL":
                return await self._ask_successor(commands, error)
            return [error if isinstance(error, rex.RedisError) else rex.ConnectionError(node.trouble)] * len(commands)
        if any(isinstance(reply, REFUSALS) for reply in replies):
            await self._follow(node, commands, replies)
        return replies

    async def _ask_successor(self, commands: Sequence[Command], error: Exception) -> list[Any]:
        """Plain commands that were not sent go to who has their slots now, which may be the same, restarted."""
        await self._read_map(self._probe_s)
        there = {self._node_for(command) for command in commands}
        successor = there.pop()
        if not there and successor is not None and successor.is_up:
            with contextlib.suppress(rex.RedisError, OSError):
                return await successor.replies_of(commands)
        return [error] * len(commands)

    async def _follow(self, node: Node, commands: Sequence[Command], replies: list[Any]) -> None:
        """Learn from refusals, and ask the named primary for plain commands, once: a script's caller repeats it."""
        again: dict[Node, list[int]] = {}
        errors = {i: reply for i, reply in enumerate(replies) if isinstance(reply, REFUSALS)}
        for i, error in errors.items():
            replies[i] = NotRun(f"{node.name}: {type(error).__name__} {error}")
            if not isinstance(error, rex.AskError):
                if not isinstance(error, rex.TryAgainError):
                    self.doubt()
                continue
            target = self._node(Place(error.host or _place(node.name).host, error.port).name)
            if isinstance(error, rex.MovedError):  # a kind of AskError
                self.doubt()
            if commands[i][0] != "FCALL":
                again.setdefault(target, []).append(i)
        for target, some in again.items():
            if not target.is_up:
                await self._probe(target, self._probe_s)
            asked: list[Command] = []
            for i in some:
                asked += [commands[i]] if isinstance(errors[i], rex.MovedError) else [("ASKING",), commands[i]]
            with contextlib.suppress(rex.RedisError, OSError):
                found = await target.replies_of(asked) if target.is_up else []
                kept = [reply for command, reply in zip(asked, found, strict=False) if command != ("ASKING",)]
                for i, reply in zip(some, kept, strict=False):
                    if not isinstance(reply, REFUSALS):
                        replies[i] = reply

    async def replicated(self, keys: Collection[str], *, wait_ms: int | None = None) -> set[str]:
        """Those of the keys whose writes until now a replica has. A primary has them alone if no replica of it works,
        or if none confirms for long: nothing can be done about it then.
        """
        await self._ready()
        asked = [(node, some) for node, some in self._by_node(keys).items() if node is not None and node.is_up]
        wait_ms = int(self._probe_s * 1000) if wait_ms is None else wait_ms
        found = await asyncio.gather(*(self._is_replicated(node, some[0], wait_ms) for node, some in asked))
        return {key for (_, some), is_safe in zip(asked, found, strict=True) if is_safe for key in some}

    def _by_node(self, keys: Collection[str]) -> dict[Node | None, list[str]]:
        by_node: dict[Node | None, list[str]] = {}
        for key in keys:
            by_node.setdefault(self._slots[slot_of(key)], []).append(key)
        return by_node

    async def _is_replicated(self, node: Node, key: str, wait_ms: int) -> bool:
        try:
            has_replica, is_there = await self._wait(node, key, wait_ms)
        except (rex.RedisError, OSError):  # not the primary of this key, or none at all
            self.doubt()
            return False
        return not has_replica or node.is_safe(is_there=is_there)

    async def _wait(self, node: Node, key: str, wait_ms: int) -> tuple[bool, bool]:
        """Does a replica of the node work, and does one have what was written there? Raises the library's errors."""
        if not node.has_replica and not await self._has_new_replica(node):
            return False, False
        is_there = await node.replicas_with(key, wait_ms) > 0
        if not is_there:
            self.doubt()  # is there still a replica?
        return True, is_there

    async def confirm(self, keys: Collection[str], patience_s: float) -> list[str]:
        """Wait until a replica has what was written to the primaries of these keys. The names of those of which none
        has it: no replica works, or one that worked confirms nothing for so long. Raises the library's errors.
        """
        await self._ready()
        left, alone, end_s = {slot_of(key): key for key in keys}, set[str](), time.monotonic() + patience_s
        while left:
            is_late = time.monotonic() > end_s
            for node, some in self._by_node([*left.values()]).items():
                try:
                    if node is None or not node.is_up:
                        raise NotRun(f"{node.name}: {node.trouble}" if node else "a slot of the cluster has no primary")
                    _, is_there = await self._wait(node, some[0], WAIT_MS)
                except (rex.RedisError, OSError):
                    self.doubt()
                    if is_late:
                        raise
                    continue
                if is_there or is_late or not node.had_replica:
                    alone |= set() if is_there else {node.name}
                    left = {slot: key for slot, key in left.items() if key not in some}
            if left:
                await asyncio.sleep(REST_S)
        return sorted(alone)

    async def hear(self) -> None:
        """Raises the library's errors when no node tells who has what."""
        await self._ready()

    async def _has_new_replica(self, node: Node) -> bool:
        """Has one come since the map was read? While all is well it is not read for anybody else, and one that has just
        come is not in it. Raises the library's errors.
        """
        (info,) = await node.replies_of([("INFO", "replication")])
        if isinstance(info, Exception):
            raise info
        if online_replicas(info):
            node.has_replica = node.had_replica = True
        elif time.monotonic() - self._read_s > MAP_AGE_S:
            await self._read_map(self._probe_s)
        return node.has_replica

    @contextlib.asynccontextmanager
    async def listener(self) -> AsyncIterator[Any]:
        """A client for subscriptions, of any primary: what is published reaches all nodes."""
        await self._ready()
        node = random.choice([one for one in self._primaries if one.is_up] or self._primaries)  # noqa: S311
        async with aioredis.Redis.from_pool(self._pool(node.name)) as client:
            yield client

    def is_current(self, connection: Any) -> bool:  # noqa: ARG002
        """What is published on any node reaches all."""
        return True

    async def aclose(self) -> None:
        self._is_closed = True
        if self._mending is not None:
            self._mending.cancel()
            await asyncio.gather(self._mending, return_exceptions=True)
        servers = (*self._nodes.values(), *self._strangers)
        for server in servers:
            server.close()
        await asyncio.gather(*(server.aclose() for server in servers))


def _place(name: str) -> Place:
    """By the name of a node."""
    host, _, port = name.rpartition(":")
    return Place(host.strip("[]"), int(port))


def _map_of(info: Any, rows: Any, *, asked: str) -> SlotMap:
    """From the replies to LOOK. A node that knows no address of its own gives none: then it is the one asked."""

    def name_of(place: Any) -> str:
        return Place(bytes(place[0] or b"").decode() or _place(asked).host, int(place[1])).name

    epoch = re.search(rb"cluster_current_epoch:(\d+)", info)
    ranges = [(int(row[0]), int(row[1]), name_of(row[2])) for row in rows if bytes(row[2][0] or b"") != b"?"]
    replicas = {
        name_of(row[2]): [name_of(place) for place in row[3:] if bytes(place[0] or b"") != b"?"] for row in rows
    }
    return SlotMap(b"cluster_state:ok" in info, int(epoch[1]) if epoch else 0, sorted(ranges), replicas)
