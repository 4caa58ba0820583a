"""A budget that was raised gives back what the smaller one had stopped and deferred, and no more than that."""

import pytest

from crawler.frontier.bulk import BulkLookup
from crawler.frontier.deferred import BLOCKED, ChangeKind, DeferredUrls, QueueChange
from crawler.frontier.messages import AddBudget, FetchBudget
from crawler.frontier.owner import Settlement
from crawler.instance.raised_budgets import RaisedBudgets
from tests.frontier.door import Door, found

QUEUE = "a.test"


@pytest.fixture
def deferred_urls(door: Door) -> DeferredUrls:
    return DeferredUrls(door.frontier, 1)


async def raised(door: Door, deferred_urls: DeferredUrls, *, pages: int = 0, size: int = 0) -> int:
    return await RaisedBudgets(door.frontier, deferred_urls, FetchBudget(pages=pages, bytes=size)).release([0])


async def waiting(door: Door) -> tuple[int, int]:
    """URLs that are pending, and that are deferred."""
    counted = await BulkLookup(door.engine, door.keys, 1).tally(0)
    return counted.added - counted.done, counted.deferred


async def test_beside_urls_of_a_user_a_stop_holds_until_it_is_lifted_even_for_a_larger_budget(
    door: Door, deferred_urls: DeferredUrls
) -> None:
    """Of instances with different settings one may not know yet that the other has stopped the queue."""
    await door.frontier.book_request(door.fence, QUEUE, Settlement(next_fetch_ms=0, delay_ms=0))
    await door.add(*(found(n) for n in range(5)))
    for claim in await door.claim(urls_max=2, budget=FetchBudget(pages=2)):
        await door.ack(claim, body_bytes=100)
    assert await door.claim(budget=FetchBudget(pages=2)) == []
    await door.add(found("of-ann", user="ann"))
    assert [claim.user for claim in await door.claim(budget=FetchBudget())] == ["ann"]
    assert await waiting(door) == (1, 3)
    assert await raised(door, deferred_urls) == 3
    assert await waiting(door) == (4, 0)


@pytest.mark.parametrize(("budget", "released"), [(3, 0), (8, 5), (300, 297), (1000, 297), (0, 297)])
async def test_a_larger_budget_releases_the_urls_that_it_admits(
    door: Door, deferred_urls: DeferredUrls, budget: int, released: int
) -> None:
    door.frontier.add_budget = AddBudget(urls=3)
    await door.add(*(found(n) for n in range(300)))
    door.frontier.add_budget = AddBudget(urls=budget)
    assert await raised(door, deferred_urls) == released
    assert await raised(door, deferred_urls) == 0
    assert await waiting(door) == (3 + released, 297 - released)


async def test_urls_released_by_an_operator_count_as_admitted(door: Door, deferred_urls: DeferredUrls) -> None:
    door.frontier.add_budget = AddBudget(urls=3)
    await door.add(*(found(n) for n in range(20)))
    await deferred_urls.release(0, QUEUE, "urls", 4)
    door.frontier.add_budget = AddBudget(urls=10)
    assert await raised(door, deferred_urls) == 3


async def test_instances_that_release_at_once_admit_no_more_than_the_budget(
    door: Door, deferred_urls: DeferredUrls
) -> None:
    door.frontier.add_budget = AddBudget(urls=3)
    await door.add(*(found(n) for n in range(20)))
    change = QueueChange(QUEUE, ChangeKind.RELEASE, "urls", n=5, upto=10)
    assert [await deferred_urls.change_queues(0, [change]) for _ in range(3)] == [[5], [2], [-1]]
    assert await waiting(door) == (10, 10)


async def test_a_queue_whose_pages_were_used_up_starts_with_a_larger_budget_only(
    door: Door, deferred_urls: DeferredUrls
) -> None:
    await door.frontier.book_request(door.fence, QUEUE, Settlement(next_fetch_ms=0, delay_ms=0))
    await door.add(*(found(n) for n in range(5)))
    for claim in await door.claim(budget=FetchBudget(pages=2)):
        await door.ack(claim, body_bytes=100)
    assert await door.claim(budget=FetchBudget(pages=2)) == []
    assert await deferred_urls.stops(0) == {QUEUE: "pages"}
    assert await raised(door, deferred_urls, pages=2) == 0
    assert await raised(door, deferred_urls, pages=3) == 3
    assert len(await door.claim(budget=FetchBudget(pages=3))) == 1


async def test_a_queue_whose_bytes_were_used_up_starts_without_a_budget(
    door: Door, deferred_urls: DeferredUrls
) -> None:
    await door.frontier.book_request(door.fence, QUEUE, Settlement(next_fetch_ms=0, delay_ms=0))
    await door.add(found(1), found(2))
    (claim,) = await door.claim(urls_max=1)
    await door.ack(claim, body_bytes=100)
    assert await door.claim(budget=FetchBudget(bytes=50)) == []
    assert await raised(door, deferred_urls, size=100) == 0
    assert await raised(door, deferred_urls) == 1


async def test_blocked_urls_stay_deferred(door: Door, deferred_urls: DeferredUrls) -> None:
    door.frontier.add_budget = AddBudget(urls=1)
    await door.add(found(1), found(2))
    await deferred_urls.change_queues(0, [QueueChange(QUEUE, ChangeKind.STOP, BLOCKED)])
    door.frontier.add_budget = AddBudget(urls=0)
    assert await raised(door, deferred_urls) == 0
    assert await waiting(door) == (0, 2)
