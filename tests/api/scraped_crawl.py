"""A small crawl whose metrics are read while it runs and after its end; made once for all tests of a process."""

import asyncio
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from crawler.api.metrics import metrics_text
from crawler.crawl.instance import Instance
from crawler.crawl.opening import open_crawl
from crawler.frontier.stats import Totals
from crawler.settings import Settings
from tests.crawl.harness import crawl, lab_names, settings_of
from tests.support.serving import serve_web

Values = dict[tuple[str, ...], float]  # name and label values, without the crawl's -> value


@dataclass
class Scraped:
    """Metrics as text: while the crawl ran, after its end, and then by another viewer, who also asked for a domain."""

    settings: Settings
    running: str
    finished: str
    again: str
    totals: Totals
    domains: int


def values_of(text: str) -> Values:
    found: Values = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            labels = dict(sample.labels)
            assert labels.pop("crawl") == "main"
            key = (sample.name, *labels.values())
            assert key not in found
            found[key] = sample.value
    return found


async def scrape(settings: Settings, **options: Any) -> str:
    async with open_crawl(settings, create=False) as opened:
        body, kind = await metrics_text(opened, **options)
    assert kind.startswith("text/plain; version=0.0.4")
    return body.decode()


_made: list[Scraped] = []


def scraped_crawl(folder: Path) -> Scraped:
    if not _made:
        _made.append(asyncio.run(_crawled(folder)))
    return _made[0]


async def _crawled(folder: Path) -> Scraped:
    running = ""

    async def look(_: list[Instance]) -> None:
        nonlocal running
        while "crawler_instance_politeness_margin_seconds{" not in running:
            running = await scrape(settings)
            await asyncio.sleep(0.05)

    with serve_web(seed=16, domains=4, pages=4) as site:
        async with lab_names() as dns:
            settings = settings_of(
                folder, dns__nameservers=[dns], scope__mode="any", politeness__delay_s=0.02, membership__beats=70.0
            )
            refused = "http://127.0.0.1:9/"  # a dead letter at once
            await crawl(settings, [*site.web.seeds, refused], meanwhile=look)
    async with open_crawl(settings, create=False) as opened:
        (body, _), (again, _) = await metrics_text(opened), await metrics_text(await opened.reloaded(), top_domains=1)
        totals, domains = await opened.stats.totals(), await opened.stats.domain_count()
    return Scraped(settings, running, body.decode(), again.decode(), totals, domains)
