"""Groups of pages on their way to the archive and the engine: they overlap, and each page keeps its order."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from crawler.frontier.owner import Settlement
from crawler.model import Claim, ParsedPage
from crawler.rules.introductions import Introductions
from crawler.settings import ArchiveSettings
from crawler.worker.activity import Activity
from crawler.worker.commit import Committer, Ends
from crawler.worker.counters import Counters
from crawler.worker.open_claims import OpenClaims
from crawler.worker.outcomes import Committable
from crawler.worker.route import HeldBack
from crawler.worker.schedule import Scheduler
from tests.support.patience import PATIENCE_S, others_run
from tests.worker.test_schedule import claim
from tests.worker.turn_lab import content_steps, work_of

GROUP = 4
WAITING: Any = SimpleNamespace(
    active=1, remove_all=lambda: [claim(7, "a.test", 1)]
)  # a request is in flight, one waits


class Stages:
    """The three stages; each waits until its gate is open. `steps` are what was done with which pages."""

    def __init__(self) -> None:
        self.steps: list[tuple[str, tuple[str, ...]]] = []
        self.synced, self.acked = asyncio.Semaphore(0), asyncio.Semaphore(0)
        self.wants_drain = self.is_full = False

    async def store(self, group: Sequence[Committable]) -> list[Any] | None:
        self._note("write", group)
        await self.synced.acquire()
        if self.is_full:
            return None
        self._note("archive", group)
        return [SimpleNamespace(digest="", warc=None, items=None) for _ in group]

    async def route(self, group: Sequence[Committable]) -> list[Any]:
        self._note("route", group)
        return [[] for _ in group]

    async def have_room(self) -> None:
        return None

    async def ack(self, acks: Sequence[Any]) -> list[None]:
        await self.acked.acquire()
        self.steps.append(("ack", tuple(ack.claim.fingerprint for ack in acks)))
        return [None] * len(acks)

    def _note(self, step: str, group: Sequence[Committable]) -> None:
        self.steps.append((step, tuple(one.claim.fingerprint for one in group)))


def outcome(number: int) -> Committable:
    response: Any = SimpleNamespace(
        status=200,
        started_at=0.0,
        content_type="",
        body=b"",
        truncated="",
        decode_error="",
        fetch_ms=1,
        url="http://a.test/",
    )
    return Committable(
        claim=claim(number, "a.test", 1), response=response, page=ParsedPage(), settlement=Settlement(next_fetch_ms=0)
    )


def held_back_of(held: Any, counters: Counters) -> HeldBack:
    scheduler = Scheduler(counters.open_claims, concurrency_per_queue=1)
    return HeldBack(Introductions(), work_of(scheduler=scheduler, held=held, counters=counters), no_returns)


def returned_of(stages: Stages) -> Any:
    """Claims that go back are a step of the stages."""

    async def returned(claims: list[Claim], *, started: bool) -> None:
        stages.steps.append(("started" if started else "waiting", tuple(claim.fingerprint for claim in claims)))

    return returned


async def no_returns(claims: list[Claim]) -> None:
    raise AssertionError(claims)


def committer_of(stages: Stages, open_claims: OpenClaims) -> Committer:
    anything: Any = SimpleNamespace(
        node="n",
        session="s",
        lost=lambda _: None,
        cut_off=lambda *_: None,
        room_changed=lambda: None,
        passed=lambda: None,
    )
    held: Any = SimpleNamespace(fence_of=lambda _: "fence", holds=lambda _: True)
    parts: Any = stages
    counters = Counters(open_claims)
    work = work_of(held=held, due=anything, counters=counters, activity=Activity(1), scheduler=WAITING)
    ends = Ends(notes=anything, hooks=anything, content=content_steps(), internal_errors=anything)
    settings = ArchiveSettings(sync_s=60.0, sync_pages=GROUP)
    return Committer(parts, parts, parts, held_back_of(held, counters), work, ends, settings, returned_of(stages))


@contextlib.asynccontextmanager
async def committing(stages: Stages, pages: int) -> AsyncIterator[Committer]:
    """A committer at work, which gets this many pages."""
    outcomes, open_claims = [outcome(number) for number in range(pages)], OpenClaims(1000)
    open_claims.opened([one.claim for one in outcomes])
    committer = committer_of(stages, open_claims)
    loops = [asyncio.create_task(loop()) for loop in (committer.archive_groups, committer.commit_groups)]
    try:
        for number, one in enumerate(outcomes, 1):
            committer.deliver(one)
            if number % GROUP == 0:
                await others_run()
        yield committer
    finally:
        for loop in loops:
            loop.cancel()
        await asyncio.gather(*loops, return_exceptions=True)


async def test_a_group_is_written_while_the_one_before_is_acked_and_the_next_gathers() -> None:
    stages = Stages()
    stages.synced.release()
    async with committing(stages, 3 * GROUP) as committer:
        done = [(step, pages[0]) for step, pages in stages.steps]
        assert done == [("write", "0"), ("archive", "0"), ("route", "0"), ("write", "4")]
        assert committer.uncommitted == 3 * GROUP
        assert [one.fingerprint for one in committer.claims] == [str(number) for number in range(3 * GROUP)]


async def test_a_slow_engine_holds_up_the_archive_after_two_more_groups() -> None:
    stages = Stages()
    for _ in range(9):
        stages.synced.release()
    async with committing(stages, 9 * GROUP) as committer:
        assert [step for step, _ in stages.steps].count("archive") == 3
        for _ in range(9):
            stages.acked.release()
        async with asyncio.timeout(PATIENCE_S):
            while committer.uncommitted:
                await asyncio.sleep(0.01)
        assert committer.claims == []


async def test_each_page_is_archived_then_routed_then_acked_and_groups_keep_their_order() -> None:
    stages = Stages()
    for gate in (stages.synced, stages.acked):
        for _ in range(5):
            gate.release()
    async with committing(stages, 5 * GROUP) as committer:
        assert await committer.settle(2.0) == []
    for page in map(str, range(5 * GROUP)):
        assert [step for step, pages in stages.steps if page in pages] == ["write", "archive", "route", "ack"]
    acked = [page for step, pages in stages.steps if step == "ack" for page in pages]
    assert acked == [str(number) for number in range(5 * GROUP)]


async def test_what_was_archived_and_not_acked_when_the_loops_ended_is_committed_by_the_last_flush() -> None:
    stages = Stages()
    stages.synced.release()
    stages.synced.release()
    async with committing(stages, GROUP + 1) as committer:
        assert committer.uncommitted == GROUP + 1
        stages.acked.release()
        await others_run()
    stages.acked.release()
    await committer.flush()
    assert (committer.uncommitted, committer.claims) == (0, [])


async def test_pages_without_room_on_the_disk_go_back_with_all_that_waits_and_the_next_group_goes_on() -> None:
    stages = Stages()
    stages.is_full = True
    stages.synced.release()
    stages.acked.release()
    async with committing(stages, GROUP) as committer:
        assert stages.steps == [
            ("write", ("0", "1", "2", "3")), ("started", ("0", "1", "2", "3")), ("waiting", ("7",)),
        ]  # fmt: skip
        assert (committer.uncommitted, committer.claims) == (0, [])
        stages.is_full = False
        stages.synced.release()
        for number in range(GROUP):
            committer.deliver(outcome(number + 10))
        await others_run()
        assert stages.steps[-1] == ("ack", ("10", "11", "12", "13"))


@pytest.mark.parametrize("failing", ["store", "route"])
async def test_an_error_of_a_stage_ends_its_loop(failing: str) -> None:
    stages = Stages()
    stages.synced.release()

    async def broken(_: Sequence[Committable]) -> list[Any]:
        raise OSError(28, "No space left on device")

    setattr(stages, failing, broken)
    committer = committer_of(stages, OpenClaims(10))
    for number in range(GROUP):
        committer.deliver(outcome(number))
    loops = [asyncio.create_task(loop()) for loop in (committer.archive_groups, committer.commit_groups)]
    done, running = await asyncio.wait(loops, timeout=2, return_when=asyncio.FIRST_COMPLETED)
    assert [type(loop.exception()) for loop in done] == [OSError]
    for loop in running:
        loop.cancel()
    assert not any(step == "ack" for step, _ in stages.steps)
