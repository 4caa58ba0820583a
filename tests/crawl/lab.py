"""Real crawler processes against a generated web: names, settings, and checks of the web server's log."""

import contextlib
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path

from crawler.testing import dns_server
from tests.support.serving import Request

DNS_SERVER = Path(dns_server.__file__)

QUICK = {
    "CRAWLER_FETCH_ALLOW_PRIVATE": "yes",
    "CRAWLER_RETRY_BACKOFF_S": "0.05",
    "CRAWLER_RETRY_BACKOFF_FACTOR": "1",
    "CRAWLER_RETRY_SERVER_BUSY_BACKOFF_S": "0.05",
    "CRAWLER_POLITENESS_CONCURRENCY_PER_ADDRESS": "64",
    "CRAWLER_CRAWL_PARTITIONS": "64",
    "CRAWLER_INTERNALS_HOSTS_PROBE_S": "1",
}


@contextlib.contextmanager
def name_server(*others: str) -> Iterator[str]:
    """A DNS server in a process of its own that knows every name under .test as 127.0.0.1, and others as they are
    given (NAME=ADDRESS); its address.
    """
    rules = ("*.test=127.0.0.1", *others)
    with subprocess.Popen([sys.executable, str(DNS_SERVER), *rules], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().split()[-1]
        finally:
            process.kill()


def domain_of(request: Request) -> str:
    return ".".join(request.host.partition(":")[0].split(".")[-2:])


def closest_pairs(requests: Iterable[Request]) -> dict[str, float]:
    """Smallest time in seconds between the starts of two requests, per registrable domain (dN.test)."""
    last: dict[str, float] = {}
    closest: dict[str, float] = defaultdict(lambda: 1e9)
    for request in requests:
        domain = domain_of(request)
        if domain in last:
            closest[domain] = min(closest[domain], request.start - last[domain])
        last[domain] = request.start
    return dict(closest)


def fetched_twice(requests: Iterable[Request]) -> list[tuple[str, str]]:
    """(host, target) of pages that were answered below 500 more than once."""
    count: dict[tuple[str, str], int] = defaultdict(int)
    for request in requests:
        if request.status < 500 and not request.is_robots:
            count[request.host, request.target] += 1
    return [page for page, n in count.items() if n > 1]
