"""The composition root: with open_crawl.py and build.py the only place that names concrete classes together.

Most commands only look into the engine: what only an instance needs (the web, the parser, the archive's writers) is put
together in build.py, which imports it.
"""

import contextlib
import os
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from crawler.archive.crawl_folder import CrawlFolder
from crawler.archive.session_lock import SessionLock
from crawler.archive.spill_files import SpillFiles
from crawler.engine.client import Engine, EngineInfo
from crawler.frontier.budgets import Intake
from crawler.frontier.bulk_lookup import States
from crawler.frontier.crawl_record import CrawlRecord, Crawls
from crawler.frontier.frontier import Frontier
from crawler.frontier.keys import Keys
from crawler.frontier.leases import Leases
from crawler.frontier.lookup import Inspect
from crawler.frontier.members import Member, Members
from crawler.frontier.operator import Operator
from crawler.frontier.seed_counts import Seeds
from crawler.frontier.stats import Stats
from crawler.frontier.supervisors import Fleets
from crawler.membership.nodes import Slots, host_id
from crawler.recovery.crawl_identity import admit
from crawler.rules.site_rules import is_limited
from crawler.settings import Settings

if TYPE_CHECKING:
    from crawler.pipeline.router import Router
    from crawler.seeding.seeder import Seeder

Entrance = Callable[..., Awaitable[tuple[CrawlRecord, frozenset[str]]]]  # as crawl_identity.admit


class OpenCrawl(msgspec.Struct, frozen=True, kw_only=True):
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
            self.engine, self.keys, session=self.session, hash_key=self.record.hash_key, run=self.record.run,
            default_delay_ms=int(self.settings.politeness.delay_s * 1000),
            is_limited=is_limited(self.record.scope, budget, self.settings.sites),
            intake=Intake(
                urls=budget.urls, hosts=budget.hosts, urls_per_linking_domain=budget.urls_per_linking_domain
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
        from crawler.pipeline.router import Router
        from crawler.rules.scope import ScopeRules
        from crawler.runtime.counters import RecentUrls

        scope = ScopeRules.of(self.record.scope, self.roots)
        recent, s = RecentUrls(self.settings.frontier.recent_urls), self.settings
        return Router(self.record, scope, recent, s.traps, budget=s.budget, sites=s.sites)

    def seeder(self, *, depth: int = 0, priority: float | None = None) -> "Seeder":
        """Adds seeds to this crawl."""
        from crawler.archive.seed_journal import SeedJournal
        from crawler.frontier.dead_letters import DeadLetters
        from crawler.seeding.seeder import Seeder

        return Seeder(
            self.frontier,
            self.crawls,
            self.router(),
            states=self.states,
            seeds=self.seeds,
            letters=DeadLetters(self.frontier, self.record.partitions),
            journal=SeedJournal(self.folder, self.keys.crawl_name, self.record.first_begun_at),
            depth=depth,
            priority=priority,
            url_bytes_max=self.settings.scope.url_bytes_max,
        )

    async def reloaded(self) -> "OpenCrawl":
        """The same with record and roots as they are now."""
        record, roots = await self.crawls.shared()
        return replace(self, record=record, roots=roots)


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
    engine = Engine(url, call_timeout_s=settings.frontier.call_timeout_s)
    try:
        yield await _open(settings, folder, lock, session, engine, partial(enter or admit, create=create))
    finally:
        await engine.close()


async def _open(
    settings: Settings, folder: CrawlFolder, lock: SessionLock, session: str, engine: Engine, enter: Entrance
) -> OpenCrawl:
    info = await engine.connect()
    keys = Keys(settings.crawl.name)
    crawls = Crawls(engine, keys)
    record, roots = await enter(folder, crawls, settings)
    return OpenCrawl(
        settings=settings, folder=folder, lock=lock, session=session, engine=engine, info=info, keys=keys,
        crawls=crawls, members=Members(engine, keys),
        leases=Leases(engine, keys, hash_key=record.hash_key), record=record, roots=roots,
    )  # fmt: skip


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
