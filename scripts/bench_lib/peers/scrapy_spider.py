"""Scrapy and scrapy-redis on the same web, obeying robots.txt. Run as `scrapy_spider.py JOB` (job.py).

Variants: `shipped`: LinkExtractor as it comes (each #fragment becomes a request that the duplicate filter drops).
`tuned`: fragments cut before links are compared, uvloop, and no middleware that this web has no use for. `hand`: tuned,
and links by one CSS selector, a set and urljoin. With `redis-` before it, queue and duplicate filter are those of
scrapy-redis, in a Redis server without persistence that the program starts and leaves to its caller to end.
"""

import re
import socket
import subprocess
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urljoin

import scrapy
from job import Job, read_job
from scrapy.crawler import CrawlerProcess
from scrapy.exceptions import CloseSpider
from scrapy.http import HtmlResponse, Response
from scrapy.linkextractors import LinkExtractor

SETTINGS = {
    "LOG_LEVEL": "ERROR",
    "ROBOTSTXT_OBEY": True,
    "DOWNLOAD_DELAY": 0,
    "TELNETCONSOLE_ENABLED": False,
    "REDIRECT_ENABLED": False,
}
TUNED_SETTINGS = {
    "ASYNCIO_EVENT_LOOP": "uvloop.Loop",
    "COOKIES_ENABLED": False,
    "REFERER_ENABLED": False,
    "RETRY_ENABLED": False,
    "REACTOR_THREADPOOL_MAXSIZE": 20,
}
REDIS_SETTINGS = {
    "SCHEDULER": "scrapy_redis.scheduler.Scheduler",
    "DUPEFILTER_CLASS": "scrapy_redis.dupefilter.RFPDupeFilter",
}
REDIS_START_S = 10.0

Links = Callable[[HtmlResponse], Iterable[str]]


def links_of(job: Job, way: str) -> Links:
    """A function that finds a page's links, as the variant finds them."""
    if way == "hand":
        wanted = re.compile(job.pattern).match
        sent: set[str] = set()

        def by_hand(response: HtmlResponse) -> Iterator[str]:
            found = {href.partition("#")[0] for href in response.css("a::attr(href),area::attr(href)").getall()}
            for url in {urljoin(response.url, href) for href in found - {""}} - sent:
                if wanted(url):
                    sent.add(url)
                    yield url

        return by_hand
    cut = {"process_value": lambda value: value.partition("#")[0] or None} if way == "tuned" else {}
    extractor = LinkExtractor(allow=job.pattern, tags=("a", "area"), attrs=("href",), **cut)
    return lambda response: (link.url for link in extractor.extract_links(response))


def spider(job: Job, way: str, pages: list[str]) -> type[scrapy.Spider]:
    """A spider class that does the job and notes each page in `pages`."""
    links = links_of(job, way)

    class PagesSpider(scrapy.Spider):
        name = "pages"

        async def start(self) -> AsyncIterator[scrapy.Request]:
            for seed in job.seeds:  # by default, a spider fetches a seed again when a page links to it
                yield scrapy.Request(seed)

        def parse(self, response: Response) -> Iterator[scrapy.Request]:
            if isinstance(response, HtmlResponse):
                pages.append(response.url)
                if job.is_enough(len(pages)):
                    raise CloseSpider("enough")
                for url in links(response):
                    yield scrapy.Request(url)

    return PagesSpider


def start_redis(folder: Path) -> str:
    """URL of a server of its own, below `folder`."""
    path = folder / "redis.sock"
    options = ["--port", "0", "--unixsocket", str(path), "--save", "", "--appendonly", "no", "--dir", str(folder)]
    with (folder / "redis.log").open("wb") as log:
        subprocess.Popen(["redis-server", *options], stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    deadline = time.monotonic() + REDIS_START_S
    while not path.exists():
        if time.monotonic() > deadline:
            raise SystemExit(f"redis-server did not start: {(folder / 'redis.log').read_text()[-500:]}")
        time.sleep(0.02)
    return f"unix://{path}"


def resolve_to_this_machine() -> None:
    """Scrapy uses the system's resolver, which we can't configure: make every name 127.0.0.1."""
    system = socket.getaddrinfo
    socket.getaddrinfo = lambda _, *arguments, **options: system("127.0.0.1", *arguments, **options)
    socket.gethostbyname = lambda _: "127.0.0.1"


def main() -> None:
    job = read_job()
    store, _, way = job.variant.rpartition("-")
    limits = {"CONCURRENT_REQUESTS": job.concurrency, "CONCURRENT_REQUESTS_PER_DOMAIN": job.concurrency}
    settings: dict[str, Any] = SETTINGS | limits | ({} if way == "shipped" else TUNED_SETTINGS)
    if store == "redis":
        settings |= REDIS_SETTINGS | {"REDIS_URL": start_redis(Path(job.output).parent)}
    resolve_to_this_machine()
    pages: list[str] = []
    process = CrawlerProcess(settings)
    process.crawl(spider(job, way, pages))
    process.start()
    job.write_pages(pages[: job.pages_max or None])


if __name__ == "__main__":
    main()
