"""Which partitions the claimer asks first where several users have URLs."""

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from crawler.frontier.messages import ClaimReply, QueueBatch
from crawler.frontier.operator import Overrides
from crawler.frontier.owner import Awake, ClaimRequest, Fence
from crawler.runtime.clocks import monotonic_ms
from crawler.worker.claim import URLS_PER_CALL, Claimer
from crawler.worker.counters import Counters
from crawler.worker.open_claims import OpenClaims
from crawler.worker.work import DuePartitions
from tests.support.patience import PATIENCE_S
from tests.worker.test_claimer_order import fill
from tests.worker.test_schedule import batch
from tests.worker.turn_lab import claimer_with, held_with

NOW_MS = 100_000  # of every partition
ANN, BEN = "ann", "ben"


def of_user(user: str, n: int, partition: int, queue: str, waiting: tuple[str, ...] = ()) -> QueueBatch:
    one = batch(*range(n), queue=queue, partition=partition)
    return replace(one, claims=tuple(replace(claim, user=user) for claim in one.claims), waiting=waiting)


class SharedFrontier:
    """Partitions that give as many URLs as are asked for, of one user each time; `due`: users -> for how long (ms)."""

    session = "s"

    def __init__(self, due: Mapping[int, Mapping[str, int]]) -> None:
        self.due = due
        self.asked: list[list[int]] = []
        self.requests: list[ClaimRequest] = []
        self.got: Counter[str] = Counter()
        self.waiting: tuple[str, ...] = ()

    async def claim(self, wanted: Sequence[tuple[Fence, ClaimRequest]]) -> list[ClaimReply]:
        self.asked.append([fence.partition for fence, _ in wanted])
        self.requests += [request for _, request in wanted]
        return [self._reply(fence.partition, request) for fence, request in wanted]

    def _reply(self, partition: int, request: ClaimRequest) -> ClaimReply:
        due = self.due[partition]
        user = min(due, key=lambda one: self.got[one])
        self.got[user] += request.urls_max
        claims = of_user(user, request.urls_max, partition, f"q{partition}-{len(self.asked)}.test", self.waiting)
        first_ms = NOW_MS - max(due.values())
        return ClaimReply(status="OK", next_due_ms=first_ms, batches=(claims,), waits=self.waits(partition))

    def waits(self, partition: int) -> dict[tuple[int, str], int]:
        return {(0, user): NOW_MS - ago for user, ago in self.due[partition].items()} | {(0, ""): -1}

    async def awake(self, partitions: Any) -> list[Awake]:
        return []


def lab(frontier: SharedFrontier) -> tuple[Claimer, DuePartitions, Counters]:
    any_frontier: Any = frontier
    counters = Counters(OpenClaims(1000))
    claimer, due = claimer_with(any_frontier, held_with(*frontier.due, clock_ms=NOW_MS), counters)
    later_ms = monotonic_ms() - NOW_MS
    for partition, users in frontier.due.items():
        due.schedule(partition, later_ms + NOW_MS - max(users.values()))
        due.note_reply(partition, frontier.waits(partition), (), later_ms=later_ms)
    return claimer, due, counters


async def one_round(claimer: Claimer, counters: Counters) -> None:
    """With room for one call."""
    claimer._work.scheduler.remove_all()
    counters.open_claims = OpenClaims(1000)
    fill(counters, 1000 - URLS_PER_CALL)
    await asyncio.wait_for(claimer._round(), PATIENCE_S)


async def test_few_urls_are_claimed_though_a_hundred_partitions_have_been_due_for_longer() -> None:
    frontier = SharedFrontier({p: {ANN: 60_000 + p} for p in range(100)} | {7: {ANN: 60_000, BEN: 10}})
    claimer, _, counters = lab(frontier)
    for _ in range(10):
        await one_round(claimer, counters)
    assert [7] in frontier.asked[:2], "in one of the first two rounds"
    assert 4 <= frontier.asked.count([7]) <= 6, "and then in every second one, and no more"


async def test_nobody_is_paid_back_for_the_time_in_which_it_had_nothing() -> None:
    frontier = SharedFrontier({p: {ANN: 60_000} for p in range(20)})
    claimer, due, counters = lab(frontier)
    for _ in range(50):
        await one_round(claimer, counters)
    frontier.due = {**frontier.due, 13: {BEN: 1}}
    due.hint(13, BEN)
    for _ in range(20):
        await one_round(claimer, counters)
    assert 9 <= frontier.asked[50:].count([13]) <= 11


async def test_partitions_are_shared_by_weight() -> None:
    frontier = SharedFrontier({p: {ANN: 60_000} for p in range(20)} | {20: {BEN: 10}})
    claimer, due, counters = lab(frontier)
    due._turns._weight_of = {ANN: 3.0, BEN: 1.0}.__getitem__
    await one_round(claimer, counters)
    for _ in range(40):
        await one_round(claimer, counters)
    assert 9 <= frontier.asked.count([20]) <= 13


async def test_a_hint_for_a_user_is_followed_in_its_turn() -> None:
    frontier = SharedFrontier({p: {ANN: 60_000} for p in range(20)})
    claimer, due, counters = lab(frontier)
    await one_round(claimer, counters)
    await one_round(claimer, counters)
    due.hint(13, BEN)
    frontier.due = {**frontier.due, 13: {ANN: 60_000, BEN: 1}}
    await one_round(claimer, counters)
    assert frontier.asked[-1] == [13]


async def test_a_queue_that_others_wait_in_makes_its_partition_due_for_them() -> None:
    frontier = SharedFrontier({p: {ANN: 60_000} for p in range(20)})
    frontier.waiting = (ANN, BEN)
    claimer, due, counters = lab(frontier)
    await one_round(claimer, counters)
    frontier.waiting = ()
    await one_round(claimer, counters)
    (first,) = frontier.asked[0]
    frontier.due = {p: {ANN: 90_000 if p == 19 else 60_000} for p in range(20)}
    due.queue_due(first, monotonic_ms(), f"q{first}-1.test")
    await one_round(claimer, counters)
    assert frontier.asked[-1] == [first]
    due.queue_due(18, monotonic_ms(), "other.test")
    await one_round(claimer, counters)
    assert frontier.asked[-1] != [18]


async def test_claims_are_made_with_the_weights_of_the_operator() -> None:
    frontier = SharedFrontier({1: {ANN: 10}})
    claimer, _, counters = lab(frontier)
    counters.overrides = Overrides(weights={ANN: 2.5})
    await one_round(claimer, counters)
    assert frontier.requests[-1].weights == {ANN: 2.5}
    assert (counters.weight_of(ANN), counters.weight_of(BEN)) == (2.5, 1.0)


async def test_partitions_without_users_keep_nothing() -> None:
    frontier = SharedFrontier({1: {ANN: 10}})
    claimer, due, counters = lab(frontier)
    frontier.waiting = (ANN,)
    await one_round(claimer, counters)
    assert due.has_waits(1)
    due.note_reply(1, {}, (), later_ms=0)
    assert (due.has_waits(1), due._shared) == (False, {})
    due.hint(1, ANN)
    due.drop([1])
    assert not due.has_waits(1)
