"""What commands request from sites while a crawl may run: a fetcher, and the robots.txt of a URL."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator

from crawler.crawl.opening import OpenCrawl
from crawler.crawl.terms import with_key_file
from crawler.hosts.borrowed_slots import COMMAND_PATIENCE_MS, SlotBorrower
from crawler.hosts.robots_cache import RobotsCache
from crawler.hosts.robots_reader import RobotsReader
from crawler.model import Statement
from crawler.rules.robots import RobotsRules, SharedRobots
from crawler.rules.urls import origin_of
from crawler.version import program_version
from crawler.views.reasons import RobotsFact
from crawler.web.fetcher import Fetcher
from crawler.web.resolver import CachingResolver


@contextlib.asynccontextmanager
async def polite_fetcher(crawl: OpenCrawl) -> AsyncIterator[tuple[Fetcher, SlotBorrower]]:
    """A fetcher, and slots on the politeness clocks of hosts, whoever owns them."""
    resolver = CachingResolver(crawl.settings.dns, allow_private=crawl.settings.fetch.allow_private)
    try:
        async with Fetcher(with_key_file(crawl.settings), resolver=resolver, version=program_version()) as fetcher:
            yield fetcher, SlotBorrower(crawl.frontier, crawl.placement.of)
    finally:
        await resolver.close()


async def robots_fact(crawl: OpenCrawl, url: str, partition: int, *, fetch: bool) -> RobotsFact:
    """What robots.txt allows for a URL, as the owner stored it; with `fetch`, requested if nothing is stored."""
    settings, origin = crawl.settings.robots, origin_of(url)
    if not settings.obey:
        return RobotsFact(note="ignored by the settings")
    blob = await crawl.frontier.robots(partition, origin)
    stored = SharedRobots.unpack(blob) if blob is not None else None
    if stored is not None:
        stale = time.time() - stored.read_at >= settings.ttl_s
        note = "it will be read again before the next fetch" if stale else ""
        said = _said(stored.rules, url)
        return RobotsFact(verdict=stored.rules.verdict(url), said=said, read_at=stored.read_at, note=note)
    if fetch:
        return await _fetched_robots(crawl, url, origin)
    return RobotsFact(note="not read yet: it will be before the first fetch (--fetch-robots asks now)")


async def _fetched_robots(crawl: OpenCrawl, url: str, origin: str) -> RobotsFact:
    """Requested on the clock of its queue. Nothing is stored: the owner reads for itself."""
    async with polite_fetcher(crawl) as (fetcher, slot_borrower):
        cache = RobotsCache(crawl.frontier, crawl.settings)
        forgotten = crawl.record.forgotten
        reader = RobotsReader(
            cache, fetcher, slot_borrower, patience_ms=COMMAND_PATIENCE_MS,
            is_forgotten=forgotten.has if forgotten is not None else lambda _: False,
        )  # fmt: skip
        reading = await reader.read("", origin)
        while reading.entry is None and reading.ours is None:
            await asyncio.sleep(reading.wait_ms / 1000)
            reading = await reader.read("", origin)
        entry = reading.entry
    if entry is None:
        assert reading.ours is not None
        return RobotsFact(note=f"can't be read now: {reading.ours.kind} ({reading.ours.detail})")
    if entry.rules is None:
        return RobotsFact(note=f"can't be read ({entry.detail}): nothing is fetched there until it can")
    return RobotsFact(verdict=entry.rules.verdict(url), said=_said(entry.rules, url), read_at=time.time())


def _said(rules: RobotsRules, url: str) -> list[Statement]:
    """What an origin says about the use of a page."""
    return [*rules.said.of_robots(url), *rules.said.of_tdmrep(url)] if rules.said is not None else []
