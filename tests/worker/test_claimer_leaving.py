"""A leaving instance waits for the claims of its last call: they must be fetched or returned."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from crawler.errors import EngineDown
from crawler.frontier.messages import ClaimReply
from crawler.frontier.owner import Awake
from crawler.worker.claim import Claimer
from crawler.worker.counters import Counters
from crawler.worker.open_claims import OpenClaims
from crawler.worker.schedule import Scheduler
from tests.support.patience import PATIENCE_S, others_run
from tests.worker.test_schedule import batch
from tests.worker.turn_lab import claimer_with, held_with


class SlowFrontier:
    """Answers a claim when told to."""

    session = "s"

    def __init__(self) -> None:
        self.answer: asyncio.Future[list[ClaimReply]] = asyncio.get_running_loop().create_future()

    async def claim(self, wanted: Any) -> list[ClaimReply]:
        return await self.answer

    async def awake(self, partitions: Any) -> list[Awake]:
        return []


@asynccontextmanager
async def leaving() -> AsyncIterator[tuple[SlowFrontier, Scheduler, Claimer]]:
    """A claimer that has been told to stop while a claim is on its way."""
    frontier, counters = SlowFrontier(), Counters(OpenClaims(1000))
    scheduler = Scheduler(counters.open_claims, concurrency_per_queue=1)
    claimer, due = claimer_with(frontier, held_with(1), counters, scheduler=scheduler)
    due.schedule(1)
    running = asyncio.create_task(claimer.run())
    await others_run()
    counters.is_stopping = True
    try:
        yield frontier, scheduler, claimer
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def test_settling_waits_for_the_claims_of_the_last_call() -> None:
    async with leaving() as (frontier, scheduler, claimer):
        settled = asyncio.create_task(claimer.settle())
        await others_run()
        assert not settled.done()
        frontier.answer.set_result([ClaimReply(status="OK", batches=(batch(1),))])
        await asyncio.wait_for(settled, PATIENCE_S)
        assert scheduler.waiting == 1


async def test_settling_ends_when_the_engine_does_not_answer() -> None:
    async with leaving() as (frontier, _, claimer):
        frontier.answer.set_exception(EngineDown("no answer"))
        await asyncio.wait_for(claimer.settle(), PATIENCE_S)
