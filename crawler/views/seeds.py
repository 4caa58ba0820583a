"""Seeds for a crawl that runs or will run: added in batches, while no instance takes the crawl for finished."""

import asyncio
import contextlib
import secrets
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable, Sequence

import msgspec

from crawler.crawl.opening import OpenCrawl, make_seeder, member_of
from crawler.crawl.url_input import GivenUrl, SeedReport
from crawler.errors import EngineError
from crawler.frontier.operator import Actor
from crawler.membership.heartbeat import BeatCalls, Heartbeat, SessionLiveness
from crawler.runtime.process import first_error
from crawler.views.commands import check_seed_options

Batches = AsyncIterable[Iterable[GivenUrl]] | Iterable[Iterable[GivenUrl]]


class SeedComplaint(msgspec.Struct, frozen=True, kw_only=True):
    """A given URL that was not added, and why."""

    where: str  # like "line 7"
    url: str
    reason: str


class SeedResult(msgspec.Struct, frozen=True, kw_only=True):
    """What became of the given URLs; complaints about the first thousand of each kind."""

    new: int
    retried: int  # had failed, and are put back into their queues
    seen: int
    out_of_scope: int
    invalid: int
    complaints: Sequence[SeedComplaint]


async def add_seeds(
    crawl: OpenCrawl,
    batches: Batches,
    *,
    depth: int = 0,
    priority: float | None = None,
    given: str,
    actor: Actor,
    on_batch: Callable[[SeedReport], None] = lambda _: None,
) -> SeedResult:
    """Add URLs, a batch at a time, so they are never all in memory; repeating is safe.

    `given` is what the operator log calls them, like "3 URLs". `on_batch` gets the counts so far. Raises UsageError for
    a depth or priority out of bounds, EngineError when the engine does not take them, ConflictError when it lost the
    crawl, ArchiveError when the folder's journal can't be written, and whatever `batches` raises.
    """
    check_seed_options(depth, priority)
    await crawl.operator_log.add(actor, "seed", "", given)
    seeder = make_seeder(await crawl.reloaded(), depth=depth, priority=priority)
    async with seeding_member(crawl):
        async for batch in _each(batches):
            on_batch(await seeder.add_all(batch))
    return _result(seeder.report)


async def _each(batches: Batches) -> AsyncIterator[Iterable[GivenUrl]]:
    if isinstance(batches, AsyncIterable):
        async for batch in batches:
            yield batch
    else:
        for batch in batches:
            yield batch


def _result(report: SeedReport) -> SeedResult:
    complaints = [SeedComplaint(where=where, url=url, reason=reason) for where, url, reason in report.invalid]
    complaints += [
        SeedComplaint(where="", url=url, reason=f"out of scope: {rule}") for url, rule in report.out_of_scope_rules
    ]
    return SeedResult(
        new=report.new, retried=report.retried, seen=report.seen, out_of_scope=report.out_of_scope,
        invalid=report.invalid_count, complaints=complaints,
    )  # fmt: skip


@contextlib.asynccontextmanager
async def seeding_member(crawl: OpenCrawl) -> AsyncIterator[None]:
    """Be on the member list as a seeder, with heartbeats: no crawl ends meanwhile. A process may be it many times."""
    session = secrets.token_hex(6)
    member = msgspec.structs.replace(member_of(crawl, f"seed-{session}", state="seeding"), session=session)
    await crawl.members.join(member)

    async def still() -> None:
        await crawl.crawls.still(crawl.record)

    settings = crawl.settings.membership
    liveness = SessionLiveness(settings)
    heartbeat = Heartbeat(crawl.members, member, settings, liveness=liveness, calls=BeatCalls(check_crawl=still))
    try:
        async with asyncio.TaskGroup() as group:
            beating = group.create_task(heartbeat.run(), name="heartbeat")
            yield
            beating.cancel()
    except BaseExceptionGroup as errors:
        raise first_error(errors) from None
    finally:
        with contextlib.suppress(EngineError):
            await crawl.members.leave(member)
