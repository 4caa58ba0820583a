"""Which partitions the claimer asks first where some queues have a boost."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from crawler.frontier.messages import ClaimReply
from crawler.frontier.owner import Awake, ClaimRequest, Fence
from crawler.worker.claim import Claimer
from crawler.worker.counters import Counters
from crawler.worker.open_claims import OpenClaims
from crawler.worker.work import DuePartitions
from tests.support.patience import PATIENCE_S
from tests.worker.test_schedule import batch
from tests.worker.turn_lab import claimer_with, held_with

NOW_MS = 100_000  # of every partition
NEVER = -1


class BoostedFrontier:
    """Partitions that give one URL at each call; `left`: what is due then, by boost and for how long (ms)."""

    session = "s"

    def __init__(self, left: Mapping[int, Mapping[int, int]]) -> None:
        self.left = dict(left)
        self.asked: list[list[int]] = []

    async def claim(self, wanted: Sequence[tuple[Fence, ClaimRequest]]) -> list[ClaimReply]:
        self.asked.append([fence.partition for fence, _ in wanted])
        return [self._reply(fence.partition) for fence, _ in wanted]

    def _reply(self, partition: int) -> ClaimReply:
        due = {boost: -1 if ago == NEVER else NOW_MS - ago for boost, ago in self.left[partition].items()}
        claims = batch(1, queue=f"q{partition}-{len(self.asked)}.test", partition=partition)
        first = min((at_ms for at_ms in due.values() if at_ms >= 0), default=-1)
        waits = {(boost, ""): at_ms for boost, at_ms in due.items()} if set(due) != {0} else {}
        return ClaimReply(status="OK", next_due_ms=first, batches=(claims,), waits=waits)

    async def awake(self, partitions: Any) -> list[Awake]:
        return []


async def claimer_of(frontier: BoostedFrontier, *, rounds: int) -> tuple[Claimer, DuePartitions]:
    """A claimer that has claimed from all partitions once, and then for this many rounds."""
    held = held_with(*frontier.left, clock_ms=NOW_MS)
    any_frontier: Any = frontier
    claimer, due = claimer_with(any_frontier, held, Counters(OpenClaims(1000)))
    for partition in frontier.left:
        due.schedule(partition)
    for _ in range(1 + rounds):
        await asyncio.wait_for(claimer._round(), PATIENCE_S)
    return claimer, due


async def test_partitions_with_due_boosted_queues_are_claimed_from_first() -> None:
    frontier = BoostedFrontier({1: {0: 9_000}, 2: {3: 10, 0: 50}, 3: {3: 90, 0: NEVER}, 4: {5: NEVER, 0: 700}})
    claimer, _ = await claimer_of(frontier, rounds=2)
    assert frontier.asked[1:] == [[3, 2], [3, 2]]
    frontier.left.update({2: {3: NEVER, 0: 50}, 3: {3: NEVER, 0: NEVER}})
    for _ in range(2):
        await claimer._round()
    assert frontier.asked[3:] == [[3, 2], [1, 4, 2]]


async def test_a_partition_with_only_negative_boosts_is_claimed_from_last() -> None:
    frontier = BoostedFrontier({1: {0: 10}, 2: {-1: 90_000, 0: NEVER}})
    claimer, _ = await claimer_of(frontier, rounds=2)
    assert frontier.asked[1:] == [[1], [1]]
    frontier.left[1] = {0: NEVER}
    for _ in range(2):
        await claimer._round()
    assert frontier.asked[3:] == [[1], [2]]


async def test_a_woken_queue_lifts_a_partition_of_negative_boosts() -> None:
    frontier = BoostedFrontier({1: {0: 10}, 2: {-1: 90_000, 0: NEVER}})
    claimer, due = await claimer_of(frontier, rounds=1)
    due.hint(2)
    await claimer._round()
    assert frontier.asked[2:] == [[2, 1]]


async def test_a_sleeping_partition_with_boosts_is_swept_for_a_lost_hint() -> None:
    frontier = BoostedFrontier({1: {3: NEVER, 0: NEVER}})
    claimer, _ = await claimer_of(frontier, rounds=0)
    claimer._sweep_at_ms = 0
    await claimer._round()
    assert frontier.asked == [[1], [1]]


async def test_partitions_taken_by_boost_leave_no_entry_in_the_heap() -> None:
    claimer, due = await claimer_of(BoostedFrontier({1: {3: NEVER, 0: NEVER}, 2: {0: NEVER}}), rounds=0)
    due.hint(1)
    await claimer._round()
    assert (due._heap, due.is_idle) == ([], True)
