"""Idle queues: their records are packed after a while, nothing that was counted is lost, and they wake as they were."""

import pytest

from crawler.frontier.owner import Settlement
from crawler.frontier.stats import Stats
from crawler.model import Candidate
from tests.frontier.door import DELAY_MS, Door, found

DOMAINS = 200  # more than a store holds, and than the list of those with most pages
LONG = 100_000


def page(domain: int, path: str) -> Candidate:
    return found(path, host=f"site-{domain}.test")


async def crawl_all(door: Door) -> None:
    """Commit whatever waits, at most 32 URLs at a time."""
    while claims := await door.claim():
        for claim in claims:
            await door.ack(claim, next_ms=door.now + DELAY_MS, delay_ms=DELAY_MS)


@pytest.fixture
async def crawled(door: Door) -> Door:
    """A page of each domain was fetched, two of the first."""
    for n in range(DOMAINS):
        await door.frontier.book_request(door.fence, f"site-{n}.test", Settlement(next_fetch_ms=0, delay_ms=DELAY_MS))
        await door.add(page(n, "a"))
    await door.add(page(0, "b"))
    door.now = 10_000
    await crawl_all(door)
    door.now = 20_000
    await crawl_all(door)
    return door


async def rest(door: Door) -> None:
    door.now += LONG
    for _ in range(DOMAINS):
        assert await door.claim() == []


def names(door: Door, pattern: str) -> list[bytes]:
    with door.node as node:
        return sorted(node.keys(door.keys.of(0, pattern)))


async def test_records_of_idle_queues_are_packed_and_tell_the_same(crawled: Door) -> None:
    stats, wanted = Stats(crawled.engine, crawled.keys, 1), [(f"site-{n}.test", 0) for n in range(DOMAINS)]
    before = await stats.domains(wanted)
    assert (before[0].fetched, before[1].fetched, before[1].delay_ms) == (2, 1, DELAY_MS)
    await rest(crawled)
    assert names(crawled, "w:*") == names(crawled, "idle") == []
    compact_stores = names(crawled, "h:*")
    assert len(compact_stores) > 2
    with crawled.node as node:
        assert {node.object("encoding", key) for key in compact_stores} == {b"listpack"}
    after = await stats.domains(wanted)
    assert [d.next_fetch_in_ms for d in after] == [0] * DOMAINS
    assert after == before


async def test_a_packed_queue_wakes_with_its_delay_and_its_counts(crawled: Door) -> None:
    await rest(crawled)
    await crawled.add(page(7, "new"), page(7, "newer"))
    (claim,) = await crawled.claim(ahead_ms=DELAY_MS)  # not both: its delay is known
    await crawled.ack(claim, next_ms=crawled.now, delay_ms=DELAY_MS)
    (seen,) = await Stats(crawled.engine, crawled.keys, 1).domains([("site-7.test", 0)])
    assert (seen.fetched, seen.queued, seen.delay_ms) == (2, 1, DELAY_MS)
    assert names(crawled, "w:*") == [crawled.keys.of(0, "w:site-7.test").encode()]


async def test_the_list_of_those_with_most_pages_stays_short(crawled: Door) -> None:
    stats = Stats(crawled.engine, crawled.keys, 1)
    assert await stats.domain_count() == DOMAINS
    top = await stats.top_domains(DOMAINS)
    assert len(top) == 128
    assert top[0] == ("site-0.test", 0)


async def test_a_robots_txt_goes_when_it_is_too_old_and_others_come(door: Door) -> None:
    async def share(origin: str, read_at: int) -> None:
        settled = Settlement(next_fetch_ms=0, delay_ms=0)
        await door.frontier.book_request(door.fence, "a.test", settled, origin=origin, robots=b"%d x" % read_at)

    await share("http://old.test", 1_000)
    for n in range(3):
        await share(f"http://n{n}.test", 1_000 + 86_400)
    assert await door.frontier.robots(0, "http://old.test") == b"1000 x"
    await share("http://newer.test", 1_001 + 86_400)
    for n in range(100):  # each looks at three others, whichever
        await share(f"http://m{n}.test", 1_001 + 86_400)
    assert await door.frontier.robots(0, "http://old.test") is None
    assert await door.frontier.robots(0, "http://n0.test") == b"87400 x"
