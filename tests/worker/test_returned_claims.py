"""Claims that are returned unfetched: their queues keep their due times."""

import asyncio
import contextlib
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from crawler.errors import EngineDown, EngineError
from crawler.frontier.leases import Acquired
from crawler.frontier.owner import Aside, Fence, Settlement
from crawler.instance import rebalance as work_module
from crawler.instance.rebalance import PartitionRebalance
from crawler.model import AckOutcome, Claim
from crawler.runtime.clocks import monotonic_ms
from crawler.worker.counters import Counters
from crawler.worker.open_claims import OpenClaims
from crawler.worker.response_policy import Recall
from crawler.worker.schedule import Scheduler
from crawler.worker.turn import SetAside
from crawler.worker.work import UnsavedClocks
from tests.support.patience import PATIENCE_S, others_run
from tests.worker.test_schedule import batch, claim
from tests.worker.turn_lab import claims_open, held_with, work_of

CLOCK_MS = 500_000  # the partition's


class FakeFrontier:
    """Takes returned claims after `fails` errors."""

    def __init__(self, *, fails: int = 0) -> None:
        self.fails = fails
        self.given: list[tuple[str, int]] = []
        self.asides: list[Aside | None] = []
        self.recalled: list[tuple[str, bool]] = []
        self.stored: list[int] = []

    async def store_sessions(self, partition: int) -> None:
        self.stored.append(partition)

    async def recall(self, fence: Fence, queue: str, origin: str, *, is_good: bool, due_ms: int) -> None:
        self.fails -= 1
        if self.fails >= 0:
            raise EngineDown("no answer")
        self.recalled.append((origin, is_good))

    def return_claims(self, fence: Fence, given: Sequence[tuple[Claim, int]], *, aside: Aside | None) -> Any:
        self.asides.append(aside)
        return given

    async def end(self, calls: Sequence[Any]) -> list[AckOutcome | EngineError]:
        self.fails -= 1
        if self.fails >= 0:
            return [EngineDown("no answer") for _ in calls]
        self.given += [(c.url, at) for call in calls for c, at in call]
        return [AckOutcome.COMMITTED for _ in calls]


class FakeDuePartitions(dict[int, int]):
    """Partition -> when it is due (monotonic ms)."""

    def schedule(self, partition: int, at_ms: int = 0) -> None:
        self[partition] = at_ms


def rebalance_of(frontier: Any, scheduler: Scheduler, due: Any) -> PartitionRebalance:
    """The rebalance of a session that holds partition 1."""
    open_claims = claims_open([claim(n) for n in range(10)])
    unsaved = UnsavedClocks(scheduler)
    held = held_with(1, clock_ms=CLOCK_MS, dependents=(scheduler, unsaved))
    scheduler._open_claims = open_claims
    stages: Any = SimpleNamespace()
    work = work_of(
        held=held, scheduler=scheduler, due=due, counters=Counters(open_claims), unsaved=unsaved, backlog=stages
    )
    return PartitionRebalance(frontier, work, stages, overtaken=lambda *_: None, store_sessions=frontier.store_sessions)


async def test_a_returned_claims_queue_keeps_its_due_time() -> None:
    frontier, due = FakeFrontier(), FakeDuePartitions()
    scheduler = Scheduler(OpenClaims(1000), concurrency_per_queue=1)
    scheduler.put(batch(1, 2, delay_ms=20_000))
    slot, _ = await scheduler.next()
    scheduler.finished(slot, wait_ms=20_000)
    stale = scheduler.take_stale(wait_max_ms=2_000, age_max_ms=60_000)
    await rebalance_of(frontier, scheduler, due).return_claims(stale)
    ((url, at),) = frontier.given
    assert url == claim(2).url
    assert at - CLOCK_MS == pytest.approx(20_000, abs=10_000)
    assert due[1] - monotonic_ms() == pytest.approx(20_000, abs=10_000), "or the partition would not be claimed from"


async def test_a_returned_claim_leaves_the_clock_of_a_due_queue_alone() -> None:
    frontier, due = FakeFrontier(), FakeDuePartitions()
    scheduler = Scheduler(OpenClaims(1000), concurrency_per_queue=1)
    await rebalance_of(frontier, scheduler, due).return_claims([claim(1)])
    assert frontier.given == [(claim(1).url, 0)]


async def test_returns_that_the_engine_refused_are_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else it would come back only after the visibility timeout, minutes later."""
    monkeypatch.setattr(work_module, "ENGINE_PAUSE_S", 0.001)
    frontier = FakeFrontier(fails=1)
    scheduler = Scheduler(OpenClaims(1000), concurrency_per_queue=1)
    await rebalance_of(frontier, scheduler, FakeDuePartitions()).return_claims([claim(1)])
    assert len(frontier.given) == 1


async def test_recalls_that_the_engine_did_not_take_are_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else what is set aside would wait until its probe's time is over, minutes later; only the last one counts."""
    monkeypatch.setattr(work_module, "ENGINE_PAUSE_S", 0.001)
    frontier, due = FakeFrontier(fails=5), FakeDuePartitions()
    rebalance = rebalance_of(frontier, Scheduler(OpenClaims(1000), concurrency_per_queue=1), due)
    for what in (Recall("http://a.test", due_ms=5), Recall("http://a.test", is_good=True)):
        await rebalance.recall(claim(1), what)
    async with asyncio.timeout(PATIENCE_S), asyncio.TaskGroup() as group:
        jobs = group.create_task(rebalance.run())
        while not frontier.recalled:
            await asyncio.sleep(0.001)
        await others_run()
        jobs.cancel()
    assert (frontier.recalled, rebalance._recalls) == ([("http://a.test", True)], {})
    assert 1 in due


async def test_an_engine_that_may_have_lost_a_recall_is_told_again() -> None:
    """Else what is set aside would wait until its probe's time is over, minutes later."""
    frontier = FakeFrontier()
    rebalance = rebalance_of(frontier, Scheduler(OpenClaims(1000), concurrency_per_queue=1), FakeDuePartitions())
    await rebalance.recall(claim(1), Recall("http://a.test", is_good=True))
    await rebalance.recall(claim(2), Recall("http://b.test", is_good=True))
    await rebalance.set_aside([claim(2)], SetAside("http://b.test", monotonic_ms(), None))
    for repeated in (0, 1, 1):
        rebalance.acquired(1, log_entries=0, pending=0)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(0.05):
                await rebalance.run()
        assert frontier.recalled[2:] == [("http://a.test", True)] * repeated
        if not repeated:
            rebalance.engine_restarted()


async def test_a_recall_without_a_lease_is_made_up_for_when_there_is_one_again() -> None:
    frontier = FakeFrontier()
    rebalance = rebalance_of(frontier, Scheduler(OpenClaims(1000), concurrency_per_queue=1), FakeDuePartitions())
    rebalance._work.held.lose(1)
    await rebalance.recall(claim(1), Recall("http://a.test", is_good=True))
    assert frontier.recalled == []
    won = Acquired(partition=1, epoch=2, clock_ms=CLOCK_MS, log_entries=0, pending=0)
    rebalance._work.held.add(won, monotonic_ms(), is_wanted=True)
    rebalance.acquired(1, log_entries=0, pending=0)
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(0.05):
            await rebalance.run()
    assert frontier.recalled == [("http://a.test", True)]


async def test_claims_that_reach_their_row_after_its_recall_are_recalled() -> None:
    frontier, due = FakeFrontier(), FakeDuePartitions()
    rebalance = rebalance_of(frontier, Scheduler(OpenClaims(1000), concurrency_per_queue=1), due)
    rebalance._overtaken = lambda claims, end: Recall(end.origin, is_good=bool(frontier.given))
    await rebalance.set_aside([claim(1)], SetAside("http://a.test", 5, None))
    assert frontier.recalled == [("http://a.test", True)], "asked once they are in the row"


class ForgetfulFrontier(FakeFrontier):
    """Records the clocks that are stored in it after it fell back."""

    def __init__(self, *, fails: int = 0) -> None:
        super().__init__(fails=fails)
        self.booked: list[tuple[str, int, int]] = []

    def pace_call(self, fence: Fence, queue: str, settled: Settlement) -> Any:
        return queue, settled.next_fetch_ms - fence.now_ms, settled.delay_ms

    async def end(self, calls: Sequence[Any]) -> list[AckOutcome | EngineError]:
        self.fails -= bool(calls)
        if self.fails >= 0:
            return [EngineDown("no answer") for _ in calls]
        self.booked += calls
        return [AckOutcome.COMMITTED for _ in calls]


async def lost_partition(frontier: ForgetfulFrontier, *, wait_ms: int = 20_000) -> PartitionRebalance:
    """Partition 1 was lost after a request to a.test, which has a delay of 20 s and is due again in `wait_ms`."""
    scheduler = Scheduler(OpenClaims(1000), concurrency_per_queue=1)
    scheduler.put(batch(1, 2, delay_ms=20_000))
    slot, _ = await scheduler.next()
    scheduler.finished(slot, wait_ms=20_000)
    slot.next_ms += wait_ms - 20_000
    rebalance = rebalance_of(frontier, scheduler, SimpleNamespace(schedule=lambda *_: None))
    rebalance._work.held.drop([1])
    return rebalance


async def test_queue_clocks_are_saved_before_a_restored_lease_is_released() -> None:
    """The engine may have lost the request and the robots.txt that asked for the delay."""
    frontier = ForgetfulFrontier()
    rebalance = await lost_partition(frontier)
    await rebalance.give_back(1)
    ((queue, wait_ms, delay_ms),) = frontier.booked
    assert (queue, delay_ms) == ("a.test", 20_000)
    assert wait_ms == pytest.approx(20_000, abs=500)
    await rebalance.give_back(1)
    assert len(frontier.booked) == 1, "saved once"
    assert frontier.stored == [1, 1], "sessions, too"


async def test_a_partition_is_kept_while_its_clocks_can_not_be_saved() -> None:
    frontier = ForgetfulFrontier(fails=1)
    rebalance = await lost_partition(frontier)
    with pytest.raises(EngineDown):
        await rebalance.give_back(1)
    await rebalance.give_back(1)
    assert len(frontier.booked) == 1


async def test_queue_clocks_are_saved_when_a_partition_is_acquired_again() -> None:
    frontier = ForgetfulFrontier()
    rebalance = await lost_partition(frontier)
    running = asyncio.create_task(rebalance.run())
    rebalance.acquired(1, log_entries=0, pending=0)
    await others_run()
    running.cancel()
    assert [queue for queue, *_ in frontier.booked] == ["a.test"]


async def test_a_queue_waits_for_its_delay_after_others_may_have_had_a_shorter_one() -> None:
    """Another session that had the partition did not know the delay, when the engine had lost it."""
    frontier = ForgetfulFrontier()
    rebalance = await lost_partition(frontier, wait_ms=1_000)
    await rebalance.give_back(1)
    ((_, wait_ms, delay_ms),) = frontier.booked
    assert (wait_ms, delay_ms) == (20_000, 20_000)
