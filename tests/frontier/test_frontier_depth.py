"""URLs beyond a budget of depth: kept by depth, released by depth, and found again by a shorter path."""

from typing import Any

import pytest

from crawler.audit.judge_frontier import Committed, disagreements
from crawler.frontier.bulk import BulkLookup, Tally
from crawler.frontier.deferred import DeferredUrls
from crawler.frontier.lookup import UrlLookup
from crawler.frontier.messages import FetchBudget
from crawler.frontier.operator import Purge
from crawler.frontier.owner import Settlement
from crawler.instance.raised_budgets import RaisedBudgets
from crawler.model import Candidate
from tests.frontier.door import FINGERPRINTS, Door, found

QUEUE = "a.test"
MANY = 300  # more than two blocks


def deep(path: object, depth: int, **more: Any) -> Candidate:
    return found(path, depth=depth, deferred="depth", **more)


@pytest.fixture
async def deferred_urls(door: Door) -> DeferredUrls:
    door.frontier.is_limited = True
    await door.frontier.book_request(door.fence, QUEUE, Settlement(next_fetch_ms=0, delay_ms=0))
    return DeferredUrls(door.frontier, 1)


async def deferred_of(deferred_urls: DeferredUrls) -> dict[str, int]:
    return {p.reason: p.urls for p in await deferred_urls.of_queue(0, QUEUE)}


async def tally(door: Door) -> Tally:
    counted = await BulkLookup(door.engine, door.keys, 1).tally(0)
    assert list(disagreements(counted, Committed(counted.committed), exactly=True)) == []
    return counted


async def test_a_raised_budget_releases_what_it_allows_and_as_it_was(door: Door, deferred_urls: DeferredUrls) -> None:
    await door.add(found("near"), *(deep(n, 3 + n % 2, score=float(n), seed_number=7) for n in range(MANY)))
    assert await deferred_of(deferred_urls) == {"depth:3": MANY // 2, "depth:4": MANY // 2}
    assert await RaisedBudgets(door.frontier, deferred_urls, FetchBudget(depth=2)).release([0]) == 0
    assert await RaisedBudgets(door.frontier, deferred_urls, FetchBudget(depth=3)).release([0]) == MANY // 2
    assert await RaisedBudgets(door.frontier, deferred_urls, FetchBudget(depth=3)).release([0]) == 0
    assert await deferred_of(deferred_urls) == {"depth:4": MANY // 2}
    best = (await door.claim(urls_max=1))[0]
    assert (best.url, best.depth, best.score, best.seed_number) == ("http://a.test/298", 3, 298.0, 7)
    assert await RaisedBudgets(door.frontier, deferred_urls, FetchBudget()).release([0]) == MANY // 2
    assert (await deferred_of(deferred_urls), (await tally(door)).deferred) == ({}, 0)
    with door.node as node:
        assert node.keys(door.keys.of(0, "*|*")) == []


async def test_each_of_many_is_found_by_a_shorter_path_and_keeps_its_seed(
    door: Door, deferred_urls: DeferredUrls
) -> None:
    await door.add(*(deep(n, 5, seed_number=3) for n in range(MANY)))
    for n in range(0, MANY, 2):
        assert await door.add(found(n, depth=2, score=float(n), seed_number=4)) == [2]
        assert await door.add(found(n, depth=2, score=float(n))) == [0]
    assert await deferred_of(deferred_urls) == {"depth:5": MANY // 2}
    best = (await door.claim(urls_max=1))[0]
    assert (best.url, best.depth, best.score, best.seed_number) == ("http://a.test/298", 2, 298.0, 3)
    for claim in (best, *await door.claim(urls_max=MANY, per_queue_max=MANY, out_max=MANY)):
        await door.ack(claim)
    counted = await tally(door)
    assert (counted.committed, counted.added - counted.done, counted.deferred) == (MANY // 2, 0, MANY // 2)


async def test_a_path_that_is_shorter_and_too_long_still_moves_it_nearer(
    door: Door, deferred_urls: DeferredUrls
) -> None:
    await door.add(deep(1, 5))
    assert await door.add(deep(1, 4)) == [2]
    assert await door.add(deep(1, 6)) == [0]
    assert await deferred_of(deferred_urls) == {"depth:4": 1}
    assert await deferred_urls.release(0, QUEUE, "depth:4", 9) == 1
    (claim,) = await door.claim()
    assert claim.depth == 4
    assert await door.add(found(1, depth=1)) == [2]  # claimed: only its depth changes
    await door.ack(claim)
    assert (await tally(door)).committed == 1


async def test_urls_deferred_for_another_reason_stay_deferred(door: Door, deferred_urls: DeferredUrls) -> None:
    await door.add(found(1, depth=5, deferred="trap:path"), deep(2, 5))
    assert await door.add(found(1, depth=1)) == [2]
    assert await deferred_of(deferred_urls) == {"trap:path": 1, "depth:5": 1}


async def test_it_is_found_explained_and_purged_where_it_lies(door: Door, deferred_urls: DeferredUrls) -> None:
    urls = [*(deep(n, 5) for n in range(MANY)), deep("x", 5, url="http://other.a.test:8080/x")]
    await door.add(*urls)
    where = await UrlLookup(door.engine, door.keys, 1).locate(urls[-1])
    assert where.deferred == "depth:5"
    assert len(await BulkLookup(door.engine, door.keys, 1).pending(FINGERPRINTS, 0)) == MANY + 1
    assert await Purge(door.frontier, deferred_urls).purge(0, QUEUE) == MANY + 1
    assert (await deferred_of(deferred_urls), (await tally(door)).refused) == ({}, MANY + 1)
