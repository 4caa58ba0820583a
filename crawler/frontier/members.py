"""The member list: sessions and their heartbeat counters. Who is alive is judged in rules/liveness.py."""

import enum
from collections.abc import Mapping

import msgspec

from crawler.engine.client import Engine
from crawler.errors import ConflictError
from crawler.frontier.codec import pairs_of
from crawler.frontier.keys import Keys
from crawler.rules.identity import partition_of

_encode = msgspec.json.Encoder().encode


class Member(msgspec.Struct, frozen=True, kw_only=True):
    """One session as it describes itself. `counter` is absolute; `lock` (a file) is judged on the same host only."""

    session: str
    node: str
    counter: int
    weight: int = 1
    state: str = "joining"  # a word of rules.membership.Declared
    time_scale: int = 1  # its times are those of the settings times this
    host: str = ""  # machine and boot, to know whether `lock` can be tried
    lock: str = ""
    pid: int = 0
    started_at: float = 0.0
    partitions: int = 0
    in_flight: int = 0
    lease_losses: int = 0  # silences after which every lease was acquired anew
    fenced: int = 0  # results and endings that were refused: the lease was somebody else's by then
    late: int = 0  # requests that were open when the lease was gone: they may have overlapped with the new owner's
    waits_for: str = ""  # why it claims no more URLs: "memory" (the engine's is full), "paused" (paused)
    ring: str = ""  # digest of the ring it follows: two that differ for long do not agree on the settings


_decoder = msgspec.json.Decoder(Member)


class BeatAnswer(enum.StrEnum):
    """What the engine says to a heartbeat; shared with lua/heartbeat.lua."""

    COMMITTED = "COMMITTED"
    GONE = "GONE"  # struck off: join anew
    EVICTED = "EVICTED"  # an operator took this session off the crawl


class NameTakenError(ConflictError):
    """Another session has the node's name."""


class Members:
    """Join, beat, leave, read: crawl-wide, in one slot."""

    def __init__(self, engine: Engine, keys: Keys) -> None:
        self._engine = engine
        self._keys = keys
        self._known: dict[bytes, tuple[bytes, Member]] = {}  # as read last: most have not changed since

    async def read(self) -> dict[str, Member]:
        """All sessions on the list, by session."""
        raw = await self._engine.command("HGETALL", self._keys.members)
        before, known = self._known, {}
        for key, blob in pairs_of(raw):
            last = before.get(key)
            known[key] = last if last is not None and last[0] == blob else (blob, _decoder.decode(blob))
        self._known = known
        return {member.session: member for _, member in known.values()}

    async def holder_of(self, node: str) -> str:
        """The session that has a node's name now, or ''."""
        raw = await self._engine.command("HGET", self._keys.nodes, node)
        return (raw or b"").decode()

    async def join(self, member: Member, *, instead_of: str = "") -> int:
        """Enter the list under the node's name; `instead_of` is the (dead) session that had it.

        How often the node has joined since its last steady life. Raises NameTakenError when another session has
        the name, ConflictError when this one was evicted.
        """
        k = self._keys
        keys = (k.members, k.nodes, k.returns, k.evicted)
        reply = await self._engine.run("join", keys, member.session, member.node, instead_of, _encode(member))
        if reply[0] == b"TAKEN":
            raise NameTakenError(
                f"node {member.node!r} is already running (session {reply[1].decode()}): "
                "stop it, or give this one another --node"
            )
        if reply[0] == b"EVICTED":
            raise ConflictError(f"node {member.node!r} was evicted by an operator: start it again to let it in")
        return int(reply[1])

    async def heartbeat(self, member: Member) -> BeatAnswer:
        """Write the heartbeat."""
        keys = (self._keys.members, self._keys.evicted)
        reply = await self._engine.run("heartbeat", keys, member.session, _encode(member))
        return BeatAnswer(reply[0].decode())

    async def is_steady(self, node: str) -> None:
        """The node has lived long enough: its next returns are counted afresh."""
        await self._engine.command("HDEL", self._keys.returns, node)

    async def evict(self, member: Member) -> None:
        """Refuse all further beats of a session: it lets go by itself, or is taken over when it has been silent."""
        await self._engine.command("HSET", self._keys.evicted, member.session, member.node)

    async def is_evicted(self, session: str) -> bool:
        """Was it evicted, and has not left by itself since?"""
        return bool(await self._engine.command("HEXISTS", self._keys.evicted, session))

    async def leave(self, member: Member) -> None:
        """Strike the own session off."""
        await self._engine.run("leave", self._leaving_keys, member.session, member.node, "")

    async def strike(self, member: Member) -> bool:
        """Strike a dead session off if it has not beaten since it was read."""
        reply = await self._engine.run("leave", self._leaving_keys, member.session, member.node, _encode(member))
        return bool(reply[0] == b"COMMITTED")

    @property
    def _leaving_keys(self) -> tuple[str, ...]:
        return self._keys.members, self._keys.nodes, self._keys.evicted, self._keys.returns


class Pins:
    """The pins of one crawl: one crawl-wide hash, domain -> node."""

    def __init__(self, engine: Engine, keys: Keys) -> None:
        self._engine = engine
        self._keys = keys

    async def read(self) -> dict[str, str]:
        """All pins: domain -> node."""
        raw = await self._engine.command("HGETALL", self._keys.pins)
        return {domain.decode(): node.decode() for domain, node in pairs_of(raw)}

    async def pin(self, domain: str, node: str, *, partitions: int) -> None:
        """Give a domain to a node, whether or not that node takes part now; a pin of the same domain is replaced.

        Raises ConflictError when another domain of the same partition is pinned to another node.
        """
        partition = partition_of(domain, partitions)
        for other, its_node in sorted((await self.read()).items()):
            if other != domain and its_node != node and partition_of(other, partitions) == partition:
                raise ConflictError(
                    f"{domain} shares partition {partition} with {other}, which is pinned to {its_node}: "
                    f"pin both to one node, or unpin {other} first"
                )
        await self._engine.command("HSET", self._keys.pins, domain, node)

    async def unpin(self, domain: str) -> bool:
        """Take a domain's pin away; False when it had none."""
        return bool(await self._engine.command("HDEL", self._keys.pins, domain))


def by_partition(pins: Mapping[str, str], partitions: int) -> dict[int, str]:
    """Pins as the ring takes them: partition -> node.

    Two people may pin two domains of one partition at the same moment: the first name of the two counts, everywhere.
    """
    nodes: dict[int, str] = {}
    for domain in sorted(pins):
        nodes.setdefault(partition_of(domain, partitions), pins[domain])
    return nodes
