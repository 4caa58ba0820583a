"""The workbench hands out each claim when its queue's time has come, and no sooner."""

import asyncio
import time
from itertools import pairwise

import pytest

from crawler.frontier.messages import QueueBatch
from crawler.model import Claim
from crawler.pipeline.schedule import KEPT_PLAIN_MS, Workbench
from crawler.rules.adaptive import Pace
from crawler.rules.host_health import GOOD, Standing
from crawler.runtime.clock import monotonic_ms


def claim(n: int, queue: str = "a.test", partition: int = 1) -> Claim:
    return Claim(
        url=f"http://{queue}/{n}",
        fingerprint=str(n),
        visit=1,
        partition=partition,
        epoch=1,
        token=f"t.{n}",
        domain=queue,
        queue=queue,
        depth=0,
        redirects=0,
        attempts=0,
        deliveries=0,
        seed=False,
    )


def batch(*numbers: int, queue: str = "a.test", delay_ms: int = 0, partition: int = 1) -> QueueBatch:
    return QueueBatch(queue=queue, delay_ms=delay_ms, claims=tuple(claim(n, queue, partition) for n in numbers))


async def test_claims_of_a_queue_leave_in_order_one_at_a_time() -> None:
    bench = Workbench(concurrency_per_queue=1)
    bench.put(batch(1, 2))
    lane, first = await bench.take()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.02):
            await bench.take()
    bench.finished(lane, wait_ms=0)
    _, second = await bench.take()
    assert (first.url, second.url) == ("http://a.test/1", "http://a.test/2")


async def test_a_queue_waits_after_each_request_while_others_go_on() -> None:
    bench = Workbench(concurrency_per_queue=1)
    bench.put(batch(1, 2, delay_ms=50))
    bench.put(batch(1, queue="b.test", delay_ms=50))
    lane, _ = await bench.take()
    other, taken = await bench.take()
    assert taken.queue == "b.test"
    began = time.monotonic()
    bench.finished(lane, wait_ms=50)
    bench.finished(other, wait_ms=50)
    _, taken = await bench.take()
    assert taken.url == "http://a.test/2"
    assert 0.045 <= time.monotonic() - began < 5


async def test_with_several_requests_at_once_their_starts_are_a_delay_apart() -> None:
    bench = Workbench(concurrency_per_queue=3)
    bench.put(batch(1, 2, 3, delay_ms=30))
    starts = []
    for _ in range(3):
        await bench.take()
        starts.append(time.monotonic())
    assert min(b - a for a, b in pairwise(starts)) >= 0.028


async def test_a_worker_that_gives_up_waiting_leaves_its_turn_to_another() -> None:
    bench = Workbench(concurrency_per_queue=1)
    impatient, patient = (asyncio.create_task(bench.take()) for _ in range(2))
    await asyncio.sleep(0)
    bench.put(batch(1))
    impatient.cancel()
    _, taken = await asyncio.wait_for(patient, 1)
    assert taken.url == "http://a.test/1"
    assert impatient.cancelled() or impatient.done()


async def test_what_is_taken_back_is_not_handed_out() -> None:
    bench = Workbench(concurrency_per_queue=1)
    bench.put(batch(1, 2))
    bench.put(batch(3, queue="b.test", partition=2))
    bench.park("192.0.2.1", claim(4, partition=1))
    assert {c.fingerprint for c in bench.remove([1])} == {"1", "2", "4"}
    _, left = await bench.take()
    assert left.fingerprint == "3"
    assert bench.waiting == 0


async def test_a_parked_claim_comes_back_when_its_address_has_room() -> None:
    bench = Workbench(concurrency_per_queue=1)
    bench.park("192.0.2.1", claim(1))
    bench.unpark("192.0.2.2")
    assert bench.waiting == 1
    bench.unpark("192.0.2.1")
    _, taken = await bench.take()
    assert taken.fingerprint == "1"


async def test_claims_whose_turn_is_far_off_are_stale() -> None:
    bench = Workbench(concurrency_per_queue=1)
    bench.put(batch(1, 2))
    lane, _ = await bench.take()
    bench.finished(lane, wait_ms=60_000)
    assert [c.fingerprint for c in bench.take_stale(wait_max_ms=30_000, age_max_ms=60_000)] == ["2"]
    assert bench.waiting == 0
    bench.forget_idle()
    assert bench.lane_of("a.test") is lane, "a queue that must wait is remembered"


async def test_what_a_lane_knows_outlives_the_moment_in_which_its_only_claim_is_on_its_way_back() -> None:
    """A turn went to robots.txt, whose delay is being stored: nobody has the claim."""
    bench = Workbench(concurrency_per_queue=1)
    bench.put(batch(1))
    lane, taken = await bench.take()
    bench.finished(lane, wait_ms=0)
    lane.delay_ms = 0
    await asyncio.sleep(0.005)
    bench.forget_idle()
    bench.put_back(taken)
    assert (await bench.take())[0].delay_ms == 0


def aside(probe_in_ms: int) -> Standing:
    return Standing(failures=5, since_ms=1, probe_ms=monotonic_ms() + probe_in_ms)


async def test_claims_of_a_queue_that_is_set_aside_are_stale_at_once() -> None:
    bench = Workbench(concurrency_per_queue=1)
    bench.put(batch(1, 2))
    bench.put(batch(3, queue="b.test"))
    lane, _ = await bench.take()
    lane.standing = aside(5_000)
    bench.finished(lane, wait_ms=5_000)
    assert [c.fingerprint for c in bench.take_stale(wait_max_ms=30_000, age_max_ms=60_000)] == ["2"]


async def test_a_queue_that_is_set_aside_has_one_request_at_a_time() -> None:
    bench = Workbench(concurrency_per_queue=3)
    bench.lane_of("a.test").standing = aside(-1)
    bench.put(batch(1, 2, 3))
    lane, _ = await bench.take()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.02):
            await bench.take()
    lane.standing = GOOD
    bench.finished(lane, wait_ms=0)
    _, second = await bench.take()
    _, third = await bench.take()
    assert (second.fingerprint, third.fingerprint) == ("2", "3")


async def test_what_waits_behind_an_abandoned_turn_is_handed_over_and_the_next_need_not_wait() -> None:
    bench = Workbench(concurrency_per_queue=1)
    bench.put(batch(1, 2, 3, delay_ms=60_000))
    lane, _ = await bench.take()
    assert [c.fingerprint for c in bench.abandon(lane)] == ["2", "3"]
    assert (bench.waiting, bench.active) == (0, 0)
    bench.put(batch(4, delay_ms=60_000))
    _, taken = await asyncio.wait_for(bench.take(), 1)
    assert taken.fingerprint == "4"


async def test_what_was_learned_of_a_failing_or_slow_host_outlives_its_claims_and_nothing_else_does() -> None:
    bench = Workbench(concurrency_per_queue=1)
    bench.lane_of("fine.test")
    bench.lane_of("failing.test").standing = Standing(failures=1, since_ms=1)
    bench.lane_of("slow.test").pace = Pace(delay_ms=2000, latency_ms=80.0)
    for queue in ("fine.test", "failing.test", "slow.test"):
        bench.lane_of(queue).next_ms = monotonic_ms() - KEPT_PLAIN_MS
    bench.forget_idle()
    assert set(bench._lanes) == {"failing.test", "slow.test"}


async def test_a_turn_that_comes_to_no_request_costs_its_lane_nothing() -> None:
    """A name that must be looked up, an address without room: each would cost a delay, and be due again after that."""
    bench = Workbench(concurrency_per_queue=1)
    bench.put(batch(1, 2, delay_ms=60_000))
    for _ in range(3):
        lane, taken = await asyncio.wait_for(bench.take(), 1)
        assert taken.fingerprint == "1"
        bench.finished(lane, wait_ms=0, started=False)
        bench.put_back(taken)
    lane, _ = await bench.take()
    bench.finished(lane, wait_ms=60_000)
    assert bench.wait_of("a.test") > 59_000


async def test_beside_a_request_that_runs_a_turn_without_one_leaves_the_delay_as_it_is() -> None:
    bench = Workbench(concurrency_per_queue=2)
    bench.put(batch(1, 2, delay_ms=30))
    lane, _ = await bench.take()
    _, second = await asyncio.wait_for(bench.take(), 1)
    bench.finished(lane, wait_ms=0, started=False)
    bench.put_back(second)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.02):
            await bench.take()


async def test_queues_leave_in_the_order_in_which_they_became_due() -> None:
    """What has just come does not go before what has waited for its time and for a worker since."""
    bench = Workbench(concurrency_per_queue=1)
    bench.put(batch(1, 2, delay_ms=20))
    lane, _ = await bench.take()
    bench.finished(lane, wait_ms=20)
    bench.put(batch(1, queue="b.test"))
    await asyncio.sleep(0.03)
    bench.put(batch(1, queue="c.test"))
    assert [(await bench.take())[1].queue for _ in range(3)] == ["b.test", "a.test", "c.test"]


async def test_workers_that_wait_get_each_queue_at_its_time_though_nothing_else_happens() -> None:
    """The timer rings for the first queue; the next one, due a moment later, must not wait for a request to end."""
    bench = Workbench(concurrency_per_queue=1)
    for n, wait_ms in enumerate((30, 60, 90)):
        bench.put(batch(1, 2, queue=f"q{n}.test"))
        lane, _ = await bench.take()
        bench.finished(lane, wait_ms=wait_ms)
    began = time.monotonic()
    for _, waited in zip(range(3), asyncio.as_completed([bench.take() for _ in range(3)]), strict=True):
        await asyncio.wait_for(waited, 1)
    assert time.monotonic() - began < 0.5


async def test_a_shorter_delay_hands_out_what_waits_and_a_longer_one_changes_nothing_here() -> None:
    bench = Workbench(concurrency_per_queue=1)
    bench.put(batch(1, 2, delay_ms=60_000))
    lane, _ = await bench.take()
    bench.finished(lane, wait_ms=60_000)
    waiter = asyncio.create_task(bench.take())
    await asyncio.sleep(0)
    bench.quicken(lane, 90_000)
    assert lane.delay_ms == 60_000
    bench.quicken(lane, 10)
    _, taken = await asyncio.wait_for(waiter, 5)
    assert (taken.url, lane.delay_ms) == ("http://a.test/2", 10)
    bench.finished(lane, wait_ms=0)
    assert bench.wait_of("a.test") <= 11


async def test_a_shorter_delay_that_comes_with_claims_holds_for_what_was_waited_for_before() -> None:
    bench = Workbench(concurrency_per_queue=1)
    bench.put(batch(1, delay_ms=60_000))
    lane, _ = await bench.take()
    bench.finished(lane, wait_ms=60_000)
    bench.put(batch(2, delay_ms=10))
    assert bench.wait_of("a.test") <= 11


async def test_what_was_claimed_before_its_time_waits_for_that() -> None:
    bench = Workbench(concurrency_per_queue=1)
    start_ms = monotonic_ms() + 60
    bench.put(batch(1, 2, delay_ms=60_000), start_ms=start_ms)
    async with asyncio.timeout(5):
        lane, _ = await bench.take()
        assert start_ms <= monotonic_ms()
        bench.finished(lane, wait_ms=0, started=False)
        await bench.take()  # a turn that came to nothing costs nothing


async def test_claims_that_are_wanted_are_taken_out_wherever_they_wait() -> None:
    bench = Workbench(concurrency_per_queue=1)
    bench.put(batch(1, 2))
    bench.put(batch(3, queue="b.test"))
    bench.park("10.0.0.1", claim(4, "a.test", 1))
    out = bench.take_out(lambda one: one.domain == "a.test")
    assert sorted(one.fingerprint for one in out) == ["1", "2", "4"]
    assert bench.waiting == 1
