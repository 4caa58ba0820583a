"""The member list: sessions and their heartbeat counters. Who is alive is judged in rules/membership.py."""

from collections.abc import Mapping

import msgspec

from crawler.errors import ConflictError
from crawler.frontier.client import Engine
from crawler.frontier.keys import Keys

_encode = msgspec.json.Encoder().encode


class Member(msgspec.Struct, frozen=True, kw_only=True):
    """One session as it describes itself. `counter` is absolute; `lock` (a file) is judged on the same host only."""

    session: str
    node: str
    counter: int
    weight: int = 1
    state: str = "alive"  # alive | leaving | seeding (a seed stream is open; takes no partitions)
    host: str = ""  # machine and boot, to know whether `lock` can be tried
    lock: str = ""
    pid: int = 0
    started_at: float = 0.0
    partitions: int = 0
    in_flight: int = 0


_decoder = msgspec.json.Decoder(Member)


class Members:
    """Join, beat, leave, read: crawl-wide, in one slot."""

    def __init__(self, engine: Engine, keys: Keys) -> None:
        self._engine = engine
        self._keys = keys

    async def read(self) -> dict[str, Member]:
        """All sessions on the list, by session."""
        raw = await self._engine.command("HGETALL", self._keys.members)
        pairs = raw.items() if isinstance(raw, Mapping) else zip(raw[::2], raw[1::2], strict=True)
        return {key.decode(): _decoder.decode(blob) for key, blob in pairs}

    async def holder_of(self, node: str) -> str:
        """The session that has a node's name now, or ''."""
        raw = await self._engine.command("HGET", self._keys.nodes, node)
        return (raw or b"").decode()

    async def join(self, member: Member, *, instead_of: str = "") -> None:
        """Enter the list under the node's name; `instead_of` is the (dead) session that had it.

        Raises ConflictError when another session has the name.
        """
        reply = await self._engine.run(
            "join", (self._keys.members, self._keys.nodes), member.session, member.node, instead_of, _encode(member)
        )
        if reply[0] == b"TAKEN":
            raise ConflictError(
                f"node {member.node!r} is already running (session {reply[1].decode()}): "
                "stop it, or give this one another --node"
            )

    async def beat(self, member: Member) -> bool:
        """Write the heartbeat; False when the session was struck off and must join anew."""
        reply = await self._engine.run("beat", (self._keys.members,), member.session, _encode(member))
        return bool(reply[0] == b"COMMITTED")

    async def leave(self, member: Member) -> None:
        """Strike the own session off."""
        await self._engine.run("leave", (self._keys.members, self._keys.nodes), member.session, member.node, "")

    async def strike(self, member: Member) -> bool:
        """Strike a dead session off if it has not beaten since it was read."""
        reply = await self._engine.run(
            "leave", (self._keys.members, self._keys.nodes), member.session, member.node, _encode(member)
        )
        return bool(reply[0] == b"COMMITTED")
