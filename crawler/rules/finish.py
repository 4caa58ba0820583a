"""Decides whether the crawl is finished. Pure.

Partitions can't be read in one snapshot: a URL may move between two reads. Both counters of a partition only grow, and
a child is added before its parent is done. So when two successive passes find nothing pending and the same `added`,
no URL was on its way in between.
"""

from collections.abc import Sequence

import msgspec


class Pass(msgspec.Struct, frozen=True):
    """One pass over all partitions: (added, done, log entries) of each, read under one engine run id."""

    engine_run_id: str
    counts: tuple[tuple[int, int, int], ...]
    streams_open: bool  # a seed stream is being read, or a journal is not yet sent

    @property
    def pending(self) -> int:
        return sum(added - done for added, done, _ in self.counts)

    @property
    def is_quiet(self) -> bool:
        return not self.streams_open and all(a == d and log == 0 for a, d, log in self.counts)


def is_finished(passes: Sequence[Pass]) -> bool:
    """Do the last two passes prove the end?"""
    if len(passes) < 2:
        return False
    first, second = passes[-2], passes[-1]
    return (
        first.is_quiet
        and second.is_quiet
        and first.engine_run_id == second.engine_run_id
        and [c[0] for c in first.counts] == [c[0] for c in second.counts]
    )
