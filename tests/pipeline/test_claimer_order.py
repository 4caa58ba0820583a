"""Which partitions the claimer asks first, and for how much."""

import asyncio
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from crawler.frontier.frontier import ClaimRequest, Fence
from crawler.frontier.messages import ClaimReply
from crawler.pipeline import claim as claimer_module
from crawler.pipeline.claim import LEAD_MS, URLS_PER_CALL, Claimer
from crawler.pipeline.schedule import Workbench
from crawler.runtime.clock import monotonic_ms
from crawler.runtime.counters import Flow, RecentUrls
from crawler.settings import Settings
from tests.pipeline.test_schedule import batch

NOW_MS = 100_000  # of every partition


class Overdue:
    """Partitions that give one URL at each call, and have a further queue that is due for so long (ms)."""

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

    async def awake(self, partitions: Any) -> list[tuple[int, int]]:
        return []


async def rounds(frontier: Overdue, flow: Flow, *, n: int) -> Claimer:
    ownership: Any = SimpleNamespace(
        is_open=lambda _: True,
        fence_of=lambda p: Fence(p, "s", 1, NOW_MS),
        now_of=lambda _: NOW_MS,
        held={p: SimpleNamespace(epoch=1) for p in frontier.overdue_ms},
    )
    any_frontier: Any = frontier
    claimer = Claimer(any_frontier, ownership, Workbench(concurrency_per_queue=1), flow, Settings())
    for partition in frontier.overdue_ms:
        claimer.schedule(partition)
    for _ in range(n):
        await asyncio.wait_for(claimer._round(), 1)
    return claimer


async def test_the_partition_whose_queue_has_been_due_for_longest_is_asked_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(claimer_module, "PARTITIONS_PER_ROUND", 2)
    frontier = Overdue({1: 10, 2: 5_000, 3: 90, 4: 700})
    await rounds(frontier, Flow(recent=RecentUrls(10)), n=4)
    assert sorted(p for asked in frontier.asked[:2] for p in asked) == [1, 2, 3, 4]
    assert frontier.asked[2:] == [[2, 4], [2, 4]], "as long as theirs are the oldest"


@pytest.mark.parametrize(("in_hand", "ahead_ms", "lead_ms"), [(0, 2000, LEAD_MS), (900, 0, 0)])
async def test_urls_are_claimed_ahead_only_while_there_is_room_for_those_that_are_due(
    in_hand: int, ahead_ms: int, lead_ms: int
) -> None:
    frontier, flow = Overdue({1: 0}), Flow(recent=RecentUrls(10))
    flow.claimed(1, in_hand)
    await rounds(frontier, flow, n=1)
    assert [(request.ahead_ms, request.lead_ms) for request in frontier.requests] == [(ahead_ms, lead_ms)]


async def test_a_queue_is_claimed_before_it_is_due_unless_there_is_little_room() -> None:
    frontier, flow = Overdue({1: -1_000}), Flow(recent=RecentUrls(10))
    began_ms = monotonic_ms()
    claimer = await rounds(frontier, flow, n=1)
    claimer.due(1, began_ms + LEAD_MS)
    await asyncio.wait_for(claimer._round(), 1)
    assert len(frontier.requests) == 2
    flow.claimed(1, 900)
    claimer.due(1, began_ms + LEAD_MS)
    await asyncio.wait_for(claimer._round(), 1)
    assert len(frontier.requests) == 2, "not when there is so little room"


async def test_where_there_is_little_room_few_partitions_are_asked_for_more_than_one_url_each() -> None:
    frontier, flow = Overdue(dict.fromkeys(range(6), 0)), Flow(recent=RecentUrls(10))
    most = Settings().fetch.concurrency * 16
    flow.claimed(1, most - 2 * URLS_PER_CALL)
    await rounds(frontier, flow, n=1)
    assert [request.urls_max for request in frontier.requests] == [URLS_PER_CALL] * 2
    flow.claimed(1, most - flow.outstanding - 1)
    await rounds(frontier, flow, n=1)
    assert [request.urls_max for request in frontier.requests[2:]] == [1], "the last place is given away, too"
