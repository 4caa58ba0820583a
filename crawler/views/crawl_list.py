"""Reads which crawls an engine has, and removes one from it. Needs no open crawl, only the engine."""

import enum

import msgspec

from crawler.engine.client import Engine
from crawler.errors import ConflictError, NoCrawlError
from crawler.frontier.crawls import CrawlList, ListedCrawl
from crawler.frontier.keys import Keys
from crawler.frontier.lookup import UrlLookup
from crawler.frontier.members import Members
from crawler.frontier.record import ARRIVING, MOVED, REMOVED
from crawler.membership.node_names import is_lock_free
from crawler.settings import MembershipSettings
from crawler.terminal.words import by_number
from crawler.views.shares import observed_members


class CrawlCondition(enum.StrEnum):
    """Whether this release can use a crawl."""

    READY = "ready"
    OTHER_LAYOUT = "other_layout"  # only the release that created it can use it
    BEING_REMOVED = "being_removed"  # a removal was interrupted, or runs now
    MOVED = "moved"  # to another engine
    LEAVING = "leaving"  # to another engine: the move was interrupted, or runs now
    ARRIVING = "arriving"  # from another engine: the move was interrupted, or runs now


class CrawlRow(msgspec.Struct, frozen=True, kw_only=True):
    """A crawl of an engine. `created_at` is wall clock, s; numbers are None where this release can't read them."""

    name: str
    condition: CrawlCondition
    created_at: float
    layout: int | None = None  # None where a mark is stored in the place of the record
    place: str = ""  # the other engine of a move
    pages: int | None = None
    pending: int | None = None
    instances: int | None = None  # that take part by their own word, without those whose process is proven dead


class RemovedCrawl(msgspec.Struct, frozen=True, kw_only=True):
    """What a removal deleted."""

    name: str
    keys: int


async def crawl_rows(engine: Engine) -> list[CrawlRow]:
    """All crawls of an engine, by name. Takes one pass over the partitions of each. Raises EngineError."""
    return [await _row(engine, one) for one in await CrawlList(engine).read()]


async def crawl_row(engine: Engine, name: str) -> CrawlRow:
    """One crawl. Raises NoCrawlError when the engine does not have it."""
    crawls = CrawlList(engine)
    found = await crawls.find(name)
    if found is None:
        known = ", ".join(one.name for one in await crawls.read()) or "none"
        raise NoCrawlError(f"the engine has no crawl {name!r} (it has: {known})")
    return await _row(engine, found)


async def remove_crawl(engine: Engine, name: str, membership: MembershipSettings) -> RemovedCrawl:
    """Delete all that the engine has of a crawl; its folders stay. Interrupted anywhere, the same call finishes it.

    Raises NoCrawlError when the engine does not have it, ConflictError while instances or seeding commands take part.
    """
    await crawl_row(engine, name)
    crawls, members = CrawlList(engine), Members(engine, Keys(name))
    listed, states = await observed_members(members, membership.beat_s)
    _check_unused(name, [listed[session].node for session, state in states.items() if state not in ("dead", "silent")])
    if await crawls.mark(name):
        late = [member.node for session, member in (await members.read()).items() if session not in listed]
        if late:  # they joined while we looked
            await crawls.unmark(name)
            _check_unused(name, late)
    return RemovedCrawl(name=name, keys=await crawls.erase(name))


def _check_unused(name: str, nodes: list[str]) -> None:
    if nodes:
        raise ConflictError(f"running on crawl {name!r}: {', '.join(sorted(nodes, key=by_number))}; stop them first")


async def _row(engine: Engine, crawl: ListedCrawl) -> CrawlRow:
    if mark := crawl.mark:
        left = CrawlCondition.MOVED if mark.is_done else CrawlCondition.LEAVING
        conditions = {REMOVED: CrawlCondition.BEING_REMOVED, MOVED: left, ARRIVING: CrawlCondition.ARRIVING}
        return CrawlRow(
            name=crawl.name, condition=conditions[mark.layout], created_at=crawl.begun_at, place=mark.place
        )  # fmt: skip
    if crawl.record is None:
        return CrawlRow(
            name=crawl.name,
            condition=CrawlCondition.OTHER_LAYOUT,
            created_at=crawl.begun_at,
            layout=crawl.layout,
        )
    keys = Keys(crawl.name)
    progress = await UrlLookup(engine, keys, crawl.record.partitions).progress()
    members = (await Members(engine, keys).read()).values()
    return CrawlRow(
        name=crawl.name,
        condition=CrawlCondition.READY,
        created_at=crawl.begun_at,
        layout=crawl.layout,
        pages=progress.fetched,
        pending=progress.pending,
        instances=sum(1 for member in members if member.is_at_work and not is_lock_free(member)),
    )
