"""When the page of a queue is fetched after its robots.txt."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from crawler.worker.before_page import RobotsTurns
from crawler.worker.open_claims import OpenClaims
from crawler.worker.schedule import Scheduler
from tests.worker.test_schedule import batch
from tests.worker.turn_lab import hosts_of, turn_of


@pytest.mark.parametrize(("wait_ms", "next_queue"), [(0, "a.test"), (60_000, "b.test")])
async def test_a_page_follows_its_robots_txt_at_once_unless_its_queue_has_a_delay(
    wait_ms: int, next_queue: str
) -> None:
    """Behind all other queues, its connection would not be open any more: a second one for each new host."""
    scheduler = Scheduler(OpenClaims(1000), concurrency_per_queue=1)
    scheduler.put(batch(1, queue="a.test", delay_ms=-1))
    await asyncio.sleep(0.005)
    scheduler.put(batch(2, queue="b.test", delay_ms=-1))
    slot, claim = await scheduler.next()
    found: Any = SimpleNamespace(entry=SimpleNamespace(rules=object()), is_requested=True, wait_ms=0, ours=None)

    async def read(*_: Any, **__: Any) -> Any:
        return found

    async def share(*_: Any, **__: Any) -> bool:
        return True

    gate: Any = SimpleNamespace(min_delay_ms=0, read=read, share=share, delay_of=lambda *_: wait_ms)
    policy: Any = SimpleNamespace(of_robots=lambda *_, **__: (wait_ms, None))
    await RobotsTurns(gate, hosts_of(policy), before_send=lambda *_: None, on_sent=lambda *_: None).read(
        turn_of(scheduler, slot, claim)
    )
    scheduler.give_back(claim)
    _, following = await scheduler.next()
    assert following.queue == next_queue
