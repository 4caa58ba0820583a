"""What a crawl's budget of URLs deferred is released evenly, and all owners together release what there is room for."""

import random

import pytest
from msgspec.structs import replace

from crawler.errors import EngineError
from crawler.frontier.deferred import BLOCKED, CRAWL_URLS, ChangeKind, DeferredUrls, QueueChange
from crawler.frontier.stats import Stats, Totals
from crawler.instance.deferred_share import DeferredShare
from tests.frontier.door import Door, found

PARTITIONS = 3


@pytest.fixture
def deferred_urls(door: Door) -> DeferredUrls:
    return DeferredUrls(door.frontier, PARTITIONS)


async def totals(door: Door) -> Totals:
    return await Stats(door.engine, door.keys, PARTITIONS).totals()


async def defer(door: Door, partition: int, host: str, n: int) -> None:
    urls = [replace(found(i, host=host, deferred=CRAWL_URLS, score=float(i)), partition=partition) for i in range(n)]
    for i in range(0, n, 100):
        reply = (await door.frontier.add({partition: urls[i : i + 100]}))[partition]
        assert not isinstance(reply, EngineError)


@pytest.mark.parametrize("seed", range(4))
async def test_the_shares_of_all_owners_add_up_to_the_room(door: Door, deferred_urls: DeferredUrls, seed: int) -> None:
    """Each partition has an owner of its own; all of them look at the same rows before any of them releases."""
    rng = random.Random(seed)
    sizes = {(p, f"h{n}.test"): rng.randint(1, 400) for p in range(PARTITIONS) for n in range(rng.randint(1, 5))}
    for (partition, host), n in sizes.items():
        await defer(door, partition, host, n)
    everything = sum(sizes.values())
    assert (await totals(door)).beyond == everything
    room = rng.randint(1, everything)
    share, rows = DeferredShare(deferred_urls, PARTITIONS), await deferred_urls.deferred()
    survey, ordered = await deferred_urls.survey(range(PARTITIONS)), dict[int, int]()

    async def as_it_was(partitions: range) -> list[tuple[int, dict[str, str], list[object]]]:
        return [one for one in survey if one[0] in partitions]

    deferred_urls.survey = as_it_was  # type: ignore[method-assign, assignment]
    for partition in range(PARTITIONS):
        ordered[partition] = (await share.release(room, {partition})).urls.total()
    assert sum(ordered.values()) == room
    left = {(p.partition, p.queue): p.urls for p in await deferred_urls.deferred()}
    for row in rows:
        released = row.urls - left.get((row.partition, row.queue), 0)
        assert abs(released - room * row.urls / everything) < 1, "each row gives its part"
    after = await totals(door)
    assert (after.beyond, after.taken_in, after.pending) == (everything - room, room, room)


async def test_blocked_urls_get_no_share_and_others_are_released_with_room(
    door: Door, deferred_urls: DeferredUrls
) -> None:
    await defer(door, 0, "a.test", 300)
    await defer(door, 1, "b.test", 20)
    await deferred_urls.change_queues(1, [QueueChange("b.test", ChangeKind.STOP, BLOCKED)])
    share = DeferredShare(deferred_urls, PARTITIONS)
    assert await share.waiting() == 300
    assert (await share.release(10**9, {0, 1, 2})).urls == {0: 300}
    assert (await share.waiting(), (await share.release(5, {0, 1, 2})).urls) == (0, {})
    assert (await totals(door)).beyond == 20
    (claim,) = await door.claim(urls_max=1)
    assert claim.url == "http://a.test/299"
