"""Queues and their politeness clocks, step by step."""

import contextlib
from typing import Any

from crawler.frontier.leases import SlotQueue, SlotRequest
from crawler.frontier.owner import Settlement
from crawler.model import AckOutcome
from tests.frontier.door import Door, found


async def test_a_reserved_request_moves_the_clock_that_claims_obey(door: Door) -> None:
    await door.add(found(1))
    assert await ask(door, "g1", now_ms=500) == (0, 500, "")
    assert await ask(door, "g1", now_ms=600) == (0, 600, ""), "asked again: the answer was lost"
    door.now = 5000
    assert await door.claim() == [], "the request runs, whatever the owner's clock says"
    await door.slot_queue.release(0, "a.test", "g1")
    door.now = 7000
    assert await door.claim() == [], "the owner sees only now that it has ended"
    assert await door.claim() == [], "and the same time again may be from before the request: calls can be late"
    door.now = 7001
    assert await door.claim() == [], "a later time is from after it"
    door.now = 8000
    assert await door.claim() == []
    door.now = 8001
    assert len(await door.claim()) == 1
    wait_ms, _, _ = await ask(door, "g2", now_ms=90_000)
    assert wait_ms > 0, "claims are out"


async def ask(door: Door, waiter: str, *, epoch: int | None = None, **more: Any) -> tuple[int, int, str]:
    """(wait, clock, mark) of a borrower who knows today's epoch unless it is told another."""
    asked = SlotRequest(waiter=waiter, epoch=door.epoch if epoch is None else epoch, **more)
    reply = await door.slot_queue.borrow(0, "a.test", asked)
    assert reply.epoch == door.epoch
    return reply.wait_ms, reply.clock_ms, reply.mark


async def test_what_a_borrower_knew_of_an_earlier_owners_time_does_not_count(door: Door) -> None:
    await door.add(found(1))
    (claim,) = await door.claim()
    await door.ack(claim, next_ms=10_000, delay_ms=1000)
    await door.acquire("bob")
    assert (await ask(door, "g1", epoch=door.epoch - 1, now_ms=90_000))[0] > 0
    assert (await ask(door, "g1", now_ms=90_000))[0] == 0


async def test_a_queue_that_gets_its_first_url_is_due_from_then_on(door: Door) -> None:
    """So it comes after one that has been due for longer."""
    await door.add(found(1, host="late.test"))
    await door.frontier.book_request(door.fence, "late.test", Settlement(next_fetch_ms=1000, delay_ms=1000))
    door.now = 5000
    await door.frontier.book_request(door.fence, "other.test", Settlement(next_fetch_ms=0, delay_ms=1000))
    await door.add(found(1, host="first.test"))
    assert [claim.queue for claim in await door.claim(urls_max=1)] == ["late.test"]
    assert [claim.queue for claim in await door.claim(urls_max=1)] == ["first.test"]


async def test_a_borrower_that_is_never_heard_of_again_does_not_hold_up_the_queue_for_ever(door: Door) -> None:
    await door.add(found(1))
    await ask(door, "g1")
    for door.now in (100_000, 119_999, 120_999, 121_998):
        assert await door.claim() == []
    door.now = 121_999
    assert len(await door.claim()) == 1


async def test_borrowers_keep_the_delay_among_themselves_though_their_clocks_lag(door: Door) -> None:
    """The second one has only its own patience to go by: the stored clock may leap when the owner looks."""
    assert await ask(door, "g1") == (0, 0, "")
    wait_ms, clock, mark = await ask(door, "g2", now_ms=500_000)
    assert (wait_ms, clock, mark) == (1000, 500_000, "g1")
    assert (await ask(door, "g2", mark=mark, seen_ms=20_999))[0] == 1
    await door.slot_queue.release(0, "a.test", "g1")
    wait_ms, _, mark = await ask(door, "g2", mark=mark, seen_ms=30_000)
    assert (wait_ms, mark) == (1000, "done:g1")
    assert (await ask(door, "g2", mark=mark, seen_ms=999))[0] == 1
    assert (await ask(door, "g2", mark=mark, seen_ms=1000))[0] == 0


async def test_the_owner_lets_a_borrower_have_a_turn_between_two_of_its_own(door: Door) -> None:
    """Who asks once a second would never be quicker than an owner who always has work for the queue."""
    await door.add(found(1), found(2), found(3))
    (claim,) = await door.claim(per_queue_max=1)
    assert (await ask(door, "g1"))[0] > 0, "claims are out"
    await door.ack(claim, next_ms=1000, delay_ms=1000)
    door.now = 1000
    assert await door.claim(per_queue_max=1) == [], "due, but wished for"
    assert (await ask(door, "g1", now_ms=1000))[0] == 0
    assert (await ask(door, "g2", now_ms=1000))[0] > 0
    await door.slot_queue.release(0, "a.test", "g1")
    door.now = 3500
    assert await door.claim() == [], "it has ended, as is seen only now"
    door.now = 3501
    assert await door.claim() == [], "booked"
    door.now = 4501
    (claim,) = await door.claim(per_queue_max=1)
    await door.ack(claim, next_ms=5501, delay_ms=1000)
    assert (await ask(door, "g2", now_ms=4501))[0] > 0
    door.now = 5501
    assert await door.claim() == [], "the next borrower waits"


async def test_a_waiter_that_never_returns_delays_the_queue_once(door: Door) -> None:
    await door.frontier.book_request(door.fence, "a.test", Settlement(next_fetch_ms=1000, delay_ms=1000))
    await door.add(found(1), found(2))
    assert (await ask(door, "g1"))[0] > 0
    for door.now in (1000, 2000, 3499):
        assert (await door.claim_reply(per_queue_max=1)).batches == ()
    door.now = 3500
    (claim,) = await door.claim(per_queue_max=1)
    await door.ack(claim, next_ms=4500, delay_ms=1000)
    door.now = 4500
    assert len(await door.claim(per_queue_max=1)) == 1


async def test_a_borrower_keeps_off_a_queue_that_may_yet_get_a_delay(door: Door) -> None:
    """We keep no delay of our own, but robots.txt, which was not read yet, may ask for one."""
    slot_queue = SlotQueue(door.engine, door.keys, default_delay_ms=0)
    await door.add(found(1))
    assert (await slot_queue.borrow(0, "a.test", SlotRequest(waiter="g1"))).wait_ms == 0
    door.now = 900
    assert await door.claim(default_delay_ms=0) == [], "its request may run"
    await slot_queue.release(0, "a.test", "g1")
    door.now = 1900
    assert await door.claim(default_delay_ms=0) == [], "this claim may have been sent before the request"
    door.now = 1901
    assert len(await door.claim(default_delay_ms=0)) == 1
    assert (await slot_queue.borrow(0, "a.test", SlotRequest(waiter="g2"))).wait_ms > 0, "robots.txt is being read"


async def test_a_queue_without_delay_grants_slots_while_claims_are_out(door: Door) -> None:
    await door.frontier.book_request(door.fence, "a.test", Settlement(next_fetch_ms=0, delay_ms=0))
    await door.add(found(1))
    assert len(await door.claim()) == 1
    assert (await ask(door, "g"))[0] == 0


async def test_a_delay_that_robots_asks_for_holds_before_the_first_page(door: Door) -> None:
    await door.add(found(1), found(2))
    (first,) = await door.claim()  # unknown delay: one URL only
    await door.frontier.book_request(
        door.fence, "a.test", Settlement(next_fetch_ms=7000, delay_ms=7000), origin="http://a.test", robots=b"r"
    )
    assert await door.frontier.robots(0, "http://a.test") == b"r"
    assert await door.return_claims(first) is AckOutcome.COMMITTED
    door.now = 6999
    assert await door.claim() == []
    door.now = 7000
    assert len(await door.claim()) == 1


async def test_a_queue_that_gets_a_delay_sleeps_until_the_last_of_its_claims_ended(door: Door) -> None:
    await door.frontier.book_request(door.fence, "a.test", Settlement(next_fetch_ms=0, delay_ms=0))
    await door.add(*(found(i) for i in range(4)))
    first, second = await door.claim(per_queue_max=2)  # no delay: awake all the same
    await door.ack(first, delay_ms=700)
    with contextlib.closing(door.node) as client:
        assert client.zcard(door.keys.of(0, "ready")) == 0
    door.now = 5000
    assert await door.claim() == []
    await door.ack(second, delay_ms=700, next_ms=5700)
    assert (await door.claim_reply()).next_due_ms == 5700


async def test_a_queue_is_handed_out_before_its_time_when_the_owner_asks_for_it(door: Door) -> None:
    await door.add(found("a"), found("b"))
    await door.frontier.book_request(door.fence, "a.test", Settlement(next_fetch_ms=door.now + 300, delay_ms=500))
    early = await door.claim_reply(lead_ms=299)
    assert (early.batches, early.next_due_ms) == ((), door.now + 1), "when it is worth asking again"
    request = door.request(lead_ms=300)
    (batch,) = (await door.claim_reply(request)).batches
    assert (batch.start_ms, len(batch.claims)) == (door.now + 300, 2)
    assert (await door.claim_reply(request)).batches == (batch,), "also when the reply was lost"
    door.now += 400
    (again,) = (await door.claim_reply(request)).batches
    assert again.start_ms == 0


async def test_a_queue_that_a_borrower_waits_for_is_not_handed_out_before_its_time(door: Door) -> None:
    await door.add(found("a"), found("b"))
    await door.frontier.book_request(door.fence, "a.test", Settlement(next_fetch_ms=door.now + 300, delay_ms=500))
    assert (await ask(door, "g1"))[0] > 0
    assert await door.claim(lead_ms=1000) == []
    door.now += 300
    assert (await ask(door, "g1", now_ms=door.now))[0] == 0


async def test_a_read_of_partitions_shows_waiting_queues_and_their_due_times(door: Door) -> None:
    """This finds what a lost hint would have told; an empty queue is no reason to look again."""
    assert await door.frontier.awake([]) == await door.frontier.awake([0, 1]) == []
    await door.add(found(1), found(2))
    assert await door.frontier.awake([0, 1]) == [(0, 0, None)]
    (claim,) = await door.claim(per_queue_max=1)
    await door.ack(claim, next_ms=5000, delay_ms=1000)
    assert await door.frontier.awake([0, 1]) == [(0, 5000, None)]
    door.now = 5000
    (claim,) = await door.claim()
    await door.ack(claim, next_ms=6000, delay_ms=1000)
    assert await door.frontier.awake([0, 1]) == []
