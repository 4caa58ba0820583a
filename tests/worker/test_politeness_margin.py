"""The smallest wait between two requests of a queue, less its delay: measured where they are sent."""

from types import SimpleNamespace
from typing import Any

from crawler.hosts.robots_reader import RobotsResult
from crawler.worker.before_page import RobotsTurns
from crawler.worker.lateness import PolitenessMargin
from crawler.worker.open_claims import OpenClaims
from crawler.worker.schedule import QueueSlot, Scheduler
from tests.worker.test_schedule import batch
from tests.worker.turn_lab import hosts_of, turn_of


def test_the_smallest_of_all_queues_counts_and_too_early_is_below_zero() -> None:
    margin, one, other = PolitenessMargin(), QueueSlot("a.test", delay_ms=1000), QueueSlot("b.test", delay_ms=50)
    margin.sent(one, 5_000)
    margin.sent(other, 5_010)
    assert margin.seconds is None, "one request of a queue is too close to nothing"
    margin.sent(one, 6_030)
    assert margin.seconds == 0.03
    margin.sent(other, 5_055)
    assert margin.seconds == -0.005


def test_the_shorter_of_two_delays_counts_and_one_that_was_not_known_does_not() -> None:
    margin, slot = PolitenessMargin(), QueueSlot("a.test")
    margin.sent(slot, 1_000)  # its robots.txt
    slot.delay_ms = 200
    margin.sent(slot, 1_250)
    assert margin.seconds == 0.05
    slot.delay_ms = 5_000  # by an operator, from the next turn on
    margin.sent(slot, 1_460)
    assert margin.seconds == 0.01
    slot.delay_ms = 100
    margin.sent(slot, 1_565)
    assert margin.seconds == 0.005


def test_a_queue_without_a_delay_has_no_margin() -> None:
    margin, slot = PolitenessMargin(), QueueSlot("a.test", delay_ms=0)
    for at_ms in (1, 1, 2):
        margin.sent(slot, at_ms)
    assert margin.seconds is None


async def test_a_robots_txt_counts_when_it_was_requested_in_the_turn_of_its_queue() -> None:
    for is_requested in (True, False):
        scheduler, seen = Scheduler(OpenClaims(9), concurrency_per_queue=1), list[str]()
        scheduler.put(batch(1, delay_ms=10))
        slot, claim = await scheduler.next()
        result = RobotsResult(None, is_requested=is_requested, wait_ms=5)

        async def read(_: Any, before_send: Any, result: RobotsResult = result, **__: Any) -> RobotsResult:
            before_send()
            return result

        async def share(*_: Any, **__: Any) -> bool:
            return True

        gate: Any = SimpleNamespace(min_delay_ms=0, read=read, share=share)
        policy: Any = SimpleNamespace(of_robots=lambda *_, **__: (5, None))
        turns = RobotsTurns(
            gate,
            hosts_of(policy),
            before_send=lambda *_: None,
            on_sent=lambda one, _, seen=seen: seen.append(one.queue),
        )
        await turns.read(turn_of(scheduler, slot, claim))
        assert seen == (["a.test"] if is_requested else [])
