"""Stops an instance when its crawl is finished."""

import asyncio

import msgspec

from crawler.crawl.runs import JobRunner
from crawler.instance.finish import BUSY_PAUSE_S, FinishWatcher
from crawler.instance.usage import BudgetUsage
from crawler.membership.ownership import Ownership
from crawler.membership.peers import Peers
from crawler.runtime.tasks import StopSignal
from crawler.runtime.ticks import tick
from crawler.worker.commit import Committer
from crawler.worker.work import Work

CALM_S = 1.0  # at most between two looks whether there is something to do


class EndWatch(msgspec.Struct, frozen=True, kw_only=True):
    """Stops an instance when its crawl is finished."""

    stop: StopSignal
    watcher: FinishWatcher
    work: Work
    committer: Committer
    jobs: JobRunner
    usage: BudgetUsage
    peers: Peers
    ownership: Ownership

    async def watch(self) -> None:
        """Wait for the end. Raises EngineError."""
        reason = await self.watcher.wait(
            is_locally_quiet=self._is_quiet,
            limit=lambda: self.usage.limit,
            has_more=self.usage.has_more,
            alive=lambda: self.peers.alive,
            has_jobs=lambda: self.jobs.is_used,
            start_no_runs=self.jobs.start_no_runs,
            until_calm=self._until_calm,
        )
        self.stop.set(reason)

    async def _until_calm(self) -> None:
        """Wait a moment; without limits, which may be reached at any time, until no claim is open."""
        claims = self.work.open_claims
        if self.work.counters.waits_for:
            await tick(CALM_S)
        elif self.usage.is_needed:
            await asyncio.sleep(BUSY_PAUSE_S)
        elif claims.total:
            await tick(CALM_S, claims.none)
        else:
            await asyncio.sleep(max(BUSY_PAUSE_S, self.work.due.soon_s))

    def _is_quiet(self) -> bool:
        """Is there no claim in memory, and none due soon? A crawl that is paused does not end. What is of a run does
        not count. Who has not looked yet which partitions are its own knows nothing, and would read all for nothing.
        """
        if not self.ownership.has_stepped:
            return False
        counters, open_claims = self.work.counters, self.work.open_claims
        is_paused = counters.overrides.is_paused or counters.is_standing_still
        if self.jobs.is_used:
            return not (is_paused or open_claims.own)
        return not (is_paused or open_claims.total or self.committer.uncommitted) and self.work.due.is_idle
