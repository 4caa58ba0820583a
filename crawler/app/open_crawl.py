"""Opens a crawl and closes it in order: its folder, its session, its engine.

Imports little: the rest of the composition root (crawl.py), with the client of engines, is imported while an embedded
engine starts, which takes as long.
"""

import asyncio
import contextlib
import secrets
import shutil
from collections.abc import AsyncIterator, Awaitable, Iterable
from typing import TYPE_CHECKING

from crawler.archive.folder import (
    CrawlFolder,
    Life,
    SessionLock,
    is_there,
    life_of,
    open_existing,
    open_or_borrow,
    open_or_create,
    open_temporary,
    sessions,
)
from crawler.engine.embedded import EmbeddedEngine
from crawler.errors import CrawlerError, UsageError
from crawler.settings import Settings

if TYPE_CHECKING:
    from crawler.app.crawl import Entrance, OpenCrawl
    from crawler.engine.client import Engine


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
        from crawler.app.crawl import connected

        await running
        async with connected(settings, folder, lock, session, url, create=create, enter=enter) as crawl:
            yield crawl


@contextlib.asynccontextmanager
async def open_engine(settings: Settings) -> AsyncIterator["Engine"]:
    """The engine that the settings name, whichever crawls it has. Raises CrawlerError, as `open_crawl`."""
    async with _session(settings, create=False) as (_, _, _, url, running):
        from crawler.app.crawl import connected_engine

        await running
        async with connected_engine(settings, url) as (engine, _):
            yield engine


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
        try:
            running = asyncio.get_running_loop().run_in_executor(None, ensure_engine, folder, embedded)
            url = embedded.url if embedded else settings.frontier.redis
            yield folder, lock, session, url, running
        except UsageError:
            is_wrong = True
            raise
        finally:
            await asyncio.to_thread(_leave_folder, folder, lock, embedded, may_remove=is_new and is_wrong)


def _folder_of(settings: Settings, *, create: bool) -> contextlib.AbstractContextManager[CrawlFolder]:
    path = settings.archive.dir
    if not path:
        return open_temporary()
    if create:
        return contextlib.nullcontext(open_or_create(path))
    return open_or_borrow(path) if settings.frontier.redis else contextlib.nullcontext(open_existing(path))


def ensure_engine(folder: CrawlFolder, embedded: EmbeddedEngine | None) -> None:
    """Start the folder's embedded engine if it does not run, under its lock. Raises EngineDown and UsageError."""
    if embedded is not None:
        with folder.exclusive("engine", timeout_s=60.0):
            embedded.ensure()


def _leave_folder(folder: CrawlFolder, lock: SessionLock, embedded: EmbeddedEngine | None, *, may_remove: bool) -> None:
    """Close our session; the last session stops the embedded engine."""
    if embedded is None and not may_remove:
        lock.close()
        return
    with folder.exclusive("engine", timeout_s=60.0):
        lock.close()
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
