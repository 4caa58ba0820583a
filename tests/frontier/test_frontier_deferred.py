"""Parked URLs are kept, counted by reason, not handed out and not pending; and what is released is as it was."""

import pytest
from msgspec.structs import replace

from crawler.audit.judge_frontier import Committed, disagreements
from crawler.errors import EngineError
from crawler.frontier.bulk import BulkLookup, Tally
from crawler.frontier.deferred import BLOCKED, PAUSED, ChangeKind, DeferredUrls, QueueChange
from crawler.frontier.messages import AddBudget, FetchBudget
from crawler.frontier.owner import Settlement
from crawler.frontier.pending import PendingUrls
from crawler.model import AckOutcome, Claim
from tests.frontier.door import Door, found

QUEUE = "a.test"


@pytest.fixture
def deferred_urls(door: Door) -> DeferredUrls:
    return DeferredUrls(door.frontier, 1)


async def tally(door: Door) -> Tally:
    """The partition's counts, which must add up at any time."""
    counted = await BulkLookup(door.engine, door.keys, 1).tally(0)
    assert list(disagreements(counted, Committed(counted.committed), exactly=True)) == []
    assert counted.deferred == counted.deferrals - counted.released
    return counted


async def pending(door: Door) -> int:
    counted = await tally(door)
    return counted.added - counted.done


async def deferred_of(deferred_urls: DeferredUrls) -> dict[str, int]:
    return {p.reason: p.urls for p in await deferred_urls.of_queue(0, QUEUE)}


async def stop(deferred_urls: DeferredUrls, reason: str) -> None:
    await deferred_urls.change_queues(0, [QueueChange(QUEUE, ChangeKind.STOP, reason)])


async def start(deferred_urls: DeferredUrls, reason: str) -> None:
    await deferred_urls.change_queues(0, [QueueChange(QUEUE, ChangeKind.START, reason)])


async def no_delay(door: Door) -> None:
    await door.frontier.book_request(door.fence, QUEUE, Settlement(next_fetch_ms=0, delay_ms=0))


async def defer(door: Door, claim: Claim, reason: str = "trap:path") -> list[AckOutcome | EngineError]:
    return await door.frontier.end([door.frontier.defer(door.fence, claim, reason)])


async def test_a_url_that_is_deferred_at_once_is_seen_and_not_pending(door: Door, deferred_urls: DeferredUrls) -> None:
    await no_delay(door)
    trapped = found("trap", deferred="trap:calendar")
    assert await door.add(found("real"), trapped, replace(trapped)) == [1, 1, 0]
    assert (await deferred_of(deferred_urls), await pending(door)) == ({"trap:calendar": 1}, 1)
    assert [c.url for c in await door.claim()] == ["http://a.test/real"]


async def test_released_urls_come_best_first_and_are_as_they_were(door: Door, deferred_urls: DeferredUrls) -> None:
    await no_delay(door)
    await door.add(*(found(n, score=float(n), depth=3, seed=True, deferred="urls") for n in range(300)))
    assert await deferred_urls.release(0, QUEUE, "urls", 260) == 260
    assert (await deferred_of(deferred_urls), await pending(door)) == ({"urls": 40}, 260)
    best = (await door.claim(urls_max=1))[0]
    assert (best.url, best.depth, best.seed, best.score) == ("http://a.test/299", 3, True, 299.0)
    assert await deferred_urls.release(0, QUEUE, "urls", 1000) == 40
    assert (await deferred_of(deferred_urls), await pending(door)) == ({}, 300)
    with door.node as node:
        assert node.keys(door.keys.of(0, "*|*")) == []


async def test_urls_beyond_the_budget_are_deferred(door: Door, deferred_urls: DeferredUrls) -> None:
    door.frontier.add_budget = AddBudget(urls=3)
    await door.add(found(1), found(2))
    await door.add(found(3), found(4), found(5), found(3))
    assert (await deferred_of(deferred_urls), await pending(door)) == ({"urls": 2}, 3)


async def test_out_links_beyond_the_budget_are_deferred(door: Door, deferred_urls: DeferredUrls) -> None:
    door.frontier.add_budget = AddBudget(urls=2)
    await door.add(found(1))
    (claim,) = await door.claim()
    await door.ack(claim, found(2), found(3), found(4))
    assert (await deferred_of(deferred_urls), await pending(door)) == ({"urls": 2}, 1)


@pytest.mark.parametrize("reason", [BLOCKED, "pages"])
async def test_a_stopped_queue_hands_out_nothing_and_its_urls_are_deferred(
    door: Door, deferred_urls: DeferredUrls, reason: str
) -> None:
    await no_delay(door)
    await door.add(found(1), found(2), found(3))
    (claim,) = await door.claim(urls_max=1)
    await stop(deferred_urls, reason)
    await stop(deferred_urls, reason)
    assert (await deferred_of(deferred_urls), await pending(door)) == ({reason: 2}, 1)
    await door.add(found(4))
    assert await door.return_claims(claim) is not None
    assert (await deferred_of(deferred_urls), await pending(door)) == ({reason: 4}, 0)
    assert await door.claim() == []
    await start(deferred_urls, "another reason")
    assert await door.claim() == []
    await start(deferred_urls, reason)
    assert (await deferred_of(deferred_urls), await pending(door)) == ({}, 4)
    assert len(await door.claim()) == 4


async def test_a_paused_queue_keeps_its_urls_pending(door: Door, deferred_urls: DeferredUrls) -> None:
    await no_delay(door)
    await door.add(found(1), found(2))
    await stop(deferred_urls, PAUSED)
    await door.add(found(3))
    assert await door.claim() == []
    assert (await deferred_of(deferred_urls), await pending(door)) == ({}, 3)
    assert await PendingUrls(door.engine, door.keys).count(0) == 3
    await stop(deferred_urls, BLOCKED)
    assert (await deferred_of(deferred_urls), await pending(door)) == ({BLOCKED: 3}, 0)
    await stop(deferred_urls, PAUSED)
    assert (await deferred_of(deferred_urls), await pending(door)) == ({}, 3)
    await start(deferred_urls, PAUSED)
    assert len(await door.claim()) == 3


async def test_a_claim_that_expires_while_its_queue_is_blocked_is_deferred(
    door: Door, deferred_urls: DeferredUrls
) -> None:
    await door.add(found(1))
    await door.claim(visibility_ms=1000)
    await stop(deferred_urls, BLOCKED)
    door.now = 5000
    assert await door.claim() == []
    assert (await deferred_of(deferred_urls), await pending(door)) == ({BLOCKED: 1}, 0)


async def test_a_stop_outlasts_an_idle_time(door: Door, deferred_urls: DeferredUrls) -> None:
    await stop(deferred_urls, BLOCKED)
    door.now = 1_000_000
    assert await door.claim() == []
    await door.add(found(1))
    assert await door.claim() == []
    assert await deferred_urls.stops(0) == {QUEUE: BLOCKED}


async def test_a_budget_of_pages_holds_with_claims_out_and_after_failures(
    door: Door, deferred_urls: DeferredUrls
) -> None:
    await no_delay(door)
    await door.add(*(found(n) for n in range(5)))
    budget = FetchBudget(pages=2)
    one, two = await door.claim(budget=budget)
    assert await door.claim(budget=budget) == []
    await door.ack(one)
    await door.frontier.end([door.frontier.refuse(door.fence, two, "robots")])
    (three,) = await door.claim(budget=budget)  # the second made no page
    await door.ack(three)
    assert await door.claim(budget=budget) == []
    assert (await deferred_of(deferred_urls), await pending(door)) == ({"pages": 2}, 0)
    await start(deferred_urls, "pages")  # the budget was raised
    assert len(await door.claim(budget=FetchBudget(pages=4))) == 2


async def test_a_budget_of_bytes_stops_a_queue_that_has_reached_it(door: Door, deferred_urls: DeferredUrls) -> None:
    await no_delay(door)
    await door.add(*(found(n) for n in range(3)))
    budget = FetchBudget(bytes=10)
    (claim,) = await door.claim(urls_max=1, budget=budget)
    await door.ack(claim, body_bytes=9)
    (claim,) = await door.claim(urls_max=1, budget=budget)
    await door.ack(claim, body_bytes=1)
    assert await door.claim(budget=budget) == []
    assert (await deferred_of(deferred_urls), await pending(door)) == ({"bytes": 1}, 0)


async def test_a_deferred_claim_keeps_its_attempts_and_frees_its_queue(door: Door, deferred_urls: DeferredUrls) -> None:
    await door.add(found("trap", score=9.0), found("real", score=1.0))
    (claim,) = await door.claim()
    settlement = Settlement(next_fetch_ms=0, delay_ms=0)
    await door.frontier.end([door.frontier.retry(door.fence, claim, settlement, due_ms=10, kind="timeout")])
    door.now = 10
    (claim,) = await door.claim(urls_max=1)
    assert await defer(door, claim) == [AckOutcome.COMMITTED]
    assert await defer(door, claim) == [AckOutcome.GONE]
    assert (await deferred_of(deferred_urls), await pending(door)) == ({"trap:path": 1}, 1)
    (real,) = await door.claim()
    assert real.url == "http://a.test/real"
    await door.ack(real)
    assert await pending(door) == 0
    assert await deferred_urls.release(0, QUEUE, "trap:path", 9) == 1
    (again,) = await door.claim()
    assert (again.url, again.attempts, again.score) == (claim.url, 1, 9.0)


async def test_urls_that_an_operator_released_are_not_deferred_again_for_the_reason(
    door: Door, deferred_urls: DeferredUrls
) -> None:
    await no_delay(door)
    await door.add(found(1), found(2, deferred="trap:path"))
    await deferred_urls.release(0, QUEUE, "trap:path", 9)
    one, two = await door.claim()
    assert await defer(door, one) == await defer(door, two) == [AckOutcome.RELEASED]
    assert (await deferred_of(deferred_urls), await pending(door)) == ({}, 2)
    one, two = await door.claim()
    assert await defer(door, one, "trap:query") == [AckOutcome.COMMITTED]
    assert (await deferred_of(deferred_urls), await pending(door)) == ({"trap:query": 1}, 1)
