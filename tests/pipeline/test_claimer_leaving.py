"""Who leaves waits for the claims that are on their way: they must be fetched or given back, not cut off."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

from crawler.errors import EngineDown
from crawler.frontier.frontier import Fence
from crawler.frontier.messages import ClaimReply
from crawler.pipeline.claim import Claimer
from crawler.pipeline.schedule import Workbench
from crawler.runtime.counters import Flow, RecentUrls
from crawler.settings import Settings
from tests.pipeline.test_schedule import batch


class SlowFrontier:
    """Answers a claim when told to."""

    session = "s"

    def __init__(self) -> None:
        self.answer: asyncio.Future[list[ClaimReply]] = asyncio.get_running_loop().create_future()

    async def claim(self, wanted: Any) -> list[ClaimReply]:
        return await self.answer

    async def awake(self, partitions: Any) -> list[tuple[int, int]]:
        return []


def claimer_of(frontier: Any, bench: Workbench, flow: Flow) -> Claimer:
    ownership: Any = SimpleNamespace(
        is_open=lambda _: True, fence_of=lambda p: Fence(p, "s", 1, 0), held={1: SimpleNamespace(epoch=1)}
    )
    claimer = Claimer(frontier, ownership, bench, flow, Settings())
    claimer.schedule(1)
    return claimer


@asynccontextmanager
async def leaving() -> AsyncIterator[tuple[SlowFrontier, Workbench, Claimer]]:
    """A claimer that has been told to stop while a claim is on its way."""
    frontier, bench, flow = SlowFrontier(), Workbench(concurrency_per_queue=1), Flow(recent=RecentUrls(10))
    claimer = claimer_of(frontier, bench, flow)
    running = asyncio.create_task(claimer.run())
    await asyncio.sleep(0.01)
    flow.is_stopping = True
    try:
        yield frontier, bench, claimer
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def test_settling_waits_until_the_claims_of_the_last_call_are_in_hand() -> None:
    async with leaving() as (frontier, bench, claimer):
        settled = asyncio.create_task(claimer.settle())
        await asyncio.sleep(0.05)
        assert not settled.done()
        frontier.answer.set_result([ClaimReply(status="OK", batches=(batch(1),))])
        await asyncio.wait_for(settled, 1.0)
        assert bench.waiting == 1


async def test_settling_ends_when_the_engine_does_not_answer() -> None:
    async with leaving() as (frontier, _, claimer):
        frontier.answer.set_exception(EngineDown("no answer"))
        await asyncio.wait_for(claimer.settle(), 1.0)
