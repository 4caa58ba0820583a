"""Reads the robots.txt files that the owner of a queue has stored for the others."""

from crawler.crawl.opening import OpenCrawl
from crawler.frontier.pending import PendingUrls
from crawler.rules.robots import SharedRobots


async def known_robots(crawl: OpenCrawl, partition: int, queue: str) -> list[tuple[str, SharedRobots]]:
    """Origin and rules, of all origins of a queue that are known. Raises EngineError."""
    origins = await PendingUrls(crawl.engine, crawl.keys).origins(partition, queue)
    blobs = [(origin, await crawl.frontier.robots(partition, origin)) for origin in origins]
    found = [(origin, SharedRobots.unpack(blob)) for origin, blob in blobs if blob is not None]
    return [(origin, stored) for origin, stored in found if stored is not None]
