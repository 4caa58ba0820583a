"""Claims that go back unfetched: their queues are due when they would have been here, and are not forgotten."""

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from crawler.errors import EngineDown, EngineError
from crawler.frontier.frontier import Fence
from crawler.instance import work as work_module
from crawler.instance.clock import monotonic_ms
from crawler.instance.state import Flow, RecentUrls
from crawler.instance.work import PartitionWork
from crawler.instance.workbench import Workbench
from crawler.model import AckOutcome, Claim
from tests.instance.test_workbench import batch, claim

CLOCK_MS = 500_000  # the partition's


class Engine:
    """Takes claims back, but for the first calls."""

    def __init__(self, *, fails: int = 0) -> None:
        self.fails = fails
        self.given: list[tuple[str, int]] = []

    def give_back_call(self, fence: Fence, given: Sequence[tuple[Claim, int]]) -> Any:
        return given

    async def end(self, calls: Sequence[Any]) -> list[AckOutcome | EngineError]:
        self.fails -= 1
        if self.fails >= 0:
            return [EngineDown("no answer") for _ in calls]
        self.given += [(c.url, at) for call in calls for c, at in call]
        return [AckOutcome.COMMITTED for _ in calls]


class Scheduled(dict[int, int]):
    """Stands for the claimer: partition -> when it is to be asked (monotonic ms)."""

    def schedule(self, partition: int, at_ms: int = 0) -> None:
        self[partition] = at_ms


def work_of(engine: Any, bench: Workbench, claimer: Any) -> PartitionWork:
    flow, spawn, archive = Flow(recent=RecentUrls(10)), Any, SimpleNamespace()
    flow.claimed(1, 10)
    work = PartitionWork(engine, bench, flow, spawn=spawn)  # type: ignore[arg-type]
    ownership: Any = SimpleNamespace(fence_of=lambda p: Fence(p, "s", 1, CLOCK_MS), is_open=lambda _: True)
    work.serve(ownership, claimer, archive)  # type: ignore[arg-type]
    return work


async def test_the_queue_of_a_claim_that_goes_back_is_due_when_it_would_have_been_here() -> None:
    engine, scheduled, bench = Engine(), Scheduled(), Workbench(concurrency_per_queue=1)
    bench.put(batch(1, 2, delay_ms=20_000))
    lane, _ = await bench.take()
    bench.finished(lane, wait_ms=20_000)
    stale = bench.take_stale(wait_max_ms=2_000, age_max_ms=60_000)
    await work_of(engine, bench, scheduled).return_claims(stale)
    ((url, at),) = engine.given
    assert url == claim(2).url
    assert at - CLOCK_MS == pytest.approx(20_000, abs=500)
    assert scheduled[1] - monotonic_ms() == pytest.approx(20_000, abs=500), "else nobody looks for it"


async def test_a_claim_of_a_queue_that_need_not_wait_leaves_its_clock_alone() -> None:
    engine, scheduled = Engine(), Scheduled()
    await work_of(engine, Workbench(concurrency_per_queue=1), scheduled).return_claims([claim(1)])
    assert engine.given == [(claim(1).url, 0)]


async def test_what_the_engine_did_not_take_is_offered_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else it would come back only after the visibility timeout, minutes later."""
    monkeypatch.setattr(work_module, "ENGINE_PAUSE_S", 0.001)
    engine = Engine(fails=1)
    await work_of(engine, Workbench(concurrency_per_queue=1), Scheduled()).return_claims([claim(1)])
    assert len(engine.given) == 1
