"""Detects the end of a crawl: checked when this instance has nothing to do, judged by rules/finish.py."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping

from crawler.engine.client import Engine
from crawler.errors import EngineError
from crawler.frontier.crawl_record import CrawlRecord, Crawls
from crawler.frontier.members import Member, Members
from crawler.pipeline.archive import ArchiveStage
from crawler.rules.finish import Pass, is_finished

BUSY_PAUSE_S = 0.05
QUIET_PAUSE_S = 0.05  # between the two passes that prove the end
PENDING_PAUSES_S = (0.1, 2.0)  # first and longest pause while others work or URLs wait for their time


class FinishWatcher:
    """Reads the counters of all partitions in passes."""

    def __init__(
        self, crawls: Crawls, members: Members, engine: Engine, archive: ArchiveStage, *, record: CrawlRecord
    ) -> None:
        self._crawls = crawls
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
    ) -> str:
        """Return "finished", or the limit that was reached. Raises ConflictError when the crawl is gone.

        `has_more` is called when nothing is pending: a quota may have room for URLs that it deferred.
        """
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
                passes = [*passes[-1:], await self._pass(alive)]
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

    async def _pass(self, alive: Callable[[], Mapping[str, Member]]) -> Pass:
        await self._archive.drain()
        counts = await self._crawls.counts(self._record.partitions)
        members = await self._members.read()
        await self._crawls.still(self._record)  # read last: the counts were those of this crawl
        return Pass(
            engine_run_id=self._engine.run_id,
            counts=tuple((c.added, c.done, c.log_entries) for c in counts),
            streams_open=any(m.state == "seeding" and m.session in alive() for m in members.values()),
        )
