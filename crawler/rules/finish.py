"""Decides whether the crawl itself is finished, or a run of a job. Pure.

Partitions can't be read in one snapshot: a URL may move between two reads. Both counters of a partition only grow,
and a child is added before its parent is done. So when two successive passes find nothing pending and the same
`added`, no URL was on its way in between.
"""

from collections.abc import Mapping, Sequence

import msgspec

from crawler.rules.job_runs import RunCounts


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
