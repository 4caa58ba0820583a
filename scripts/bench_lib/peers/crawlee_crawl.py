"""Crawlee for Python on the same web, obeying robots.txt. Run as `crawlee_crawl.py JOB` (job.py).

Variants: `shipped`: request queue on disk, links by enqueue_links. `tuned`: queue in memory, links by one CSS selector,
a set and urljoin, uvloop. Both keep the job's concurrency: how Crawlee adapts its own is not compared.
"""

import asyncio
import logging
import re
from pathlib import Path
from typing import Any
from urllib.parse import urljoin

import uvloop
from crawlee import ConcurrencySettings
from crawlee.configuration import Configuration
from crawlee.crawlers import ParselCrawler, ParselCrawlingContext
from crawlee.http_clients import ImpitHttpClient
from crawlee.storage_clients import MemoryStorageClient
from job import Job, read_job


async def crawl(job: Job) -> list[str]:
    """The pages that it got."""
    pages: list[str] = []
    sent = set(job.seeds)
    wanted = re.compile(job.pattern)
    at_once = ConcurrencySettings(
        min_concurrency=job.concurrency, desired_concurrency=job.concurrency, max_concurrency=job.concurrency
    )
    storage: dict[str, Any] = {"storage_client": MemoryStorageClient()} if job.variant == "tuned" else {}
    crawler = ParselCrawler(
        concurrency_settings=at_once,
        respect_robots_txt_file=True,
        configure_logging=False,
        configuration=Configuration(storage_dir=str(Path(job.output).parent / "storage")),
        max_requests_per_crawl=job.pages_max or None,
        http_client=ImpitHttpClient(verify=not job.seeds[0].startswith("https:")),  # it has its own authorities
        **storage,
    )

    @crawler.router.default_handler
    async def handle(context: ParselCrawlingContext) -> None:
        url = context.request.loaded_url or context.request.url
        pages.append(url)
        if job.variant == "shipped":
            await context.enqueue_links(selector="a[href],area[href]", strategy="all", include=[wanted])
            return
        hrefs = {href.partition("#")[0] for href in context.selector.css("a::attr(href),area::attr(href)").getall()}
        fresh = [link for link in {urljoin(url, href) for href in hrefs - {""}} - sent if wanted.match(link)]
        sent.update(fresh)
        if fresh:
            await context.add_requests(fresh)

    await crawler.run(list(job.seeds))
    return pages


def main() -> None:
    job = read_job()
    logging.disable(logging.WARNING)
    run = asyncio.run if job.variant == "shipped" else uvloop.run
    job.write_pages(run(crawl(job)))


if __name__ == "__main__":
    main()
