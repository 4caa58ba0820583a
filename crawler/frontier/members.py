"""The member list of a crawl, with heartbeat counters, and the pins of domains to nodes.

rules/membership.py decides which sessions are alive, and what a pin does to the ring. A pinned domain takes its whole
partition along, because partitions are leased. So a partition can be pinned to one node only.
"""

import enum
from collections.abc import Mapping
from hashlib import blake2b
from typing import Any

import msgspec

from crawler.engine.client import Engine
from crawler.errors import ConflictError
from crawler.frontier.arguments import HeartbeatArgs, JoinArgs, LeaveArgs
from crawler.frontier.codec import pairs_of
from crawler.frontier.keys import Keys
from crawler.rules.membership import DeclaredState, declared, takers
from crawler.rules.places import partition_of

encoded = msgspec.json.Encoder().encode


class Awaits(enum.StrEnum):
    """What an instance waits for."""

    ANSWER = "answer"  # of a web server, to a request for a page
    ROBOTS = "robots"  # the robots.txt of an origin
    PAGE = "page"  # to be parsed, or handled by the user's function
    NEXT = "next"  # the time from which hosts may be requested from again


class Awaited(msgspec.Struct, frozen=True, kw_only=True):
    """What an instance without progress waits for: `count` requests, pages or hosts, one of which is `host`."""

    what: str  # a value of Awaits
    count: int
    host: str = ""  # with its port, if the URL has one; "" where not known
    in_s: float = 0.0  # from this heartbeat until the first host may be requested from


class MemberView(msgspec.Struct, frozen=True, kw_only=True):
    """What viewers see of a session, as it described itself with its last heartbeat."""

    session: str
    node: str
    state: str = "joining"  # a value of rules.membership.DeclaredState
    lacks_room: bool = False  # quarantined because the disk of its crawl folder is full, or was until a moment ago
    weight: int = 1
    started_at: float = 0.0  # s since 1970
    partitions: int = 0
    in_flight: int = 0  # URLs
    lease_losses: int = 0  # how often it lost all its leases after a silence
    waits_for: str = (
        ""  # why it claims none: "disk", "paused", "backup"; few: "memory" (of the engine); "proxy", "network"
    )
    awaited: Awaited | None = None  # where nothing has come of its work for some seconds
    last_error: str = ""  # of the last minute: like "connection refused: docs.example", at most 120 characters

    @property
    def is_at_work(self) -> bool:
        """Does it work on the crawl, or would but for its disk?"""
        return self.state == DeclaredState.ALIVE or self.waits_for_room

    @property
    def waits_for_room(self) -> bool:
        """Has it given its partitions to others, if there are any, until its disk has room?"""
        return self.lacks_room and self.state == DeclaredState.QUARANTINED


class Member(MemberView, frozen=True, kw_only=True):
    """One session as it describes itself. `counter` is absolute; `lock` (a file) is tested on the same host only."""

    counter: int
    time_scale: int = 1  # its times are those of the settings times this
    host: str = ""  # machine and boot, to know whether `lock` can be tested
    lock: str = ""
    pid: int = 0
    fenced: int = 0  # results that were refused because another session had the lease
    done: int = 0  # attempts that have ended here
    late: int = 0  # requests that were open when the lease was lost: they may have overlapped with the new owner's
    taken_over: int = 0  # partitions that it acquired from dead sessions
    loop_delay_s: float = 0.0  # by which timers of its event loop were late, at most, in the last 30 to 60 s
    margin_s: float | None = None  # smallest wait between two requests of a queue, less its delay, in the same time
    disk_free: int = -1  # bytes, where its crawl folder is; -1: not known
    cpu_s: float = 0.0  # of its process without children, since it started
    resident: int = -1  # memory of its process, bytes; -1: not known
    held_pages: int = 0  # that it fetched and has not acked, because links of theirs to other domains wait
    held_links: int = 0  # of these pages
    last_error_at: float = 0.0  # wall clock, s
    set_back_pages: int = 0  # that an engine which was set back lost in the last minute; they are fetched again
    one_shape: str = ""  # of all URLs that it has fetched for ten minutes; "": there were others
    next_job_at: float = 0.0  # when something of a job is due next in its partitions, wall clock, s; 0: nothing is
    clock_off_s: float = 0.0  # the engine's clock minus its own, where that is so much that it triggers no job
    still_for: tuple[str, ...] = ()  # sessions of commands that pause the crawl, for which it stands still now
    looks: int = -1  # how often it looked whether the crawl is finished; -1: it goes on then
    engine: str = ""  # `engine_digest` of the primaries that have all it sent; UNDER_WAY while one may not
    ring: str = ""  # digest of its ring: two that differ for long have different settings


_decoder = msgspec.json.Decoder(Member)

UNDER_WAY = "?"


def engine_digest(run_id: str) -> str:
    """How a member names the primary, or the primaries, that it is connected to."""
    return blake2b(run_id.encode(), digest_size=6).hexdigest()


class BeatAnswer(enum.StrEnum):
    """The reply to a heartbeat; shared with lua/heartbeat.lua."""

    COMMITTED = "COMMITTED"
    GONE = "GONE"  # removed from the list: join again
    EVICTED = "EVICTED"  # an operator evicted this session


def weights_of(living: Mapping[str, Member]) -> dict[str, int]:
    """The nodes that partitions belong to, by the sessions that are not dead, with their weights. One whose disk has no
    room while others take part keeps what is pinned to it: its weight is 0.
    """
    taking = takers({session: declared(member.state) for session, member in living.items()})
    full = {m.node: 0 for m in living.values() if m.waits_for_room}
    return full | {living[session].node: living[session].weight for session in taking}


class NameTakenError(ConflictError):
    """Another session has the node's name."""


class Members:
    """Join, heartbeat, leave, read: crawl-wide keys, in one slot."""

    def __init__(self, engine: Engine, keys: Keys) -> None:
        self._engine = engine
        self._keys = keys
        self._known: dict[bytes, tuple[bytes, Member]] = {}  # as last read: most have not changed since

    async def read(self) -> dict[str, Member]:
        """All sessions on the list, by session."""
        return self._members_of(await self._engine.command("HGETALL", self._keys.members))

    async def read_with_pins(self) -> tuple[dict[str, Member], dict[str, str]]:
        """The same, and what `Pins.read` returns, by one message."""
        members, pins = await self._engine.commands([("HGETALL", self._keys.members), ("HGETALL", self._keys.pins)])
        return self._members_of(members), _pins_of(pins)

    def _members_of(self, raw: Any) -> dict[str, Member]:
        before, known = self._known, {}
        for key, blob in pairs_of(raw):
            last = before.get(key)
            known[key] = last if last is not None and last[0] == blob else (blob, _decoder.decode(blob))
        self._known = known
        ours = ("", UNDER_WAY, engine_digest(self._engine.run_id))
        if any(member.engine not in ours for _, member in known.values()):  # of one that is dead, or knows more
            self._engine.doubt()
        return {member.session: member for _, member in known.values()}

    async def holder_of(self, node: str) -> str:
        """The session that has a node's name now, or ''."""
        raw = await self._engine.command("HGET", self._keys.nodes, node)
        return (raw or b"").decode()

    async def join(self, member: Member, *, instead_of: str = "") -> int:
        """Enter the list under the node's name; `instead_of` is the (dead) session that had it.

        Returns how often the node has joined since it last ran steadily. Raises NameTakenError when another session
        has the name, ConflictError when this one was evicted.
        """
        k = self._keys
        keys = (k.members, k.nodes, k.returns, k.evicted)
        reply = await self._engine.run(
            "join", keys, *JoinArgs(member.session, member.node, instead_of, encoded(member))
        )
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
        reply = await self._engine.run("heartbeat", keys, *HeartbeatArgs(member.session, encoded(member)))
        return BeatAnswer(reply[0].decode())

    async def is_steady(self, node: str) -> None:
        """Reset the node's count of joins: it has lived long enough."""
        await self._engine.command("HDEL", self._keys.returns, node)

    async def evict(self, member: Member) -> None:
        """Refuse further heartbeats of a session: it releases its leases, or is taken over once it is silent.

        Higher epochs in its leases would fence its writes, not its requests: a web server knows no epochs, and it would
        fetch until its next write, beside the new owner. A healthy session learns of this within a beat, returns its
        claims, releases its leases and ends. One that does not is silent from now on, and stops itself like any other.
        The mark is the session's, not the node's: after a new start the node takes part.
        """
        await self._engine.command("HSET", self._keys.evicted, member.session, member.node)

    async def is_evicted(self, session: str) -> bool:
        """Was it evicted, and has it not left by itself since?"""
        return bool(await self._engine.command("HEXISTS", self._keys.evicted, session))

    async def leave(self, member: Member) -> None:
        """Remove one's own session from the list."""
        await self._engine.run("leave", self._leaving_keys, *LeaveArgs(member.session, member.node, ""))

    async def remove_dead(self, member: Member) -> bool:
        """Remove a dead session from the list, if it has sent no heartbeat since it was read."""
        last = self._known.get(member.session.encode())
        # As it was written: one of another release may have other fields.
        blob = last[0] if last is not None and last[1] == member else encoded(member)
        reply = await self._engine.run("leave", self._leaving_keys, *LeaveArgs(member.session, member.node, blob))
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
        return _pins_of(await self._engine.command("HGETALL", self._keys.pins))

    async def pin(self, domain: str, node: str, *, partitions: int) -> None:
        """Pin a domain to a node, whether or not that node takes part now; an earlier pin of the domain is replaced.

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
        """Remove a domain's pin; False when it had none."""
        return bool(await self._engine.command("HDEL", self._keys.pins, domain))


def _pins_of(raw: Any) -> dict[str, str]:
    return {domain.decode(): node.decode() for domain, node in pairs_of(raw)}


def by_partition(pins: Mapping[str, str], partitions: int) -> dict[int, str]:
    """Pins in the form for the ring: partition -> node.

    Two people may pin two domains of one partition at the same moment: then the first one by name counts, everywhere.
    """
    nodes: dict[int, str] = {}
    for domain in sorted(pins):
        nodes.setdefault(partition_of(domain, partitions), pins[domain])
    return nodes
