"""Builds an instance: first the shared state, then the stages, then the loops. Each gets what it uses.

Apart from opening.py because its imports take longer than most commands: only commands that crawl import it.
"""

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial

import msgspec

from crawler import process_tuning
from crawler.archive.history import HistoryWriter
from crawler.archive.index_writer import IndexWriter
from crawler.archive.inflight_log import InflightLog
from crawler.archive.items import ItemWriter
from crawler.archive.last_commits import sample
from crawler.archive.repair import recover_open_files
from crawler.archive.session_locks import is_abandoned
from crawler.archive.told_log import ToldLog
from crawler.archive.warc_writer import WarcWriter
from crawler.crawl.description import Description
from crawler.crawl.end_watch import EndWatch
from crawler.crawl.instance import Instance, Loops, Membership, Stages
from crawler.crawl.opening import OpenCrawl, ensure_engine, make_router, member_of
from crawler.crawl.runs import JobRunner
from crawler.engine.embedded import EmbeddedEngine
from crawler.engine.server import Change
from crawler.errors import EngineError
from crawler.frontier.leases import Takeovers
from crawler.frontier.operator import OverrideKind
from crawler.frontier.operator_log import Actor, Via
from crawler.frontier.spilling import Spilling
from crawler.handlers.crawler import Crawler
from crawler.handlers.load_app import load_app
from crawler.hosts.borrowed_slots import SlotBorrower
from crawler.hosts.login import Logins
from crawler.hosts.login_plans import plans_of
from crawler.hosts.robots_cache import RobotsCache
from crawler.hosts.robots_gate import RobotsGate
from crawler.hosts.robots_reader import RobotsReader
from crawler.hosts.sessions import Sessions, seal_of
from crawler.instance.crawl_quota import QuotaAdmission
from crawler.instance.deferred_share import DeferredShare
from crawler.instance.finish import FinishWatcher
from crawler.instance.follow import SharedRecord
from crawler.instance.overrides import OverrideFollower
from crawler.instance.raised_quotas import RaisedQuotasWatcher
from crawler.instance.rebalance import PartitionRebalance
from crawler.instance.retelling import Retelling, all_told
from crawler.instance.series import Sampler
from crawler.instance.spiller import Spiller
from crawler.instance.standstill import Standstill
from crawler.instance.usage import QuotaUsage, RoomShare
from crawler.instance.vitals import Vitals
from crawler.jobs.runs import JobStore, always
from crawler.membership.crashes import CrashReporter
from crawler.membership.engine_restarts import EngineRestarts
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
from crawler.settings import MembershipSettings
from crawler.version import PACKAGE, program_version
from crawler.web.fetcher import Fetcher
from crawler.web.resolver import CachingResolver
from crawler.worker.address_limit import AddressLimiter
from crawler.worker.archive import ArchiveStage, Files
from crawler.worker.attempts import AttemptNotes
from crawler.worker.before_page import Hosts, Means, SessionNotes
from crawler.worker.claim import Claimer, listen_for_hints
from crawler.worker.commit import AckStage, Committer, Ends, keep_claims
from crawler.worker.counters import Counters
from crawler.worker.disk_room import DiskRoom
from crawler.worker.fetch import FetchStage
from crawler.worker.handle import HandlerRuntime
from crawler.worker.internal_errors import ContentSteps, InternalErrors
from crawler.worker.response_policy import ResponsePolicy
from crawler.worker.revisits import Revisits
from crawler.worker.route import HeldBack, RouteStage
from crawler.worker.turn import TurnRunner
from crawler.worker.work import Work

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
    files = Files(
        warc=WarcWriter(
            crawl.folder,
            prefix=settings.crawl.name,
            session=crawl.session,
            settings=settings.archive,
            software=f"{PACKAGE}/{program_version()}",
        ),
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
            instance = _build(crawl, node, app, fetcher, files, until_finished=until_finished)
            yield instance
            is_finished = instance.stopped_because == "finished"
    finally:
        await resolver.close()
        await asyncio.to_thread(_close_files, files.history, files.index, files.items, files.warc)
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


def _build(
    crawl: OpenCrawl, node: str, app: Crawler | None, fetcher: Fetcher, files: Files, *, until_finished: bool
) -> Instance:
    s, frontier, engine, partitions = crawl.settings, crawl.frontier, crawl.engine, crawl.record.partitions
    engine.patience_s = 0.0
    me = member_of(crawl, node)
    beat_s, rules = s.membership.beat_s, crawl.record
    work = Work.of(crawl.session, s, partitions)
    counters, held, due, scheduler = work.counters, work.held, work.due, work.scheduler
    disk_room = DiskRoom(counters, due, s.archive)
    retelling = Retelling(engine, frontier, crawl.runs, files.told, disk_room.failed)
    crash_reporter = CrashReporter(
        frontier, sessions=crawl.folder.sessions, is_here=lambda m: m.host == host_id(), adopt=retelling.adopt
    )
    peers = Peers(
        crawl.members, me, s.membership,
        partitions=partitions, is_lock_free=is_lock_free, on_death=crash_reporter.record_crash,
    )  # fmt: skip

    # State.
    stop = StopSignal(drain_timeout_s=s.membership.drain_timeout_s)
    counters.share_of = RoomShare(crawl.session, peers, counters)
    session = SessionNotes(
        liveness=SessionLiveness(s.membership, is_in_doubt=lambda: engine.is_in_doubt),
        inflight_log=files.inflight_log,
        notes=AttemptNotes(files.history, node=node, session=crawl.session),
        note_sent=frontier.note_sent,
        give_up=lambda: stop.set(OUTAGE),
    )
    admission = QuotaAdmission(s.budget.crawl_urls, DeferredShare(crawl.operator.deferred_urls, partitions))
    router = make_router(crawl, admits_urls=lambda: admission.admits(len(peers.alive)))
    runs, introductions = RunBook(crawl.runs, router, work.traps, s.jobs), Introductions()
    stored = msgspec.structs.replace(s, scope=rules.scope)
    handlers = HandlerRuntime(app, stored, crawl.stats)
    ends = Ends(
        notes=session.notes,
        hooks=handlers.hooks,
        content=ContentSteps(files.inflight_log.mark()),
        internal_errors=InternalErrors(crawl.folder.log),
    )

    # Stages, from the ack back to the claim.
    archive = ArchiveStage(
        frontier, work, files, ends.content, disk_room, s.archive, log_entries_max=s.frontier.log_entries_max
    )
    policy = ResponsePolicy(s, on_answer=fetcher.note_answer)
    plans = plans_of(app, s.sites, os.environ)
    sessions = Sessions(frontier, held, seal_of(s.cookies, os.environ), s.sites, frozenset(plans), crawl=s.crawl.name)
    rebalance = PartitionRebalance(frontier, work, archive, overtaken=policy.overtaken, store_sessions=sessions.store)
    restarts = EngineRestarts(engine, frontier.keys, held, partial(_forget, router, runs, rebalance, retelling))
    committer = Committer(
        archive,
        RouteStage(frontier, crawl.crawls, router, work, ends.content, runs, introductions, retelling.owe),
        AckStage(frontier, held),
        HeldBack(introductions, work, partial(rebalance.return_claims, started=True)),
        work,
        ends,
        s.archive,
        rebalance.return_claims,
    )
    overrides = OverrideFollower(crawl.operator, work, rebalance, default_delay_ms=frontier.default_delay_ms)
    slot_borrower = SlotBorrower(frontier, router.placement.of)
    cache = RobotsCache(frontier, s)
    reader = RobotsReader(cache, fetcher, slot_borrower)
    gate = RobotsGate(
        frontier, held, cache, reader, s.politeness,
        overrides=lambda: counters.overrides, sites=s.sites, reads_sitemaps=rules.sitemaps,
    )  # fmt: skip
    parser = PageParser(stored, scheduler, link_rules=rules.link_rules, reads_feeds=rules.sitemaps)
    turns = TurnRunner(
        scheduler, held, work.open_claims, ends.internal_errors,
        deliver=committer.deliver, return_claim=overrides.return_stopped, set_aside=rebalance.set_aside,
        delay_ms=int(s.politeness.delay_s * 1000),
    )  # fmt: skip
    by_crawl = s.politeness.address_limit_of == "crawl"
    addresses = AddressLimiter(
        scheduler, limit=s.politeness.concurrency_per_address, sharers=lambda: len(peers.alive) if by_crawl else 1
    )
    logins = Logins(
        plans, app, sessions, parser, handlers.threads,
        book=crawl.operator.book, stop_site=partial(stop_site, crawl, node),
    )  # fmt: skip
    fetching = FetchStage(
        turns,
        work,
        Means(
            fetcher=fetcher,
            gate=gate,
            parser=parser,
            handling=handlers.handling,
            sessions=sessions,
            logins=logins,
            revisits=Revisits(crawl.folder, runs, fetcher, s.fetch) if s.archive.warc else None,
        ),
        Hosts(policy=policy, addresses=addresses, recall=rebalance.recall),
        session,
        runs,
        s,
    )
    spilling = Spilling(engine, crawl.keys, default_delay_ms=frontier.default_delay_ms)

    async def until_over() -> None:
        await standstill.over()

    spiller = Spiller(engine, spilling, crawl.spill_files, work, s, pause=until_over)

    async def joined() -> tuple[int, int]:
        await vitals.look_at_disk()  # who has no room takes no share
        return await join(crawl.members, me, is_lock_free, s.membership)

    async def told_by_all() -> bool:
        return all_told(retelling.digest, await crawl.members.read())

    jobs = JobRunner(
        JobStore(jobs=crawl.jobs, runs=crawl.runs, engine=engine, pause=until_over), frontier, router, held, fetcher,
        slot_borrower, s.jobs, is_told=told_by_all if engine.is_cluster else always,
    )  # fmt: skip
    claimer = Claimer(
        frontier, work, s, on_short=spiller.request, on_set_back=restarts.noticed_in, on_runs=runs.learn,
        on_probe=policy.learn, has_jobs=lambda: jobs.is_used,
    )  # fmt: skip

    # Loops.
    usage = QuotaUsage(crawl.stats, crawl.crawls, admission, work, s, sharers=lambda: peers.taking, pause=until_over)
    budgets = RaisedQuotasWatcher(
        frontier,
        crawl.operator.deferred_urls,
        held,
        s.budget,
        allow_private=s.fetch.allow_private,
        wake=due.hint,
        pause=until_over,
    )
    ownership = Ownership(
        crawl.leases, peers, held, me, s.membership, listener=rebalance, takeovers=Takeovers(engine, crawl.keys)
    )
    standstill = Standstill(
        work, pausing=lambda: peers.pausing, return_claims=rebalance.return_claims, write=archive.write_all,
        owed=(
            lambda: not ownership.is_still, lambda: claimer.is_asking, lambda: committer.uncommitted,
            lambda: fetching.in_turn, lambda: rebalance.owes, lambda: archive.wants_drain or work.activity.has_any,
            lambda: sessions.has_changed, lambda: engine.is_cluster and not retelling.is_done,
        ),
    )  # fmt: skip
    shared_record = SharedRecord(crawl.crawls, rules, overrides, router, follow_jobs=jobs.follow, every_s=beat_s)
    restarts.listeners.append(shared_record.noticed)
    vitals = Vitals(
        crawl.folder.root, disk_room.judge, disk_room.usable,
        at_work=work.open_claims.some, is_scarce=lambda: not disk_room.is_enough,
    )  # fmt: skip
    watcher = FinishWatcher(
        crawl.crawls,
        crawl.runs,
        crawl.members,
        engine,
        archive,
        record=rules,
        session=crawl.session,
        digest=lambda: retelling.digest,
    )
    describe = Description(
        work=work, peers=peers, liveness=session.liveness, ownership=ownership, fetching=fetching, reader=reader,
        vitals=vitals, jobs=jobs, retelling=retelling,
        looks=lambda: watcher.looks if until_finished else -1,
    )  # fmt: skip
    heartbeat = Heartbeat(
        crawl.members, me, s.membership, liveness=session.liveness,
        calls=BeatCalls(
            on_lease_loss=held.lose_all, on_evicted=partial(_evicted, stop, s.membership),
            check_crawl=shared_record.check_still_there, describe=describe, time_scale=lambda: peers.time_scale,
            has_room=lambda: disk_room.is_enough,
        ),
    )  # fmt: skip
    visibility_ms = int(s.frontier.visibility_timeout_s * 1000)
    running: dict[str, Loop] = {
        "ownership": ownership.run,
        "claim": claimer.run,
        "archive": committer.archive_groups,
        "commit": committer.commit_groups,
        "drain": archive.run,
        "fetch": fetching.run,
        "hints": lambda: listen_for_hints(engine, f"{crawl.keys.hints}{crawl.session}", due.hint, claimer.hints_lost),
        "shared record": shared_record.run,
        "raised budgets": budgets.run,
        "usage": usage.run,
        "samples": Sampler(crawl.series, crawl.inspect, until_over, partial(_work_of_all, peers, counters)).run,
        "spill": spiller.watch,
        "unspill": spiller.unspill,
        "stale claims": lambda: rebalance.return_stale(s.frontier),
        "open claims": lambda: keep_claims(
            frontier, held, lambda: [*fetching.in_turn, *committer.claims], visibility_ms=visibility_ms
        ),
        "attempts": session.notes.run,
        "event loop delay": vitals.watch_loop,
        "disk": vitals.watch_disk,
        "standstill": standstill.run,
        "sessions": sessions.run,
        **jobs.loops(),
        **handlers.loops(),
    }
    revive = _reviver(crawl)
    if revive is not None:
        running["engine"] = lambda: keep_engine(heartbeat, revive, every_s=beat_s)
    late: dict[str, Loop] = {"rebalance": rebalance.run}
    if engine.is_cluster:
        late["retelling"] = retelling.run
    end = EndWatch(
        stop=stop,
        watcher=watcher,
        work=work,
        committer=committer,
        jobs=jobs,
        usage=usage,
        peers=peers,
        ownership=ownership,
    )
    return Instance(
        stop_signal=stop,
        work=work,
        stages=Stages(
            claimer=claimer, fetching=fetching, parser=parser, handlers=handlers, committer=committer, archive=archive
        ),
        membership=Membership(
            members=crawl.members,
            join=joined,
            heartbeat=heartbeat,
            ownership=ownership,
            rebalance=rebalance,
            crash_reporter=crash_reporter,
            engine_restarts=restarts,
            enter=partial(_enter, peers, counters, stop, s.membership),
            settle=partial(retelling.settle, partitions),
        ),
        loops=Loops(
            preparations=(
                crawl.note_folder,
                shared_record.follow,
                overrides.follow,
                lambda: budgets.prepare(partitions),
                usage.prepare,
            ),
            running=running,
            late=late,
            watch_for_end=end.watch if until_finished else None,
        ),
        time_max_s=s.crawl.time_max_s,
    )


async def stop_site(crawl: OpenCrawl, node: str, site: str, why: str) -> None:
    """Block a site as an operator would, who may unblock it. Raises EngineError."""
    await crawl.operator_log.add(Actor(who=node, via=Via.INSTANCE), "block", site, why)
    await crawl.operator.book.note_login(site, why)
    await crawl.operator.book.give(OverrideKind.BLOCKED, site)
    await crawl.operator.carry_out(site)


def _work_of_all(peers: Peers, counters: Counters) -> frozenset[tuple[str, int]] | None:
    """What every member has done; None while one works on something."""
    if counters.open_claims.total or any(member.in_flight for member in peers.alive.values()):
        return None
    return frozenset([("", counters.done), *((member.session, member.done) for member in peers.alive.values())])


def _forget(router: Router, runs: RunBook, rebalance: PartitionRebalance, retelling: Retelling, change: Change) -> None:
    """Forget what was in the engine, and note what must be told again."""
    retelling.noticed(change)
    if change.may_have_lost:
        router.recent.clear()
        runs.forget()
        rebalance.engine_restarted()


async def _enter(peers: Peers, counters: Counters, stop: StopSignal, s: MembershipSettings) -> None:
    """Wait while a command pauses the crawl: it is not to see partitions change hands."""
    while not stop.event.is_set():
        with contextlib.suppress(EngineError):
            await peers.refresh()
            counters.is_standing_still, counters.still_for = bool(peers.pausing), peers.pausing
            if not peers.pausing:
                return
        await asyncio.sleep(s.read_s)


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
