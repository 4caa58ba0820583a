"""Builds an instance: first the shared state, then the stages, then the loops. Each gets what it uses.

Apart from crawl.py because its imports take longer than most commands: only commands that crawl import it.
"""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any

import msgspec

from crawler import process_tuning
from crawler.archive.folder import is_abandoned
from crawler.archive.history import HistoryWriter
from crawler.archive.index import IndexWriter
from crawler.archive.inflight_log import InflightLog
from crawler.archive.items import ItemWriter
from crawler.archive.repair import recover_open_files
from crawler.archive.warc import WarcWriter
from crawler.crawl.opening import OpenCrawl, ensure_engine, make_router, member_of
from crawler.crawl.runs import JobRunner
from crawler.engine.embedded import EmbeddedEngine
from crawler.errors import CrawlerError, EngineError
from crawler.frontier.members import Members, Pins
from crawler.frontier.owner import Takeovers
from crawler.frontier.waiting import Spilling
from crawler.handlers.crawler import Crawler
from crawler.handlers.load_app import load_app
from crawler.membership.heartbeat import Heartbeat, SessionLiveness, keep_engine
from crawler.membership.ownership import EngineRestarts, HeldPartitions, Ownership
from crawler.membership.peers import CrashReporter, Peers, host_id, is_lock_free, join
from crawler.model import Claim
from crawler.rules.order import Introductions, share_of
from crawler.rules.scope import of_queues
from crawler.runtime.process import Loop, StopSignal, endless, first_error, monotonic_ms, retry_until_stopped, wall_s
from crawler.settings import MembershipSettings
from crawler.version import PACKAGE, program_version
from crawler.web.fetcher import Fetcher
from crawler.web.resolver import CachingResolver
from crawler.worker.address_limit import AddressLimiter
from crawler.worker.archive import ArchiveStage, AttemptNotes, CommitBacklog, DiskRoom
from crawler.worker.claim import Claimer, DuePartitions, listen_for_hints
from crawler.worker.commit import AckStage, Committer, keep_claims
from crawler.worker.fetch import FetchStage
from crawler.worker.outcomes import ContentSteps, InternalErrors
from crawler.worker.process import HandlerRuntime, PageParser
from crawler.worker.quotas import DeferredShare, QuotaAdmission, QuotaUsage, RaisedQuotasWatcher
from crawler.worker.response_policy import ResponsePolicy
from crawler.worker.robots import RobotsCache, RobotsGate, RobotsReader, SlotBorrower
from crawler.worker.route import HeldBack, RouteStage
from crawler.worker.router import RunBook, TrapMemory
from crawler.worker.schedule import ProgressWatch, Scheduler, awaited
from crawler.worker.shared import FinishWatcher, OverrideFollower, PartitionRebalance, SharedRecord, UnsavedClocks
from crawler.worker.spiller import Spiller
from crawler.worker.turn import TurnRunner
from crawler.worker.watch import Activity, Counters, OpenClaims, Sampler, Vitals

# One running instance: joins the crawl, runs all loops until the end, and stops them in order.
#
# `build.py` builds it; each part is documented in its own file.

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


# A share of a small room is used at once or not at all, in less than half of the time between two counts: so who counts
# again knows what the others did with theirs.
SHARE_VALID_MS = 200
# Claims that an instance may hold, at least: twice what one queue without a delay needs while groups are committed.
CLAIMS_MIN = 512


def tune_process() -> None:
    """Keep freed memory for the next page, and collect garbage cycles seldom."""
    process_tuning.keep_freed_memory()
    process_tuning.collect_rarely()


@contextlib.asynccontextmanager
async def open_instance(
    crawl: OpenCrawl, *, node: str, until_finished: bool, app: Crawler | None = None
) -> AsyncIterator[Instance]:
    """An instance with this app, or the app of the settings. Its files are closed in any case."""
    settings = crawl.settings
    tune_process()
    await asyncio.to_thread(recover_open_files, crawl.folder, lambda session: is_abandoned(crawl.folder, session))
    resolver = CachingResolver(
        settings.dns, allow_private=settings.fetch.allow_private, clock=lambda: monotonic_ms() / 1000
    )
    warc = WarcWriter(
        crawl.folder, prefix=settings.crawl.name, session=crawl.session, settings=settings.archive,
        software=f"{PACKAGE}/{program_version()}",
    )  # fmt: skip
    index = IndexWriter(crawl.folder, crawl.session)
    items = ItemWriter(crawl.folder, crawl.session, level=settings.archive.compression_level)
    # One for each worker, and one for the committer.
    inflight_log = InflightLog(crawl.folder, crawl.session, slots=settings.fetch.concurrency + 1)
    history = HistoryWriter(crawl.folder, crawl.session, bytes_max=settings.history.bytes_max)
    if app is None and settings.handlers.app:
        app = load_app(settings.handlers.app)
    try:
        async with Fetcher(settings, resolver=resolver, version=program_version()) as fetcher:
            yield _build(
                crawl, node, app, fetcher, warc, index, items, inflight_log, history, until_finished=until_finished
            )
    finally:
        await resolver.close()
        await asyncio.to_thread(_close_files, history, index, items, warc)
        inflight_log.close()


def _build(
    crawl: OpenCrawl,
    node: str,
    app: Crawler | None,
    fetcher: Fetcher,
    warc: WarcWriter,
    index: IndexWriter,
    items: ItemWriter,
    inflight_log: InflightLog,
    history: HistoryWriter,
    *,
    until_finished: bool,
) -> Instance:
    s, frontier, engine, partitions = crawl.settings, crawl.frontier, crawl.engine, crawl.record.partitions
    me, beat_s = member_of(crawl, node), s.membership.beat_s
    crash_reporter = CrashReporter(frontier, sessions=crawl.folder.sessions, is_here=lambda m: m.host == host_id())
    peers = Peers(
        crawl.members, Pins(engine, crawl.keys), me, s.membership,
        partitions=partitions, is_lock_free=is_lock_free, on_death=crash_reporter.record_crash,
    )  # fmt: skip

    # State, some of it dropped with a partition.
    stop = StopSignal(drain_timeout_s=s.membership.drain_timeout_s)
    open_claims = OpenClaims(max(CLAIMS_MIN, 16 * s.fetch.concurrency))
    counters = Counters(open_claims)
    scheduler = Scheduler(
        open_claims, concurrency_per_queue=s.politeness.concurrency_per_queue,
        concurrency_of=of_queues(s.sites, "concurrency"), weight_of=counters.weight_of,
    )  # fmt: skip
    due, unsaved, backlog = DuePartitions(open_claims, counters.weight_of), UnsavedClocks(scheduler), CommitBacklog()
    activity = Activity(partitions, lambda: fetching.open_requests)
    held = HeldPartitions(crawl.session, (due, scheduler, unsaved, backlog, activity))
    liveness = SessionLiveness(s.membership)
    admission = QuotaAdmission(s.budget.crawl_urls, DeferredShare(crawl.operator.deferred_urls, partitions))
    router = make_router(crawl, admits_urls=lambda: admission.admits(len(peers.alive)))
    runs = RunBook(crawl.runs, router, s.jobs)

    def share(room: int, counted_s: float) -> int | None:
        if peers.taking <= {crawl.session}:
            return None
        is_stale = monotonic_ms() - counters.counted_ms > SHARE_VALID_MS and room < CLAIMS_MIN * len(peers.taking)
        if is_stale or peers.taking != counters.counted_for:
            return 0  # until the next count: others may have claimed by shares of the same room
        return share_of(room, peers.taking, crawl.session, counted_s=counted_s, now_s=wall_s())

    counters.share_of = share

    def forget() -> None:
        """What was in the engine."""
        router.recent.clear()
        runs.forget()
        rebalance.engine_restarted()

    restarts = EngineRestarts(engine, held, forget=forget)
    traps = TrapMemory(s.traps)

    # Stages, from the ack back to the claim.
    stored = msgspec.structs.replace(s, scope=crawl.record.scope)
    content, internal_errors = ContentSteps(inflight_log.mark()), InternalErrors(crawl.folder.log)
    notes = AttemptNotes(history, node=node, session=crawl.session)
    rules = crawl.record
    parser = PageParser(stored, scheduler, link_rules=rules.link_rules, reads_feeds=rules.sitemaps)
    handlers = HandlerRuntime(app, stored, crawl.stats)
    archive = ArchiveStage(
        frontier,
        held,
        backlog,
        warc,
        index,
        items,
        content,
        activity,
        s.archive,
        log_entries_max=s.frontier.log_entries_max,
    )
    policy = ResponsePolicy(s)
    rebalance = PartitionRebalance(
        frontier, held, scheduler, due, open_claims, unsaved, archive, backlog, overtaken=policy.overtaken
    )
    introductions = Introductions()
    committer = Committer(
        archive,
        RouteStage(frontier, crawl.crawls, router, held, due, traps, content, runs, introductions, counters),
        AckStage(frontier, held),
        HeldBack(introductions, scheduler, held, counters, partial(rebalance.return_claims, started=True)),
        held=held, due=due, counters=counters, activity=activity, notes=notes, hooks=handlers.hooks, content=content,
        internal_errors=internal_errors, settings=s.archive, node=node, session=crawl.session,
        is_quiet=lambda: not scheduler.active,
    )  # fmt: skip
    override_follower = OverrideFollower(
        crawl.operator, scheduler, rebalance, due, counters, held, default_delay_ms=frontier.default_delay_ms
    )
    cache = RobotsCache(frontier, s)
    slot_borrower = SlotBorrower(frontier, router.placement.of)
    reader = RobotsReader(cache, fetcher, slot_borrower)
    gate = RobotsGate(
        frontier, held, cache, reader, s.politeness,
        overrides=lambda: counters.overrides, sites=s.sites, reads_sitemaps=rules.sitemaps,
    )  # fmt: skip
    turns = TurnRunner(
        scheduler, held, open_claims, internal_errors,
        deliver=committer.deliver, return_claim=override_follower.return_stopped,
        set_aside=rebalance.set_aside, delay_ms=int(s.politeness.delay_s * 1000),
    )  # fmt: skip
    by_crawl = s.politeness.address_limit_of == "crawl"
    addresses = AddressLimiter(
        scheduler, limit=s.politeness.concurrency_per_address, sharers=lambda: len(peers.alive) if by_crawl else 1
    )
    fetching = FetchStage(
        turns, scheduler, fetcher, gate, parser, handlers.handling,
        held=held, liveness=liveness, counters=counters, policy=policy, addresses=addresses,
        inflight_log=inflight_log, notes=notes, traps=traps, settings=s,
        in_scope=runs.may_lead_to, run_refuses=runs.refusal_of, recall=rebalance.recall,
    )  # fmt: skip
    spilling = Spilling(engine, crawl.keys, default_delay_ms=frontier.default_delay_ms)
    spiller = Spiller(engine, spilling, crawl.spill_files, held, due, counters, s)
    claimer = Claimer(
        frontier, held, due, scheduler, counters, s, on_short=spiller.request, on_engine_restart=restarts.noticed,
        on_runs=runs.learn, on_probe=policy.learn, has_jobs=lambda: jobs.is_used,
    )  # fmt: skip

    # Loops.
    usage = QuotaUsage(
        crawl.stats, crawl.crawls, admission, held, counters, s, wake=due.hint,
        sharers=lambda: peers.taking, on_room=due.room_changed,
    )  # fmt: skip
    budgets = RaisedQuotasWatcher(
        frontier, crawl.operator.deferred_urls, held, s.budget, allow_private=s.fetch.allow_private, wake=due.hint
    )
    ownership = Ownership(
        crawl.leases,
        peers,
        held,
        me,
        s.membership,
        listener=rebalance,
        takeovers=Takeovers(engine, crawl.keys),
        on_set_back=counters.set_back,
    )
    jobs = JobRunner(crawl.jobs, crawl.runs, engine, frontier, router, held, fetcher, slot_borrower, s.jobs)
    shared_record = SharedRecord(
        crawl.crawls, crawl.record, override_follower, router, follow_jobs=jobs.follow, every_s=beat_s
    )

    vitals = Vitals(crawl.folder.root, DiskRoom(counters, due, s.archive).judge)
    progress_watch = ProgressWatch(
        lambda: counters.committed + counters.errors,
        lambda now_ms: awaited(
            requested=[claim.url for claim in fetching.open_requests], robots=reader.under_way(),
            in_turn=[claim.url for claim in fetching.in_turn], slots=scheduler.slots(), due_ms=due.later(),
            now_ms=now_ms,
        ),
    )  # fmt: skip

    def description() -> dict[str, Any]:
        return {
            "awaited": progress_watch.look(monotonic_ms()),
            "partitions": len(held), "in_flight": len(fetching.in_turn), "ring": peers.digest,
            "lease_losses": liveness.lease_losses, "taken_over": ownership.taken_over,
            "margin_s": fetching.margin.seconds, **vitals.description(), **counters.description(),
            **jobs.description(),
        }  # fmt: skip

    heartbeat = Heartbeat(
        crawl.members, me, s.membership, liveness=liveness, on_lease_loss=held.lose_all,
        on_evicted=partial(_evicted, stop, s.membership), check_crawl=shared_record.check_still_there,
        describe=description, time_scale=lambda: peers.time_scale,
    )  # fmt: skip
    visibility_ms = int(s.frontier.visibility_timeout_s * 1000)
    loops: dict[str, Loop] = {
        "ownership": ownership.run,
        "claim": claimer.run,
        "archive": committer.archive_groups,
        "commit": committer.commit_groups,
        "drain": archive.run,
        "fetch": fetching.run,
        "hints": lambda: listen_for_hints(engine, f"{crawl.keys.hints}{crawl.session}", due.hint),
        "shared record": shared_record.run,
        "raised budgets": budgets.run,
        "usage": usage.run,
        "samples": Sampler(crawl.series, crawl.inspect).run,
        "spill": spiller.watch,
        "unspill": spiller.unspill,
        "stale claims": lambda: rebalance.return_stale(s.frontier),
        "open claims": lambda: keep_claims(
            frontier, held, lambda: [*fetching.in_turn, *committer.claims], visibility_ms=visibility_ms
        ),
        "attempts": notes.run,
        "event loop delay": vitals.watch_loop,
        "disk": vitals.watch_disk,
        **jobs.loops(),
        **handlers.loops(),
    }
    revive = _reviver(crawl)
    if revive is not None:
        loops["engine"] = lambda: keep_engine(heartbeat, revive, every_s=beat_s)

    def is_quiet() -> bool:
        """Is there no claim in memory, and none due soon? A crawl that is paused does not end. What is of a run does
        not count.
        """
        if jobs.is_used:
            return not (counters.overrides.is_paused or open_claims.own)
        return not (counters.overrides.is_paused or open_claims.total or committer.uncommitted) and due.is_idle

    watcher = FinishWatcher(crawl.crawls, crawl.runs, crawl.members, engine, archive, record=crawl.record)

    async def watch_for_end() -> None:
        reason = await watcher.wait(
            is_locally_quiet=is_quiet,
            limit=lambda: usage.limit,
            has_more=usage.has_more,
            alive=lambda: peers.alive,
            has_jobs=lambda: jobs.is_used,
            start_no_runs=jobs.start_no_runs,
        )
        stop.set(reason)

    return Instance(
        stop=stop, counters=counters, members=crawl.members, crash_reporter=crash_reporter, heartbeat=heartbeat,
        ownership=ownership, rebalance=rebalance, scheduler=scheduler, claimer=claimer, fetching=fetching,
        parser=parser, handlers=handlers, committer=committer, archive=archive,
        join=lambda: join(crawl.members, me, is_lock_free, s.membership),
        preparations=(
            shared_record.follow, override_follower.follow, lambda: budgets.prepare(partitions), usage.prepare,
            vitals.look_at_disk,
        ),
        engine_restarts=restarts,
        loops=loops,
        late_loops={"rebalance": rebalance.run, "engine restarts": restarts.run},
        watch_for_end=watch_for_end if until_finished else None,
        time_max_s=s.crawl.time_max_s,
    )  # fmt: skip


def _evicted(stop: StopSignal, s: MembershipSettings) -> None:
    """An operator evicted this session: drain while our last answered beat is still valid."""
    stop.drain_timeout_s = min(s.drain_timeout_s, (s.self_stop_s - s.beat_s) / 2)
    stop.set("evicted")


def _reviver(crawl: OpenCrawl) -> Callable[[], Awaitable[None]] | None:
    """Restarts the embedded engine after it died; None for an engine that is not ours."""
    settings = crawl.settings.frontier
    if settings.redis:
        return None
    embedded = EmbeddedEngine(crawl.folder.engine, binary=settings.engine)

    async def revive() -> None:
        await asyncio.to_thread(ensure_engine, crawl.folder, embedded)

    return revive


def _close_files(*files: WarcWriter | IndexWriter | ItemWriter | HistoryWriter) -> None:
    """Close the last one first, and each even if others fail."""
    with contextlib.ExitStack() as stack:
        for file in files:
            stack.callback(file.close)
