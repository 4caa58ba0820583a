"""The other members and the ring that follows from them. Reads the member list; removes dead members.

Joins are applied together after a short quiet period, everything else at once. All times of this session scale with the
length of the list, because every session reads all of it.
"""

import logging
from collections.abc import Awaitable, Callable

from crawler.frontier.members import Member, Members, by_partition, weights_of
from crawler.rules.membership import (
    DeclaredState,
    HeartbeatReading,
    Liveness,
    Observer,
    declared,
    takers,
    time_scale_of,
    times_of,
)
from crawler.rules.ring import Ring, build
from crawler.runtime.clocks import monotonic_ms
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
