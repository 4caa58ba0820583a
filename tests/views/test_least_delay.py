"""The shortest delay that may be set over HTTP: that of settings, [[sites]] and robots.txt, whichever is longest."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from crawler.crawl.opening import OpenCrawl
from crawler.errors import UsageError
from crawler.frontier.leases import Acquired
from crawler.frontier.owner import Fence, Settlement
from crawler.rules.robots import RobotsRules, SharedRobots
from crawler.settings.schema import SiteSettings
from crawler.views.operator import check_delay, least_delay_ms, set_delay
from tests.support.engine import Engine
from tests.views.views_lab import ANN, DOMAIN, seeded


@pytest.fixture
async def crawl(tmp_path: Path, engine: Engine) -> AsyncIterator[OpenCrawl]:
    """Its delay is two seconds, and at most a minute by robots.txt."""
    async with seeded(tmp_path / "c", engine) as one:
        yield with_settings(one)


def with_settings(crawl: OpenCrawl, *sites: SiteSettings) -> OpenCrawl:
    politeness = replace(crawl.settings.politeness, delay_s=2.0, delay_max_s=60.0)
    return replace(crawl, settings=replace(crawl.settings, politeness=politeness, sites=sites))


async def requested(crawl: OpenCrawl, scheme: str, robots: str, delay_ms: int = -1, host: str = DOMAIN) -> None:
    """A request was made to a host of the domain, and this robots.txt was read."""
    _, queue, partition = crawl.placement.of(f"https://{DOMAIN}/")
    (lease,) = await crawl.leases.read([partition])
    (one,) = await crawl.leases.acquire(crawl.session, "n", [(lease, 0)])
    assert isinstance(one, Acquired)
    fence = Fence(partition, crawl.session, one.epoch, 1)
    shared = SharedRobots(1, RobotsRules.parse(robots.encode(), "shardcrawl")).pack()
    settlement = Settlement(next_fetch_ms=1, delay_ms=delay_ms)
    await crawl.frontier.book_request(fence, queue, settlement, origin=f"{scheme}://{host}", robots=shared)
    await crawl.leases.release([fence])


async def test_without_robots_it_is_that_of_the_settings(crawl: OpenCrawl) -> None:
    assert await least_delay_ms(crawl, DOMAIN) == 2_000
    assert await least_delay_ms(crawl, "never.example") == 2_000
    sites = (SiteSettings(match=f"*.{DOMAIN}", delay_s=9.5), SiteSettings(match="*.other.example", delay_s=50))
    assert await least_delay_ms(with_settings(crawl, *sites), DOMAIN) == 9_500
    assert await least_delay_ms(with_settings(crawl, SiteSettings(match=f"*.{DOMAIN}", delay_s=0)), DOMAIN) == 2_000


@pytest.mark.parametrize(("seconds", "least_ms"), [(30, 30_000), (1, 2_000), (3_600, 60_000)])
async def test_a_crawl_delay_counts_within_its_bounds(crawl: OpenCrawl, seconds: int, least_ms: int) -> None:
    await requested(crawl, "http", f"User-agent: *\nCrawl-delay: {seconds}\n")
    assert await least_delay_ms(crawl, DOMAIN) == least_ms


async def test_the_crawl_delay_of_another_host_of_the_queue_counts(crawl: OpenCrawl) -> None:
    await requested(crawl, "https", "User-agent: *\nCrawl-delay: 30\n", host=f"www.{DOMAIN}")
    await set_delay(crawl, DOMAIN, 40_000, actor=ANN)
    assert await least_delay_ms(crawl, DOMAIN) == 30_000


async def test_the_delay_in_force_counts_unless_a_command_set_it(crawl: OpenCrawl) -> None:
    """It may come from the robots.txt of another host of the domain."""
    await requested(crawl, "https", "", delay_ms=12_000)
    assert await least_delay_ms(crawl, DOMAIN) == 12_000
    await set_delay(crawl, DOMAIN, 40_000, actor=ANN)
    assert await least_delay_ms(crawl, DOMAIN) == 2_000


async def test_a_shorter_delay_is_refused_in_one_line(crawl: OpenCrawl) -> None:
    await check_delay(crawl, DOMAIN, 2_000)
    with pytest.raises(UsageError, match="2 s between requests is the least"):
        await check_delay(crawl, DOMAIN, 1_999)
