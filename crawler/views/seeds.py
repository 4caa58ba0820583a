"""Seeds for a crawl that runs or will run: added in batches, while no instance takes the crawl for finished.

While a backup pauses the crawl, the next batch waits (`recovery/pause.py`).
"""

import asyncio
import contextlib
import secrets
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable, Sequence

import msgspec

from crawler.crawl.opening import OpenCrawl, make_seeder, member_of
from crawler.crawl.url_input import GivenUrl, SeedReport
from crawler.errors import EngineError
from crawler.frontier.operator_log import Actor
from crawler.membership.heartbeat import BeatCalls, Heartbeat, SessionLiveness
from crawler.membership.living import Living
from crawler.runtime.tasks import first_error
from crawler.views.values import check_seed_options

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
    on_pause: Callable[[], None] = lambda: None,
) -> SeedResult:
    """Add URLs, a batch at a time, so they are never all in memory; repeating is safe.

    `given` is what the operator log calls them, like "3 URLs". `on_batch` gets the counts so far; `on_pause` is called
    when they wait for a backup. Raises UsageError for
    a depth or priority out of bounds, EngineError when the engine does not take them, ConflictError when it lost the
    crawl, ArchiveError when the folder's journal can't be written, and whatever `batches` raises.
    """
    check_seed_options(depth, priority)
    async with seeding_member(crawl, on_pause) as gate:
        async with gate.turn():
            await crawl.operator_log.add(actor, "seed", "", given)
            seeder = make_seeder(await crawl.reloaded(), depth=depth, priority=priority)
        async for batch in _each(batches):
            async with gate.turn():
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


class SeedGate:
    """Lets batches in while nothing pauses the crawl. `still_for`: the marks for which it stands still, which it never
    does for somebody who takes no turns.
    """

    def __init__(self, on_pause: Callable[[], None]) -> None:
        self._on_pause = on_pause
        self._marks: tuple[str, ...] = ()
        self._is_busy = True
        self._is_open = asyncio.Event()

    def follow(self, marks: tuple[str, ...]) -> None:
        self._marks = marks
        if marks:
            self._is_open.clear()
        else:
            self._is_open.set()

    @property
    def is_open(self) -> bool:
        return self._is_open.is_set()

    @property
    def still_for(self) -> tuple[str, ...]:
        return () if self._is_busy else self._marks

    @contextlib.asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """In this context the crawl may be changed."""
        self._is_busy = False
        if not self.is_open:
            self._on_pause()
        while not self.is_open:  # another mark may be there when the task wakes up
            await self._is_open.wait()
        self._is_busy = True
        try:
            yield
        finally:
            self._is_busy = False


@contextlib.asynccontextmanager
async def seeding_member(crawl: OpenCrawl, on_pause: Callable[[], None] = lambda: None) -> AsyncIterator[SeedGate]:
    """Be on the member list as a seeder, with heartbeats: no crawl ends meanwhile. A process may be it many times.

    Who changes the crawl without a turn of the gate makes a backup wait, and fail after a minute.
    """
    session, settings, gate = secrets.token_hex(6), crawl.settings.membership, SeedGate(on_pause)
    member = msgspec.structs.replace(member_of(crawl, f"seed-{session}", state="seeding"), session=session)
    await crawl.members.join(member)
    living = Living(crawl.members, settings)

    async def still() -> None:
        await crawl.crawls.still(crawl.record)

    async def follow() -> None:
        while True:
            await asyncio.sleep(settings.read_s)
            try:
                gate.follow(await living.pausing())
            except EngineError:
                if not gate.is_open:  # nobody else would find out
                    raise

    calls = BeatCalls(check_crawl=still, describe=lambda: {"still_for": gate.still_for})
    heartbeat = Heartbeat(crawl.members, member, settings, liveness=SessionLiveness(settings), calls=calls)
    try:
        gate.follow(await living.pausing())
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(some, name="heartbeat") for some in (heartbeat.run(), follow())]
            yield gate
            for task in tasks:
                task.cancel()
    except BaseExceptionGroup as errors:
        raise first_error(errors) from None
    finally:
        with contextlib.suppress(EngineError):
            await crawl.members.leave(member)
