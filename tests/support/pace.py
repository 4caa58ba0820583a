"""What a web server's log says of a crawl's pace: how long after it might have been asked each site was asked. Pure.

A site is due when the crawl begins, and then its delay after the end of each of its requests, as long as it has pages
left. All times in seconds on the log's clock.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Protocol


class Logged(Protocol):
    """A request as the server saw it."""

    start: float
    end: float
    host: str


@dataclass(frozen=True)
class Turn:
    """One request of a site: when it might have started, when it did, and when it had its answer."""

    due: float
    start: float
    end: float

    @property
    def late(self) -> float:
        return max(0.0, self.start - self.due)


@dataclass(frozen=True, kw_only=True)
class Period:
    """Means over a part of the crawl. `bound`: requests/s if no site with pages left had ever waited longer than its
    delay; `overdue`: the share of those sites that did wait, at a time.
    """

    begin: float
    sites: float
    bound: float
    rate: float
    overdue: float


def turns_of(requests: Iterable[Logged], *, delay_s: float) -> dict[str, list[Turn]]:
    """The turns of each site, in order. The crawl begins with its first request."""
    by_site: dict[str, list[Logged]] = defaultdict(list)
    for request in sorted(requests, key=lambda r: r.start):
        by_site[request.host].append(request)
    begin = min((mine[0].start for mine in by_site.values()), default=0.0)
    return {
        site: [Turn(begin, mine[0].start, mine[0].end)]
        + [Turn(before.end + delay_s, after.start, after.end) for before, after in pairwise(mine)]
        for site, mine in by_site.items()
    }


def too_early(turns: Iterable[Turn]) -> int:
    """How many requests came before their site's delay was over."""
    return sum(turn.start < turn.due for turn in turns)


def share_of_bound(turns: Iterable[Sequence[Turn]]) -> float:
    """Requests made, as a share of what the delays would have allowed in that time, from each site's first on."""
    needed = budget_reached = 0.0
    for mine in turns:
        budget_reached += mine[-1].start - mine[0].start
        needed += mine[-1].start - mine[0].start - sum(turn.late for turn in mine[1:])
    return needed / budget_reached if budget_reached else 1.0


def overdue_at(turns: Iterable[Turn], moments: Sequence[float], *, by_s: float) -> list[int]:
    """How many sites had been due for longer than `by_s` at each of these moments (ascending)."""
    steps = [(turn.due + by_s, 1) for turn in turns if turn.late > by_s]
    steps += [(turn.start, -1) for turn in turns if turn.late > by_s]
    return _running_sum(sorted(steps), moments)


def periods_of(turns: Sequence[Sequence[Turn]], *, delay_s: float, length_s: float) -> list[Period]:
    """The crawl in parts of equal length."""
    begin = min(mine[0].due for mine in turns)
    end = max(mine[-1].start for mine in turns)
    fetch_s = sum(turn.end - turn.start for mine in turns for turn in mine) / sum(map(len, turns))
    return [
        _period(turns, begin + n * length_s, min(length_s, end - begin - n * length_s), begin, delay_s + fetch_s)
        for n in range(int((end - begin) / length_s) + 1)
        if end - begin - n * length_s > 0.2 * length_s
    ]


def _period(turns: Sequence[Sequence[Turn]], at: float, length: float, begin: float, cycle_s: float) -> Period:
    alive = sum(_overlap(mine[0].due, mine[-1].start, at, length) for mine in turns)
    waited = sum(_overlap(turn.due, turn.start, at, length) for mine in turns for turn in mine)
    started = sum(at <= turn.start < at + length for mine in turns for turn in mine)
    return Period(
        begin=at - begin,
        sites=alive / length,
        bound=alive / length / cycle_s,
        rate=started / length,
        overdue=waited / alive if alive else 0.0,
    )


def _overlap(since: float, until: float, at: float, length: float) -> float:
    return max(0.0, min(until, at + length) - max(since, at))


def _running_sum(steps: Sequence[tuple[float, int]], moments: Sequence[float]) -> list[int]:
    sums, total, at = [], 0, 0
    for moment in moments:
        while at < len(steps) and steps[at][0] <= moment:
            total += steps[at][1]
            at += 1
        sums.append(total)
    return sums
