"""Scrapy on the same web, obeying robots.txt. Run as `scrapy_spider.py HOW SEED PATTERN CONCURRENCY OUTPUT`.

HOW is `shipped` (LinkExtractor as it comes: each #fragment becomes a request that the duplicate filter drops) or
`tuned` (fragments cut before links are compared).
"""

import socket
import sys
from collections.abc import Iterator
from pathlib import Path

import scrapy
from scrapy.crawler import CrawlerProcess
from scrapy.http import HtmlResponse, Response
from scrapy.linkextractors import LinkExtractor


def spider(how: str, seed: str, pattern: str, pages: list[str]) -> type[scrapy.Spider]:
    """A spider class that follows `pattern` and notes each page in `pages`."""
    tuned = {"process_value": lambda value: value.partition("#")[0] or None} if how == "tuned" else {}
    extractor = LinkExtractor(allow=pattern, tags=("a", "area"), attrs=("href",), **tuned)

    class PagesSpider(scrapy.Spider):
        name = "pages"
        start_urls = (seed,)

        def parse(self, response: Response) -> Iterator[scrapy.Request]:
            if isinstance(response, HtmlResponse):
                pages.append(response.url)
                for link in extractor.extract_links(response):
                    yield scrapy.Request(link.url)

    return PagesSpider


def resolve_to_this_machine() -> None:
    """Scrapy asks the system's resolver, whose settings are not ours to change: every name is 127.0.0.1."""
    system = socket.getaddrinfo
    socket.getaddrinfo = lambda _, *arguments, **options: system("127.0.0.1", *arguments, **options)
    socket.gethostbyname = lambda _: "127.0.0.1"


def main() -> None:
    resolve_to_this_machine()
    how, seed, pattern, concurrency, output = sys.argv[1:]
    settings = {
        "LOG_LEVEL": "ERROR",
        "ROBOTSTXT_OBEY": True,
        "CONCURRENT_REQUESTS": int(concurrency),
        "CONCURRENT_REQUESTS_PER_DOMAIN": int(concurrency),
        "DOWNLOAD_DELAY": 0,
        "TELNETCONSOLE_ENABLED": False,
        "REDIRECT_ENABLED": False,
    }
    pages: list[str] = []
    process = CrawlerProcess(settings)
    process.crawl(spider(how, seed, pattern, pages))
    process.start()
    Path(output).write_text("\n".join(pages), encoding="utf-8")


if __name__ == "__main__":
    main()
