"""The scheduler hands out each claim when its queue is due, and no sooner."""

import asyncio
import time

import pytest
from msgspec.structs import replace

from crawler.frontier.messages import QueueBatch
from crawler.model import Claim
from crawler.rules.pace import TICK_MS, AdaptiveDelay
from crawler.runtime.clocks import monotonic_ms, wall_s
from crawler.worker.open_claims import OpenClaims
from crawler.worker.schedule import KEPT_PLAIN_MS, Scheduler
from tests.support.patience import PATIENCE_S, others_run
from tests.worker.turn_lab import StoppedClock


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
    scheduler = Scheduler(OpenClaims(1000), concurrency_per_queue=1)
    scheduler.put(batch(1, 2))
    slot, first = await scheduler.next()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.02):
            await scheduler.next()
    scheduler.finished(slot, wait_ms=0)
    _, second = await scheduler.next()
    assert (first.url, second.url) == ("http://a.test/1", "http://a.test/2")


async def test_a_queue_waits_after_each_request_while_others_go_on() -> None:
    scheduler = Scheduler(OpenClaims(1000), concurrency_per_queue=1)
    scheduler.put(batch(1, 2, delay_ms=50))
    scheduler.put(batch(1, queue="b.test", delay_ms=50))
    slot, _ = await scheduler.next()
    other, taken = await scheduler.next()
    assert taken.queue == "b.test"
    began = time.monotonic()
    scheduler.finished(slot, wait_ms=50)
    scheduler.finished(other, wait_ms=50)
    _, taken = await scheduler.next()
    assert taken.url == "http://a.test/2"
    assert time.monotonic() - began >= 0.045


async def test_with_several_requests_at_once_their_starts_are_a_delay_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = StoppedClock(monkeypatch)
    scheduler = Scheduler(OpenClaims(1000), concurrency_per_queue=3)
    scheduler.put(batch(1, 2, 3, delay_ms=30))
    for _ in range(2):
        await scheduler.next()
        clock.now += 29
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.02):
                await scheduler.next()
        clock.now += 1 + TICK_MS
    await asyncio.wait_for(scheduler.next(), PATIENCE_S)


async def test_a_worker_that_gives_up_waiting_leaves_its_turn_to_another() -> None:
    scheduler = Scheduler(OpenClaims(1000), concurrency_per_queue=1)
    impatient, patient = (asyncio.create_task(scheduler.next()) for _ in range(2))
    await asyncio.sleep(0)
    scheduler.put(batch(1))
    impatient.cancel()
    _, taken = await asyncio.wait_for(patient, PATIENCE_S)
    assert taken.url == "http://a.test/1"
    assert impatient.cancelled() or impatient.done()


async def test_removed_claims_are_not_handed_to_workers() -> None:
    scheduler = Scheduler(OpenClaims(1000), concurrency_per_queue=1)
    scheduler.put(batch(1, 2))
    scheduler.put(batch(3, queue="b.test", partition=2))
    scheduler.wait_at("192.0.2.1", claim(4, partition=1))
    assert {c.fingerprint for c in scheduler.remove([1])} == {"1", "2", "4"}
    _, left = await scheduler.next()
    assert left.fingerprint == "3"
    assert scheduler.waiting == 0


async def test_a_claim_that_waits_for_an_address_is_requeued() -> None:
    scheduler = Scheduler(OpenClaims(1000), concurrency_per_queue=1)
    scheduler.wait_at("192.0.2.1", claim(1))
    scheduler.wake_one("192.0.2.2")
    assert scheduler.waiting == 1
    scheduler.wake_one("192.0.2.1")
    _, taken = await scheduler.next()
    assert taken.fingerprint == "1"


async def test_claims_whose_turn_is_far_off_are_stale() -> None:
    scheduler = Scheduler(OpenClaims(1000), concurrency_per_queue=1)
    scheduler.put(batch(1, 2))
    slot, _ = await scheduler.next()
    scheduler.finished(slot, wait_ms=60_000)
    assert [c.fingerprint for c in scheduler.take_stale(wait_max_ms=30_000, age_max_ms=60_000)] == ["2"]
    assert scheduler.waiting == 0
    scheduler.forget_idle()
    assert scheduler.slot_of("a.test") is slot, "a queue that must wait is remembered"


async def test_a_slot_is_kept_while_its_only_claim_is_away() -> None:
    """A turn went to robots.txt, and its delay is being stored: the claim is in no queue and no worker."""
    scheduler = Scheduler(OpenClaims(1000), concurrency_per_queue=1)
    scheduler.put(batch(1))
    slot, taken = await scheduler.next()
    scheduler.finished(slot, wait_ms=0)
    slot.delay_ms = 0
    await asyncio.sleep(0.005)
    scheduler.forget_idle()
    scheduler.give_back(taken)
    assert (await scheduler.next())[0].delay_ms == 0


async def test_claims_that_are_taken_out_of_one_slot_leave_all_others_waiting() -> None:
    scheduler = Scheduler(OpenClaims(1000), concurrency_per_queue=1)
    scheduler.put(batch(1, 2, 3, 4))
    scheduler.put(batch(5, queue="b.test"))
    slot, first = await scheduler.next()
    assert [c.fingerprint for c in scheduler.take_of(slot, lambda one: one.fingerprint in "135")] == ["3"]
    assert (first.fingerprint, scheduler.waiting) == ("1", 3)
    scheduler.finished(slot, wait_ms=0)
    assert {(await scheduler.next())[1].fingerprint for _ in range(2)} == {"2", "5"}


async def test_a_slot_whose_claims_were_all_taken_out_holds_up_nobody() -> None:
    scheduler = Scheduler(OpenClaims(1000), concurrency_per_queue=1)
    scheduler.put(batch(1, 2))
    slot, _ = await scheduler.next()
    scheduler.finished(slot, wait_ms=0)
    assert len(scheduler.take_of(slot, lambda _: True)) == 1
    scheduler.put(batch(3, queue="b.test"))
    assert (await asyncio.wait_for(scheduler.next(), PATIENCE_S))[1].fingerprint == "3"
    scheduler.put(batch(4))
    assert (await asyncio.wait_for(scheduler.next(), PATIENCE_S))[1].fingerprint == "4"


async def test_a_delay_that_the_engine_does_not_know_any_more_is_learned_again() -> None:
    """Who had the queue meanwhile did not wait for it, so it is stored and waited for before the next page."""
    scheduler = Scheduler(OpenClaims(1000), concurrency_per_queue=1)
    scheduler.put(batch(1, delay_ms=10_000))
    assert scheduler.delay_of("a.test") == 10_000
    scheduler.put(batch(2, delay_ms=-1))
    assert scheduler.delay_of("a.test") == -1
    slot = scheduler.slot_of("a.test")
    slot.next_ms += 10_000
    before_ms = slot.next_ms
    scheduler.shorten_delay(slot, 500)  # an operator took a delay back
    scheduler.shorten_delay(slot, 500)
    assert (before_ms - slot.next_ms, slot.delay_ms) == (9_500, -1)


async def test_only_slots_of_slow_sites_outlive_their_claims() -> None:
    scheduler = Scheduler(OpenClaims(1000), concurrency_per_queue=1)
    scheduler.slot_of("fine.test")
    scheduler.slot_of("slow.test").adaptive_delay = AdaptiveDelay(delay_ms=2000, latency_ms=80.0)
    for queue in ("fine.test", "slow.test"):
        scheduler.slot_of(queue).next_ms = monotonic_ms() - KEPT_PLAIN_MS
    scheduler.forget_idle()
    assert set(scheduler._slots) == {"slow.test"}


async def test_a_turn_without_a_request_does_not_delay_its_queue() -> None:
    """A name that must be looked up, an address without room: each would cost a delay, and be due again after that."""
    scheduler = Scheduler(OpenClaims(1000), concurrency_per_queue=1)
    scheduler.put(batch(1, 2, delay_ms=60_000))
    for _ in range(3):
        slot, taken = await asyncio.wait_for(scheduler.next(), PATIENCE_S)
        assert taken.fingerprint == "1"
        scheduler.finished(slot, wait_ms=0, started=False)
        scheduler.give_back(taken)
    slot, _ = await scheduler.next()
    scheduler.finished(slot, wait_ms=60_000)
    assert scheduler.wait_of("a.test") > 30_000


async def test_a_turn_without_a_request_keeps_a_running_requests_delay(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = StoppedClock(monkeypatch)
    scheduler = Scheduler(OpenClaims(1000), concurrency_per_queue=2)
    scheduler.put(batch(1, 2, delay_ms=30))
    slot, _ = await scheduler.next()
    clock.now += 30 + TICK_MS
    _, second = await asyncio.wait_for(scheduler.next(), PATIENCE_S)
    scheduler.finished(slot, wait_ms=0, started=False)
    scheduler.give_back(second)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.02):
            await scheduler.next()


async def test_queues_leave_in_the_order_in_which_they_became_due(monkeypatch: pytest.MonkeyPatch) -> None:
    """What has just come does not go before what has waited for its time and for a worker since."""
    clock = StoppedClock(monkeypatch)
    scheduler = Scheduler(OpenClaims(1000), concurrency_per_queue=1)
    scheduler.put(batch(1, 2, delay_ms=20))
    slot, _ = await scheduler.next()
    scheduler.finished(slot, wait_ms=20)
    scheduler.put(batch(1, queue="b.test"))
    clock.now += 30
    scheduler.put(batch(1, queue="c.test"))
    assert [(await scheduler.next())[1].queue for _ in range(3)] == ["b.test", "a.test", "c.test"]


async def test_waiting_workers_get_each_queue_when_it_is_due() -> None:
    """The timer rings for the first queue; the next one, due a moment later, must not wait for a request to end."""
    scheduler = Scheduler(OpenClaims(1000), concurrency_per_queue=1)
    for n, wait_ms in enumerate((30, 60, 90)):
        scheduler.put(batch(1, 2, queue=f"q{n}.test"))
        slot, _ = await scheduler.next()
        scheduler.finished(slot, wait_ms=wait_ms)
    for _, waited in zip(range(3), asyncio.as_completed([scheduler.next() for _ in range(3)]), strict=True):
        await asyncio.wait_for(waited, PATIENCE_S)


async def test_a_shorter_delay_applies_at_once_and_a_longer_one_does_not() -> None:
    scheduler = Scheduler(OpenClaims(1000), concurrency_per_queue=1)
    scheduler.put(batch(1, 2, delay_ms=60_000))
    slot, _ = await scheduler.next()
    scheduler.finished(slot, wait_ms=60_000)
    waiter = asyncio.create_task(scheduler.next())
    await asyncio.sleep(0)
    scheduler.shorten_delay(slot, 90_000)
    assert slot.delay_ms == 60_000
    scheduler.shorten_delay(slot, 10)
    _, taken = await asyncio.wait_for(waiter, PATIENCE_S)
    assert (taken.url, slot.delay_ms) == ("http://a.test/2", 10)
    scheduler.finished(slot, wait_ms=0)
    assert scheduler.wait_of("a.test") <= 11


async def test_a_shorter_delay_in_a_batch_shortens_the_current_wait() -> None:
    scheduler = Scheduler(OpenClaims(1000), concurrency_per_queue=1)
    scheduler.put(batch(1, delay_ms=60_000))
    slot, _ = await scheduler.next()
    scheduler.finished(slot, wait_ms=60_000)
    scheduler.put(batch(2, delay_ms=10))
    assert scheduler.wait_of("a.test") <= 11


async def test_an_early_claim_waits_until_its_queue_is_due() -> None:
    scheduler = Scheduler(OpenClaims(1000), concurrency_per_queue=1)
    start_ms = monotonic_ms() + 60
    scheduler.put(batch(1, 2, delay_ms=60_000), start_ms=start_ms)
    async with asyncio.timeout(PATIENCE_S):
        slot, _ = await scheduler.next()
        assert start_ms <= monotonic_ms()
        scheduler.finished(slot, wait_ms=0, started=False)
        await scheduler.next()  # a turn that came to nothing costs nothing


async def test_claims_that_are_wanted_are_taken_out_wherever_they_wait() -> None:
    scheduler = Scheduler(OpenClaims(1000), concurrency_per_queue=1)
    scheduler.put(batch(1, 2))
    scheduler.put(batch(3, queue="b.test"))
    scheduler.wait_at("10.0.0.1", claim(4, "a.test", 1))
    out = scheduler.take_out(lambda one: one.domain == "a.test")
    assert sorted(one.fingerprint for one in out) == ["1", "2", "4"]
    assert scheduler.waiting == 1


async def test_a_queue_waits_while_its_page_is_parsed_apart_and_for_what_that_took() -> None:
    scheduler = Scheduler(OpenClaims(1000), concurrency_per_queue=1)
    scheduler.put(batch(1, 2))
    slot, _ = await scheduler.next()
    scheduler.finished(slot, wait_ms=0)
    scheduler.hold("a.test")
    scheduler.hold("a.test")
    scheduler.put(batch(1, queue="b.test"))
    assert (await scheduler.next())[1].queue == "b.test"
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.02):
            await scheduler.next()
    scheduler.release("a.test", wait_ms=60_000)
    scheduler.release("a.test", wait_ms=0)
    assert 30_000 < scheduler.wait_of("a.test") <= 60_000
    scheduler.take_out(lambda _: True)
    scheduler.forget_idle()
    assert scheduler.wait_of("a.test"), "kept until then"


async def test_a_queue_goes_on_at_once_after_a_page_that_took_nothing() -> None:
    scheduler = Scheduler(OpenClaims(1000), concurrency_per_queue=1)
    scheduler.put(batch(1))
    scheduler.hold("a.test")
    taking = asyncio.create_task(scheduler.next())
    await others_run()
    assert not taking.done()
    scheduler.release("a.test", wait_ms=0)
    assert (await taking)[1].url == "http://a.test/1"


async def test_claims_that_nobody_woke_at_an_address_are_stale_after_a_while() -> None:
    """Those that were to be followed by them may have been returned, or have needed no place there."""
    scheduler = Scheduler(OpenClaims(1000), concurrency_per_queue=1)
    old, new = (replace(claim(n, "a.test"), claimed_at=wall_s() - age_s) for n, age_s in ((1, 70), (2, 50)))
    scheduler.wait_at("x", old)
    scheduler.wait_at("x", new)
    assert scheduler.take_stale(wait_max_ms=30_000, age_max_ms=60_000) == [old]
    assert scheduler.waiting_at("x") == scheduler.waiting == 1
