"""The other members and the ring that follows from them. Reads the member list; removes dead members.

Joins are applied together after a short quiet period, everything else at once. All times of this session scale with the
length of the list, because every session reads all of it.
"""

import asyncio
import contextlib
import logging
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Protocol

from crawler.archive.folder import Life, life_at
from crawler.archive.inflight_log import DeadSession, dead_sessions
from crawler.archive.told_log import left_behind
from crawler.errors import ConflictError, UsageError
from crawler.frontier.members import Member, Members, NameTakenError, by_partition, weights_of
from crawler.frontier.owner import Frontier
from crawler.rules.health import GIVEN_UP_AT
from crawler.rules.membership import (
    DeclaredState,
    HeartbeatReading,
    Liveness,
    Observer,
    Ring,
    build,
    declared,
    takers,
    time_scale_of,
    times_of,
)
from crawler.runtime.process import monotonic_ms
from crawler.settings import MembershipSettings

log = logging.getLogger(__name__)

HEARD_MAX = 10_000  # sessions
MEMBERS_PER_SCALE = 100  # all times of membership are multiplied by the number of members / this, rounded up
DEBOUNCES_MAX = 10  # joins that keep coming are applied after this many quiet periods at the latest


class Peers:
    """The member list as this session sees it; `refresh` reads it once."""

    def __init__(
        self,
        members: Members,
        me: Member,
        settings: MembershipSettings,
        *,
        partitions: int,
        is_lock_free: Callable[[Member], bool],
        on_death: Callable[[Member], Awaitable[None]],
        clock_ms: Callable[[], int] = monotonic_ms,
    ) -> None:
        self._members = members
        self._me = me
        self._settings = settings
        self._partitions = partitions
        self._is_lock_free = is_lock_free
        self._on_death = on_death
        self._clock_ms = clock_ms
        self._observer = Observer(times_of(settings), {})
        self._followed: tuple[dict[str, int], dict[str, str]] = ({}, {})  # weights and pins that the ring was built of
        self._joining: dict[str, int] = {}
        self._joining_since_ms = 0
        self._quiet_since_ms = 0
        self._heard_ms: dict[
            str, int
        ] = {}  # also of sessions that are gone: their partitions may not be taken over yet
        self._differing_since: dict[str, int] = {}
        self._differing: frozenset[str] = frozenset()
        self.ring = Ring(())
        self.digest = ""
        self.time_scale = 1
        self.alive: dict[str, Member] = {}
        self.taking: frozenset[str] = frozenset()  # sessions that partitions belong to

    def silence_of(self, session: str) -> int:
        """For how long a session's counter has not changed, ms; -1 when it was never seen."""
        since_ms = self._heard_ms.get(session)
        return -1 if since_ms is None else self._clock_ms() - since_ms

    def state_of(self, session: str) -> Liveness:
        """The state of a session now."""
        return self._observer.state_of(session, self._clock_ms())

    async def refresh(self) -> None:
        """Read members and pins, judge each member, update the ring. Raises EngineError."""
        members, pins = await self._members.read_with_pins()
        now_ms = self._clock_ms()
        self._observer = self._observer.read(map(self._reading, members.values()), now_ms, self.time_scale)
        heard_ms = {s: seen.since_ms for s, seen in self._observer.seen.items()}
        self._heard_ms = heard_ms if len(self._heard_ms) > HEARD_MAX else self._heard_ms | heard_ms
        self.time_scale = time_scale_of(len(members), MEMBERS_PER_SCALE)
        states = self._observer.states(now_ms)
        self.alive = {s: m for s, m in members.items() if states[s] not in (Liveness.DEAD, Liveness.LEAVING)}
        self.taking = frozenset(takers({s: declared(m.state) for s, m in self.alive.items()}))
        self._follow(weights_of(self.alive), pins, now_ms)
        self._compare(now_ms)
        if self.pausing:
            return  # the partitions of dead sessions wait as well
        for session, member in members.items():
            if states[session] is Liveness.DEAD:
                await self._remove_member(member)

    @property
    def pausing(self) -> tuple[str, ...]:
        """The sessions of living commands for which this one has to stand still."""
        return tuple(sorted(s for s, m in self.alive.items() if m.state == DeclaredState.PAUSING.value))

    def _reading(self, member: Member) -> HeartbeatReading:
        dead = member.session != self._me.session and self._is_lock_free(member)
        return HeartbeatReading(member.session, member.counter, declared(member.state), member.time_scale, dead)

    async def _remove_member(self, member: Member) -> None:
        await self._on_death(member)
        if await self._members.remove_dead(member):
            log.warning("member.dead", extra={"member": member.node, "member_session": member.session})

    def _follow(self, weights: dict[str, int], pins: dict[str, str], now_ms: int) -> None:
        followed, pinned = self._followed
        if (weights, pins) == self._followed:
            self._joining = {}
            return
        only_joins = pins == pinned and followed and followed.items() <= weights.items()
        if only_joins and not self._is_quiet(weights, now_ms):
            return
        self._joining = {}
        self._followed = (weights, pins)
        self.ring = build(
            weights,
            partitions=self._partitions,
            virtual_nodes=self._settings.virtual_nodes,
            pins=by_partition(pins, self._partitions),
        )
        self.digest = self.ring.digest
        log.info("ring.changed", extra={"nodes": sorted(weights), "pins": len(pins)})

    def _is_quiet(self, joining: dict[str, int], now_ms: int) -> bool:
        """Has no other member joined for a while, or have joins gone on for too long to wait?"""
        if not self._joining:
            self._joining_since_ms = now_ms
        if joining != self._joining:
            self._joining, self._quiet_since_ms = joining, now_ms
        quiet_ms = self._settings.debounce_s * 1000 * self.time_scale
        return now_ms - self._quiet_since_ms >= quiet_ms or now_ms - self._joining_since_ms >= DEBOUNCES_MAX * quiet_ms

    def _compare(self, now_ms: int) -> None:
        """Members that follow another ring for longer than a change takes to spread have different settings."""
        others = (m for m in self.alive.values() if m.ring and m.session != self._me.session)
        differ = {m.node for m in others if m.ring != self.digest}
        self._differing_since = {node: self._differing_since.get(node, now_ms) for node in differ}
        long_ms = self._settings.dead_s * 1000 * self.time_scale
        lasting = frozenset(node for node, since in self._differing_since.items() if now_ms - since >= long_ms)
        if lasting - self._differing:
            log.warning("ring.disagreement", extra={"nodes": sorted(lasting), "ours": self.digest})
        self._differing = lasting


# Names of nodes: this machine, its slots, and how a session takes a name and joins.
#
# A node's name is the host's name and a slot. It belongs to one living session at a time.

BEATS = 2.5  # a living session's counter has changed by then
SLOTS_MAX = 10_000  # instances of a host
NO_SLOT = "no free slot on this host: set membership.node"


class Located(Protocol):
    """A holder of a lock file on some machine: a member, a supervisor."""

    @property
    def host(self) -> str: ...
    @property
    def lock(self) -> str: ...


def host_id() -> str:
    """Machine and boot: lock files with the same id can be tested here."""
    return f"{socket.gethostname()}{_boot_id()}"


@cache
def _boot_id() -> str:
    with contextlib.suppress(OSError):
        return f"/{Path('/proc/sys/kernel/random/boot_id').read_text().strip()}"
    return ""


def is_lock_free(one: Located) -> bool:
    """Proof of death: the lock file is on this machine, and nobody holds it.

    Two machines may have the same name, and the same path: where the boot has no id, a free lock proves nothing.
    """
    return bool(one.lock and _boot_id()) and one.host == host_id() and life_at(Path(one.lock)) is Life.DEAD


class Slots:
    """The slots of this host in one crawl, as its member list has them."""

    def __init__(self, members: Members) -> None:
        self._members = members

    async def free(self, count: int, besides: Collection[str] = ()) -> list[str]:
        """Names of the first free slots, without those in `besides`. Raises UsageError when there are too few."""
        names = list[str]()
        if not count:
            return names
        async for node, _ in self._free(besides):
            names.append(node)
            if len(names) == count:
                return names
        raise UsageError(NO_SLOT)

    async def take(self, describe: Callable[[str], Member]) -> str:
        """Join under the name of the first free slot, which no other session gets then.

        `describe` creates the member for a name. Raises UsageError when no slot is free.
        """
        async for node, dead in self._free():
            with contextlib.suppress(NameTakenError):  # another session took it at the same moment
                await self._members.join(describe(node), instead_of=dead)
                return node
        raise UsageError(NO_SLOT)

    async def _free(self, besides: Collection[str] = ()) -> AsyncIterator[tuple[str, str]]:
        """Names of free slots, each with the dead session that still has it ("": none)."""
        host, known = socket.gethostname(), dict[str, Member]()
        for node in (f"{host}-{slot}" for slot in range(SLOTS_MAX)):
            if node in besides:
                continue
            holder = await self._members.holder_of(node)
            if holder and holder not in known:  # read after the holder, so it includes sessions that joined since
                known = await self._members.read()
            if not holder or _is_over(holder, known):
                yield node, holder

    async def is_free(self, node: str) -> bool:
        """May a new session have this name?"""
        holder = await self._members.holder_of(node)
        return not holder or _is_over(holder, await self._members.read())


async def living_holder(members: Members, node: str) -> Member | None:
    """The session that has a node's name, if it is proven alive: it holds its lock file on this machine."""
    holder = (await members.read()).get(await members.holder_of(node))
    if holder is None or holder.host != host_id() or life_at(Path(holder.lock)) is not Life.ALIVE:
        return None
    return holder


def _is_over(session: str, known: Mapping[str, Member]) -> bool:
    """Has this session left the member list, or is it proven dead?"""
    return session not in known or is_lock_free(known[session])


async def join(
    members: Members, member: Member, is_lock_free: Callable[[Member], bool], settings: MembershipSettings
) -> tuple[int, int]:
    """Join under the member's node name. Returns when the call was sent (monotonic ms), which counts as the first beat,
    and how often the node has joined since it last ran for a minute.

    Raises ConflictError when another living session has the name. One that may be dead is watched for `dead_s`.
    """
    holder = await members.holder_of(member.node)
    others = holder and holder != member.session
    dead = await _dead_holder(members, holder, is_lock_free, settings) if others else ""
    sent_ms = monotonic_ms()
    return sent_ms, await members.join(member, instead_of=dead)


async def _dead_holder(
    members: Members, holder: str, is_lock_free: Callable[[Member], bool], settings: MembershipSettings
) -> str:
    """The session that has the name, once it is certainly dead; '' while it lives."""
    first = (await members.read()).get(holder)
    if first is None or is_lock_free(first):
        return holder
    deadline_ms = monotonic_ms() + int(settings.dead_s * 1000) * first.time_scale
    while monotonic_ms() < deadline_ms:
        await asyncio.sleep(settings.read_s)
        now = (await members.read()).get(holder)
        if now is None or is_lock_free(now):
            return holder
        if now.counter != first.counter:
            return ""
    return holder


async def check_no_instance_runs(
    members: Members,
    is_lock_free: Callable[[Member], bool],
    settings: MembershipSettings,
    *,
    may_seed: bool = True,
) -> None:
    """Raises ConflictError when an instance works on the crawl, or a command adds seeds where none may. One that may be
    dead is watched for some beats.
    """
    listed = (await members.read()).values()
    there = [m for m in listed if not (may_seed and m.state == "seeding") and not is_lock_free(m)]
    if not there:
        return
    await asyncio.sleep(BEATS * settings.beat_s * max(m.time_scale for m in there))
    now = await members.read()
    working = sorted(m.node for m in there if m.session in now and now[m.session].counter != m.counter)
    if working:
        raise ConflictError(f"running on this crawl: {', '.join(working)}; stop all instances first")


# Records which URLs dead sessions were processing, so that poison URLs are isolated (rules/health.py).


class CrashReporter:
    """Reads in-flight logs and records crashes in the frontier, before the dead session's partitions are taken over."""

    def __init__(
        self,
        frontier: Frontier,
        *,
        sessions: Path,
        is_here: Callable[[Member], bool],
        adopt: Callable[[Iterable[Path]], None] = lambda _: None,
    ) -> None:
        """`adopt`: called with files of what dead sessions had told other partitions."""
        self._frontier = frontier
        self._adopt = adopt
        self._sessions = sessions
        self._is_here = is_here

    async def record_earlier_crashes(self) -> None:
        """Record sessions that died in our own crawl folder before this one started. Raises EngineError."""
        self._adopt(left_behind(self._sessions))
        await self._record(dead_sessions(self._sessions))

    async def record_crash(self, member: Member) -> None:
        """A member is dead. Its log is next to its lock file, if that is on this machine. Raises EngineError."""
        if member.lock and self._is_here(member):
            self._adopt(left_behind(Path(member.lock).parent))
            await self._record(d for d in dead_sessions(Path(member.lock).parent) if d.session == member.session)

    async def _record(self, dead: Iterable[DeadSession]) -> None:
        for one in dead:
            by_partition: dict[int, list[str]] = {}
            for suspect in one.blamed:
                by_partition.setdefault(suspect.partition, []).append(suspect.fingerprint)
            deaths = GIVEN_UP_AT if one.is_certain else 1
            noted = await self._frontier.record_crash(one.session, by_partition, deaths=deaths)
            one.forget()
            if one.damaged:
                log.warning("session.log_damaged", extra={"dead": one.session, "records": one.damaged})
            urls = [suspect.url for suspect in one.blamed]
            if one.stacks:
                log.error("session.stalled", extra={"dead": one.session, "urls": urls, "stacks": one.stacks})
            elif urls:
                log.warning("session.died", extra={"dead": one.session, "urls": urls, "noted": noted})
