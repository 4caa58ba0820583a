"""Queues and their politeness clocks, step by step."""

import contextlib

from crawler.frontier.frontier import Settlement
from crawler.model import AckOutcome
from tests.frontier.door import Door, found


async def test_a_reserved_request_moves_the_clock_that_claims_obey(door: Door) -> None:
    await door.add(found(1))
    assert await door.frontier.reserve(0, "a.test", now_ms=500) == (0, 500)
    assert await door.frontier.reserve(0, "a.test", now_ms=600) == (900, 600)
    door.now = 1499
    assert await door.claim() == []
    door.now = 1500
    assert len(await door.claim()) == 1
    wait_ms, _ = await door.frontier.reserve(0, "a.test", now_ms=90_000)
    assert wait_ms > 0, "claims are out"


async def test_a_queue_without_delay_grants_requests_beside_its_claims(door: Door) -> None:
    await door.frontier.pace(door.fence, "a.test", Settlement(next_fetch_ms=0, delay_ms=0))
    await door.add(found(1))
    assert len(await door.claim()) == 1
    assert (await door.frontier.reserve(0, "a.test", now_ms=0))[0] == 0


async def test_a_delay_that_robots_asks_for_holds_before_the_first_page(door: Door) -> None:
    await door.add(found(1), found(2))
    (first,) = await door.claim()  # unknown delay: one URL only
    await door.frontier.pace(
        door.fence, "a.test", Settlement(next_fetch_ms=7000, delay_ms=7000), origin="http://a.test", robots=b"r"
    )
    assert await door.frontier.robots(0, "http://a.test") == b"r"
    assert await door.frontier.give_back(door.fence, [(first, 0)]) is AckOutcome.COMMITTED
    door.now = 6999
    assert await door.claim() == []
    door.now = 7000
    assert len(await door.claim()) == 1


async def test_a_queue_that_gets_a_delay_sleeps_until_the_last_of_its_claims_ended(door: Door) -> None:
    await door.frontier.pace(door.fence, "a.test", Settlement(next_fetch_ms=0, delay_ms=0))
    await door.add(*(found(i) for i in range(4)))
    first, second = await door.claim(per_queue_max=2)  # no delay: awake all the same
    await door.ack(first, delay_ms=700)
    with contextlib.closing(door.node) as client:
        assert client.zcard(door.keys.of(0, "ready")) == 0
    door.now = 5000
    assert await door.claim() == []
    await door.ack(second, delay_ms=700, next_ms=5700)
    assert (await door.claim_reply()).next_due_ms == 5700
