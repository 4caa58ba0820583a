"""The composition root: with assembly.py the only place that names concrete classes together.

Opens what a command needs (folder, engine, crawl) and closes it in order. Most commands only look into the engine: what
only an instance needs (the web, the parser, the archive's writers) is put together in assembly.py, which imports it.
"""

import asyncio
import contextlib
import os
import secrets
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from crawler.archive.folder import CrawlFolder, open_existing, open_or_borrow, open_or_create
from crawler.archive.sessions import Life, SessionLock, life_of, sessions
from crawler.archive.spill import SpillFiles
from crawler.errors import CrawlerError
from crawler.frontier.budgets import Intake
from crawler.frontier.client import Engine, EngineInfo
from crawler.frontier.crawls import CrawlRecord, Crawls
from crawler.frontier.embedded import EmbeddedEngine
from crawler.frontier.fleets import Fleets
from crawler.frontier.frontier import Frontier
from crawler.frontier.inspect import Inspect
from crawler.frontier.keys import Keys
from crawler.frontier.leases import Leases
from crawler.frontier.members import Member, Members
from crawler.frontier.operating import Operator
from crawler.frontier.seeds import Seeds
from crawler.frontier.states import States
from crawler.frontier.stats import Stats
from crawler.instance.admission import admit
from crawler.nodes import Slots, host_id
from crawler.rules.sites import is_limited
from crawler.settings import Settings

if TYPE_CHECKING:
    from crawler.instance.routing import Router
    from crawler.instance.seeding import Seeder

Entrance = Callable[..., Awaitable[tuple[CrawlRecord, frozenset[str]]]]  # as admission.admit


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenCrawl:
    """A crawl that is open: its folder, its engine, what is stored in it. `session` is this process's own."""

    settings: Settings
    folder: CrawlFolder
    lock: SessionLock
    session: str
    engine: Engine
    info: EngineInfo
    keys: Keys
    crawls: Crawls
    members: Members
    leases: Leases
    record: CrawlRecord
    roots: frozenset[str]

    @property
    def frontier(self) -> Frontier:
        budget = self.settings.budget
        return Frontier(
            self.engine, self.keys, session=self.session, run=self.record.run,
            default_delay_ms=int(self.settings.politeness.delay_s * 1000),
            is_limited=is_limited(self.record.scope, budget, self.settings.sites),
            intake=Intake(
                urls=budget.urls, hosts=budget.hosts, urls_per_linking_domain=budget.urls_per_linking_domain,
                has_crawl_hosts=budget.crawl_hosts > 0,
            ),
        )  # fmt: skip

    @property
    def stats(self) -> Stats:
        return Stats(self.engine, self.keys, self.record.partitions)

    @property
    def inspect(self) -> Inspect:
        return Inspect(self.engine, self.keys, self.record.partitions, self.spill_files)

    @property
    def states(self) -> States:
        return States(self.engine, self.keys, self.record.partitions, self.spill_files)

    @property
    def spill_files(self) -> SpillFiles | None:
        """Where spilled URLs lie; None when no folder is known that all who may own them can reach."""
        place = Path(self.settings.frontier.spill_folder or self.folder.spill)
        if self.settings.frontier.redis and not self.settings.frontier.spill_folder:
            return None
        return SpillFiles(place / f"{self.keys.crawl_name}-{self.record.begun_at * 1000:.0f}", self.session)

    @property
    def seeds(self) -> Seeds:
        return Seeds(self.engine, self.keys, self.record.partitions)

    @property
    def fleets(self) -> Fleets:
        return Fleets(self.engine, self.keys)

    @property
    def operator(self) -> Operator:
        return Operator(self.frontier, self.record.partitions, queue_by=self.record.queue_by, files=self.spill_files)

    @property
    def slots(self) -> Slots:
        return Slots(self.members)

    def router(self) -> "Router":
        """Routing by the crawl's rules, with a recent-URL cache of its own."""
        from crawler.instance.routing import Router
        from crawler.instance.state import RecentUrls
        from crawler.rules.scope import ScopeRules

        scope = ScopeRules.of(self.record.scope, self.roots)
        recent, s = RecentUrls(self.settings.frontier.recent_urls), self.settings
        return Router(self.record, scope, recent, s.traps, budget=s.budget, sites=s.sites)

    def seeder(self, *, opens_scope: bool = True, depth: int = 0, priority: float | None = None) -> "Seeder":
        """Adds seeds to this crawl."""
        from crawler.archive.seeds import SeedJournal
        from crawler.instance.seeding import Seeder

        return Seeder(
            self.frontier,
            self.crawls,
            self.router(),
            states=self.states,
            seeds=self.seeds,
            journal=SeedJournal(self.folder, self.keys.crawl_name, self.record.first_begun_at),
            opens_scope=opens_scope,
            depth=depth,
            priority=priority,
            url_bytes_max=self.settings.scope.url_bytes_max,
        )

    async def reloaded(self) -> "OpenCrawl":
        """The same with record and roots as they are now."""
        record, roots = await self.crawls.shared()
        return replace(self, record=record, roots=roots)


@contextlib.asynccontextmanager
async def open_crawl(settings: Settings, *, create: bool, enter: Entrance = admit) -> AsyncIterator[OpenCrawl]:
    """Open the crawl that the settings name, starting or adopting the embedded engine where there is no other.

    Without `create`, a folder or crawl that does not exist is a UsageError. `enter` finds or makes the crawl in the
    engine, and decides whether it is the folder's. Raises CrawlerError kinds.
    """
    with _folder_of(settings, create=create) as folder:
        session = secrets.token_hex(6)
        lock = SessionLock(folder, session, node=settings.membership.node)
        embedded = None if settings.frontier.redis else EmbeddedEngine(folder.engine, binary=settings.frontier.engine)
        try:
            if embedded is not None:
                await asyncio.to_thread(ensure_engine, folder, embedded)
            url = embedded.url if embedded else settings.frontier.redis
            engine = Engine(url, call_timeout_s=settings.frontier.call_timeout_s)
            try:
                yield await _open(settings, folder, lock, session, engine, partial(enter, create=create))
            finally:
                await engine.close()
        finally:
            await asyncio.to_thread(_leave_folder, folder, lock, embedded)


def _folder_of(settings: Settings, *, create: bool) -> contextlib.AbstractContextManager[CrawlFolder]:
    path = settings.archive.dir
    if create:
        return contextlib.nullcontext(open_or_create(path))
    return open_or_borrow(path) if settings.frontier.redis else contextlib.nullcontext(open_existing(path))


def ensure_engine(folder: CrawlFolder, embedded: EmbeddedEngine) -> None:
    """Have the folder's engine run, under its lock. Raises EngineDown and UsageError."""
    with folder.exclusive("engine", timeout_s=60.0):
        embedded.ensure()


def _leave_folder(folder: CrawlFolder, lock: SessionLock, embedded: EmbeddedEngine | None) -> None:
    """Close our session; the last one out stops the embedded engine."""
    if embedded is None:
        lock.close()
        return
    with folder.exclusive("engine", timeout_s=60.0):
        lock.close()
        if not any(life_of(folder, session) is Life.ALIVE for session in sessions(folder)):
            embedded.stop()


def abandon(crawl: OpenCrawl) -> None:
    """Leave without ceremony, as a crash would, but let no embedded engine run on for nobody.

    The session's lock file stays: free once this process is gone, it proves to the next start that nobody works here.
    """
    if crawl.settings.frontier.redis:
        return
    others = (session for session in sessions(crawl.folder) if session != crawl.session)
    with contextlib.suppress(CrawlerError), crawl.folder.exclusive("engine", timeout_s=1.0):
        if not any(life_of(crawl.folder, session) is Life.ALIVE for session in others):
            EmbeddedEngine(crawl.folder.engine, binary=crawl.settings.frontier.engine).stop()


async def _open(
    settings: Settings, folder: CrawlFolder, lock: SessionLock, session: str, engine: Engine, enter: Entrance
) -> OpenCrawl:
    info = await engine.connect()
    keys = Keys(settings.crawl.name)
    crawls = Crawls(engine, keys)
    record, roots = await enter(folder, crawls, settings)
    return OpenCrawl(
        settings=settings, folder=folder, lock=lock, session=session, engine=engine, info=info, keys=keys,
        crawls=crawls, members=Members(engine, keys), leases=Leases(engine, keys), record=record, roots=roots,
    )  # fmt: skip


async def choose_node(crawl: OpenCrawl, *, may_move: bool) -> str:
    """The node name of this instance: the one set, or the host's name with the first slot that is free.

    Without `may_move`, slot 0 is taken as it is: joining fails when somebody alive has it.
    """
    if crawl.settings.membership.node:
        return crawl.settings.membership.node
    if not may_move:
        return f"{socket.gethostname()}-0"
    return (await crawl.slots.free(1))[0]


def member_of(crawl: OpenCrawl, node: str, *, state: str = "joining") -> Member:
    """How this process describes itself on the member list."""
    return Member(
        session=crawl.session, node=node, counter=0, weight=crawl.settings.membership.weight, state=state,
        host=host_id(), lock=str(crawl.lock.path.resolve()), pid=os.getpid(), started_at=time.time(),
    )  # fmt: skip
