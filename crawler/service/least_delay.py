"""The shortest delay that may be set from outside: nobody there makes a crawl less polite than its settings do."""

from crawler.app.crawl import OpenCrawl
from crawler.errors import UsageError
from crawler.rules.health import delay_ms as delay_by
from crawler.rules.scope import of_queues
from crawler.service.known_robots import known_robots
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
        robots = await known_robots(crawl, partition, found.domain)
        asked = [stored.rules.crawl_delay_s for _, stored in robots if stored.rules.crawl_delay_s is not None]
        cap_ms = int(settings.politeness.delay_max_s * 1000)
        natural_ms = delay_by(min_delay_ms=own_ms, crawl_delay_s=max(asked, default=None), delay_max_ms=cap_ms)
        least_ms = max(least_ms, natural_ms, found.delay_ms if is_free else 0)
    return least_ms
