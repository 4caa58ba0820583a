"""The composition root: with open_crawl.py and build.py the only place that names concrete classes together.

Most commands only look into the engine: what only an instance needs (the web, the parser, the archive's writers) is put
together in build.py, which imports it.
"""

import asyncio
import contextlib
import os
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from crawler.archive.folder import CrawlFolder, SessionLock
from crawler.archive.spill_files import SpillFiles
from crawler.engine.client import Engine, EngineInfo
from crawler.errors import ArchiveError
from crawler.frontier.jobs import Jobs, Runs
from crawler.frontier.lists import DomainLists, Series
from crawler.frontier.members import Member, Members, SupervisorRecords
from crawler.frontier.messages import AddQuota
from crawler.frontier.operator import OperatorCommands, OperatorLog
from crawler.frontier.owner import Frontier, Leases
from crawler.frontier.reads import BulkLookup, Stats, UrlLookup
from crawler.frontier.record import CrawlRecord, Crawls, Keys, Placement
from crawler.frontier.restore import DeadLetters, Seeds
from crawler.frontier.scripts import library
from crawler.membership.peers import Slots, host_id
from crawler.recovery.crawl_identity import admit
from crawler.rules.scope import is_limited
from crawler.settings import Settings
from crawler.settings.kept import with_stored

if TYPE_CHECKING:
    from crawler.seeding.seeder import Seeder
    from crawler.worker.router import Router

Entrance = Callable[..., Awaitable[tuple[CrawlRecord, frozenset[str]]]]  # as crawl_identity.admit


class OpenCrawl(msgspec.Struct, frozen=True, kw_only=True):
    """A crawl that is open: its folder, its engine, what is stored in it. `session` is this process's own.

    `spill_files`: where spilled URLs are; None when no folder is known that all who may own them can reach.
    """

    settings: Settings
    folder: CrawlFolder
    lock: SessionLock
    session: str
    engine: Engine
    info: EngineInfo
    keys: Keys
    crawls: Crawls
    members: Members
    record: CrawlRecord
    roots: frozenset[str]
    placement: Placement
    frontier: Frontier
    leases: Leases
    stats: Stats
    inspect: UrlLookup
    series: Series
    lists: DomainLists
    states: BulkLookup
    spill_files: SpillFiles | None
    seeds: Seeds
    jobs: Jobs
    runs: Runs
    letters: DeadLetters
    supervisors: SupervisorRecords
    operator: OperatorCommands
    operator_log: OperatorLog
    slots: Slots

    async def reloaded(self) -> "OpenCrawl":
        """The same with record and roots as they are now."""
        record, roots = await self.crawls.shared()
        return _opened(self.settings, self.folder, self.lock, self.session, self.engine, self.info, record, roots)


@contextlib.asynccontextmanager
async def connected(
    settings: Settings,
    folder: CrawlFolder,
    lock: SessionLock,
    session: str,
    url: str,
    *,
    create: bool,
    enter: Entrance | None = None,
) -> AsyncIterator[OpenCrawl]:
    """The crawl of an open folder in the engine at this URL. `open_crawl` lists what may be raised."""
    async with connected_engine(settings, url) as (engine, info):
        crawls = Crawls(engine, Keys(settings.crawl.name))
        record, roots = await (enter or admit)(folder, crawls, settings, create=create)
        yield _opened(settings, folder, lock, session, engine, info, record, roots)


@contextlib.asynccontextmanager
async def connected_engine(settings: Settings, url: str) -> AsyncIterator[tuple[Engine, EngineInfo]]:
    """A connection to the engine at this URL. Raises EngineError."""
    engine = Engine(url, library(), call_timeout_s=settings.frontier.call_timeout_s)
    try:
        yield engine, await engine.connect()
    finally:
        await engine.close()


def _opened(
    settings: Settings,
    folder: CrawlFolder,
    lock: SessionLock,
    session: str,
    engine: Engine,
    info: EngineInfo,
    record: CrawlRecord,
    roots: frozenset[str],
) -> OpenCrawl:
    settings = with_stored(settings, record.stored_settings)
    keys, budget, partitions = Keys(settings.crawl.name), settings.budget, record.partitions
    members, spill_files = Members(engine, keys), _spill_files(settings, folder, record, session)
    frontier = Frontier(
        engine, keys, session=session, hash_key=record.hash_key, run=record.run,
        default_delay_ms=int(settings.politeness.delay_s * 1000),
        is_limited=is_limited(record.scope, budget, settings.sites),
        add_quota=AddQuota(
            urls=budget.urls, hosts=budget.hosts, urls_per_linking_domain=budget.urls_per_linking_domain
        ),
    )  # fmt: skip
    stats = Stats(engine, keys, partitions)
    return OpenCrawl(
        settings=settings, folder=folder, lock=lock, session=session, engine=engine, info=info, keys=keys,
        crawls=Crawls(engine, keys), members=members, record=record, roots=roots, placement=Placement(record),
        frontier=frontier,
        leases=Leases(engine, keys, hash_key=record.hash_key),
        stats=stats,
        lists=DomainLists(engine, keys, partitions, stats),
        inspect=UrlLookup(engine, keys, partitions, spill_files),
        series=Series(engine, keys),
        states=BulkLookup(engine, keys, partitions, spill_files),
        spill_files=spill_files,
        seeds=Seeds(engine, keys, partitions),
        jobs=Jobs(engine, keys, partitions, rows_max=settings.jobs.history_rows),
        runs=Runs(engine, keys, partitions),
        letters=DeadLetters(frontier, partitions),
        supervisors=SupervisorRecords(engine, keys),
        operator=OperatorCommands(frontier, partitions, queue_by=record.queue_by, files=spill_files),
        operator_log=OperatorLog(engine, keys),
        slots=Slots(members),
    )  # fmt: skip


def _spill_files(settings: Settings, folder: CrawlFolder, record: CrawlRecord, session: str) -> SpillFiles | None:
    if settings.frontier.redis and not settings.frontier.spill_folder:
        return None
    place = Path(settings.frontier.spill_folder or folder.spill)
    return SpillFiles(place / f"{settings.crawl.name}-{record.begun_at * 1000:.0f}", session)


def make_router(crawl: OpenCrawl, *, admits_urls: Callable[[], bool] = lambda: True) -> "Router":
    """Routing by the crawl's rules, with a recent-URL cache of its own. `takes_in`: may one more URL be taken in?"""
    from crawler.rules.scope import ScopeRules
    from crawler.worker.router import RecentUrls, Router

    scope, s = ScopeRules.of(crawl.record.scope, crawl.roots), crawl.settings
    recent = RecentUrls(s.frontier.recent_urls)
    return Router(crawl.record, scope, recent, s.traps, budget=s.budget, sites=s.sites, admits_urls=admits_urls)


async def leads_to(crawl: OpenCrawl, url: str) -> tuple[Sequence[str], str] | None:
    """The links of a committed page, and the target of its redirect; None if its record is not in this folder."""
    from crawler.archive.index_reader import find_url
    from crawler.archive.warc import read_record
    from crawler.recovery.reparse import Rereader
    from crawler.worker.process import ParseKilledError

    for entry in await asyncio.to_thread(find_url, crawl.folder, url):
        if entry.warc is None or entry.run:
            continue
        rereader = Rereader(crawl.settings, crawl.record)
        with contextlib.suppress(ArchiveError, ParseKilledError):
            try:
                found = await rereader.read(url, await asyncio.to_thread(read_record, crawl.folder, entry.warc))
                return found.links, found.redirect_to
            finally:
                await rereader.close()
    return None


def make_seeder(crawl: OpenCrawl, *, depth: int = 0, priority: float | None = None) -> "Seeder":
    """Adds seeds to this crawl."""
    from crawler.archive.journals import SeedJournal
    from crawler.seeding.seeder import Seeder

    return Seeder(
        crawl.frontier,
        crawl.crawls,
        make_router(crawl),
        states=crawl.states,
        seeds=crawl.seeds,
        letters=crawl.letters,
        journal=SeedJournal(crawl.folder, crawl.keys.crawl_name, crawl.record.first_begun_at),
        leads_to=partial(leads_to, crawl),
        depth=depth,
        priority=priority,
    )


async def choose_node(crawl: OpenCrawl, *, may_move: bool) -> str:
    """The node name of this instance: the one set, or the host's name with the first slot that is free.

    Without `may_move`, slot 0 is taken as it is: joining fails when somebody alive has it. With it, this session is on
    the member list under the name from here on.
    """
    if crawl.settings.membership.node:
        return crawl.settings.membership.node
    if not may_move:
        return f"{socket.gethostname()}-0"
    return await crawl.slots.take(lambda node: member_of(crawl, node))


def member_of(crawl: OpenCrawl, node: str, *, state: str = "joining") -> Member:
    """How this process describes itself on the member list."""
    return Member(
        session=crawl.session, node=node, counter=0, weight=crawl.settings.membership.weight, state=state,
        host=host_id(), lock=str(crawl.lock.path.resolve()), pid=os.getpid(), started_at=time.time(),
    )  # fmt: skip
