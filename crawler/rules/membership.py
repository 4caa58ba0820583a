"""Who is alive, who owns what, and when all is done. Pure: readings and monotonic times in, decisions out."""

from bisect import bisect
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import lru_cache
from hashlib import blake2b
from math import ceil, floor
from types import MappingProxyType

import msgspec
from msgspec.structs import replace

from crawler.rules.jobs import RunCounts
from crawler.settings import MembershipSettings


class DeclaredState(StrEnum):
    """What a session declares about itself; the values of `Member.state`."""

    JOINING = "joining"  # on the list, not on the ring yet
    ALIVE = "alive"
    QUARANTINED = "quarantined"  # takes no share for a while: it rejoined too often lately, or its disk has no room
    LEAVING = "leaving"
    SEEDING = "seeding"  # a seed stream: takes no partitions
    PAUSING = "pausing"  # a command for which all instances stand still (recovery/pause.py)


COMMANDS = frozenset({DeclaredState.SEEDING, DeclaredState.PAUSING})  # what is on the list and is not an instance


class Liveness(StrEnum):
    """A session as an observer sees it."""

    JOINING = "joining"
    ALIVE = "alive"
    SUSPECT = "suspect"
    DEAD = "dead"
    LEAVING = "leaving"
    QUARANTINED = "quarantined"


HEARD, SUSPICIOUS, DEADLY = range(3)  # how long a session's counter has not changed: columns of the table

# The state of a session by what it declares and how long it has been silent. SUSPECT is shown; nothing moves.
_STATES: Mapping[DeclaredState, tuple[Liveness, Liveness, Liveness]] = {
    #                     heard           suspicious      deadly
    DeclaredState.JOINING: (Liveness.JOINING, Liveness.SUSPECT, Liveness.DEAD),
    DeclaredState.ALIVE: (Liveness.ALIVE, Liveness.SUSPECT, Liveness.DEAD),
    DeclaredState.QUARANTINED: (Liveness.QUARANTINED, Liveness.QUARANTINED, Liveness.DEAD),
    DeclaredState.LEAVING: (Liveness.LEAVING, Liveness.LEAVING, Liveness.DEAD),
    DeclaredState.SEEDING: (Liveness.ALIVE, Liveness.SUSPECT, Liveness.DEAD),
    DeclaredState.PAUSING: (Liveness.ALIVE, Liveness.SUSPECT, Liveness.DEAD),
}

# What a session may declare next. A session that was removed from the list while it was silent joins again.
_STEPS: Mapping[DeclaredState, frozenset[DeclaredState]] = {
    DeclaredState.JOINING: frozenset(
        {DeclaredState.JOINING, DeclaredState.ALIVE, DeclaredState.QUARANTINED, DeclaredState.LEAVING}
    ),
    DeclaredState.QUARANTINED: frozenset({DeclaredState.JOINING, DeclaredState.ALIVE, DeclaredState.LEAVING}),
    DeclaredState.ALIVE: frozenset({DeclaredState.JOINING, DeclaredState.QUARANTINED, DeclaredState.LEAVING}),
    DeclaredState.LEAVING: frozenset({DeclaredState.LEAVING}),
    DeclaredState.SEEDING: frozenset({DeclaredState.JOINING, DeclaredState.LEAVING}),
    DeclaredState.PAUSING: frozenset({DeclaredState.JOINING, DeclaredState.LEAVING}),
}


_BY_WORD = {word.value: word for word in DeclaredState}


def declared(word: str) -> DeclaredState:
    """The declared state of a stored word. One that only newer releases know counts as JOINING: it takes no share."""
    return _BY_WORD.get(word, DeclaredState.JOINING)


class IllegalStepError(ValueError):
    """A session may not declare this after what it declared before."""


def step(now: DeclaredState, then: DeclaredState) -> DeclaredState:
    """`then`, if a session that declares `now` may declare it next. Raises IllegalStepError."""
    if then not in _STEPS[now]:
        raise IllegalStepError(f"{now} -> {then}")
    return then


class Observation(msgspec.Struct, frozen=True):
    """The last counter seen of a session, and since when (ms of the observer) it has not changed."""

    counter: int
    since_ms: int
    declared: DeclaredState = DeclaredState.ALIVE
    time_scale: int = 1
    proven_dead: bool = False  # its file lock is free: no need to wait


class HeartbeatReading(msgspec.Struct, frozen=True):
    """One session in one read of the member list."""

    session: str
    counter: int
    declared: DeclaredState = DeclaredState.ALIVE
    time_scale: int = 1
    proven_dead: bool = False


class Times(msgspec.Struct, frozen=True, kw_only=True):
    """The thresholds, in ms, at time scale 1."""

    suspect_ms: int
    dead_ms: int
    gap_ms: int

    def silence(self, silent_ms: int, time_scale: int) -> int:
        """Which column of the table a silence falls into."""
        if silent_ms >= self.dead_ms * time_scale:
            return DEADLY
        return SUSPICIOUS if silent_ms >= self.suspect_ms * time_scale else HEARD


def times_of(settings: MembershipSettings) -> Times:
    """By the settings."""
    return Times(
        suspect_ms=int(settings.suspect_s * 1000),
        dead_ms=int(settings.dead_s * 1000),
        gap_ms=int(settings.gap_s * 1000),
    )


class Observer(msgspec.Struct, frozen=True):
    """What one session has seen of the others."""

    times: Times
    seen: Mapping[str, Observation]
    read_at_ms: int = -1

    def read(self, readings: Iterable[HeartbeatReading], now_ms: int, time_scale: int = 1) -> "Observer":
        """The state after one successful read of the whole member list; `time_scale` is the observer's own."""
        restarts = self.read_at_ms >= 0 and now_ms - self.read_at_ms > self.times.gap_ms * time_scale
        seen = {}
        for r in readings:
            before = self.seen.get(r.session)
            changed = before is None or before.counter != r.counter or restarts
            since_ms = now_ms if changed or before is None else before.since_ms
            seen[r.session] = Observation(r.counter, since_ms, r.declared, r.time_scale, r.proven_dead)
        return replace(self, seen=seen, read_at_ms=now_ms)

    def state_of(self, session: str, now_ms: int) -> Liveness:
        """A session that is not on the list is dead: it left, or it was removed."""
        seen = self.seen.get(session)
        return Liveness.DEAD if seen is None else self._state(seen, now_ms)

    def _state(self, seen: Observation, now_ms: int) -> Liveness:
        if seen.proven_dead:
            return Liveness.DEAD
        return _STATES[seen.declared][self.times.silence(now_ms - seen.since_ms, seen.time_scale)]

    def states(self, now_ms: int) -> dict[str, Liveness]:
        """The states of all sessions on the list."""
        return {session: self._state(seen, now_ms) for session, seen in self.seen.items()}


def time_scale_of(members: int, members_per_scale: int) -> int:
    """The time scale for a list with this number of members: everyone reads the whole list, so they read less often."""
    return max(1, -(-members // members_per_scale))


def takers(living: Mapping[str, DeclaredState]) -> frozenset[str]:
    """Which of the living (session -> declared state) take a share: quarantined ones only when there are no others."""
    alive = frozenset(session for session, state in living.items() if state is DeclaredState.ALIVE)
    return alive or frozenset(session for session, state in living.items() if state is DeclaredState.QUARANTINED)


def quarantine_ms(returns: int, *, free: int, hold_ms: int, hold_max_ms: int) -> int:
    """How long a node stays off the ring when it joins for the `returns`-th time since it last ran steadily.

    The first `free` joins cost nothing: after a crash the same command continues at once. Then the wait doubles.
    """
    beyond = returns - free
    if beyond <= 0:
        return 0
    return min(hold_max_ms, hold_ms << min(beyond - 1, 30))


# The consistent-hash ring: partition -> node, the same wherever it is computed. Pure.
#
# Each node has 150 virtual nodes (times its weight) on uhashring's ring; partitions are placed at even distances. Loads
# are bounded: a full node keeps the partitions nearest before it, and the rest go to the next node that is not full.
# Pinned partitions go to their nodes first. The ring suggests; the lease decides.

NO_PINS: Mapping[int, str] = MappingProxyType({})
RINGS_KEPT = 8  # a node that flaps brings the same few rings again; 0.3 MB each at 16,384 partitions
CIRCLE = 2**64
NOBODY = ""  # owns everything while no node takes part


@dataclass(frozen=True, slots=True)
class Ring:
    """Owners of all partitions by a member list. `owners[p]` is a node's name; empty without nodes.

    `digest` identifies the ring: two that differ come from different members, weights, pins or settings.
    """

    owners: tuple[str, ...]
    caps: Mapping[str, int] = field(default_factory=dict)
    digest: str = field(init=False)
    _shares: Mapping[str, list[int]] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        shares = defaultdict(list)
        for partition, owner in enumerate(self.owners):
            shares[owner].append(partition)
        named = blake2b("\n".join(self.owners).encode(), digest_size=6).hexdigest()
        object.__setattr__(self, "_shares", dict(shares))
        object.__setattr__(self, "digest", named if self.owners else "")

    def share_of(self, node: str) -> list[int]:
        """The partitions that the ring suggests for a node, in order."""
        return list(self._shares.get(node, ()))


def build(
    weights: Mapping[str, int],
    *,
    partitions: int,
    virtual_nodes: int = 150,
    load_bound: float = 1.1,
    pins: Mapping[int, str] = NO_PINS,
) -> Ring:
    """The ring over nodes with integer weights; those of weight 0 get what is pinned to them, and nothing else.

    A partition in `pins` goes to its node, full or not, while that node is in `weights`, and else where the ring puts
    it. Pinned partitions count against their node's cap first.
    """
    heard = {p: node for p, node in pins.items() if node in weights and p < partitions}
    listed = tuple(sorted(weights.items()))
    return _built(listed, partitions, virtual_nodes, load_bound, tuple(sorted(heard.items())))


@lru_cache(maxsize=RINGS_KEPT)
def _built(
    listed: tuple[tuple[str, int], ...],
    partitions: int,
    virtual_nodes: int,
    load_bound: float,
    pins: tuple[tuple[int, str], ...],
) -> Ring:
    weights = dict(listed)
    if not weights:
        return Ring(())
    nodes = {node: {"weight": weight, "vnodes": virtual_nodes} for node, weight in listed if weight}
    from uhashring import HashRing  # not by those who only judge who is alive: 25 ms

    points = HashRing(nodes=nodes, hash_fn=_hash).ring
    caps = _caps(weights, partitions, load_bound)
    return Ring(_placed(points, caps, partitions, dict(pins)), caps)


def _hash(key: object) -> int:
    return int.from_bytes(blake2b(str(key).encode(), digest_size=8).digest(), "big")


def _placed(
    points: Mapping[int, str], caps: Mapping[str, int], partitions: int, pins: Mapping[int, str]
) -> tuple[str, ...]:
    """The owner of each partition. Of the partitions before a point, the nearest is placed first."""
    places = sorted(points)
    waiting = []
    for partition in range(partitions):
        if partition not in pins:
            at = (2 * partition + 1) * CIRCLE // (2 * partitions)
            position = bisect(places, at) % len(places)
            waiting.append(((places[position] - at) % CIRCLE, partition, position))
    owners = dict(pins)
    room = Counter(caps)
    room.subtract(pins.values())
    for _, partition, first in sorted(waiting):
        position = first
        while room[points[places[position]]] <= 0:
            position = (position + 1) % len(places)
        owners[partition] = points[places[position]]
        room[owners[partition]] -= 1
    return tuple(owners[partition] for partition in range(partitions))


def _caps(weights: Mapping[str, int], partitions: int, load_bound: float) -> dict[str, int]:
    """The maximum of partitions of each node: max(floor(bound x fair share), ceil(fair share)) by weight."""
    total = sum(weights.values())
    caps = {}
    for node, weight in weights.items():
        fair = partitions * weight / total
        caps[node] = max(floor(load_bound * fair), ceil(fair))
    return caps


def moves(before: Sequence[str], after: Sequence[str], partitions: int) -> dict[int, tuple[str, str]]:
    """Partition -> (old owner, new owner), for the owners of two rings; either may be empty."""
    givers = before or (NOBODY,) * partitions
    getters = after or (NOBODY,) * partitions
    pairs = enumerate(zip(givers, getters, strict=True))
    return {partition: (giver, getter) for partition, (giver, getter) in pairs if giver != getter}


def share_changed(now: Mapping[str, int], then: Mapping[str, int]) -> float:
    """The share of all partitions that has to move to give each node its fair share by weight; 1.0 is all of them."""
    if not now or not then:
        return float(bool(now) != bool(then))
    total_now, total_then = sum(now.values()), sum(then.values())
    return sum(max(0.0, weight / total_then - now.get(node, 0) / total_now) for node, weight in then.items())


# Decides whether the crawl itself is finished, or a run of a job. Pure.
#
# Partitions can't be read in one snapshot: a URL may move between two reads. Both counters of a partition only grow,
# and a child is added before its parent is done. So when two successive passes find nothing pending and the same
# `added`, no URL was on its way in between.


class Pass(msgspec.Struct, frozen=True):
    """One pass over all partitions: (added, done, log entries) of each, read under one engine run id. Without runs of
    jobs.
    """

    engine_run_id: str
    counts: tuple[tuple[int, int, int], ...]
    streams_open: bool  # a seed stream is being read, or a journal is not yet sent

    @property
    def pending(self) -> int:
        return sum(added - done for added, done, _ in self.counts)

    @property
    def state(self) -> tuple[str, list[int]]:
        """What two successive quiet passes must have in common."""
        return self.engine_run_id, [added for added, _, _ in self.counts]

    @property
    def is_quiet(self) -> bool:
        return not self.streams_open and all(a == d and log == 0 for a, d, log in self.counts)


def is_finished(passes: Sequence[Pass]) -> bool:
    """Do the last two passes prove the end?"""
    if len(passes) < 2:
        return False
    first, second = passes[-2], passes[-1]
    return first.is_quiet and second.is_quiet and first.state == second.state


class RunPass(msgspec.Struct, frozen=True):
    """One pass over a run that is seeded, under one engine run id: the partitions it touched, then its counts there."""

    engine_run_id: str
    counts: Mapping[int, RunCounts]

    @property
    def is_quiet(self) -> bool:
        return all(counts.pending == 0 for counts in self.counts.values())


def is_run_finished(passes: Sequence[RunPass]) -> bool:
    """Do the last two passes prove that nothing of the run is pending? A partition is touched before it gets URLs, so
    nothing was on its way between the passes when they found the same partitions with the same counts.
    """
    if len(passes) < 2:
        return False
    first, second = passes[-2], passes[-1]
    return (
        first.is_quiet
        and second.is_quiet
        and first.engine_run_id == second.engine_run_id
        and dict(first.counts) == dict(second.counts)
    )
