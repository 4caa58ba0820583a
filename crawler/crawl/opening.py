"""Opens a crawl and closes it in order: its folder, its session, its engine.

The composition root: with build.py the only place that names concrete classes together. Most commands only look into
the engine: what only an instance needs (the web, the parser, the archive's writers) is put together in build.py, which
imports it.
"""

import asyncio
import contextlib
import os
import secrets
import shutil
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from crawler.archive.folder import (
    CrawlFolder,
    Life,
    is_there,
    open_existing,
    open_or_borrow,
    open_or_create,
    open_temporary,
)
from crawler.archive.session_locks import SessionLock, life_of, sessions
from crawler.archive.spill_files import SpillFiles
from crawler.crawl.admission import admit
from crawler.engine.client import Engine, EngineInfo
from crawler.engine.embedded import EmbeddedEngine, file_bytes
from crawler.errors import ConflictError, CrawlerError, EngineDown, UsageError
from crawler.frontier.bulk import BulkLookup
from crawler.frontier.dead_letters import DeadLetters
from crawler.frontier.domain_lists import DomainLists
from crawler.frontier.folders import Folders
from crawler.frontier.jobs import Jobs
from crawler.frontier.keys import Keys
from crawler.frontier.leases import Leases
from crawler.frontier.lookup import UrlLookup
from crawler.frontier.members import Member, Members
from crawler.frontier.messages import AddBudget
from crawler.frontier.operator import OperatorCommands
from crawler.frontier.operator_log import OperatorLog
from crawler.frontier.owner import Frontier
from crawler.frontier.permissions import check_permissions
from crawler.frontier.placement import Placement
from crawler.frontier.record import CrawlRecord, Crawls
from crawler.frontier.runs import Runs
from crawler.frontier.scripts import library
from crawler.frontier.seeds import Seeds
from crawler.frontier.series import Series
from crawler.frontier.stats import Stats
from crawler.frontier.supervisors import SupervisorRecords
from crawler.membership.node_names import Slots, host_id
from crawler.rules.sites import is_limited
from crawler.settings import Settings
from crawler.settings.kept import with_stored
from crawler.terminal.output import say
from crawler.terminal.words import size

if TYPE_CHECKING:
    from crawler.crawl.seed import Seeder
    from crawler.routing.router import Router


Entrance = Callable[..., Awaitable[tuple[CrawlRecord, frozenset[str]]]]  # as `admit`


class EngineCrawl(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """A crawl in its engine, with an object for each thing that is stored of it, made when it is first used.

    `session`: this process's own. `spill_files`: where spilled URLs are; None when no folder is known that all who may
    own them can reach.
    """

    settings: Settings
    session: str
    engine: Engine
    info: EngineInfo
    record: CrawlRecord
    roots: frozenset[str]
    spill_files: SpillFiles | None

    @cached_property
    def keys(self) -> Keys:
        return Keys(self.settings.crawl.name)

    @cached_property
    def placement(self) -> Placement:
        return Placement(self.record)

    @cached_property
    def crawls(self) -> Crawls:
        return Crawls(self.engine, self.keys)

    @cached_property
    def members(self) -> Members:
        return Members(self.engine, self.keys)

    @cached_property
    def folders(self) -> Folders:
        return Folders(self.engine, self.keys)

    @cached_property
    def slots(self) -> Slots:
        return Slots(self.members)

    @cached_property
    def supervisors(self) -> SupervisorRecords:
        return SupervisorRecords(self.engine, self.keys)

    @cached_property
    def leases(self) -> Leases:
        return Leases(self.engine, self.keys, hash_key=self.record.hash_key)

    @cached_property
    def frontier(self) -> Frontier:
        settings, budget = self.settings, self.settings.budget
        return Frontier(
            self.engine, self.keys, session=self.session, hash_key=self.record.hash_key,
            default_delay_ms=int(settings.politeness.delay_s * 1000),
            is_limited=is_limited(self.record.scope, budget, settings.sites),
            add_budget=AddBudget(urls=budget.urls, hosts=budget.hosts, requisites=settings.requisites.urls),
            has_requisites=settings.requisites.fetch,
        )  # fmt: skip

    @cached_property
    def stats(self) -> Stats:
        return Stats(self.engine, self.keys, self.record.partitions)

    @cached_property
    def series(self) -> Series:
        return Series(self.engine, self.keys)

    @cached_property
    def lists(self) -> DomainLists:
        return DomainLists(self.engine, self.keys, self.record.partitions, self.stats)

    @cached_property
    def inspect(self) -> UrlLookup:
        return UrlLookup(self.engine, self.keys, self.record.partitions, self.spill_files)

    @cached_property
    def states(self) -> BulkLookup:
        return BulkLookup(self.engine, self.keys, self.record.partitions, self.spill_files)

    @cached_property
    def seeds(self) -> Seeds:
        return Seeds(self.engine, self.keys, self.record.partitions)

    @cached_property
    def letters(self) -> DeadLetters:
        return DeadLetters(self.frontier, self.record.partitions)

    @cached_property
    def jobs(self) -> Jobs:
        return Jobs(self.engine, self.keys, self.record.partitions, rows_max=self.settings.jobs.history_rows)

    @cached_property
    def runs(self) -> Runs:
        return Runs(self.engine, self.keys, self.record.partitions)

    @cached_property
    def operator(self) -> OperatorCommands:
        record = self.record
        return OperatorCommands(self.frontier, record.partitions, queue_by=record.queue_by, files=self.spill_files)

    @cached_property
    def operator_log(self) -> OperatorLog:
        return OperatorLog(self.engine, self.keys)


class OpenCrawl(EngineCrawl, frozen=True, kw_only=True):
    """A crawl that is open: in its engine, and in the crawl folder of this process."""

    folder: CrawlFolder
    lock: SessionLock

    async def note_folder(self) -> None:
        """Somebody crawls or seeds with this folder. Raises EngineError."""
        await self.folders.note(self.folder.crawl, str(self.folder.root.resolve()))

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
        if create and settings.frontier.redis:
            await check_permissions(engine, settings.crawl.name)
        crawls = Crawls(engine, Keys(settings.crawl.name))
        record, roots = await (enter or admit)(folder, crawls, settings, create=create)
        yield _opened(settings, folder, lock, session, engine, info, record, roots)


@contextlib.asynccontextmanager
async def connected_engine(settings: Settings, url: str) -> AsyncIterator[tuple[Engine, EngineInfo]]:
    """A connection to the engine at this URL. Raises EngineError."""
    f = settings.frontier
    engine = Engine(url, library(), call_timeout_s=f.call_timeout_s, durability=f.durability)
    try:
        yield engine, await engine.connect()
        if not await engine.is_confirmed():
            say("done, but no replica has it yet: if its primary fails now, it may be lost")
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
    return OpenCrawl(
        settings=settings, folder=folder, lock=lock, session=session, engine=engine, info=info, record=record,
        roots=roots, spill_files=_spill_files(settings, folder, record, session),
    )  # fmt: skip


def _spill_files(settings: Settings, folder: CrawlFolder, record: CrawlRecord, session: str) -> SpillFiles | None:
    if settings.frontier.redis and not settings.frontier.spill_folder:
        return None
    place = Path(settings.frontier.spill_folder or folder.spill)
    return SpillFiles(SpillFiles.root_of(place, settings.crawl.name, record.begun_at), session)


def make_router(crawl: OpenCrawl, *, admits_urls: Callable[[], bool] = lambda: True) -> "Router":
    """Routing by the crawl's rules, with a recent-URL cache of its own. `takes_in`: may one more URL be taken in?"""
    from crawler.routing.recent_urls import RecentUrls
    from crawler.routing.router import Router
    from crawler.rules.scope import ScopeRules

    scope, s = ScopeRules.of(crawl.record.scope, crawl.roots, forgotten=crawl.record.forgotten), crawl.settings
    recent = RecentUrls(s.frontier.recent_urls)
    return Router(crawl.record, scope, recent, s.traps, budget=s.budget, sites=s.sites, admits_urls=admits_urls)


def make_seeder(crawl: OpenCrawl, *, depth: int = 0, priority: float | None = None) -> "Seeder":
    """Adds seeds to this crawl."""
    from crawler.archive.seed_journal import SeedJournal
    from crawler.crawl.reparse import leads_to
    from crawler.crawl.seed import SeedBooks, Seeder

    books = SeedBooks(
        states=crawl.states,
        seeds=crawl.seeds,
        letters=crawl.letters,
        journal=SeedJournal(crawl.folder, crawl.keys.crawl_name, crawl.record.first_begun_at),
    )
    return Seeder(
        crawl.frontier,
        crawl.crawls,
        make_router(crawl),
        books,
        leads_to=partial(leads_to, crawl.folder, crawl.settings, crawl.record),
        note_folder=crawl.note_folder,
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
    member = member_of_command(crawl.session, node, crawl.lock)
    return msgspec.structs.replace(member, weight=crawl.settings.membership.weight, state=state)


def member_of_command(session: str, node: str, lock: SessionLock) -> Member:
    """The same for a command that has opened an engine alone."""
    return Member(
        session=session, node=node, counter=0, host=host_id(), lock=str(lock.path.resolve()), pid=os.getpid(),
        started_at=time.time(),
    )  # fmt: skip


@contextlib.asynccontextmanager
async def open_crawl(
    settings: Settings, *, create: bool, enter: "Entrance | None" = None
) -> AsyncIterator["OpenCrawl"]:
    """Open the crawl that the settings name; without another engine, start or adopt the embedded one.

    Without `create`, a folder or crawl that does not exist is a UsageError. Without a folder, which needs an engine
    elsewhere, a temporary one is used. `enter` finds or creates the crawl in the engine, and checks that it belongs to
    the folder (default: crawl_identity.admit). A folder created for unusable input is removed. Raises CrawlerError.
    """
    async with _session(settings, create=create) as (folder, lock, session, url, running):
        await running
        async with connected(settings, folder, lock, session, url, create=create, enter=enter) as crawl:
            yield crawl


@contextlib.asynccontextmanager
async def open_engine(settings: Settings) -> AsyncIterator["Engine"]:
    """The engine that the settings name, whichever crawls it has. Raises CrawlerError, as `open_crawl`."""
    async with open_session(settings, create=False) as (engine, _):
        yield engine


@contextlib.asynccontextmanager
async def open_session(settings: Settings, *, create: bool) -> AsyncIterator[tuple["Engine", CrawlFolder]]:
    """The same with the folder, which `create` makes."""
    async with _session(settings, create=create) as (folder, _, _, url, running):
        await running
        async with connected_engine(settings, url) as (engine, _):
            yield engine, folder


@contextlib.asynccontextmanager
async def _session(
    settings: Settings, *, create: bool
) -> AsyncIterator[tuple[CrawlFolder, SessionLock, str, str, Awaitable[None]]]:
    """Folder, lock, id and engine URL of a new session; the last awaits the start of an embedded engine."""
    is_new, is_wrong = create and not is_there(settings.archive.dir), False
    with _folder_of(settings, create=create) as folder:
        session = secrets.token_hex(6)
        lock = SessionLock(folder, session, node=settings.membership.node)
        embedded = None if settings.frontier.redis else EmbeddedEngine(folder.engine, binary=settings.frontier.engine)
        waiting = _Waiting(folder.engine)
        try:
            running = asyncio.get_running_loop().run_in_executor(
                None, ensure_engine, folder, embedded, waiting, waiting.start
            )
            url = embedded.url if embedded else settings.frontier.redis
            yield folder, lock, session, url, running
        except UsageError:
            is_wrong = True
            raise
        finally:
            waiting.is_over = True
            await asyncio.to_thread(_leave_folder, folder, lock, embedded, may_remove=is_new and is_wrong)


def _folder_of(settings: Settings, *, create: bool) -> contextlib.AbstractContextManager[CrawlFolder]:
    path = settings.archive.dir
    if not path:
        return open_temporary()
    if create:
        return contextlib.nullcontext(open_or_create(path))
    return open_or_borrow(path) if settings.frontier.redis else contextlib.nullcontext(open_existing(path))


ENGINE_LOCK_TIMEOUT_S = 60.0
LOADING_LOOK_S = 0.2
TELL_LOADING_S, TELL_STARTING_S = 1.0, 5.0


class _Waiting:
    """Of a command for an engine that reads its files, for minutes when they are large. Called again and again."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._began = time.monotonic()
        self._is_told = False
        self.is_over = False  # set when the command ends

    def __call__(self) -> None:
        if self.is_over:
            raise EngineDown("the embedded engine still reads its files")
        if not self._is_told and time.monotonic() - self._began >= TELL_LOADING_S:
            self._is_told = True
            say(f"the engine reads {size(file_bytes(self._folder))} from {self._folder}: waiting until it has")

    def start(self) -> None:
        """The same for one that runs and does not answer yet, as on a busy machine."""
        if self.is_over:
            raise EngineDown("the embedded engine was just starting")
        if not self._is_told and time.monotonic() - self._began >= TELL_STARTING_S:
            self._is_told = True
            say("the engine was started and does not answer yet: waiting for at most a minute (is the machine busy?)")


def ensure_engine(
    folder: CrawlFolder,
    embedded: EmbeddedEngine | None,
    while_loading: Callable[[], None] = lambda: None,
    while_starting: Callable[[], None] = lambda: None,
) -> None:
    """Start the folder's embedded engine if it does not run, under its lock. Raises EngineDown and UsageError."""
    if embedded is None:
        return
    deadline = time.monotonic() + ENGINE_LOCK_TIMEOUT_S
    while True:
        try:
            with folder.exclusive("engine", timeout_s=LOADING_LOOK_S):
                embedded.ensure(while_loading, while_starting)
                return
        except ConflictError:
            if embedded.is_loading:  # whoever has the lock waits for it as well
                deadline = time.monotonic() + ENGINE_LOCK_TIMEOUT_S
                while_loading()
            if time.monotonic() > deadline:
                raise


def _leave_folder(folder: CrawlFolder, lock: SessionLock, embedded: EmbeddedEngine | None, *, may_remove: bool) -> None:
    """Close our session; the last session stops the embedded engine."""
    lock.close()
    if embedded is None and not may_remove:
        return
    if embedded is not None and embedded.is_loading and _is_in_use(folder, sessions(folder)):
        return  # who has the engine's lock waits for it, and stops it in the end
    with folder.exclusive("engine", timeout_s=ENGINE_LOCK_TIMEOUT_S):
        if _is_in_use(folder, sessions(folder)):
            return
        if embedded is not None:
            embedded.stop()
        if may_remove and folder.is_unused:
            shutil.rmtree(folder.root, ignore_errors=True)


def _is_in_use(folder: CrawlFolder, others: Iterable[str]) -> bool:
    """Is any of these sessions alive? The caller must hold the engine's lock."""
    return any(life_of(folder, session) is Life.ALIVE for session in others)


def abandon(crawl: "OpenCrawl") -> None:
    """Leave as a crash would, but stop an embedded engine that no other session uses.

    The session's lock file stays: free once this process is gone, it proves to the next start that the session is dead.
    """
    if crawl.settings.frontier.redis:
        return
    others = (session for session in sessions(crawl.folder) if session != crawl.session)
    with contextlib.suppress(CrawlerError), crawl.folder.exclusive("engine", timeout_s=1.0):
        if not _is_in_use(crawl.folder, others):
            EmbeddedEngine(crawl.folder.engine, binary=crawl.settings.frontier.engine).stop()
