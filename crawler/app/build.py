"""The other half of the composition root: builds an instance out of its parts.

Apart from crawl.py because of what it imports, which takes longer than most commands: whoever crawls imports it.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable

from crawler import process_tuning
from crawler.allocator import keep_freed_memory
from crawler.app.crawl import OpenCrawl, member_of
from crawler.app.instance import Instance
from crawler.app.open_crawl import ensure_engine
from crawler.app.parts import Parts
from crawler.archive.history import HistoryWriter
from crawler.archive.index_writer import IndexWriter
from crawler.archive.inflight_log import InflightLog
from crawler.archive.items import ItemWriter
from crawler.archive.repair import recover_open_files
from crawler.archive.session_lock import is_abandoned
from crawler.archive.warc_writer import WarcWriter
from crawler.engine.embedded import EmbeddedEngine
from crawler.frontier.pins import Pins
from crawler.frontier.takeovers import Takeovers
from crawler.handlers.crawler import Crawler
from crawler.handlers.load_app import load_app
from crawler.membership.crash_reports import CrashReporter
from crawler.membership.nodes import host_id, is_lock_free
from crawler.pipeline.internal_errors import InternalErrors
from crawler.runtime.clock import monotonic_ms
from crawler.version import PACKAGE, program_version
from crawler.web.fetcher import Fetcher
from crawler.web.resolver import CachingResolver


def spend_less_on_memory() -> None:
    """Keep freed memory for the next page, and look for garbage cycles seldom."""
    keep_freed_memory()
    process_tuning.look_seldom()


@contextlib.asynccontextmanager
async def open_instance(
    crawl: OpenCrawl, *, node: str, until_finished: bool, app: Crawler | None = None
) -> AsyncIterator[Instance]:
    """An instance with its doors open, with this app or that of the settings; files are closed whatever happened."""
    settings = crawl.settings
    spend_less_on_memory()
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
    try:
        async with Fetcher(settings, resolver=resolver, version=program_version()) as fetcher:
            parts = Parts(
                frontier=crawl.frontier,
                crawls=crawl.crawls,
                leases=crawl.leases,
                members=crawl.members,
                pins=Pins(crawl.engine, crawl.keys),
                takeovers=Takeovers(crawl.engine, crawl.keys),
                operator=crawl.operator,
                member=member_of(crawl, node),
                keys=crawl.keys,
                stats=crawl.stats,
                record=crawl.record,
                roots=crawl.roots,
                fetcher=fetcher,
                warc=warc,
                index=index,
                items=items,
                inflight_log=inflight_log,
                history=history,
                crash_reporter=CrashReporter(
                    crawl.frontier, sessions=crawl.folder.sessions, is_here=lambda m: m.host == host_id()
                ),
                internal_errors=InternalErrors(crawl.folder.log),
                spill_files=crawl.spill_files,
                is_lock_free=is_lock_free,
                app=app or (load_app(settings.handlers.app) if settings.handlers.app else None),
                revive=_reviver(crawl),
            )
            yield Instance(parts, settings, until_finished=until_finished)
    finally:
        await resolver.close()
        await asyncio.to_thread(_close_files, history, index, items, warc)
        inflight_log.close()


def _reviver(crawl: OpenCrawl) -> Callable[[], Awaitable[None]] | None:
    """Starts the embedded engine again when it died; None for engines that are not ours."""
    settings = crawl.settings.frontier
    if settings.redis:
        return None
    embedded = EmbeddedEngine(crawl.folder.engine, binary=settings.engine)

    async def revive() -> None:
        await asyncio.to_thread(ensure_engine, crawl.folder, embedded)

    return revive


def _close_files(*files: WarcWriter | IndexWriter | ItemWriter | HistoryWriter) -> None:
    """The last one first, each whatever became of the others."""
    with contextlib.ExitStack() as stack:
        for file in files:
            stack.callback(file.close)
