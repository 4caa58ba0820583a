"""Who is alive, judged by observed silence alone. Pure: readings and monotonic times in, states out.

Others are judged by their heartbeat counter: unchanged for `suspect_ms` of the observer's own time they are suspect
(shown, nothing moves), for `dead_ms` dead. An observer that was itself paused or cut off learns nothing from the gap:
when two successful reads lie further apart than `gap_ms`, every window starts afresh.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum


class State(StrEnum):
    """A session as an observer sees it."""

    ALIVE = "alive"
    SUSPECT = "suspect"
    DEAD = "dead"
    LEAVING = "leaving"


@dataclass(frozen=True, slots=True)
class Observation:
    """The last counter seen of a session, and since when (observer's ms) it has not changed."""

    counter: int
    since_ms: int
    leaving: bool = False
    proven_dead: bool = False  # its file lock is free: no need to wait


@dataclass(frozen=True, slots=True)
class Reading:
    """One session in one read of the member list."""

    session: str
    counter: int
    leaving: bool = False
    proven_dead: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Times:
    """The thresholds, in ms."""

    suspect_ms: int
    dead_ms: int
    gap_ms: int


@dataclass(frozen=True, slots=True)
class Observer:
    """What one session has seen of the others."""

    times: Times
    seen: Mapping[str, Observation]
    read_at_ms: int = -1

    def read(self, readings: Iterable[Reading], now_ms: int) -> "Observer":
        """Take in one successful read of the whole member list."""
        afresh = self.read_at_ms >= 0 and now_ms - self.read_at_ms > self.times.gap_ms
        seen = {}
        for r in readings:
            before = self.seen.get(r.session)
            if before is None or before.counter != r.counter or afresh:
                seen[r.session] = Observation(r.counter, now_ms, r.leaving, r.proven_dead)
            else:
                seen[r.session] = replace(before, leaving=r.leaving, proven_dead=r.proven_dead)
        return replace(self, seen=seen, read_at_ms=now_ms)

    def state_of(self, session: str, now_ms: int) -> State:
        """A session that is not on the list is dead: it left, or it was struck off."""
        seen = self.seen.get(session)
        if seen is None or seen.proven_dead:
            return State.DEAD
        silence = now_ms - seen.since_ms
        if silence >= self.times.dead_ms:
            return State.DEAD
        if seen.leaving:
            return State.LEAVING
        return State.SUSPECT if silence >= self.times.suspect_ms else State.ALIVE
