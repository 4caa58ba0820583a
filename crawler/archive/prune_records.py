"""What a prune notes: which pages it removes, where they lie, and the journal that survives a crash."""

from collections.abc import Iterable

import msgspec

from crawler.model import CommitEntry
from crawler.rules.job_runs import name_of
from crawler.rules.places import registrable_domain
from crawler.rules.urls import host_of


class PruneRule(msgspec.Struct, frozen=True, kw_only=True):
    """`before`: wall clock, s; 0: whenever it was fetched. `runs`: only pages of these; None: of any, or of none."""

    before: float = 0.0
    domain: str = ""
    runs: frozenset[str] | None = None
    active: frozenset[str] = frozenset()  # runs that go on

    def matches(self, entry: CommitEntry) -> bool:
        """Is this page to be removed?"""
        if entry.pruned or (entry.run and entry.run in self.active):
            return False
        if self.runs is not None and entry.run not in self.runs:
            return False
        if self.before and entry.fetched_at >= self.before:
            return False
        return not self.domain or registrable_domain(host_of(entry.url)) == self.domain

    @property
    def is_by_age_alone(self) -> bool:
        """Does it match whatever was written early enough, whatever it is?"""
        return bool(self.before) and not self.domain and self.runs is None and not self.active


def runs_beyond(runs: Iterable[str], keep: int, active: Iterable[str] = ()) -> frozenset[str]:
    """Those of these runs that are not among the newest `keep` of their job, by nominal time; active ones don't count.

    Attempts at one nominal time are kept or removed together. What is not the id of a run is kept.
    """
    going_on = frozenset(active)
    of_jobs: dict[str, dict[tuple[int, bool], list[str]]] = {}
    for run in runs:
        name = name_of(run)
        if name is not None and run not in going_on:
            of_jobs.setdefault(name.job, {}).setdefault((name.nominal, name.is_manual), []).append(run)
    old = (times[at] for times in of_jobs.values() for at in sorted(times, reverse=True)[keep:])
    return frozenset(run for some in old for run in some)
