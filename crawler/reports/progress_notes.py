"""What a progress line explains beside its numbers: the time left, why nothing moves, and the last error. Pure."""

import math
from collections import deque
from collections.abc import Sequence

import msgspec

from crawler.frontier.members import Awaited, Awaits
from crawler.terminal.wording import counted, duration, number

STALL_S = 10.0  # without any progress, before it is explained
HOSTS_COUNTED_MAX = 100  # beyond it, several are in one partition: their number is not known
TREND_S = 60.0  # over which the queue's decrease is measured
TREND_MIN_S = 30.0


class Trend(msgspec.Struct):
    """How the number of pending URLs, and that of finished attempts, change."""

    _pending: deque[tuple[float, int]] = msgspec.field(default_factory=deque)
    _attempts: int = -1
    _moved_s: float = 0.0

    def take(self, at_s: float, *, pending: int, attempts: int) -> None:
        """Note both at a moment."""
        self._pending.append((at_s, pending))
        while len(self._pending) > 2 and self._pending[1][0] <= at_s - TREND_S:
            self._pending.popleft()
        if attempts != self._attempts:
            self._attempts, self._moved_s = attempts, at_s

    @property
    def still_s(self) -> float:
        """How long no attempt has finished."""
        return self._pending[-1][0] - self._moved_s if self._pending else 0.0

    @property
    def left_s(self) -> float | None:
        """How long the pending URLs last, if they decrease as they did; None while they don't."""
        if not self._pending:
            return None
        (since_s, before), (at_s, now) = self._pending[0], self._pending[-1]
        if at_s - since_s < TREND_MIN_S or before <= now or self.still_s >= STALL_S:
            return None
        return now * (at_s - since_s) / (before - now)


def left_text(seconds: float) -> str:
    """Like "about 3 min left": no more exact than it is known."""
    if seconds < 55:
        return "less than a minute left"
    if seconds < 90 * 60:
        return f"about {number(seconds / 60)} min left"
    if seconds < 48 * 3600:
        return f"about {number(seconds / 3600)} h left"
    return f"about {number(seconds / 86400)} days left"


def stall_text(still_s: float, awaited: Sequence[Awaited], *, busy: int) -> str:
    """Like "nothing for 40 s: all 3 hosts wait for their next fetch, first docs.example in 12 s".

    `busy`: partitions that have pending URLs. An instance may also wait for some that have none.
    """
    why = _awaited_text(awaited, busy)
    return f"nothing for {duration(still_s)}" + (f": {why}" if why else "")


def _awaited_text(awaited: Sequence[Awaited], busy: int) -> str:
    """What several instances wait for: the most telling of it, summed up."""
    for what in Awaits:
        same = [one for one in awaited if one.what == what]
        if same:
            count, first = sum(one.count for one in same), min(same, key=lambda one: one.in_s)
            return _next_text(min(count, busy), first) if what is Awaits.NEXT else _TEXTS[what](first.host, count)
    return ""


def _with_others(text: str, count: int, noun: str) -> str:
    return text if count == 1 else f"{text} and {counted(count - 1, 'other ' + noun)}"


def _next_text(count: int, first: Awaited) -> str:
    soon = f"in {duration(math.ceil(first.in_s))}"
    if count <= 1:
        return f"{first.host or 'a host'} waits for its next fetch {soon}"
    hosts = f"all {number(count)} hosts" if count <= HOSTS_COUNTED_MAX else "all hosts"
    return f"{hosts} wait for their next fetch, first {f'{first.host} ' if first.host else ''}{soon}"


_TEXTS = {
    Awaits.ANSWER: lambda host, n: _with_others(f"waits for an answer of {host}", n, "request"),
    Awaits.ROBOTS: lambda host, n: _with_others(f"waits for robots.txt of {host}", n, "host"),
    Awaits.PAGE: lambda host, n: _with_others(f"works on a page of {host}", n, "page"),
}
