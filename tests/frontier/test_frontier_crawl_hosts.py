"""A budget of hosts of the whole crawl: who adds says whether there is room for a host, the engine whether it is in.

What is beyond lies in a row for each host, and leaves it as a whole when the host is taken in.
"""

import random
from pathlib import Path
from typing import Any

import pytest

from crawler.audit.judge_frontier import disagreements
from crawler.errors import EngineError
from crawler.frontier.budgets import Budget, Intake
from crawler.frontier.bulk_lookup import States
from crawler.frontier.deferred import CRAWL_HOSTS, Order, Parking, What
from crawler.frontier.frontier import Settlement
from crawler.frontier.lookup import Inspect
from crawler.frontier.operator import Operator
from crawler.frontier.purging import Purge
from crawler.frontier.spill import NoFiles
from crawler.frontier.stats import Stats, Totals
from crawler.model import Candidate
from crawler.quotas.distribute import HostSharing
from crawler.quotas.raise_limits import Raising
from tests.frontier.door import Door, fingerprint, found
from tests.frontier.test_frontier_spilling import Spill

PARTITIONS = 3
QUEUE = "a.test"


def at(host: str, path: object = "", *, scheme: str = "http", port: str = "", **more: Any) -> Candidate:
    url = f"{scheme}://{host}{port}/{path}"
    return found("", **{"url": url, "fingerprint": fingerprint(url), **more})


def beyond(host: str, path: object = "", **more: Any) -> Candidate:
    """Of a host for which there is no room, unless it is taken in already."""
    return at(host, path, parked=CRAWL_HOSTS, **more)


@pytest.fixture
async def parking(door: Door) -> Parking:
    door.frontier.intake = Intake(has_crawl_hosts=True)
    await door.frontier.pace(door.fence, QUEUE, Settlement(next_fetch_ms=0, delay_ms=0))
    return Parking(door.frontier, PARTITIONS)


@pytest.fixture
def sharing(parking: Parking) -> HostSharing:
    return HostSharing(parking, PARTITIONS)


async def totals(door: Door) -> Totals:
    return await Stats(door.engine, door.keys, PARTITIONS).totals()


async def counted(door: Door) -> tuple[int, int, int]:
    """(hosts taken in, URLs beyond, URLs pending), having counted the partitions again."""
    for partition in range(PARTITIONS):
        tally = await States(door.engine, door.keys, PARTITIONS).tally(0, partition)
        assert list(disagreements(tally, tally.committed, exactly=True)) == []
    now = await totals(door)
    assert now.beyond_hosts == now.parked
    return now.hosts, now.beyond_hosts, now.pending


async def reasons(parking: Parking) -> dict[str, int]:
    return {one.reason: one.urls for one in await parking.of_partition(0)}


async def test_a_host_is_taken_in_once_and_then_all_its_urls_are(door: Door, parking: Parking) -> None:
    await door.add(beyond("b.a.test", 0), at("a.test"), at("www.a.test"), beyond("a.test", 1), beyond("a.test", 2))
    ways = [{}, {"scheme": "https"}, {"port": ":8080"}, {"scheme": "https", "port": ":8443"}]
    await door.add(*(beyond(host, 9, **way) for host in ("a.test", "www.a.test", "c.a.test") for way in ways))
    assert await reasons(parking) == {"crawl:hosts:b.a.test": 1, "crawl:hosts:c.a.test": 4}
    assert await counted(door) == (2, 5, 12)
    assert await door.add(at("c.a.test", 9)) == [0], "it was seen, whatever it brings now"
    assert await parking.taken_in(0, ["a.test", "b.a.test", "www.a.test"]) == {"a.test", "www.a.test"}
    assert await counted(door) == (2, 5, 12)


async def test_urls_that_people_gave_bring_their_hosts_and_out_links_are_judged_alike(
    door: Door, parking: Parking
) -> None:
    await door.add(beyond("x.a.test", seed=True))
    (claim,) = await door.claim()
    await door.ack(claim, beyond("x.a.test", 1), beyond("y.a.test", 1), at("z.a.test", 1))
    assert await reasons(parking) == {"crawl:hosts:y.a.test": 1}
    assert await counted(door) == (2, 1, 2)


async def test_very_many_hosts_are_counted_exactly(door: Door, parking: Parking) -> None:
    """They lie in buckets that split as they become more."""
    for start in range(0, 900, 100):
        await door.add(*(at(f"h{n}.a.test") for n in range(start, start + 100)))
        await door.add(*(at(f"h{n}.a.test", "again") for n in range(start, start + 100)))
    assert await counted(door) == (900, 0, 1800)
    with door.node as node:
        buckets = node.keys(door.keys.of(0, "shosts:*"))
        assert {node.object("encoding", bucket) for bucket in buckets} == {b"intset"}
    assert len(buckets) == 5
    await door.add(*(beyond(f"h{n}.a.test", "more") for n in range(0, 900, 9)))
    await door.add(*(beyond(f"g{n}.a.test") for n in range(100)))
    assert await counted(door) == (900, 100, 1900)


@pytest.mark.parametrize("seed", range(3))
async def test_the_hosts_that_all_owners_take_in_add_up_to_the_room(
    door: Door, parking: Parking, sharing: HostSharing, seed: int
) -> None:
    """Each partition has an owner of its own; all of them look at the same rows before any of them releases."""
    rng, hosts = random.Random(seed), dict[str, int]()
    for partition in range(PARTITIONS):
        for name in (f"{partition}-{n}.test" for n in range(rng.randint(1, 12))):
            hosts[name] = rng.choice((1, 2, 300))
            urls = [beyond(name, i, partition=partition, domain=name, queue=name) for i in range(hosts[name])]
            for start in range(0, len(urls), 100):
                reply = await door.frontier.add({partition: urls[start : start + 100]})
                assert not isinstance(reply[partition], EngineError)
    assert await counted(door) == (0, sum(hosts.values()), 0)
    room = rng.randint(1, len(hosts))
    survey, taken_in = await parking.survey(range(PARTITIONS)), parking.taken_in

    async def as_it_was(partitions: range) -> list[tuple[int, dict[str, str], list[object]]]:
        return [one for one in survey if one[0] in partitions]

    async def none_yet(partition: int, hosts: list[str]) -> set[str]:
        return set()

    parking.survey, parking.taken_in = as_it_was, none_yet  # type: ignore[method-assign, assignment]
    for partition in range(PARTITIONS):
        await sharing.release(room, {partition})
    parking.taken_in = taken_in  # type: ignore[method-assign]
    left = {one.host: one.urls for one in await parking.parked()}
    assert len(left) == len(hosts) - room, "each host is released as a whole, or not at all"
    assert left.items() <= hosts.items()
    assert await counted(door) == (room, sum(left.values()), sum(hosts.values()) - sum(left.values()))


async def test_what_was_left_of_a_row_follows_its_host_without_room(
    door: Door, parking: Parking, sharing: HostSharing
) -> None:
    """Its owner died while it was released; of another host, people gave a URL."""
    for start in range(0, 400, 100):
        await door.add(*(beyond("b.a.test", n) for n in range(start, start + 100)))
    await door.add(beyond("c.a.test", 1), beyond("d.a.test", 1))
    assert not await sharing.is_left()
    assert await parking.steer(0, [Order(QUEUE, What.RELEASE, "crawl:hosts:b.a.test", 400)]) == [256]
    assert await counted(door) == (1, 146, 256)
    assert await sharing.is_left()
    assert await door.add(at("c.a.test", 1, seed=True)) == [0], "it was found before, and is parked"
    await door.add(beyond("c.a.test", 2))
    assert (await sharing.waiting(), await counted(door)) == (1, (2, 146, 257))
    assert (await sharing.release(0, {0})).urls == {0: 145}
    assert not await sharing.is_left()
    assert (await reasons(parking), await counted(door)) == ({"crawl:hosts:d.a.test": 1}, (2, 1, 402))


async def test_people_release_a_host_by_its_reason_or_by_that_of_all_and_it_is_taken_in(
    door: Door, parking: Parking
) -> None:
    await door.add(*(beyond(f"{host}.a.test", n) for host in "bcd" for n in range(2)))
    operator = Operator(door.frontier, PARTITIONS, queue_by="domain")
    assert await operator.release(reason="crawl:hosts:b.a.test") == 2
    assert await counted(door) == (1, 4, 2)
    await door.add(beyond("b.a.test", "new"))
    assert await operator.release(reason=CRAWL_HOSTS) == 4
    assert await counted(door) == (3, 0, 7)
    with door.node as node:
        assert node.keys(door.keys.of(0, "*|*")) == []


async def test_a_host_whose_urls_are_thrown_away_is_not_taken_in(door: Door, parking: Parking) -> None:
    await door.add(at("a.test"), *(beyond("b.a.test", n) for n in range(200)))
    assert await Purge(door.frontier, parking).purge(0, QUEUE) == 201
    assert await counted(door) == (1, 0, 0)
    await door.add(beyond("b.a.test", "new"))
    assert await counted(door) == (1, 1, 0)


async def test_a_url_says_by_which_budget_it_is_parked(door: Door, parking: Parking) -> None:
    url = beyond("b.a.test", 7)
    await door.add(url)
    where = await Inspect(door.engine, door.keys, PARTITIONS).where(url)
    assert where.parked == "crawl:hosts:b.a.test"


async def test_a_domains_budget_of_hosts_comes_first_and_raised_leaves_the_rest_to_the_crawls(
    door: Door, parking: Parking, sharing: HostSharing
) -> None:
    door.frontier.intake = Intake(hosts=2, has_crawl_hosts=True)
    await door.add(at("a.test"), *(beyond(f"{host}.a.test", n) for host in "bcd" for n in range(2)))
    assert await reasons(parking) == {"crawl:hosts:b.a.test": 2, "hosts": 4}
    assert (await sharing.release(9, {0})).urls == {0: 2}
    door.frontier.intake = Intake(hosts=3, has_crawl_hosts=True)
    raising = Raising(door.frontier, parking, Budget())
    assert await raising.look([0]) == 2
    assert sorted((await reasons(parking)).values()) == [2, 2]
    assert (await totals(door)).hosts == 2, "its domain takes it in, the crawl does not yet"
    door.frontier.intake = Intake(has_crawl_hosts=True)
    assert await raising.look([0]) == 2
    assert await reasons(parking) == {"crawl:hosts:c.a.test": 2, "crawl:hosts:d.a.test": 2}
    assert await counted(door) == (2, 4, 3)
    assert (await sharing.release(1, {0})).urls == {0: 2}
    assert await counted(door) == (3, 2, 5)


async def test_without_the_crawls_budget_what_a_domains_budget_parked_goes_into_its_queue(
    door: Door, parking: Parking
) -> None:
    door.frontier.intake = Intake(hosts=1)
    await door.add(at("a.test"), at("b.a.test"))
    door.frontier.intake = Intake(hosts=2)
    assert await Raising(door.frontier, parking, Budget()).look([0]) == 1
    assert await counted(door) == (0, 0, 2)


async def test_rows_of_hosts_go_to_files_and_are_released_without_them(
    door: Door, parking: Parking, sharing: HostSharing, tmp_path: Path
) -> None:
    row = Spill(door, tmp_path / "spill", f"{QUEUE}|crawl:hosts:b.a.test")
    for start in range(0, 1000, 100):
        await door.add(*(beyond("b.a.test", n, score=-n / 4096) for n in range(start, start + 100)))
    (blocks, _, _), *_ = await row.calls.longest([0])
    assert await row.calls.spill(door.fence, await row.write(blocks - 1)) == blocks - 1
    assert (await totals(door)).spilled_parked >= 640
    assert isinstance(parking._files, NoFiles)
    assert (await sharing.release(1, {0})).urls == {0: 1000}
    now = await totals(door)
    assert (now.hosts, now.beyond_hosts, now.spilled_parked) == (1, 0, 0)
    assert now.spilled >= 640
