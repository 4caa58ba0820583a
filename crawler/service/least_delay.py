"""The shortest delay that may be set from outside: nobody there makes a crawl less polite than its settings do."""

from crawler.app.crawl import OpenCrawl
from crawler.errors import UsageError
from crawler.robots.cache import SharedRobots
from crawler.rules.politeness import delay_ms as delay_by
from crawler.rules.site_rules import of_queues
from crawler.terminal.wording import duration


async def check_delay(crawl: OpenCrawl, domain: str, delay_ms: int) -> None:
    """Raises UsageError for a delay that is shorter than the least one."""
    least_ms = await least_delay_ms(crawl, domain)
    if delay_ms < least_ms:
        raise UsageError(
            f"{domain}: {duration(least_ms / 1000)} between requests is the least, by the settings and robots.txt; "
            "only 'crawler delay' sets a shorter one"
        )


async def least_delay_ms(crawl: OpenCrawl, domain: str) -> int:
    """The delay that a domain would have without a command.

    That of the settings, of its table in [[sites]], and of the robots.txt files that are known of its hosts. Where no
    command sets the delay now, also the one in force, which may come from another host of the domain. Raises
    EngineError.
    """
    settings, operator = crawl.settings, crawl.operator
    partition, queues = operator.partition_of(domain), await operator.queues_of(domain)
    of_site = of_queues(settings.sites, "delay_s")
    is_free = domain not in (await operator.overrides()).delays_ms
    least_ms = 0
    for found in await crawl.stats.domains([(queue, partition) for queue in queues]):
        own_ms = round(max(settings.politeness.delay_s, of_site(found.domain) or 0.0) * 1000)
        asked_s = await _crawl_delay_s(crawl, partition, found.domain)
        cap_ms = int(settings.politeness.delay_max_s * 1000)
        natural_ms = delay_by(min_delay_ms=own_ms, crawl_delay_s=asked_s, delay_max_ms=cap_ms)
        least_ms = max(least_ms, natural_ms, found.delay_ms if is_free else 0)
    return least_ms


async def _crawl_delay_s(crawl: OpenCrawl, partition: int, host: str) -> float | None:
    """The longest Crawl-delay of a host's robots.txt files."""
    found = []
    for origin in (f"https://{host}", f"http://{host}"):
        blob = await crawl.frontier.robots(partition, origin)
        stored = SharedRobots.unpack(blob) if blob is not None else None
        if stored is not None and stored.rules.crawl_delay_s is not None:
            found.append(stored.rules.crawl_delay_s)
    return max(found, default=None)
