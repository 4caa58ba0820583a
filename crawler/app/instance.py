"""One running instance: heartbeat, ownership and the pipeline, started together and stopped in order.

Knows how the parts follow each other; what each does stands in its own file.
"""

import asyncio
import contextlib
import logging
from collections.abc import Coroutine
from typing import Any

import msgspec

from crawler.app.parts import Parts
from crawler.errors import CrawlerError, EngineError, InvariantError
from crawler.frontier.spill import Spilling
from crawler.membership.heartbeat import Heartbeat
from crawler.membership.joining import join
from crawler.membership.ownership import Ownership
from crawler.membership.peers import Neighbours
from crawler.model import Claim
from crawler.pipeline import duties
from crawler.pipeline.ack import AckStage
from crawler.pipeline.archive import ArchiveStage
from crawler.pipeline.attempt_notes import History
from crawler.pipeline.claim import Claimer
from crawler.pipeline.commit import Committer, Stages
from crawler.pipeline.doors import Doors
from crawler.pipeline.fetch import FetchStage
from crawler.pipeline.finish_watch import FinishWatcher
from crawler.pipeline.handler_runtime import Programmed
from crawler.pipeline.internal_errors import ContentSteps
from crawler.pipeline.overrides import Steering
from crawler.pipeline.parse import PageParser
from crawler.pipeline.rebalance import PartitionWork
from crawler.pipeline.route import RouteStage
from crawler.pipeline.router import Router
from crawler.pipeline.schedule import Workbench
from crawler.pipeline.spiller import Spiller
from crawler.pipeline.trap_memory import TrapMemory
from crawler.quotas.budgets import Budgets
from crawler.quotas.usage import Spending
from crawler.robots.cache import RobotsCache
from crawler.robots.reader import RobotsReader
from crawler.robots.reserver import Reserver
from crawler.rules.scope import ScopeRules
from crawler.rules.site_rules import of_queues
from crawler.runtime.counters import Flow, RecentUrls
from crawler.settings import Settings

log = logging.getLogger(__name__)

LEAVE_TIMEOUT_S = 10.0
SETTLE_TIMEOUT_S = 3.0  # an engine's fsync may take long; what is not indexed by then is the next owner's to index
FOLLOW_S = 1.0  # an operator's orders hold within two seconds


class Instance:
    """`run` until finished (when asked to end by itself), stopped, or failed."""

    def __init__(self, parts: Parts, settings: Settings, *, until_finished: bool) -> None:
        self._p = parts
        self._settings = settings
        self._until_finished = until_finished
        self._record = parts.record
        self._roots = parts.roots
        self.flow = Flow(recent=RecentUrls(settings.frontier.recent_urls), on_recover=self._recover)
        self._stop = asyncio.Event()
        self._recovering: asyncio.Task[None] | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._drain_timeout_s = settings.membership.drain_timeout_s
        self.stopped_because = ""
        parts.frontier.engine.on_restart = self._recover
        self._build()

    def _build(self) -> None:
        p, s = self._p, self._settings
        self.bench = Workbench(
            concurrency_per_queue=s.politeness.concurrency_per_queue, concurrency_of=of_queues(s.sites, "concurrency")
        )
        self.heartbeat = Heartbeat(
            p.members, p.member, s.membership, on_lapse=self._lapse, on_evicted=self._evicted, still=self._still
        )
        self.neighbours = Neighbours(
            p.members,
            p.pins,
            p.member,
            s.membership,
            partitions=p.record.partitions,
            is_lock_free=p.is_lock_free,
            on_death=p.crash_reporter.record_crash,
        )
        self.work = PartitionWork(p.frontier, self.bench, self.flow, spawn=self._spawn)
        self.ownership = Ownership(
            p.leases, self.neighbours, p.member, s.membership, user=self.work, takeovers=p.takeovers
        )
        self.claimer = Claimer(p.frontier, self.ownership, self.bench, self.flow, s)
        spilling = Spilling(p.frontier.engine, p.keys, default_delay_ms=p.frontier.default_delay_ms)
        self.spiller = Spiller(p.frontier.engine, spilling, p.spill_files, self.ownership, self.claimer, self.flow, s)
        self.claimer.on_short = self.spiller.short
        traps = TrapMemory(s.traps)
        scope = ScopeRules.of(p.record.scope, p.roots)
        self.router = Router(p.record, scope, self.flow.recent, s.traps, budget=s.budget, sites=s.sites)
        self.spending = Spending(p, self.ownership, self.neighbours, self.claimer, self.flow, s)
        self.spending.bound(self.router)
        stored = msgspec.structs.replace(s, scope=p.record.scope)
        self.parser = PageParser(stored)
        self.programmed = Programmed(p.app, stored, p.stats)
        robots = RobotsCache(p.frontier, s)
        content = ContentSteps(p.inflight_log.mark())
        self.archive = ArchiveStage(
            p.frontier, self.ownership, p.warc, p.index, p.items, content, s.archive,
            log_entries_max=s.frontier.log_entries_max,
        )  # fmt: skip
        route = RouteStage(p.frontier, p.crawls, self.router, self.ownership, self.claimer, traps, content)
        acks = AckStage(p.frontier, self.ownership)
        history = History(p.history.add, node=p.member.node, session=p.member.session)
        hooks = self.programmed.hooks
        stages = Stages(
            self.archive, route, acks, self.ownership, self.claimer, self.flow, history, hooks, content,
            p.internal_errors,
        )  # fmt: skip
        self.committer = Committer(
            stages, s.archive, node=p.member.node, session=p.member.session, is_quiet=lambda: not self.bench.active
        )
        self.work.serve(self.ownership, self.claimer, self.archive)
        reader = RobotsReader(robots, p.fetcher, Reserver(p.frontier, self.router), s.robots)
        doors = Doors(
            p.frontier, self.ownership, self.heartbeat, self.bench, p.fetcher, robots, reader, self.parser, self.flow,
            p.inflight_log, history, traps, self.programmed.handling, p.internal_errors,
        )  # fmt: skip
        self.steering = Steering(
            p.operator, self.bench, self.work, self.claimer, self.flow, self.ownership,
            default_delay_ms=p.frontier.default_delay_ms,
        )  # fmt: skip
        self.fetching = FetchStage(
            doors, s, deliver=self.committer.deliver, turn_away=self.steering.turn_away,
            members=lambda: len(self.neighbours.alive),
            in_scope=lambda claim, url: self.router.verdict(url, claim.depth, claim.redirects + 1).allowed,
        )  # fmt: skip
        self.heartbeat.describe_with(self._description, lambda: self.neighbours.stretch)

    def _description(self) -> dict[str, Any]:
        return {
            "partitions": len(self.ownership.held),
            "in_flight": len(self.fetching.in_turn),
            "ring": self.neighbours.digest,
            "lapses": self.heartbeat.lapses,
            **self.flow.description(),
        }

    # --- what the parts call ---

    def _lapse(self) -> None:
        self.ownership.lapse()

    async def _still(self) -> None:
        await self._p.crawls.still(self._record)

    def _evicted(self) -> None:
        """An operator took this session off the crawl: let go while our last answered beat still entitles us to."""
        s = self._settings.membership
        self._drain_timeout_s = min(s.drain_timeout_s, (s.self_stop_s - s.beat_s) / 2)
        self.stopped_because = "evicted"
        self._stop.set()

    def _recover(self) -> None:
        """The engine was restarted or fell back: forget what we believe it has, and acquire everything anew."""
        log.warning("engine.restarted")
        self.flow.recent.clear()
        self.ownership.lapse()
        if self._recovering is None or self._recovering.done():
            self._recovering = self._spawn(self._learn_run_id())

    async def _learn_run_id(self) -> None:
        """Leases are acquired anew under the engine's run id as it is now."""
        with contextlib.suppress(EngineError):
            await self._p.frontier.engine.refresh_run_id()

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work, name=getattr(work, "__qualname__", ""))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    # --- life ---

    async def run(self) -> None:
        """Join, crawl, leave. Raises CrawlerError when the instance could not go on; nothing is lost then."""
        p = self._p
        self.heartbeat.joined(*await join(p.members, p.member, p.is_lock_free, self._settings.membership))
        with contextlib.suppress(EngineError):
            await p.crash_reporter.look_back()
        budgets = Budgets(p.frontier, p.operator.parking, self.ownership, self.claimer, self._settings.budget)
        await duties.until_done(self.steering.follow, self._stop)
        await duties.until_done(lambda: budgets.begin(p.record.partitions), self._stop)
        await duties.until_done(self.spending.begin, self._stop)
        self.fetching.start()
        running = [
            self.heartbeat.run(),
            self.ownership.run(),
            self.claimer.run(),
            self.committer.run(),
            self.fetching.abort_when_silent(),
            duties.listen(p.frontier.engine, f"{p.keys.hints}{p.member.session}", self.claimer.hint),
            duties.follow_shared(self.refresh_shared, every_s=min(self._settings.membership.beat_s, FOLLOW_S)),
            budgets.run(),
            self.spending.run(),
            self.spiller.watch(),
            self.spiller.bring_back(),
            duties.return_stale(self.bench, self.work, self._settings.frontier),
            duties.keep_claims(
                p.frontier,
                self.ownership,
                lambda: [*self.fetching.in_turn, *self.committer.claims],
                visibility_ms=int(self._settings.frontier.visibility_timeout_s * 1000),
            ),
            duties.keep_engine(self.heartbeat, p.revive, every_s=self._settings.membership.beat_s),
            duties.keep_history(p.history),
            *self.programmed.duties(),
        ]
        tasks = [self._spawn(duty) for duty in running]
        try:
            await self._until_ended(tasks)
        finally:
            await self._shut_down(tasks)

    async def _until_ended(self, running: list[asyncio.Task[None]]) -> None:
        stop = asyncio.create_task(self._stop.wait())
        ends: list[asyncio.Task[Any]] = [stop]
        if self._until_finished:
            ends.append(asyncio.create_task(self._finish()))
        limit_s = self._settings.crawl.time_max_s or None
        try:
            done, _ = await asyncio.wait(
                [*ends, *running, *self.fetching.workers], timeout=limit_s, return_when=asyncio.FIRST_COMPLETED
            )
            if not done:
                self.stopped_because = "time"
            for task in done:
                if not task.cancelled() and task.exception() is not None:
                    raise task.exception()  # type: ignore[misc]
            if done and done.isdisjoint(ends):  # else a crawl with pages left would pass for one that is finished
                raise InvariantError(f"{done.pop().get_name()} has ended, and nobody asked for that")
        finally:
            for end in ends:
                end.cancel()
            await asyncio.gather(*ends, return_exceptions=True)

    async def _finish(self) -> None:
        p = self._p
        watcher = FinishWatcher(p.crawls, p.members, p.frontier.engine, self.archive, record=p.record)
        self.stopped_because = await watcher.wait(
            is_locally_quiet=self._is_quiet,
            limit=lambda: self.spending.limit,
            has_more=self.spending.has_more,
            alive=lambda: self.neighbours.alive,
        )

    def _is_quiet(self) -> bool:
        """Nothing in hand, and nothing will be due soon. A crawl that is paused does not end."""
        flow = self.flow
        return not (flow.orders.is_paused or flow.outstanding or self.committer.in_hand) and self.claimer.is_idle

    def stop(self) -> None:
        """Stop claiming, finish what is in flight, give the rest back, release, leave."""
        self.stopped_because = self.stopped_because or "signal"
        self._stop.set()

    async def _shut_down(self, running: list[asyncio.Task[None]]) -> None:
        """In order: no new claims, end what is in flight, give back, commit, release, leave, close the files."""
        flow = self.flow
        flow.is_stopping = True
        heartbeat, *others = running
        failed = any(t.done() and not t.cancelled() and t.exception() is not None for t in running)
        try:
            await self._end_work(others, failed=failed)
            await self._let_go()
        except (CrawlerError, TimeoutError) as error:
            log.warning("shutdown.incomplete", extra={"error": str(error) or type(error).__name__})
        finally:
            heartbeat.cancel()
            left = list(self._tasks)
            for task in left:
                task.cancel()
            await asyncio.gather(*left, return_exceptions=True)
            await self.parser.close()
            await self.programmed.close("failed" if failed else self.stopped_because)

    async def _end_work(self, others: list[asyncio.Task[None]], *, failed: bool) -> None:
        waiting = self.bench.remove_all()
        unsettled: list[Claim] = []
        if not failed:
            await self.work.return_claims(waiting)
            await self.claimer.settle()  # what it brings is fetched, or given back with the rest
            await self.fetching.wait_idle(self._drain_timeout_s)
            await self.work.return_claims(self.bench.remove_all())
            unsettled = await self.committer.settle(self._drain_timeout_s)
        cut_off = await self.fetching.close()
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        await self.work.return_claims(cut_off + unsettled, started=True)
        if failed:
            await self.work.return_claims(waiting)
            return
        if not unsettled:
            await self.committer.flush()
        await self.archive.settle(SETTLE_TIMEOUT_S)

    async def _let_go(self) -> None:
        async with asyncio.timeout(LEAVE_TIMEOUT_S):
            await self.heartbeat.leaving()
            await self.ownership.leave()
            await self._p.members.leave(self.heartbeat.member)

    # --- duties ---

    async def refresh_shared(self) -> None:
        """Read orders, scope rules and roots anew if they changed. Raises ConflictError when the crawl is gone."""
        version, orders = await self._p.crawls.versions(self._record)
        await self.steering.follow(orders)
        if version == self._record.version:
            return
        self._record, self._roots = await self._p.crawls.shared()
        self.router.follow(self._record, self._roots)
        self.flow.recent.clear()  # what was out of scope may be in now
