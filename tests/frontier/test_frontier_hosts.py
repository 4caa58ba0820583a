"""A budget of hosts: so many of a domain are taken in; a larger one takes in more, best URLs first."""

from typing import Any

import pytest

from crawler.audit.judge_frontier import disagreements
from crawler.frontier.budgets import Budget, Intake
from crawler.frontier.bulk_lookup import States, Tally
from crawler.frontier.deferred import BLOCKED, Order, Parking, What
from crawler.frontier.frontier import Settlement
from crawler.model import Candidate
from crawler.quotas.raise_limits import Raising
from tests.frontier.door import Door, fingerprint, found

QUEUE = "a.test"
MANY = 300  # more than two blocks


def at(host: str, path: object = "", *, scheme: str = "http", port: str = "", **more: Any) -> Candidate:
    url = f"{scheme}://{host}{port}/{path}"
    return found("", **{"url": url, "fingerprint": fingerprint(url), **more})


@pytest.fixture
async def parking(door: Door) -> Parking:
    await door.frontier.pace(door.fence, QUEUE, Settlement(next_fetch_ms=0, delay_ms=0))
    return Parking(door.frontier, 1)


async def parked(parking: Parking) -> int:
    return sum(p.urls for p in await parking.of_queue(0, QUEUE) if p.reason == "hosts")


async def raised(door: Door, parking: Parking, hosts: int) -> int:
    door.frontier.intake = Intake(hosts=hosts)
    return await Raising(door.frontier, parking, Budget()).look([0])


async def tally(door: Door) -> Tally:
    counted = await States(door.engine, door.keys, 1).tally(0, 0)
    assert list(disagreements(counted, counted.committed, exactly=True)) == []
    return counted


async def test_a_host_is_one_whatever_scheme_and_port(door: Door, parking: Parking) -> None:
    door.frontier.intake = Intake(hosts=3)
    ways = [{}, {"scheme": "https"}, {"port": ":8080"}, {"scheme": "https", "port": ":8443"}]
    hosts = ("a.test", "www.a.test", "b.a.test", "c.a.test")
    await door.add(*(at(host, n, **way) for host in hosts for n, way in enumerate(ways)))
    assert await parked(parking) == len(ways)
    assert await parking.hosts(0, [QUEUE, "other.test"]) == [3, 0]
    assert await parking.hosts_taken(0, QUEUE, ["@", "www", "b", "c"]) == {"@", "www", "b"}
    assert {c.url for c in await door.claim() if "c.a.test" in c.url} == set()


async def test_urls_that_people_gave_bring_their_hosts(door: Door, parking: Parking) -> None:
    door.frontier.intake = Intake(hosts=1)
    await door.add(at("x.a.test"), at("y.a.test", seed=True), at("y.a.test", "more"), at("z.a.test"))
    assert await parked(parking) == 1
    assert await parking.hosts_taken(0, QUEUE, ["x", "y", "z"]) == {"x", "y"}


async def test_a_raised_budget_takes_in_the_hosts_of_the_best_urls_and_all_of_theirs(
    door: Door, parking: Parking
) -> None:
    door.frontier.intake = Intake(hosts=1)
    await door.add(at("a.test"), *(at(f"{n % 10}.a.test", n, score=float(n)) for n in range(MANY)))
    assert await parked(parking) == MANY
    assert await raised(door, parking, 1) == 0
    assert await raised(door, parking, 3) == MANY // 5
    assert await parking.hosts_taken(0, QUEUE, ["@", *map(str, range(10))]) == {"@", "9", "8"}
    assert await raised(door, parking, 3) == 0
    await door.add(at("9.a.test", "new"), at("7.a.test", "new"))
    assert await parked(parking) == MANY - MANY // 5 + 1
    assert await raised(door, parking, 11) == MANY - MANY // 5 + 1
    assert (await tally(door)).parks == 0
    with door.node as node:
        assert node.keys(door.keys.of(0, "*|*")) == []


async def test_without_a_budget_all_are_released_but_what_is_blocked(door: Door, parking: Parking) -> None:
    door.frontier.intake = Intake(hosts=1)
    await door.add(at("a.test"), at("b.a.test"))
    await parking.steer(0, [Order(QUEUE, What.STOP, BLOCKED)])
    assert await raised(door, parking, 2) == await raised(door, parking, 0) == 0
    await parking.steer(0, [Order(QUEUE, What.START, BLOCKED)])
    assert await raised(door, parking, 0) == 1
    assert (await tally(door)).parks == 0


async def test_out_links_of_further_hosts_are_parked_too_and_a_shorter_path_changes_nothing(
    door: Door, parking: Parking
) -> None:
    door.frontier.intake, door.frontier.is_limited = Intake(hosts=1), True
    await door.add(at("a.test"))
    (claim,) = await door.claim()
    await door.ack(claim, at("a.test", 1), at("b.a.test", depth=5), at("c.a.test", depth=5, parked="depth"))
    assert await door.add(at("b.a.test", depth=1), at("c.a.test", depth=1)) == [2, 2]
    assert await parked(parking) == 2
    assert (await tally(door)).parks == 2
