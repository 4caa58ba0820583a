"""A budget of hosts of a domain: a larger one admits more, best URLs first."""

from typing import Any

import pytest

from crawler.audit.judge_frontier import Committed, disagreements
from crawler.frontier.bulk import BulkLookup, Tally
from crawler.frontier.deferred import BLOCKED, ChangeKind, DeferredUrls, QueueChange
from crawler.frontier.messages import AddBudget, FetchBudget
from crawler.frontier.owner import Settlement
from crawler.instance.raised_budgets import RaisedBudgets
from crawler.model import Candidate
from tests.frontier.door import Door, fingerprint, found

QUEUE = "a.test"
MANY = 300  # more than two blocks


def at(host: str, path: object = "", *, scheme: str = "http", port: str = "", **more: Any) -> Candidate:
    url = f"{scheme}://{host}{port}/{path}"
    return found("", **{"url": url, "fingerprint": fingerprint(url), **more})


@pytest.fixture
async def deferred_urls(door: Door) -> DeferredUrls:
    await door.frontier.book_request(door.fence, QUEUE, Settlement(next_fetch_ms=0, delay_ms=0))
    return DeferredUrls(door.frontier, 1)


async def deferred(deferred_urls: DeferredUrls) -> int:
    return sum(p.urls for p in await deferred_urls.of_queue(0, QUEUE) if p.reason == "hosts")


async def raised(door: Door, deferred_urls: DeferredUrls, hosts: int) -> int:
    door.frontier.add_budget = AddBudget(hosts=hosts)
    return await RaisedBudgets(door.frontier, deferred_urls, FetchBudget()).release([0])


async def tally(door: Door) -> Tally:
    counted = await BulkLookup(door.engine, door.keys, 1).tally(0)
    assert list(disagreements(counted, Committed(counted.committed), exactly=True)) == []
    return counted


async def test_a_host_is_one_whatever_scheme_and_port(door: Door, deferred_urls: DeferredUrls) -> None:
    door.frontier.add_budget = AddBudget(hosts=3)
    ways = [{}, {"scheme": "https"}, {"port": ":8080"}, {"scheme": "https", "port": ":8443"}]
    hosts = ("a.test", "www.a.test", "b.a.test", "c.a.test")
    await door.add(*(at(host, n, **way) for host in hosts for n, way in enumerate(ways)))
    assert await deferred(deferred_urls) == len(ways)
    assert await deferred_urls.hosts(0, [QUEUE, "other.test"]) == [3, 0]
    assert await deferred_urls.hosts_taken(0, QUEUE, ["@", "www", "b", "c"]) == {"@", "www", "b"}
    assert {c.url for c in await door.claim() if "c.a.test" in c.url} == set()


async def test_urls_that_people_gave_bring_their_hosts(door: Door, deferred_urls: DeferredUrls) -> None:
    door.frontier.add_budget = AddBudget(hosts=1)
    await door.add(at("x.a.test"), at("y.a.test", seed=True), at("y.a.test", "more"), at("z.a.test"))
    assert await deferred(deferred_urls) == 1
    assert await deferred_urls.hosts_taken(0, QUEUE, ["x", "y", "z"]) == {"x", "y"}


async def test_a_raised_budget_takes_in_the_hosts_of_the_best_urls_and_all_of_theirs(
    door: Door, deferred_urls: DeferredUrls
) -> None:
    door.frontier.add_budget = AddBudget(hosts=1)
    await door.add(at("a.test"), *(at(f"{n % 10}.a.test", n, score=float(n)) for n in range(MANY)))
    assert await deferred(deferred_urls) == MANY
    assert await raised(door, deferred_urls, 1) == 0
    assert await raised(door, deferred_urls, 3) == MANY // 5
    assert await deferred_urls.hosts_taken(0, QUEUE, ["@", *map(str, range(10))]) == {"@", "9", "8"}
    assert await raised(door, deferred_urls, 3) == 0
    await door.add(at("9.a.test", "new"), at("7.a.test", "new"))
    assert await deferred(deferred_urls) == MANY - MANY // 5 + 1
    assert await raised(door, deferred_urls, 11) == MANY - MANY // 5 + 1
    assert (await tally(door)).deferred == 0
    with door.node as node:
        assert node.keys(door.keys.of(0, "*|*")) == []


async def test_without_a_budget_all_are_released_but_what_is_blocked(door: Door, deferred_urls: DeferredUrls) -> None:
    door.frontier.add_budget = AddBudget(hosts=1)
    await door.add(at("a.test"), at("b.a.test"))
    await deferred_urls.change_queues(0, [QueueChange(QUEUE, ChangeKind.STOP, BLOCKED)])
    assert await raised(door, deferred_urls, 2) == await raised(door, deferred_urls, 0) == 0
    await deferred_urls.change_queues(0, [QueueChange(QUEUE, ChangeKind.START, BLOCKED)])
    assert await raised(door, deferred_urls, 0) == 1
    assert (await tally(door)).deferred == 0


async def test_out_links_of_further_hosts_are_deferred_also_by_a_shorter_path(
    door: Door, deferred_urls: DeferredUrls
) -> None:
    door.frontier.add_budget, door.frontier.is_limited = AddBudget(hosts=1), True
    await door.add(at("a.test"))
    (claim,) = await door.claim()
    await door.ack(claim, at("a.test", 1), at("b.a.test", depth=5), at("c.a.test", depth=5, deferred="depth"))
    assert await door.add(at("b.a.test", depth=1), at("c.a.test", depth=1)) == [2, 2]
    assert await deferred(deferred_urls) == 2
    assert (await tally(door)).deferred == 2
