"""Boosts in the scheduler: of the queues that are due, a worker gets one with the highest boost."""

import asyncio

import pytest

from crawler.rules.pace import TICK_MS
from crawler.worker.open_claims import OpenClaims
from crawler.worker.schedule import Scheduler
from tests.support.patience import PATIENCE_S, others_run
from tests.worker.test_schedule import batch, claim
from tests.worker.turn_lab import StoppedClock

QUEUES = 20


def full_scheduler(**more: int) -> Scheduler:
    """Twenty queues that are due, of three claims each, and one worker."""
    scheduler = Scheduler(OpenClaims(1000), concurrency_per_queue=1)
    for n in range(QUEUES):
        scheduler.put(batch(1, 2, 3, queue=f"q{n}.test", **more))
    return scheduler


async def fetched(scheduler: Scheduler, n: int) -> list[str]:
    """The queues that one worker gets claims of, one after another."""
    queues = []
    for _ in range(n):
        slot, taken = await asyncio.wait_for(scheduler.next(), PATIENCE_S)
        queues.append(taken.queue)
        scheduler.finished(slot, wait_ms=0)
    return queues


async def test_a_boosted_domain_goes_first_and_the_others_as_before() -> None:
    scheduler = full_scheduler()
    assert await fetched(scheduler, 2) == ["q0.test", "q1.test"]
    scheduler.set_boosts({"q15.test": 1, "q9.test": 5, "q4.test": -1})
    assert await fetched(scheduler, 6) == ["q9.test"] * 3 + ["q15.test"] * 3
    others = [f"q{n}.test" for n in range(QUEUES) if n not in (4, 9, 15)]
    left = await fetched(scheduler, 3 * QUEUES - 8)
    assert left[:15] == others[2:]
    assert left[-3:] == ["q4.test"] * 3
    assert scheduler.waiting == 0


async def test_later_claims_have_the_boost_of_their_domain() -> None:
    scheduler = full_scheduler()
    scheduler.set_boosts({"b.test": 2})
    scheduler.put(batch(1, queue="x.b.test"))
    scheduler.put(batch(1, queue="y.b.test"))
    assert await fetched(scheduler, 3) == ["x.b.test", "y.b.test", "q0.test"]


async def test_a_boosted_queue_that_is_not_due_delays_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = StoppedClock(monkeypatch)
    scheduler = full_scheduler(delay_ms=60)
    scheduler.set_boosts({"q7.test": 9})
    slot, _ = await scheduler.next()
    scheduler.finished(slot, wait_ms=60)
    assert await fetched(scheduler, 3) == ["q0.test", "q1.test", "q2.test"]
    clock.now += 60 + TICK_MS
    assert await fetched(scheduler, 1) == ["q7.test"]


async def test_a_worker_that_waits_gets_whichever_queue_is_due_first() -> None:
    """The timer looks at the queues of every boost."""
    scheduler = Scheduler(OpenClaims(1000), concurrency_per_queue=1)
    scheduler.set_boosts({"high.test": 5, "low.test": -5})
    for queue, wait_ms in (("high.test", 60_000), ("none.test", 60_000), ("low.test", 30)):
        scheduler.put(batch(1, 2, queue=queue))
        slot, _ = await scheduler.next()
        scheduler.finished(slot, wait_ms=wait_ms)
    _, taken = await asyncio.wait_for(scheduler.next(), PATIENCE_S)
    assert taken.queue == "low.test"


@pytest.mark.parametrize("last", [{}, {"q3.test": -2}, {"q3.test": 2}])
async def test_repeated_boost_changes_deliver_each_claim_once(last: dict[str, int]) -> None:
    scheduler = full_scheduler()
    for boosts in ({"q3.test": 2}, {}, {"q3.test": -2}, {"q3.test": 2}, last):
        scheduler.set_boosts(boosts)
    place = {0: 3, -2: QUEUES - 1, 2: 0}[last.get("q3.test", 0)]
    slots = [(await asyncio.wait_for(scheduler.next(), PATIENCE_S))[1].queue for _ in range(QUEUES)]
    assert slots.index("q3.test") == place
    assert len(set(slots)) == QUEUES


async def test_a_boost_wakes_no_worker_for_a_queue_that_is_not_due() -> None:
    scheduler = Scheduler(OpenClaims(1000), concurrency_per_queue=1)
    scheduler.put(batch(1, 2))
    slot, _ = await scheduler.next()
    scheduler.finished(slot, wait_ms=60_000)
    waiter = asyncio.create_task(scheduler.next())
    await asyncio.sleep(0)
    scheduler.set_boosts({"a.test": 9})
    await others_run()
    assert not waiter.done()
    waiter.cancel()


async def test_room_at_an_address_goes_to_the_boosted_domain_first() -> None:
    scheduler = Scheduler(OpenClaims(1000), concurrency_per_queue=1)
    for queue in ("a.test", "b.test", "c.test"):
        scheduler.wait_at("192.0.2.1", claim(1, queue))
    scheduler.set_boosts({"c.test": 1})
    got = []
    for _ in range(3):
        scheduler.wake_one("192.0.2.1")
        got += await fetched(scheduler, 1)
    assert got == ["c.test", "a.test", "b.test"]
