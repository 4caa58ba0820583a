"""Who is alive, judged by observed silence alone. Pure: readings and monotonic times in, states out.

A session declares its own state (`DeclaredState`); others judge it by that and by its heartbeat counter, unchanged
for `suspect_ms` of the observer's own time or for `dead_ms` (`_STATES`). An observer that was itself paused or cut off
learns nothing from the gap: when two successful reads lie further apart than `gap_ms`, every window starts afresh.

All times stretch together with the number of members: a session says by how much its own are stretched, and it is
judged by what it said.
"""

from collections.abc import Iterable, Mapping
from enum import StrEnum

import msgspec
from msgspec.structs import replace


class DeclaredState(StrEnum):
    """What a session says of itself; the words of `Member.state`."""

    JOINING = "joining"  # on the list, not on the ring yet
    ALIVE = "alive"
    QUARANTINED = "quarantined"  # came back so often lately that it has to wait before it takes a share
    LEAVING = "leaving"
    SEEDING = "seeding"  # a seed stream: takes no partitions


class Liveness(StrEnum):
    """A session as an observer sees it."""

    JOINING = "joining"
    ALIVE = "alive"
    SUSPECT = "suspect"
    DEAD = "dead"
    LEAVING = "leaving"
    QUARANTINED = "quarantined"


HEARD, SUSPICIOUS, DEADLY = range(3)  # how long a session's counter has not changed: columns of the table

# What a session is, by what it says and how long it has been silent. SUSPECT is shown, nothing moves.
_STATES: Mapping[DeclaredState, tuple[Liveness, Liveness, Liveness]] = {
    #                     heard           suspicious      deadly
    DeclaredState.JOINING: (Liveness.JOINING, Liveness.SUSPECT, Liveness.DEAD),
    DeclaredState.ALIVE: (Liveness.ALIVE, Liveness.SUSPECT, Liveness.DEAD),
    DeclaredState.QUARANTINED: (Liveness.QUARANTINED, Liveness.QUARANTINED, Liveness.DEAD),
    DeclaredState.LEAVING: (Liveness.LEAVING, Liveness.LEAVING, Liveness.DEAD),
    DeclaredState.SEEDING: (Liveness.ALIVE, Liveness.SUSPECT, Liveness.DEAD),
}

# What a session may say next. Joining anew is what one does that was struck off while it was silent.
_STEPS: Mapping[DeclaredState, frozenset[DeclaredState]] = {
    DeclaredState.JOINING: frozenset(
        {DeclaredState.JOINING, DeclaredState.ALIVE, DeclaredState.QUARANTINED, DeclaredState.LEAVING}
    ),
    DeclaredState.QUARANTINED: frozenset({DeclaredState.JOINING, DeclaredState.ALIVE, DeclaredState.LEAVING}),
    DeclaredState.ALIVE: frozenset({DeclaredState.JOINING, DeclaredState.LEAVING}),
    DeclaredState.LEAVING: frozenset({DeclaredState.LEAVING}),
    DeclaredState.SEEDING: frozenset({DeclaredState.JOINING, DeclaredState.LEAVING}),
}


_BY_WORD = {word.value: word for word in DeclaredState}


def declared(word: str) -> DeclaredState:
    """What a session says; a word of a newer release is taken for one that joins: it takes no share."""
    return _BY_WORD.get(word, DeclaredState.JOINING)


class IllegalStepError(ValueError):
    """A session may not say this after what it said before."""


def step(now: DeclaredState, then: DeclaredState) -> DeclaredState:
    """`then`, if a session that says `now` may say it next. Raises IllegalStepError."""
    if then not in _STEPS[now]:
        raise IllegalStepError(f"{now} -> {then}")
    return then


class Observation(msgspec.Struct, frozen=True):
    """The last counter seen of a session, and since when (observer's ms) it has not changed."""

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
    """The thresholds, in ms, before they are stretched."""

    suspect_ms: int
    dead_ms: int
    gap_ms: int

    def silence(self, silent_ms: int, time_scale: int) -> int:
        """Which column of the table a silence falls into."""
        if silent_ms >= self.dead_ms * time_scale:
            return DEADLY
        return SUSPICIOUS if silent_ms >= self.suspect_ms * time_scale else HEARD


class Observer(msgspec.Struct, frozen=True):
    """What one session has seen of the others."""

    times: Times
    seen: Mapping[str, Observation]
    read_at_ms: int = -1

    def read(self, readings: Iterable[HeartbeatReading], now_ms: int, time_scale: int = 1) -> "Observer":
        """Take in one successful read of the whole member list; `stretch` is that of the observer's own reads."""
        afresh = self.read_at_ms >= 0 and now_ms - self.read_at_ms > self.times.gap_ms * time_scale
        seen = {}
        for r in readings:
            before = self.seen.get(r.session)
            changed = before is None or before.counter != r.counter or afresh
            since_ms = now_ms if changed or before is None else before.since_ms
            seen[r.session] = Observation(r.counter, since_ms, r.declared, r.time_scale, r.proven_dead)
        return replace(self, seen=seen, read_at_ms=now_ms)

    def state_of(self, session: str, now_ms: int) -> Liveness:
        """A session that is not on the list is dead: it left, or it was struck off."""
        seen = self.seen.get(session)
        return Liveness.DEAD if seen is None else self._state(seen, now_ms)

    def _state(self, seen: Observation, now_ms: int) -> Liveness:
        if seen.proven_dead:
            return Liveness.DEAD
        return _STATES[seen.declared][self.times.silence(now_ms - seen.since_ms, seen.time_scale)]

    def states(self, now_ms: int) -> dict[str, Liveness]:
        """Everybody on the list."""
        return {session: self._state(seen, now_ms) for session, seen in self.seen.items()}


def time_scale_of(members: int, members_per_scale: int) -> int:
    """By how much the times of a session stretch in a list of so many members: reading them costs all of them."""
    return max(1, -(-members // members_per_scale))


def takers(living: Mapping[str, DeclaredState]) -> frozenset[str]:
    """Which of the living (session -> what it declares) take a share: quarantined ones only when there is no other."""
    alive = frozenset(s for s, says in living.items() if says is DeclaredState.ALIVE)
    return alive or frozenset(s for s, says in living.items() if says is DeclaredState.QUARANTINED)


def quarantine_ms(returns: int, *, free: int, hold_ms: int, hold_max_ms: int) -> int:
    """How long a node stays off the ring that has joined for the `returns`-th time since its last steady life.

    The first `free` joins cost nothing: a crash and the same command again go on at once. Then the hold doubles.
    """
    beyond = returns - free
    if beyond <= 0:
        return 0
    return min(hold_max_ms, hold_ms << min(beyond - 1, 30))
