"""When the claimer looks again: at the time that it was told, also when it was told in its sleep."""

import asyncio
from types import SimpleNamespace
from typing import Any

from crawler.frontier.frontier import ClaimReply, Fence
from crawler.instance.claimer import SWEEP_MS, Claimer
from crawler.instance.clock import monotonic_ms
from crawler.instance.state import Flow, RecentUrls
from crawler.instance.workbench import Workbench
from crawler.settings import Settings


class EmptyFrontier:
    """Notes when it is asked, and has nothing."""

    session = "s"

    def __init__(self) -> None:
        self.asked = asyncio.Event()

    async def claim(self, wanted: Any) -> list[ClaimReply]:
        self.asked.set()
        return [ClaimReply(status="OK") for _ in wanted]

    async def awake(self, partitions: Any) -> list[int]:
        return []


async def test_a_queue_that_becomes_due_while_the_claimer_sleeps_is_not_left_to_the_next_sweep() -> None:
    """The last ack of a queue says when it is due again: a moment from now, when nothing else is to be waited for."""
    frontier: Any = EmptyFrontier()
    ownership: Any = SimpleNamespace(
        is_open=lambda _: True, fence_of=lambda p: Fence(p, "s", 1, 0), held={1: SimpleNamespace(epoch=1)}
    )
    bench, flow = Workbench(concurrency_per_queue=1), Flow(recent=RecentUrls(10))
    claimer = Claimer(frontier, ownership, bench, flow, Settings())
    running = asyncio.create_task(claimer.run())
    await asyncio.sleep(0.02)
    began = monotonic_ms()
    claimer.schedule(1, began + 50)
    await asyncio.wait_for(frontier.asked.wait(), 2.0)
    assert 50 <= monotonic_ms() - began < SWEEP_MS / 2
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
