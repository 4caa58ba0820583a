"""Which partitions the claimer asks first, and for how much."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from crawler.frontier.messages import ClaimReply
from crawler.frontier.operator import EVERYWHERE, Overrides
from crawler.frontier.owner import Awake, ClaimRequest, Fence
from crawler.runtime.clocks import monotonic_ms
from crawler.worker import claim as claimer_module
from crawler.worker.claim import FULL_CLAIMS_MAX, URLS_PER_CALL, Claimer
from crawler.worker.counters import Counters
from crawler.worker.open_claims import OpenClaims
from crawler.worker.work import LEAD_MS, DuePartitions
from tests.support.patience import PATIENCE_S
from tests.worker.test_schedule import batch, claim
from tests.worker.turn_lab import claimer_with, held_with

NOW_MS = 100_000  # of every partition


class OverdueFrontier:
    """Partitions that give one URL per call, and have another queue that has been due for `overdue_ms`."""

    session = "s"

    def __init__(self, overdue_ms: dict[int, int]) -> None:
        self.overdue_ms = overdue_ms
        self.asked: list[list[int]] = []
        self.requests: list[ClaimRequest] = []

    async def claim(self, wanted: Sequence[tuple[Fence, ClaimRequest]]) -> list[ClaimReply]:
        self.asked.append([fence.partition for fence, _ in wanted])
        self.requests += [request for _, request in wanted]
        return [self._reply(fence.partition) for fence, _ in wanted]

    def _reply(self, partition: int) -> ClaimReply:
        claims = batch(1, queue=f"q{partition}-{len(self.asked)}.test", partition=partition)
        return ClaimReply(status="OK", next_due_ms=NOW_MS - self.overdue_ms[partition], batches=(claims,))

    async def awake(self, partitions: Any) -> list[Awake]:
        return []


def fill(counters: Counters, claims: int) -> None:
    """Open this many more claims."""
    first = counters.open_claims.total
    counters.open_claims.opened([claim(n, "other.test") for n in range(first + 1000, first + 1000 + claims)])


async def rounds(frontier: OverdueFrontier, counters: Counters, *, n: int) -> tuple[Claimer, DuePartitions]:
    held = held_with(*frontier.overdue_ms, clock_ms=NOW_MS)
    any_frontier: Any = frontier
    claimer, due = claimer_with(any_frontier, held, counters)
    for partition in frontier.overdue_ms:
        due.schedule(partition)
    for _ in range(n):
        await asyncio.wait_for(claimer._round(), PATIENCE_S)
    return claimer, due


async def test_the_partition_whose_queue_has_been_due_for_longest_is_asked_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(claimer_module, "PARTITIONS_PER_ROUND", 2)
    frontier = OverdueFrontier({1: 10, 2: 5_000, 3: 90, 4: 700})
    await rounds(frontier, Counters(OpenClaims(1000)), n=4)
    assert sorted(p for asked in frontier.asked[:2] for p in asked) == [1, 2, 3, 4]
    assert frontier.asked[2:] == [[2, 4], [2, 4]], "as long as theirs are the oldest"


@pytest.mark.parametrize(("in_memory", "ahead_ms", "lead_ms"), [(0, 2000, LEAD_MS), (900, 0, 0)])
async def test_urls_are_claimed_ahead_only_while_there_is_room(in_memory: int, ahead_ms: int, lead_ms: int) -> None:
    frontier, counters = OverdueFrontier({1: 0}), Counters(OpenClaims(1000))
    fill(counters, in_memory)
    await rounds(frontier, counters, n=1)
    assert [(request.ahead_ms, request.lead_ms) for request in frontier.requests] == [(ahead_ms, lead_ms)]


async def test_a_queue_is_claimed_early_unless_there_is_little_room() -> None:
    frontier, counters = OverdueFrontier({1: -1_000}), Counters(OpenClaims(1000))
    began_ms = monotonic_ms()
    claimer, due = await rounds(frontier, counters, n=1)
    due.queue_due(1, began_ms + LEAD_MS)
    await asyncio.wait_for(claimer._round(), PATIENCE_S)
    assert len(frontier.requests) == 2
    fill(counters, 900)
    due.queue_due(1, began_ms + LEAD_MS)
    await asyncio.wait_for(claimer._round(), PATIENCE_S)
    assert len(frontier.requests) == 2, "not when there is so little room"


async def test_with_little_room_few_partitions_give_several_urls_each() -> None:
    frontier, counters = OverdueFrontier(dict.fromkeys(range(6), 0)), Counters(OpenClaims(1000))
    fill(counters, 1000 - 2 * URLS_PER_CALL)
    await rounds(frontier, counters, n=1)
    assert [request.urls_max for request in frontier.requests] == [URLS_PER_CALL] * 2
    fill(counters, 999 - counters.open_claims.total)
    await rounds(frontier, counters, n=1)
    assert [request.urls_max for request in frontier.requests[2:]] == [1], "the last place is given away, too"


async def test_while_the_engine_is_full_a_few_claims_are_open_one_of_a_queue_and_held_pages_do_not_count() -> None:
    frontier, counters = OverdueFrontier({1: 0}), Counters(OpenClaims(1000), is_engine_full=True, held_pages=5)
    fill(counters, FULL_CLAIMS_MAX + 5 - 2)
    await rounds(frontier, counters, n=1)
    asked = [(request.urls_max, request.per_queue_max, request.ahead_ms) for request in frontier.requests]
    assert asked == [(2, 1, 0)]
    fill(counters, 1)
    await rounds(frontier, counters, n=1)
    assert len(frontier.requests) == 1, "there is no room"


@pytest.mark.parametrize("also", ["disk", "pause"])
async def test_a_full_engine_lets_nothing_be_claimed_on_a_full_disk_or_by_a_paused_crawl(also: str) -> None:
    frontier, counters = OverdueFrontier({1: 0}), Counters(OpenClaims(1000), is_engine_full=True)
    counters.is_disk_full = also == "disk"
    counters.overrides = Overrides(paused=frozenset([EVERYWHERE] if also == "pause" else []))
    await rounds(frontier, counters, n=1)
    assert frontier.requests == []
