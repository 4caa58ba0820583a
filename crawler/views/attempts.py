"""The newest attempts at a URL or a domain, from the crawl folder on this machine."""

import asyncio

from crawler.archive.history import newest_attempts
from crawler.crawl.opening import OpenCrawl
from crawler.errors import UsageError
from crawler.views.explain import ShownAttempt

LIMIT_MAX = 1_000  # attempts; some 300 bytes each as JSON


async def recent_attempts(crawl: OpenCrawl, *, url: str = "", domain: str = "", limit: int = 20) -> list[ShownAttempt]:
    """The newest attempts at a canonical URL or at the URLs of a domain, the newest first.

    Empty where this machine has no folder of the crawl. Instances of other machines note their attempts there. Reads
    the newest 256 MB of the history, in a thread. Raises UsageError for a limit out of bounds.
    """
    if not 1 <= limit <= LIMIT_MAX:
        raise UsageError(f"limit {limit}: expected 1 to {LIMIT_MAX:,} attempts")
    found = await asyncio.to_thread(newest_attempts, crawl.folder, url=url, domain=domain, limit=limit)
    return [ShownAttempt.of(one) for one in found]
