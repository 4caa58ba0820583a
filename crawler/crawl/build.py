"""Builds an instance: first the shared state, then the stages, then the loops. Each gets what it uses.

Apart from opening.py because its imports take longer than most commands: only commands that crawl import it.
"""

import asyncio
import contextlib
import logging
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import cached_property, partial

import msgspec

from crawler import process_tuning
from crawler.archive.about import about_archive
from crawler.archive.history import HistoryWriter
from crawler.archive.index_writer import IndexWriter
from crawler.archive.inflight_log import InflightLog
from crawler.archive.items import ItemWriter
from crawler.archive.last_commits import sample
from crawler.archive.repair import recover_open_files
from crawler.archive.session_locks import is_abandoned
from crawler.archive.told_log import ToldLog
from crawler.archive.warc import Kind
from crawler.archive.warc_writer import OF_EXCHANGES, WarcWriter
from crawler.crawl.description import Description
from crawler.crawl.end_watch import EndWatch
from crawler.crawl.instance import Instance, Loops, Membership, Stages
from crawler.crawl.opening import OpenCrawl, ensure_engine, make_router, member_of
from crawler.crawl.runs import JobRunner
from crawler.engine.embedded import EmbeddedEngine
from crawler.errors import ArchiveError, EngineError
from crawler.frontier.leases import Takeovers
from crawler.frontier.operator import OverrideKind
from crawler.frontier.operator_log import Actor, Via
from crawler.frontier.spilling import Spilling
from crawler.handlers.crawler import Crawler
from crawler.handlers.load_app import load_app
from crawler.hosts.borrowed_slots import SlotBorrower
from crawler.hosts.login import Logins
from crawler.hosts.login_plans import LoginPlan, plans_of
from crawler.hosts.robots_cache import RobotsCache
from crawler.hosts.robots_gate import RobotsGate
from crawler.hosts.robots_reader import RobotsReader
from crawler.hosts.sessions import Sessions, seal_of
from crawler.instance.crawl_budget import BudgetAdmission
from crawler.instance.deferred_share import DeferredShare
from crawler.instance.finish import FinishWatcher
from crawler.instance.follow import SharedRecord
from crawler.instance.overrides import OverrideFollower
from crawler.instance.raised_budgets import RaisedBudgetsWatcher
from crawler.instance.rebalance import PartitionRebalance
from crawler.instance.retelling import Retelling, all_told
from crawler.instance.series import Sampler
from crawler.instance.spiller import Spiller
from crawler.instance.standstill import Standstill
from crawler.instance.usage import BudgetUsage, RoomShare
from crawler.instance.vitals import Vitals
from crawler.jobs.runs import JobStore
from crawler.membership.crashes import CrashReporter
from crawler.membership.failover import Failover
from crawler.membership.heartbeat import BeatCalls, Heartbeat, SessionLiveness, keep_engine
from crawler.membership.node_names import host_id, is_lock_free, join
from crawler.membership.ownership import Ownership
from crawler.membership.peers import Peers
from crawler.parsing.parse import PageParser
from crawler.routing.router import Router
from crawler.routing.runs_known import RunBook
from crawler.rules.introductions import Introductions
from crawler.rules.places import registrable_domain
from crawler.rules.urls import host_of
from crawler.runtime.clocks import monotonic_ms, wall_s
from crawler.runtime.tasks import OUTAGE, Loop, StopSignal
from crawler.version import PACKAGE, program_version
from crawler.web.fetcher import Fetcher, sender_of, user_agent
from crawler.web.resolver import CachingResolver
from crawler.worker.address_limit import AddressLimiter
from crawler.worker.archive import ArchiveStage, Files
from crawler.worker.attempts import AttemptNotes
from crawler.worker.before_page import Hosts, Means, SessionNotes
from crawler.worker.claim import Claimer, listen_for_hints
from crawler.worker.commit import AckStage, Committer, Ends, keep_claims
from crawler.worker.disk_room import DiskRoom
from crawler.worker.exchanges import Exchanges
from crawler.worker.fetch import FetchStage
from crawler.worker.handle import HandlerRuntime
from crawler.worker.internal_errors import ContentSteps, InternalErrors
from crawler.worker.requisite_budget import RequisiteBudget
from crawler.worker.response_policy import ResponsePolicy
from crawler.worker.revisits import Revisits
from crawler.worker.route import HeldBack, RouteStage
from crawler.worker.turn import TurnRunner
from crawler.worker.work import Work

log = logging.getLogger(__name__)

RECALLED_S, RECALLED_MIN = 86_400.0, 16  # who answered before: how long ago, and how many registrable domains


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
    write_warc = partial(
        WarcWriter, crawl.folder, session=crawl.session, settings=settings.archive,
        software=f"{PACKAGE}/{program_version()}",
        about=about_archive(
            settings, user_agent=user_agent(settings, program_version()), sender=sender_of(settings.fetch.contact)
        ),
    )  # fmt: skip
    files = Files(
        warc=write_warc(prefix=settings.crawl.name),
        exchanges=write_warc(prefix=f"{settings.crawl.name}{OF_EXCHANGES}"),
        index=IndexWriter(crawl.folder, crawl.session),
        items=ItemWriter(crawl.folder, crawl.session, level=settings.archive.compression_level),
        # One for each worker, and one for the committer.
        inflight_log=InflightLog(crawl.folder, crawl.session, slots=settings.fetch.concurrency + 1),
        history=HistoryWriter(crawl.folder, crawl.session, bytes_max=settings.history.bytes_max),
        told=ToldLog(crawl.folder, crawl.session, clock_ms=monotonic_ms),
    )
    if app is None and settings.handlers.app:
        app = load_app(settings.handlers.app)
    is_finished = False
    try:
        async with Fetcher(settings, resolver=resolver, version=program_version()) as fetcher:
            await _recall_answers(crawl, fetcher)
            instance = Parts(crawl, node, app, fetcher, files, until_finished=until_finished).instance()
            yield instance
            is_finished = instance.stopped_because == "finished"
    finally:
        await resolver.close()
        await asyncio.to_thread(_close_files, files.history, files.index, files.items, files.warc)
        await asyncio.to_thread(_close_exchanges, files.exchanges)
        files.told.close(keep=not is_finished)
        files.inflight_log.close()


async def _recall_answers(crawl: OpenCrawl, fetcher: Fetcher) -> None:
    """Who answered an earlier process lately: an outage that goes on is one for this one, too. So few that they may all
    have died prove nothing.
    """
    found = await asyncio.to_thread(sample, crawl.folder, since_s=wall_s() - RECALLED_S)
    urls = {registrable_domain(host_of(one.url)): one.url for one in found}
    if len(urls) >= RECALLED_MIN:
        for domain, url in urls.items():
            fetcher.note_answer(url, domain, crawl.frontier.default_delay_ms)


class Parts:
    """Each part of an instance, built when the first other part asks for it, and only once."""

    def __init__(
        self, crawl: OpenCrawl, node: str, app: Crawler | None, fetcher: Fetcher, files: Files, *, until_finished: bool
    ) -> None:
        self.until_finished = until_finished
        self.crawl, self.node, self.app, self.fetcher, self.files = crawl, node, app, fetcher, files
        self.settings, self.frontier, self.engine = crawl.settings, crawl.frontier, crawl.engine
        self.partitions = crawl.record.partitions
        self.me = member_of(crawl, node)
        self.stop = StopSignal(drain_timeout_s=crawl.settings.membership.drain_timeout_s)
        self.work = Work.of(crawl.session, crawl.settings, self.partitions)
        self.introductions = Introductions()
        self.stored = msgspec.structs.replace(crawl.settings, scope=crawl.record.scope)

    # Who takes part.

    @cached_property
    def peers(self) -> Peers:
        return Peers(
            self.crawl.members, self.me, self.settings.membership,
            partitions=self.partitions, is_lock_free=is_lock_free, on_death=self.crash_reporter.record_crash,
        )  # fmt: skip

    @cached_property
    def crash_reporter(self) -> CrashReporter:
        return CrashReporter(
            self.frontier, sessions=self.crawl.folder.sessions,
            is_here=lambda m: m.host == host_id(), adopt=self.retelling.adopt,
        )  # fmt: skip

    @cached_property
    def retelling(self) -> Retelling:
        return Retelling(self.engine, self.frontier, self.crawl.runs, self.files.told, self.disk_room.failed)

    async def _told_by_all(self) -> bool:
        return not self.engine.fails_in_parts or all_told(self.retelling.digest, await self.crawl.members.read())

    @cached_property
    def failover(self) -> Failover:
        return Failover(
            self.engine, self.frontier.keys, self.work.held,
            tell_again=self.retelling.noticed, forget_links=self.router.recent.clear, forget_runs=self.runs.forget,
            repeat_recalls=self.rebalance.engine_restarted, look_for_the_crawl=self.shared_record.noticed,
        )  # fmt: skip

    @cached_property
    def rebalance(self) -> PartitionRebalance:
        return PartitionRebalance(
            self.frontier, self.work, self.archive,
            overtaken=self.policy.overtaken, store_sessions=self.sessions.store,
        )  # fmt: skip

    @cached_property
    def ownership(self) -> Ownership:
        return Ownership(
            self.crawl.leases, self.peers, self.work.held, self.me, self.settings.membership,
            listener=self.rebalance, takeovers=Takeovers(self.engine, self.crawl.keys),
        )  # fmt: skip

    @cached_property
    def heartbeat(self) -> Heartbeat:
        return Heartbeat(
            self.crawl.members, self.me, self.settings.membership, liveness=self.session.liveness,
            calls=BeatCalls(
                on_lease_loss=self.work.held.lose_all, on_evicted=self._evicted,
                check_crawl=self.shared_record.check_still_there, describe=self.description,
                time_scale=lambda: self.peers.time_scale, has_room=lambda: self.disk_room.is_enough,
            ),
        )  # fmt: skip

    def _evicted(self) -> None:
        """An operator evicted this session: drain while our last answered beat is still valid."""
        s = self.settings.membership
        self.stop.drain_timeout_s = min(s.drain_timeout_s, (s.self_stop_s - s.beat_s) / 2)
        self.stop.set("evicted")

    @cached_property
    def membership(self) -> Membership:
        return Membership(
            members=self.crawl.members, join=self._join, heartbeat=self.heartbeat, ownership=self.ownership,
            rebalance=self.rebalance, crash_reporter=self.crash_reporter, failover=self.failover,
            enter=self._enter, settle=partial(self.retelling.settle, self.partitions),
        )  # fmt: skip

    async def _join(self) -> tuple[int, int]:
        await self.vitals.look_at_disk()  # who has no room takes no share
        return await join(self.crawl.members, self.me, is_lock_free, self.settings.membership)

    async def _enter(self) -> None:
        """Wait while a command pauses the crawl: it is not to see partitions change hands."""
        peers, counters = self.peers, self.work.counters
        while not self.stop.event.is_set():
            with contextlib.suppress(EngineError):
                await peers.refresh()
                counters.is_standing_still, counters.still_for = bool(peers.pausing), peers.pausing
                if not peers.pausing:
                    return
            await asyncio.sleep(self.settings.membership.read_s)

    # What this session is, and what it tells.

    @cached_property
    def session(self) -> SessionNotes:
        return SessionNotes(
            liveness=SessionLiveness(self.settings.membership, is_in_doubt=lambda: self.engine.is_in_doubt),
            inflight_log=self.files.inflight_log,
            notes=AttemptNotes(
                self.files.history, node=self.node, session=self.crawl.session, failed=self.exchanges.failed
            ),
            exchanges=self.exchanges,
            note_sent=self.frontier.note_sent,
            give_up=lambda: self.stop.set(OUTAGE),
        )

    @cached_property
    def exchanges(self) -> Exchanges:
        writer = self.files.exchanges if self.settings.archive.warc else None
        return Exchanges(writer, refuses=lambda: self.disk_room.refuses)

    @cached_property
    def disk_room(self) -> DiskRoom:
        return DiskRoom(self.work.counters, self.work.due, self.settings.archive)

    @cached_property
    def vitals(self) -> Vitals:
        room = self.disk_room
        return Vitals(
            self.crawl.folder.root, room.judge, room.usable,
            at_work=self.work.open_claims.some, is_scarce=lambda: not room.is_enough,
        )  # fmt: skip

    @cached_property
    def description(self) -> Description:
        return Description(
            work=self.work, peers=self.peers, liveness=self.session.liveness, ownership=self.ownership,
            fetching=self.fetching, reader=self.reader, vitals=self.vitals, jobs=self.jobs, retelling=self.retelling,
            looks=lambda: self.watcher.looks if self.until_finished else -1,
        )  # fmt: skip

    # The steps, from the ack back to the claim.

    @cached_property
    def admission(self) -> BudgetAdmission:
        return BudgetAdmission(
            self.settings.budget.crawl_urls, DeferredShare(self.crawl.operator.deferred_urls, self.partitions)
        )

    @cached_property
    def router(self) -> Router:
        return make_router(self.crawl, admits_urls=lambda: self.admission.admits(len(self.peers.alive)))

    @cached_property
    def runs(self) -> RunBook:
        return RunBook(self.crawl.runs, self.router, self.work.traps, self.settings.jobs)

    @cached_property
    def handlers(self) -> HandlerRuntime:
        return HandlerRuntime(self.app, self.stored, self.crawl.stats)

    @cached_property
    def ends(self) -> Ends:
        return Ends(
            notes=self.session.notes,
            hooks=self.handlers.hooks,
            content=ContentSteps(self.files.inflight_log.mark()),
            internal_errors=InternalErrors(self.crawl.folder.log),
        )

    @cached_property
    def archive(self) -> ArchiveStage:
        return ArchiveStage(
            self.frontier, self.work, self.files, self.ends.content, self.disk_room, self.settings.archive,
            log_entries_max=self.settings.frontier.log_entries_max,
        )  # fmt: skip

    @cached_property
    def committer(self) -> Committer:
        frontier, work, give_back = self.frontier, self.work, self.rebalance.return_claims
        route = RouteStage(
            frontier, self.crawl.crawls, self.router, work, self.ends.content, self.runs, self.introductions,
            self.retelling.owe,
        )  # fmt: skip
        held_back = HeldBack(self.introductions, work, partial(give_back, started=True))
        return Committer(
            self.archive,
            route,
            AckStage(frontier, work.held),
            held_back,
            work,
            self.ends,
            self.settings.archive,
            give_back,
        )

    @cached_property
    def policy(self) -> ResponsePolicy:
        return ResponsePolicy(self.settings, on_answer=self.fetcher.note_answer)

    @cached_property
    def plans(self) -> dict[str, LoginPlan]:
        return plans_of(self.app, self.settings.sites, os.environ)

    @cached_property
    def sessions(self) -> Sessions:
        s = self.settings
        return Sessions(
            self.frontier, self.work.held, seal_of(s.cookies, os.environ), s.sites, frozenset(self.plans),
            crawl=s.crawl.name,
        )  # fmt: skip

    @cached_property
    def logins(self) -> Logins:
        return Logins(
            self.plans, self.app, self.sessions, self.parser, self.handlers.threads,
            book=self.crawl.operator.book, stop_site=partial(stop_site, self.crawl, self.node),
        )  # fmt: skip

    @cached_property
    def robots(self) -> RobotsCache:
        return RobotsCache(self.frontier, self.settings)

    @cached_property
    def reader(self) -> RobotsReader:
        return RobotsReader(
            self.robots, self.fetcher, SlotBorrower(self.frontier, self.router.placement.of),
            note=partial(self.exchanges.answered, Kind.ROBOTS),
            is_forgotten=self.runs.forgets,
        )  # fmt: skip

    @cached_property
    def gate(self) -> RobotsGate:
        return RobotsGate(
            self.frontier, self.work.held, self.robots, self.reader, self.settings.politeness,
            overrides=lambda: self.work.counters.overrides, sites=self.settings.sites,
            reads_sitemaps=self.crawl.record.sitemaps,
        )  # fmt: skip

    @cached_property
    def parser(self) -> PageParser:
        record = self.crawl.record
        return PageParser(self.stored, self.work.scheduler, link_rules=record.link_rules, reads_feeds=record.sitemaps)

    @cached_property
    def turns(self) -> TurnRunner:
        return TurnRunner(
            self.work.scheduler, self.work.held, self.work.open_claims, self.ends.internal_errors,
            deliver=self.committer.deliver, return_claim=self.overrides.return_stopped,
            set_aside=self.rebalance.set_aside, delay_ms=int(self.settings.politeness.delay_s * 1000),
        )  # fmt: skip

    @cached_property
    def addresses(self) -> AddressLimiter:
        return AddressLimiter(self.work.scheduler, limit=self.settings.politeness.concurrency_per_address)

    @cached_property
    def means(self) -> Means:
        s = self.settings
        return Means(
            fetcher=self.fetcher, gate=self.gate, parser=self.parser, handling=self.handlers.handling,
            sessions=self.sessions, logins=self.logins,
            revisits=self.revisits if s.archive.warc else None,
            requisites=RequisiteBudget(self.crawl.operator.deferred_urls.records, s.requisites.bytes),
        )  # fmt: skip

    @cached_property
    def revisits(self) -> Revisits:
        logged = self.frontier.logged if self.frontier.has_requisites else None
        return Revisits(self.crawl.folder, self.runs, self.fetcher, self.settings.fetch, logged=logged)

    @cached_property
    def fetching(self) -> FetchStage:
        hosts = Hosts(policy=self.policy, addresses=self.addresses, recall=self.rebalance.recall)
        return FetchStage(self.turns, self.work, self.means, hosts, self.session, self.runs, self.settings)

    @cached_property
    def claimer(self) -> Claimer:
        share = RoomShare(self.crawl.session, self.peers, self.work.counters)
        return Claimer(
            self.frontier, self.work, self.settings, pages_left=share.pages_left, on_short=self.spiller.request,
            on_set_back=self.failover.noticed_in, on_runs=self.runs.learn, on_probe=self.policy.learn,
            has_jobs=lambda: self.jobs.is_used,
        )  # fmt: skip

    @cached_property
    def stages(self) -> Stages:
        return Stages(
            claimer=self.claimer, fetching=self.fetching, parser=self.parser, handlers=self.handlers,
            committer=self.committer, archive=self.archive,
        )  # fmt: skip

    # What goes on beside the steps.

    async def until_over(self) -> None:
        """Wait while a backup is written."""
        await self.standstill.over()

    @cached_property
    def standstill(self) -> Standstill:
        return Standstill(
            self.work, pausing=lambda: self.peers.pausing, return_claims=self.rebalance.return_claims,
            write=self.archive.write_all,
            owed=(
                lambda: not self.ownership.is_still, lambda: self.claimer.is_asking,
                lambda: self.committer.uncommitted, lambda: self.fetching.in_turn, lambda: self.rebalance.owes,
                lambda: self.archive.wants_drain or self.work.activity.has_any, lambda: self.sessions.has_changed,
                lambda: not self.retelling.is_done,
            ),
        )  # fmt: skip

    @cached_property
    def spiller(self) -> Spiller:
        spilling = Spilling(self.engine, self.crawl.keys, default_delay_ms=self.frontier.default_delay_ms)
        return Spiller(self.engine, spilling, self.crawl.spill_files, self.work, self.settings, pause=self.until_over)

    @cached_property
    def jobs(self) -> JobRunner:
        store = JobStore(jobs=self.crawl.jobs, runs=self.crawl.runs, engine=self.engine, pause=self.until_over)
        return JobRunner(
            store, self.frontier, self.router, self.work.held, self.settings.jobs, is_told=self._told_by_all
        )  # fmt: skip

    @cached_property
    def usage(self) -> BudgetUsage:
        return BudgetUsage(
            self.crawl.stats, self.crawl.crawls, self.admission, self.work, self.settings,
            sharers=lambda: self.peers.taking, pause=self.until_over,
        )  # fmt: skip

    @cached_property
    def budgets(self) -> RaisedBudgetsWatcher:
        return RaisedBudgetsWatcher(
            self.frontier, self.crawl.operator.deferred_urls, self.work.held, self.settings.budget,
            allow_private=self.settings.fetch.allow_private, requisite_bytes=self.settings.requisites.bytes,
            wake=self.work.due.hint, pause=self.until_over,
        )  # fmt: skip

    @cached_property
    def overrides(self) -> OverrideFollower:
        return OverrideFollower(
            self.crawl.operator, self.work, self.rebalance, default_delay_ms=self.frontier.default_delay_ms
        )

    @cached_property
    def shared_record(self) -> SharedRecord:
        return SharedRecord(
            self.crawl.crawls, self.crawl.record, self.overrides, self.router,
            follow_jobs=self.jobs.follow, every_s=self.settings.membership.beat_s,
        )  # fmt: skip

    @cached_property
    def sampler(self) -> Sampler:
        return Sampler(self.crawl.series, self.crawl.inspect, self.until_over, self._work_of_all)

    def _work_of_all(self) -> frozenset[tuple[str, int]] | None:
        """What every member has done; None while one works on something."""
        members, counters = self.peers.alive.values(), self.work.counters
        if counters.open_claims.total or any(member.in_flight for member in members):
            return None
        return frozenset([("", counters.done), *((member.session, member.done) for member in members)])

    @cached_property
    def watcher(self) -> FinishWatcher:
        return FinishWatcher(
            self.crawl.crawls, self.crawl.runs, self.crawl.members, self.engine, self.archive,
            record=self.crawl.record, session=self.crawl.session, digest=lambda: self.retelling.digest,
        )  # fmt: skip

    @cached_property
    def end(self) -> EndWatch:
        return EndWatch(
            stop=self.stop, watcher=self.watcher, work=self.work, committer=self.committer, jobs=self.jobs,
            usage=self.usage, peers=self.peers, ownership=self.ownership,
        )  # fmt: skip

    # What runs.

    def _running(self) -> dict[str, Loop]:
        """By name."""
        frontier, held = self.frontier, self.work.held
        hints = f"{self.crawl.keys.hints}{self.crawl.session}"
        visibility_ms = int(self.settings.frontier.visibility_timeout_s * 1000)
        running: dict[str, Loop] = {
            "ownership": self.ownership.run,
            "claim": self.claimer.run,
            "archive": self.committer.archive_groups,
            "commit": self.committer.commit_groups,
            "drain": self.archive.run,
            "fetch": self.fetching.run,
            "hints": lambda: listen_for_hints(self.engine, hints, self.work.due.hint, self.claimer.hints_lost),
            "shared record": self.shared_record.run,
            "raised budgets": self.budgets.run,
            "usage": self.usage.run,
            "samples": self.sampler.run,
            "spill": self.spiller.watch,
            "unspill": self.spiller.unspill,
            "stale claims": lambda: self.rebalance.return_stale(self.settings.frontier),
            "open claims": lambda: keep_claims(
                frontier, held, lambda: [*self.fetching.in_turn, *self.committer.claims], visibility_ms=visibility_ms
            ),
            "attempts": self.session.notes.run,
            "exchanges": self.exchanges.run,
            "event loop delay": self.vitals.watch_loop,
            "disk": self.vitals.watch_disk,
            "standstill": self.standstill.run,
            "sessions": self.sessions.run,
            **self.jobs.loops(),
            **self.handlers.loops(),
        }
        revive = _reviver(self.crawl)
        if revive is not None:
            beat_s = self.settings.membership.beat_s
            running["engine"] = lambda: keep_engine(self.heartbeat, revive, every_s=beat_s)
        return running

    def instance(self) -> Instance:
        """All of them, as one."""
        preparations = (
            self.crawl.note_folder,
            self.shared_record.follow,
            self.overrides.follow,
            lambda: self.budgets.prepare(self.partitions),
            self.usage.prepare,
        )
        return Instance(
            stop_signal=self.stop,
            work=self.work,
            stages=self.stages,
            membership=self.membership,
            loops=Loops(
                preparations=preparations,
                running=self._running(),
                late={"rebalance": self.rebalance.run, "retelling": self.retelling.run},
                watch_for_end=self.end.watch if self.until_finished else None,
            ),
            time_max_s=self.settings.crawl.time_max_s,
        )


async def stop_site(crawl: OpenCrawl, node: str, site: str, why: str) -> None:
    """Block a site as an operator would, who may unblock it. Raises EngineError."""
    await crawl.operator_log.add(Actor(who=node, via=Via.INSTANCE), "block", site, why)
    await crawl.operator.book.note_login(site, why)
    await crawl.operator.book.give(OverrideKind.BLOCKED, site)
    await crawl.operator.carry_out(site)


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


def _close_exchanges(file: WarcWriter) -> None:
    """They fail nothing."""
    try:
        file.close()
    except ArchiveError as error:
        log.warning("exchanges.not_written", extra={"error": str(error)})
