"""A budget of URLs that grows with the domains that link to a domain: what it deferred is released as it grows."""

import random

import pytest

from crawler.audit.judge_frontier import Committed, disagreements
from crawler.frontier.bulk import BulkLookup
from crawler.frontier.deferred import DeferredUrls
from crawler.frontier.messages import AddQuota, FetchQuota
from crawler.frontier.owner import Settlement
from crawler.instance.raised_quotas import RaisedQuotas
from crawler.rules.remaining import LINK_PLACES
from tests.frontier.door import Door, found

QUEUE = "a.test"


async def taken_in(door: Door) -> tuple[int, int]:
    """URLs that are pending or done, and those that are deferred."""
    counted = await BulkLookup(door.engine, door.keys, 1).tally(0)
    assert list(disagreements(counted, Committed(counted.committed), exactly=True)) == []
    return counted.seen - counted.parks, counted.parks


@pytest.mark.parametrize("seed", range(6))
async def test_after_each_add_as_much_is_taken_in_as_the_budget_allows(door: Door, seed: int) -> None:
    """Budgets small enough that one call can release all that one call adds."""
    rng, places, met = random.Random(seed), set[int](), set[int]()
    urls, each = rng.randint(1, 20), rng.randint(1, 30)
    door.frontier.add_quota = AddQuota(urls=urls, urls_per_linking_domain=each)
    for _ in range(25):
        batch = []
        for _ in range(rng.randint(1, 8)):
            path, place = rng.randrange(300), rng.choice((None, rng.randrange(LINK_PLACES)))
            batch.append(found(path, score=float(path), linked_from=place))
            met.add(path)
            places |= {place} - {None}
        await door.add(*batch)
        budget = urls + each * len(places)
        assert await taken_in(door) == (min(len(met), budget), max(0, len(met) - budget))


async def test_the_best_are_released_within_the_limit_of_a_call(door: Door) -> None:
    door.frontier.add_quota = AddQuota(urls=1, urls_per_linking_domain=400)
    await door.frontier.book_request(door.fence, QUEUE, Settlement(next_fetch_ms=0, delay_ms=0))
    await door.add(found("first", score=-1.0), *(found(n, score=float(n)) for n in range(1000)))
    assert await taken_in(door) == (1, 1000)
    await door.add(found(0, linked_from=7))
    assert await taken_in(door) == (257, 744)
    (claim,) = await door.claim(urls_max=1)
    assert claim.url == "http://a.test/999"
    await door.ack(claim)
    assert await taken_in(door) == (401, 600), "the rest follows when one of them is done"
    deferred_urls = DeferredUrls(door.frontier, 1)
    assert await RaisedQuotas(door.frontier, deferred_urls, FetchQuota()).release([0]) == 0
    door.frontier.add_quota = AddQuota(urls=2, urls_per_linking_domain=500)
    assert await RaisedQuotas(door.frontier, deferred_urls, FetchQuota()).release([0]) == 101
    assert await taken_in(door) == (502, 499)


async def test_an_idle_domain_that_is_linked_to_stays_packed_and_small(door: Door) -> None:
    door.frontier.add_quota = AddQuota(urls=9, urls_per_linking_domain=1)
    await door.add(found(1))
    (claim,) = await door.claim()
    await door.ack(claim)
    door.now = 100_000
    await door.claim()
    await door.add(found(1, linked_from=LINK_PLACES - 1))
    door.now = 200_000
    await door.claim()
    with door.node as node:
        assert node.keys(door.keys.of(0, "w:*")) == []
        (record,) = node.hgetall(door.keys.of(0, "h:0")).values()
        assert len(record) < 80
    assert await taken_in(door) == (1, 0)
