"""Boosts at the workbench: of the queues that are due, a worker gets one with the highest boost, and none sooner."""

import asyncio
import time

import pytest

from crawler.pipeline.schedule import Workbench
from tests.pipeline.test_schedule import batch, claim

QUEUES = 20


def full_bench(**more: int) -> Workbench:
    """Twenty queues that are due, of three claims each, and one worker."""
    bench = Workbench(concurrency_per_queue=1)
    for n in range(QUEUES):
        bench.put(batch(1, 2, 3, queue=f"q{n}.test", **more))
    return bench


async def fetched(bench: Workbench, n: int) -> list[str]:
    """The queues that one worker gets claims of, one after another."""
    queues = []
    for _ in range(n):
        lane, taken = await asyncio.wait_for(bench.take(), 1)
        queues.append(taken.queue)
        bench.finished(lane, wait_ms=0)
    return queues


async def test_from_the_order_on_the_one_worker_fetches_the_boosted_domain_first_and_the_others_as_before() -> None:
    bench = full_bench()
    assert await fetched(bench, 2) == ["q0.test", "q1.test"]
    bench.boost({"q15.test": 1, "q9.test": 5, "q4.test": -1})
    assert await fetched(bench, 6) == ["q9.test"] * 3 + ["q15.test"] * 3
    others = [f"q{n}.test" for n in range(QUEUES) if n not in (4, 9, 15)]
    left = await fetched(bench, 3 * QUEUES - 8)
    assert left[:15] == others[2:]
    assert left[-3:] == ["q4.test"] * 3
    assert bench.waiting == 0


async def test_claims_that_come_after_the_order_have_the_boost_of_their_domain_whatever_their_host() -> None:
    bench = full_bench()
    bench.boost({"b.test": 2})
    bench.put(batch(1, queue="x.b.test"))
    bench.put(batch(1, queue="y.b.test"))
    assert await fetched(bench, 3) == ["x.b.test", "y.b.test", "q0.test"]


async def test_a_boosted_queue_that_is_not_due_is_not_taken_and_holds_nobody_up() -> None:
    bench = full_bench(delay_ms=60)
    bench.boost({"q7.test": 9})
    lane, _ = await bench.take()
    began = time.monotonic()
    bench.finished(lane, wait_ms=60)
    assert await fetched(bench, 3) == ["q0.test", "q1.test", "q2.test"]
    await asyncio.sleep(0.07)
    assert await fetched(bench, 1) == ["q7.test"]
    assert time.monotonic() - began >= 0.06


async def test_a_worker_that_waits_gets_whichever_queue_is_due_first() -> None:
    """The timer looks at the queues of every boost."""
    bench = Workbench(concurrency_per_queue=1)
    bench.boost({"high.test": 5, "low.test": -5})
    for queue, wait_ms in (("high.test", 5_000), ("none.test", 5_000), ("low.test", 30)):
        bench.put(batch(1, 2, queue=queue))
        lane, _ = await bench.take()
        bench.finished(lane, wait_ms=wait_ms)
    _, taken = await asyncio.wait_for(bench.take(), 1)
    assert taken.queue == "low.test"


@pytest.mark.parametrize("last", [{}, {"q3.test": -2}, {"q3.test": 2}])
async def test_a_boost_that_is_changed_again_and_again_hands_out_each_claim_once(last: dict[str, int]) -> None:
    bench = full_bench()
    for boosts in ({"q3.test": 2}, {}, {"q3.test": -2}, {"q3.test": 2}, last):
        bench.boost(boosts)
    place = {0: 3, -2: QUEUES - 1, 2: 0}[last.get("q3.test", 0)]
    lanes = [(await asyncio.wait_for(bench.take(), 1))[1].queue for _ in range(QUEUES)]
    assert lanes.index("q3.test") == place
    assert len(set(lanes)) == QUEUES


async def test_a_boost_wakes_no_worker_for_a_queue_that_is_not_due() -> None:
    bench = Workbench(concurrency_per_queue=1)
    bench.put(batch(1, 2))
    lane, _ = await bench.take()
    bench.finished(lane, wait_ms=60_000)
    waiter = asyncio.create_task(bench.take())
    await asyncio.sleep(0)
    bench.boost({"a.test": 9})
    await asyncio.sleep(0.02)
    assert not waiter.done()
    waiter.cancel()


async def test_room_at_an_address_goes_to_the_boosted_domain_first() -> None:
    bench = Workbench(concurrency_per_queue=1)
    for queue in ("a.test", "b.test", "c.test"):
        bench.park("192.0.2.1", claim(1, queue))
    bench.boost({"c.test": 1})
    got = []
    for _ in range(3):
        bench.unpark("192.0.2.1")
        got += await fetched(bench, 1)
    assert got == ["c.test", "a.test", "b.test"]
