"""When the claimer looks again: at the time that it was told, also when it was told in its sleep."""

import asyncio
from types import SimpleNamespace
from typing import Any

from crawler.frontier.frontier import ClaimReply, Fence
from crawler.pipeline.claim import SWEEP_MS, Claimer
from crawler.pipeline.schedule import Workbench
from crawler.runtime.clock import monotonic_ms
from crawler.runtime.counters import Flow, RecentUrls
from crawler.settings import Settings

NOW_MS = 1_000_000  # of the partition's clock


class EmptyFrontier:
    """Notes when it is asked, and has nothing."""

    session = "s"

    def __init__(self) -> None:
        self.asked = asyncio.Event()

    async def claim(self, wanted: Any) -> list[ClaimReply]:
        self.asked.set()
        return [ClaimReply(status="OK") for _ in wanted]

    async def awake(self, partitions: Any) -> list[tuple[int, int]]:
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


class Unheard:
    """Its partition has nothing for a minute, as far as its owner knows; then somebody adds to it, without a hint."""

    session = "s"

    def __init__(self) -> None:
        self.claims_ms: list[int] = []
        self.added = False
        self.due_ms = NOW_MS

    async def claim(self, wanted: Any) -> list[ClaimReply]:
        self.claims_ms.append(monotonic_ms())
        return [ClaimReply(status="OK", next_due_ms=NOW_MS + 60_000) for _ in wanted]

    async def awake(self, partitions: Any) -> list[tuple[int, int]]:
        return [(p, self.due_ms) for p in partitions] if self.added else []


async def swept(frontier: Any) -> Claimer:
    """A claimer that has asked its partition once, was told to come back in a minute, and then has swept."""
    ownership: Any = SimpleNamespace(
        is_open=lambda _: True,
        fence_of=lambda p: Fence(p, "s", 1, NOW_MS),
        now_of=lambda _: NOW_MS,
        held={1: SimpleNamespace(epoch=1)},
    )
    bench, flow = Workbench(concurrency_per_queue=1), Flow(recent=RecentUrls(10))
    claimer = Claimer(frontier, ownership, bench, flow, Settings())
    claimer.schedule(1)
    await claimer._round()
    assert len(frontier.claims_ms) == 1
    frontier.added = True
    claimer._swept_ms = 0
    await claimer._round()
    return claimer


async def test_a_lost_hint_costs_one_sweep_although_the_partition_is_due_in_a_minute() -> None:
    frontier = Unheard()
    await swept(frontier)
    assert len(frontier.claims_ms) == 2


async def test_what_a_sweep_finds_is_claimed_when_it_is_due_and_not_before() -> None:
    frontier = Unheard()
    frontier.due_ms = NOW_MS + 5000
    claimer = await swept(frontier)
    assert len(frontier.claims_ms) == 1
    at_ms = claimer._due[1] - monotonic_ms()
    assert 4000 < at_ms <= 5000
    claimer._swept_ms = 0
    await claimer._round()  # the same again: no further entry
    assert (len(frontier.claims_ms), claimer._due[1] - monotonic_ms() <= at_ms) == (1, True)
