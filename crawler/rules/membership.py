"""Who is alive, who owns what, and when all is done. Pure: readings and monotonic times in, decisions out."""

from collections.abc import Iterable, Mapping
from enum import StrEnum

import msgspec
from msgspec.structs import replace

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
