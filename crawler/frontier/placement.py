"""Where a URL belongs: its domain, its queue, and the partition that both are in."""

from functools import lru_cache

from crawler.frontier.record import CrawlRecord
from crawler.rules.places import partition_of, queue_of, registrable_domain
from crawler.rules.urls import authority_of, host_of

PLACES_MAX = 50_000  # hosts whose place is cached; about 400 bytes each


class Placement:
    """The placement of one crawl: its number of partitions and `queue_by` never change."""

    def __init__(self, record: CrawlRecord) -> None:
        self._partitions = record.partitions
        self._by_domain = record.queue_by == "domain"
        self._place = lru_cache(maxsize=PLACES_MAX)(self._place_of)

    def of(self, url: str) -> tuple[str, str, int]:
        """(domain, queue, partition) of a canonical URL."""
        return self._place(authority_of(url))

    def _place_of(self, authority: str) -> tuple[str, str, int]:
        host = host_of(f"http://{authority}/")
        domain = registrable_domain(host)
        return domain, queue_of(host, by_domain=self._by_domain), partition_of(domain, self._partitions)
