"""The first domains by each order: what is compared, and that the numbers are those of the statistics."""

import pytest

from crawler.frontier.arguments import ActivityHead, ActivityItem
from crawler.frontier.busy import Slot
from crawler.frontier.codec import pack
from crawler.frontier.deferred import ChangeKind, DeferredUrls, QueueChange
from crawler.frontier.domain_lists import SORTS, DomainLists, DomainRow
from crawler.frontier.owner import Settlement
from crawler.frontier.series import Rates
from crawler.frontier.stats import Stats
from tests.frontier.door import Door, found

SLOT = 360_000_000
NOW_S = (SLOT + 2) * 5.0 + 1


@pytest.fixture
def lists(door: Door) -> DomainLists:
    return DomainLists(door.engine, door.keys, 3, Stats(door.engine, door.keys, 3))


async def names(lists: DomainLists, sort: str, limit: int = 9) -> list[str]:
    return [row.stats.domain for row in await lists.top(sort, limit, NOW_S)]


async def fetched(door: Door, host: str, pages: int, size: int = 10, status: int = 200) -> None:
    """Commit some pages of a host."""
    await door.frontier.book_request(door.fence, host, Settlement(next_fetch_ms=0, delay_ms=0))
    await door.add(*(found(n, host=host) for n in range(pages)))
    for claim in await door.claim():
        await door.ack(claim, status=status, body_bytes=size)


async def noted(door: Door, **pages: int) -> None:
    """Activity of hosts in the last whole slot."""
    items = [ActivityItem(SLOT, f"{name}.test", 0, 0, 0, 0, 0) for name in pages]
    items += [ActivityItem(SLOT + 1, f"{name}.test", n, n * 10, 0, 0, 0) for name, n in pages.items()]
    packed = pack([*ActivityHead(8, 2.0, 5), *(value for item in items for value in item)])
    await door.frontier.drain_log([(door.fence, [])], {0: packed})


async def test_pages_bytes_and_errors_come_from_the_records(door: Door, lists: DomainLists) -> None:
    await fetched(door, "a.test", 3, size=10)
    await fetched(door, "b.test", 2, size=1000)
    await fetched(door, "c.test", 4, size=1, status=404)
    await fetched(door, "d.test", 1, size=0, status=503)
    await noted(door, c=4, d=1)
    assert await names(lists, "pages") == ["a.test", "b.test", "c.test", "d.test"], "pages are 2xx"
    assert await names(lists, "bytes") == ["b.test", "a.test", "c.test"]
    assert await names(lists, "errors") == ["c.test", "d.test"]
    (row,) = await lists.top("errors", 1, NOW_S)
    assert (row.stats.status, row.stats.partition) == ({"4": 4}, 0)


async def test_a_rate_is_there_for_busy_domains_only(door: Door, lists: DomainLists) -> None:
    await fetched(door, "a.test", 3)
    await fetched(door, "b.test", 1)
    await noted(door, b=20, quiet=1)
    assert await names(lists, "rate") == ["b.test", "quiet.test"]
    rates = {row.stats.domain: row.busy and row.busy.rates(NOW_S).pages for row in await lists.top("pages", 9, NOW_S)}
    assert rates == {"a.test": None, "b.test": 4.0}


async def test_queues_and_due_times_are_of_all_partitions(door: Door, lists: DomainLists) -> None:
    door.now = 10_000
    await door.frontier.book_request(door.fence, "late.test", Settlement(next_fetch_ms=99_000, delay_ms=1000))
    await door.add(*(found(n, host="long.test") for n in range(300)), found(1, host="late.test"))
    await door.frontier.add({2: [found(n, host="other.test", partition=2) for n in range(200)]})
    await noted(door, late=1)
    assert await names(lists, "queue") == ["long.test", "other.test", "late.test"]
    assert await names(lists, "due") == ["long.test", "other.test", "late.test"], "due since 10 s, now, in 89 s"
    assert await names(lists, "due", 1) == ["long.test"]


async def test_the_most_overdue_queue_counts_whatever_its_boost(door: Door, lists: DomainLists) -> None:
    await door.add(found(1))
    assert await lists.overdue_ms() == 0, "due now"
    await door.frontier.book_request(door.fence, "b.test", Settlement(next_fetch_ms=9_000, delay_ms=1000))
    await door.add(found(1, host="b.test"))
    await boost(door, "b.test", 5)
    door.now = 12_000
    (claim,) = await door.claim(urls_max=1)
    assert (claim.queue, await lists.overdue_ms()) == ("b.test", 12_000)
    await door.add(found(2, host="b.test"))
    await door.ack(claim, next_ms=13_000, delay_ms=1000)
    (claim,) = await door.claim(urls_max=1)
    assert (claim.queue, await lists.overdue_ms()) == ("a.test", 0), "claimed, and the other one is due later"
    door.now = 15_500
    await door.frontier.book_request(door.fence, "c.test", Settlement(next_fetch_ms=0, delay_ms=1000))
    assert await lists.overdue_ms() == 2_500


async def boost(door: Door, queue: str, n: int) -> None:
    change = QueueChange(queue, ChangeKind.BOOST, "", n)
    await DeferredUrls(door.frontier, 1).change_queues(0, [change])


@pytest.mark.parametrize("sort", SORTS)
async def test_a_new_crawl_has_empty_lists(lists: DomainLists, sort: str) -> None:
    empty: list[DomainRow] = []
    assert await lists.top(sort, 5, NOW_S) == empty


def test_slots_and_rates_have_the_same_numbers() -> None:
    assert Slot._fields[1:] == Rates.__struct_fields__[1:]
