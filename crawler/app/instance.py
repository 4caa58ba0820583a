"""One running instance: joins the crawl, runs all loops until the end, and stops them in order.

`build.py` builds it; each part is documented in its own file.
"""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence

from crawler.errors import CrawlerError, EngineError
from crawler.frontier.members import Members
from crawler.membership.heartbeat import Heartbeat
from crawler.membership.ownership import EngineRestarts, Ownership
from crawler.membership.peers import CrashReporter
from crawler.model import Claim
from crawler.runtime.process import Loop, StopSignal, endless, first_error, retry_until_stopped
from crawler.worker.archive import ArchiveStage
from crawler.worker.claim import Claimer
from crawler.worker.commit import Committer
from crawler.worker.fetch import FetchStage
from crawler.worker.process import HandlerRuntime, PageParser
from crawler.worker.schedule import Scheduler
from crawler.worker.shared import PartitionRebalance
from crawler.worker.watch import Counters

log = logging.getLogger(__name__)

LEAVE_TIMEOUT_S = 10.0
PAST_TIME_S = 3.0  # for what is in flight when the time is up: people gave a limit, and the rest is kept
SETTLE_TIMEOUT_S = 3.0  # an engine's fsync may take long; the next owner indexes the rest


class _Ended(Exception):
    """Ends the loops of a task group."""


class Instance:
    """`run` until stopped, finished or failed; `stopped_because` is the reason."""

    def __init__(
        self,
        *,
        stop: StopSignal,
        counters: Counters,
        members: Members,
        crash_reporter: CrashReporter,
        heartbeat: Heartbeat,
        ownership: Ownership,
        rebalance: PartitionRebalance,
        scheduler: Scheduler,
        claimer: Claimer,
        fetching: FetchStage,
        parser: PageParser,
        handlers: HandlerRuntime,
        committer: Committer,
        archive: ArchiveStage,
        engine_restarts: EngineRestarts,
        join: Callable[[], Awaitable[tuple[int, int]]],
        preparations: Sequence[Callable[[], Awaitable[None]]],
        loops: Mapping[str, Loop],
        late_loops: Mapping[str, Loop],
        watch_for_end: Loop | None,
        time_max_s: float,
    ) -> None:
        """`preparations` are awaited before anything is claimed. `late_loops` go on until this session has left.
        `watch_for_end` sets `stop` when the crawl is finished. `time_max_s`: 0 for no limit.
        """
        self._stop = stop
        self.counters = counters
        self._members = members
        self._crash_reporter = crash_reporter
        self.heartbeat = heartbeat
        self.ownership = ownership
        self.rebalance = rebalance
        self.scheduler = scheduler
        self.claimer = claimer
        self.fetching = fetching
        self._parser = parser
        self.handlers = handlers
        self.committer = committer
        self.archive = archive
        self._engine_restarts = engine_restarts
        self._join = join
        self._preparations = preparations
        self._loops = loops
        self._late_loops = late_loops
        self._watch_for_end = watch_for_end
        self._time_max_s = time_max_s

    @property
    def stopped_because(self) -> str:
        """Why it stopped: finished, pages, budget, time, signal, evicted; "" when it failed."""
        return self._stop.reason

    def stop(self) -> None:
        """Stop claiming, finish what is in flight, return the rest, release, leave."""
        self._stop.set("signal")

    async def run(self) -> None:
        """Join, crawl, leave. Raises CrawlerError when the instance could not go on; no URL is lost then."""
        with self._engine_restarts.listening():
            await self._run()

    async def _run(self) -> None:
        self.heartbeat.joined(*await self._join())
        with contextlib.suppress(EngineError):
            await self._crash_reporter.record_earlier_crashes()
        for prepare in self._preparations:
            await retry_until_stopped(prepare, self._stop, event="begin.engine_error")
        failed = True
        ended_work: list[BaseException] = []  # leaving may fail, too, and must not hide why the work ended
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self.heartbeat.run(), name="heartbeat")
                for name, loop in self._late_loops.items():
                    group.create_task(endless(name, loop), name=name)
                try:
                    await self._work()
                    failed = False
                except Exception as error:
                    ended_work.append(error)
                    raise
                finally:
                    await self._leave(failed=failed)
                raise _Ended
        except BaseExceptionGroup as group:
            errors = group.split(_Ended)[1]
            if errors is not None:
                raise first_error(BaseExceptionGroup("", [*ended_work, errors])) from None
        finally:
            await self._parser.close()
            await self.handlers.close("failed" if failed else self.stopped_because)

    async def _work(self) -> None:
        """Run all loops until the instance is to stop, then finish what is in flight. Raises what a loop raised."""
        try:
            async with asyncio.TaskGroup() as group:
                for name, loop in self._loops.items():
                    group.create_task(endless(name, loop), name=name)
                if self._watch_for_end is not None:
                    group.create_task(self._watch_for_end(), name="watch for the end")
                await self._until_stopped()
                unsettled = await self._drain()
                raise _Ended
        except* _Ended:
            pass
        try:
            await self._return_cut_off(unsettled)
            if not unsettled:
                await self.committer.flush()
            await self.archive.settle(SETTLE_TIMEOUT_S)
        except EngineError as error:  # the next owner indexes what is not indexed by now
            log.warning("shutdown.incomplete", extra={"error": str(error)})

    async def _until_stopped(self) -> None:
        loop = asyncio.get_running_loop()
        began = loop.time()
        try:
            async with asyncio.timeout(self._time_max_s or None):
                await self._stop.event.wait()
        except TimeoutError:
            self._stop.set("time")
        if self._time_max_s:  # also where a supervisor's signal, of which a child counts less time, was before
            left_s = max(0.0, began + self._time_max_s - loop.time())
            self._stop.drain_timeout_s = min(self._stop.drain_timeout_s, left_s + PAST_TIME_S)

    async def _drain(self) -> list[Claim]:
        """Claim nothing more, finish what is in flight, return the rest; the claims that could not be committed."""
        self.counters.is_stopping = True
        await self.rebalance.return_claims(self.scheduler.remove_all())
        await self.claimer.settle()  # its last claims are fetched, or returned with the rest
        await self.fetching.wait_idle(self._stop.drain_timeout_s)
        await self.rebalance.return_claims(self.scheduler.remove_all())
        return await self.committer.settle(self._stop.drain_timeout_s)

    async def _return_cut_off(self, others: Sequence[Claim] = ()) -> None:
        """Return the claims whose requests were cut off, once."""
        cut_off, self.fetching.cut_off = self.fetching.cut_off, []
        await self.rebalance.return_claims([*cut_off, *others], started=True)

    async def _leave(self, *, failed: bool) -> None:
        """Return the remaining claims, release the leases, leave the member list; the heartbeat goes on meanwhile."""
        self.counters.is_stopping = True
        try:
            if failed:
                await self._return_cut_off()
                await self.rebalance.return_claims(self.scheduler.remove_all())
            async with asyncio.timeout(LEAVE_TIMEOUT_S):
                await self.heartbeat.leaving()
                await self.ownership.leave()
                await self._members.leave(self.heartbeat.member)
        except (CrawlerError, TimeoutError) as error:
            log.warning("shutdown.incomplete", extra={"error": str(error) or type(error).__name__})
