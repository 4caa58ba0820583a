"""Detects the end of a crawl: checked when this instance has nothing to do, judged by rules/membership.py.

A crawl is counted apart from the runs of its jobs. When it is done, this instance starts no further run, and waits for
the ends of those that are active then: jobs go on where `crawler run` is kept.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping

from crawler.engine.client import Engine
from crawler.errors import EngineError
from crawler.frontier.jobs import Runs
from crawler.frontier.members import Member, Members
from crawler.frontier.record import CrawlRecord, Crawls
from crawler.pipeline.archive import ArchiveStage
from crawler.rules.membership import Pass, is_finished

BUSY_PAUSE_S = 0.05
QUIET_PAUSE_S = 0.05  # between the two passes that prove the end
PENDING_PAUSES_S = (0.1, 2.0)  # first and longest pause while others work or URLs wait for their time


class FinishWatcher:
    """Reads the counters of all partitions in passes."""

    def __init__(
        self,
        crawls: Crawls,
        runs: Runs,
        members: Members,
        engine: Engine,
        archive: ArchiveStage,
        *,
        record: CrawlRecord,
    ) -> None:
        self._crawls = crawls
        self._runs = runs
        self._members = members
        self._engine = engine
        self._archive = archive
        self._record = record

    async def wait(
        self,
        *,
        is_locally_quiet: Callable[[], bool],
        limit: Callable[[], str],
        has_more: Callable[[], Awaitable[bool]],
        alive: Callable[[], Mapping[str, Member]],
        has_jobs: Callable[[], bool],
        start_no_runs: Callable[[], None],
    ) -> str:
        """Return "finished", or the limit that was reached. Raises ConflictError when the crawl is gone.

        `has_more` is called when nothing is pending: a quota may have room for URLs that it deferred. `start_no_runs`:
        called when the crawl itself is done.
        """
        reason = await self._until_done(is_locally_quiet, limit, has_more, alive, has_jobs)
        if reason == "pages" or not has_jobs():  # --pages is of this command: what is left waits for the next one
            return reason
        start_no_runs()
        await self._until_runs_end()
        return reason

    async def _until_runs_end(self) -> None:
        """Wait for the runs that are active now."""
        active: set[str] | None = None
        pause_s, longest_s = PENDING_PAUSES_S
        while active or active is None:
            with contextlib.suppress(EngineError):
                found = await self._active_runs()
                active = found if active is None else active & found
            if active or active is None:
                await asyncio.sleep(pause_s)
                pause_s = min(2 * pause_s, longest_s)
        await self._archive.drain()

    async def _active_runs(self) -> set[str]:
        return {*await self._runs.active()}

    async def _until_done(
        self,
        is_locally_quiet: Callable[[], bool],
        limit: Callable[[], str],
        has_more: Callable[[], Awaitable[bool]],
        alive: Callable[[], Mapping[str, Member]],
        has_jobs: Callable[[], bool],
    ) -> str:
        passes: list[Pass] = []
        pause_s, longest_s = PENDING_PAUSES_S
        while True:
            if reached := limit():
                return reached
            if not is_locally_quiet():
                passes.clear()
                pause_s = PENDING_PAUSES_S[0]
                await asyncio.sleep(BUSY_PAUSE_S)
                continue
            try:
                passes = [*passes[-1:], await self._pass(alive, has_jobs=has_jobs())]
                if is_finished(passes):
                    return "finished"
                if passes[-1].is_quiet and await has_more():  # between the two passes that prove the end
                    passes.clear()
            except EngineError:
                passes.clear()
            if passes and passes[-1].is_quiet:
                await asyncio.sleep(QUIET_PAUSE_S)
                continue
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, longest_s)  # a pass reads every partition: not often while others are busy

    async def _pass(self, alive: Callable[[], Mapping[str, Member]], *, has_jobs: bool) -> Pass:
        """With jobs, the log may always have entries of runs: it is drained when these have ended."""
        await self._archive.drain()
        counts = await self._crawls.counts(self._record.partitions)
        members = await self._members.read()
        await self._crawls.still(self._record)  # read last: the counts were those of this crawl
        return Pass(
            engine_run_id=self._engine.run_id,
            counts=tuple((*c.own, 0) if has_jobs else (c.added, c.done, c.log_entries) for c in counts),
            streams_open=any(m.state == "seeding" and m.session in alive() for m in members.values()),
        )
