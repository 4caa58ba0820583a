"""Detects the end of a crawl: checked when this instance has nothing to do, judged by rules/membership.py.

A crawl is counted apart from the runs of its jobs. When it is done, this instance starts no further run, and waits
for the ends of those that are active then: jobs go on where `crawler run` is kept.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping
from hashlib import blake2b

from crawler.engine.client import Engine
from crawler.errors import EngineError
from crawler.frontier.members import Member, Members
from crawler.frontier.record import CrawlRecord, Crawls, PartitionCount
from crawler.frontier.runs import Runs
from crawler.instance.retelling import all_told
from crawler.rules.finish import Pass, is_finished
from crawler.rules.membership import COMMANDS, declared
from crawler.runtime.clocks import monotonic_ms
from crawler.worker.archive import ArchiveStage

BUSY_PAUSE_S = 0.05
LOOK_ALONE_MS = 15_000  # without a look of the session that should: it seems to be unable to
REFUTING_MAX = 8  # partitions that are read before all are: one with pending URLs is enough
QUIET_PAUSE_S = 0.05  # between the two passes that prove the end
PENDING_PAUSES_S = (0.1, 2.0)  # first and longest pause while others work or URLs wait for their time


def _is_pending(count: PartitionCount, *, has_jobs: bool) -> bool:
    added, done = count.own if has_jobs else (count.added, count.done)
    return added != done


async def busy_pause() -> None:
    await asyncio.sleep(BUSY_PAUSE_S)


def digest_of(found: Pass) -> str:
    return blake2b(repr(found.state).encode(), digest_size=12).hexdigest()


class FinishWatcher:
    """Reads the counters of all partitions in passes, if no other session does."""

    def __init__(
        self,
        crawls: Crawls,
        runs: Runs,
        members: Members,
        engine: Engine,
        archive: ArchiveStage,
        *,
        record: CrawlRecord,
        session: str,
        digest: Callable[[], str],
    ) -> None:
        """`digest`: as `Member.engine`."""
        self._digest = digest
        self._session = session
        self.looks = 0
        self._seen = ("", 0)  # who else looks, and how often it did
        self._seen_ms = 0
        self._pending: list[int] = []  # partitions that had URLs pending at the last pass
        self._refuted = ""  # a proof of the end that another pass contradicted
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
        until_calm: Callable[[], Awaitable[None]] = busy_pause,
    ) -> str:
        """Return "finished", or the limit that was reached. Raises ConflictError when the crawl is gone.

        `has_more` is called when nothing is pending: a quota may have room for URLs that it deferred. `start_no_runs`:
        called when the crawl itself is done. `until_calm`: awaited while it is not quiet.
        """
        reason = await self._until_done(is_locally_quiet, limit, has_more, alive, has_jobs, until_calm)
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
        until_calm: Callable[[], Awaitable[None]],
    ) -> str:
        passes: list[Pass] = []
        pause_s, longest_s = PENDING_PAUSES_S
        while True:
            if reached := limit():
                return reached
            if not is_locally_quiet():
                passes.clear()
                pause_s = PENDING_PAUSES_S[0]
                await until_calm()
                continue
            try:
                if self._leaves_it_to_others(alive()):
                    if await self._is_proven(alive, has_jobs=has_jobs()):
                        return "finished"
                    await asyncio.sleep(pause_s)
                    pause_s = min(2 * pause_s, longest_s)
                    continue
                if await self._is_refuted(has_jobs=has_jobs()):
                    passes.clear()
                else:
                    passes = [*passes[-1:], await self._pass(alive, has_jobs=has_jobs())]
                if passes and is_finished(passes):
                    await self._crawls.note_end(digest_of(passes[-1]))
                    return "finished"
                if passes and passes[-1].is_quiet and await has_more():  # between the two passes that prove the end
                    passes.clear()
            except EngineError:
                passes.clear()
            if passes and passes[-1].is_quiet:
                await asyncio.sleep(QUIET_PAUSE_S)
                continue
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, longest_s)  # a pass reads every partition: not often while others are busy

    def _leaves_it_to_others(self, alive: Mapping[str, Member]) -> bool:
        """Is it another session that reads all partitions? If all did, calls would grow with sessions x partitions."""
        first = min((m for m in alive.values() if m.looks >= 0), key=lambda m: m.session, default=None)
        if first is None or first.session == self._session:
            return False
        seen = first.session, first.looks
        if first.in_flight or seen != self._seen:  # with something in flight there, it is not the end
            self._seen, self._seen_ms = seen, monotonic_ms()
        return monotonic_ms() - self._seen_ms < LOOK_ALONE_MS

    async def _is_proven(self, alive: Callable[[], Mapping[str, Member]], *, has_jobs: bool) -> bool:
        """Has another session proved the end, and does one more pass find the same? The proof may be an earlier one."""
        proof = await self._crawls.end()
        if not proof or proof == self._refuted:
            return False
        found = await self._pass(alive, has_jobs=has_jobs)
        if found.is_quiet and digest_of(found) == proof:
            return True
        self._refuted = proof
        return False

    async def _is_refuted(self, *, has_jobs: bool) -> bool:
        """Has one of the partitions URLs pending that had some at the last pass? Then that is not the end."""
        self.looks += 1
        counts = await self._crawls.counts_of(self._pending)
        return any(_is_pending(count, has_jobs=has_jobs) for count in counts)

    def _is_untold(self, members: Mapping[str, Member]) -> bool:
        """May a shard of a cluster lack what somebody sent there?"""
        return not all_told(self._digest(), members)

    async def _pass(self, alive: Callable[[], Mapping[str, Member]], *, has_jobs: bool) -> Pass:
        """With jobs, the log may always have entries of runs: it is drained when these have ended."""
        self.looks += 1
        await self._archive.drain()
        counts = await self._crawls.counts(self._record.partitions)
        pending = [p for p, count in enumerate(counts) if _is_pending(count, has_jobs=has_jobs)]
        self._pending = pending[:REFUTING_MAX]
        members = await self._members.read()
        await self._crawls.still(self._record)  # read last: the counts were those of this crawl
        return Pass(
            engine_run_id=self._engine.run_id,
            counts=tuple((*c.own, 0) if has_jobs else (c.added, c.done, c.log_entries) for c in counts),
            streams_open=any(declared(m.state) in COMMANDS and m.session in alive() for m in members.values())
            or self._is_untold(members),
        )
