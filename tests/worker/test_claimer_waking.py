"""When the claimer looks again: at the time that it was told, also when it was told in its sleep."""

import asyncio
from typing import Any

import pytest

from crawler.frontier.owner import Awake, ClaimReply
from crawler.runtime.clocks import monotonic_ms
from crawler.worker import claim
from crawler.worker.claim import Claimer
from crawler.worker.counters import Counters
from crawler.worker.open_claims import OpenClaims
from crawler.worker.work import DuePartitions
from tests.support.patience import PATIENCE_S, others_run
from tests.worker.turn_lab import claimer_with, held_with

NOW_MS = 1_000_000  # of the partition's clock


class EmptyFrontier:
    """Notes when it is asked, and has nothing."""

    session = "s"

    def __init__(self) -> None:
        self.asked = asyncio.Event()

    async def claim(self, wanted: Any) -> list[ClaimReply]:
        self.asked.set()
        return [ClaimReply(status="OK") for _ in wanted]

    async def awake(self, partitions: Any) -> list[Awake]:
        return []


async def test_a_queue_due_while_the_claimer_sleeps_wakes_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """The last ack of a queue gives the time when it is due again, a moment from now."""
    frontier: Any = EmptyFrontier()
    held = held_with(1)
    claimer, due = claimer_with(frontier, held, Counters(OpenClaims(1000)))
    monkeypatch.setattr(claim, "SWEEP_MS", 10**9)  # no sweep wakes it
    running = asyncio.create_task(claimer.run())
    await others_run()
    began = monotonic_ms()
    due.schedule(1, began + 50)
    await asyncio.wait_for(frontier.asked.wait(), PATIENCE_S)
    assert monotonic_ms() >= began + 50
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


class Unheard:
    """Its owner expects nothing for a minute; then another instance adds to the partition, and the hint is lost."""

    session = "s"

    def __init__(self) -> None:
        self.claims_ms: list[int] = []
        self.added = False
        self.due_ms: int | None = NOW_MS
        self.visible_ms: int | None = None

    async def claim(self, wanted: Any) -> list[ClaimReply]:
        self.claims_ms.append(monotonic_ms())
        return [ClaimReply(status="OK", next_due_ms=NOW_MS + 60_000) for _ in wanted]

    async def awake(self, partitions: Any) -> list[Awake]:
        return [Awake(p, self.due_ms, self.visible_ms) for p in partitions] if self.added else []


async def swept(frontier: Any) -> tuple[Claimer, DuePartitions]:
    """A claimer that has asked its partition once, was told to come back in a minute, and then has swept."""
    held = held_with(1, clock_ms=NOW_MS)
    claimer, due = claimer_with(frontier, held, Counters(OpenClaims(1000)))
    due.schedule(1)
    await claimer._round()
    assert len(frontier.claims_ms) == 1
    frontier.added = True
    claimer._sweep_at_ms = 0
    await claimer._round()
    return claimer, due


async def test_a_lost_hint_costs_one_sweep() -> None:
    frontier = Unheard()
    await swept(frontier)
    assert len(frontier.claims_ms) == 2


async def test_queues_found_by_a_sweep_are_claimed_when_they_are_due() -> None:
    frontier = Unheard()
    frontier.due_ms = NOW_MS + 50_000
    claimer, due = await swept(frontier)
    assert len(frontier.claims_ms) == 1
    at_ms = due._due[1] - monotonic_ms()
    assert 30_000 < at_ms <= 50_000
    claimer._sweep_at_ms = 0
    await claimer._round()  # the same again: no further entry
    assert (len(frontier.claims_ms), due._due[1] - monotonic_ms() <= at_ms) == (1, True)
