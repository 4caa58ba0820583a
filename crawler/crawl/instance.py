"""One running instance: joins the crawl, runs all loops until the end, and stops them in order."""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence

import msgspec

from crawler.errors import CrawlerError, EngineError
from crawler.frontier.members import Members
from crawler.instance.rebalance import PartitionRebalance
from crawler.membership.crashes import CrashReporter
from crawler.membership.failover import Failover
from crawler.membership.heartbeat import Heartbeat
from crawler.membership.ownership import Ownership
from crawler.model import Claim
from crawler.parsing.parse import PageParser
from crawler.runtime.tasks import Loop, StopSignal, endless, first_error, retry_until_stopped
from crawler.worker.archive import ArchiveStage
from crawler.worker.claim import Claimer
from crawler.worker.commit import Committer
from crawler.worker.counters import Counters
from crawler.worker.fetch import FetchStage
from crawler.worker.handle import HandlerRuntime
from crawler.worker.open_claims import OpenClaims
from crawler.worker.work import Work

log = logging.getLogger(__name__)


LEAVE_TIMEOUT_S = 10.0


PAST_TIME_S = 3.0  # for what is in flight when the time is up: people gave a limit, and the rest is kept


SETTLE_TIMEOUT_S = 3.0  # an engine's fsync may take long; the next owner indexes the rest


class _Ended(Exception):
    """Ends the loops of a task group."""


class Stages(msgspec.Struct, frozen=True, kw_only=True):
    """What works on URLs."""

    claimer: Claimer
    fetching: FetchStage
    parser: PageParser
    handlers: HandlerRuntime
    committer: Committer
    archive: ArchiveStage


class Membership(msgspec.Struct, frozen=True, kw_only=True):
    """How this session takes part."""

    members: Members
    join: Callable[[], Awaitable[tuple[int, int]]]
    heartbeat: Heartbeat
    ownership: Ownership
    rebalance: PartitionRebalance
    crash_reporter: CrashReporter
    failover: Failover
    enter: Callable[[], Awaitable[None]]  # before it does anything
    settle: Callable[[], Awaitable[None]]  # before it leaves


class Loops(msgspec.Struct, frozen=True, kw_only=True):
    """What runs. `preparations` are awaited before anything is claimed. `late` go on until this session has left.
    `watch_for_end` sets the stop signal when the crawl is finished.
    """

    preparations: Sequence[Callable[[], Awaitable[None]]]
    running: Mapping[str, Loop]
    late: Mapping[str, Loop]
    watch_for_end: Loop | None


class Instance(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """`run` until stopped, finished or failed; `stopped_because` is the reason. `time_max_s`: 0 for no limit."""

    stop_signal: StopSignal
    work: Work
    stages: Stages
    membership: Membership
    loops: Loops
    time_max_s: float

    @property
    def counters(self) -> Counters:
        """Its counts, and what its stages know of each other."""
        return self.work.counters

    @property
    def stopped_because(self) -> str:
        """Why it stopped: finished, pages, budget, time, signal, evicted, OUTAGE; "" when it failed."""
        return self.stop_signal.reason

    def stop(self) -> None:
        """Stop claiming, finish what is in flight, return the rest, release, leave."""
        self.stop_signal.set("signal")

    async def run(self) -> None:
        """Join, crawl, leave. Raises CrawlerError when the instance could not go on; no URL is lost then."""
        with self.membership.failover.listening():
            await self._run()

    async def _run(self) -> None:
        self.membership.heartbeat.joined(*await self.membership.join())
        failed = True
        ended_work: list[BaseException] = []  # leaving may fail, too, and must not hide why the work ended
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self.membership.heartbeat.run(), name="heartbeat")
                for name, loop in self.loops.late.items():
                    group.create_task(endless(name, loop), name=name)
                try:
                    await self._prepare()
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
            await self.stages.parser.close()
            await self.stages.handlers.close("failed" if failed else self.stopped_because)

    async def _prepare(self) -> None:
        """What comes before anything is claimed."""
        await self.membership.enter()
        with contextlib.suppress(EngineError):
            await self.membership.crash_reporter.record_earlier_crashes()
        for prepare in self.loops.preparations:
            await retry_until_stopped(prepare, self.stop_signal, event="begin.engine_error")

    async def _work(self) -> None:
        """Run all loops until the instance is to stop, then finish what is in flight. Raises what a loop raised."""
        try:
            async with asyncio.TaskGroup() as group:
                for name, loop in self.loops.running.items():
                    group.create_task(endless(name, loop), name=name)
                if self.loops.watch_for_end is not None:
                    group.create_task(self.loops.watch_for_end(), name="watch for the end")
                await self._until_stopped()
                unsettled = await self._drain()
                raise _Ended
        except* _Ended:
            pass
        try:
            await self._return_cut_off(unsettled)
            if not unsettled:
                await self.stages.committer.flush()
            await self.stages.archive.settle(SETTLE_TIMEOUT_S)
        except EngineError as error:  # the next owner indexes what is not indexed by now
            log.warning("shutdown.incomplete", extra={"error": str(error)})

    async def _until_stopped(self) -> None:
        loop = asyncio.get_running_loop()
        began = loop.time()
        try:
            async with asyncio.timeout(self.time_max_s or None):
                await self.stop_signal.event.wait()
        except TimeoutError:
            self.stop_signal.set("time")
        if self.time_max_s:  # also where a supervisor's signal, of which a child counts less time, was before
            left_s = max(0.0, began + self.time_max_s - loop.time())
            self.stop_signal.drain_timeout_s = min(self.stop_signal.drain_timeout_s, left_s + PAST_TIME_S)

    async def _drain(self) -> list[Claim]:
        """Claim nothing more, finish what is in flight, return the rest; the claims that could not be committed."""
        self.counters.is_stopping = True
        if self.work.open_claims.total:
            log.info("stop.claims", extra=_told(self.work.open_claims))
        await self.membership.rebalance.return_claims(self.work.scheduler.remove_all())
        await self.stages.claimer.settle()  # its last claims are fetched, or returned with the rest
        await self.stages.fetching.wait_idle(self.stop_signal.drain_timeout_s)
        await self.membership.rebalance.return_claims(self.work.scheduler.remove_all())
        return await self.stages.committer.settle(self.stop_signal.drain_timeout_s)

    async def _return_cut_off(self, others: Sequence[Claim] = ()) -> None:
        """Return the claims whose requests were cut off, once."""
        fetching = self.stages.fetching
        cut_off, fetching.cut_off = fetching.cut_off, []
        await self.membership.rebalance.return_claims([*cut_off, *others], started=True)

    async def _leave(self, *, failed: bool) -> None:
        """Return the remaining claims, release the leases, leave the member list; the heartbeat goes on meanwhile."""
        self.counters.is_stopping = True
        try:
            if failed:
                await self._return_cut_off()
                await self.membership.rebalance.return_claims(self.work.scheduler.remove_all())
            async with asyncio.timeout(LEAVE_TIMEOUT_S):
                await self.membership.heartbeat.leaving()
                await self.membership.ownership.leave()
                await self.membership.settle()
                await self.membership.members.leave(self.membership.heartbeat.member)
            if self.work.open_claims.total:
                log.warning("claims.left", extra=_told(self.work.open_claims))
        except (CrawlerError, TimeoutError) as error:
            log.warning("shutdown.incomplete", extra={"error": str(error) or type(error).__name__})


def _told(claims: OpenClaims) -> dict[str, str]:
    """Where the open claims are, for the log."""
    return {"claims": ", ".join(f"{count} {place}" for place, count in sorted(claims.by_place().items()))}
