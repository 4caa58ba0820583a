"""An engine that is nearly full gets no more work; when there is room again the crawl goes on and loses nothing."""

import asyncio
from pathlib import Path

from crawler.app.instance import Instance
from tests.crawl.harness import crawl, lab_names, settings_of
from tests.support.engine import Engine
from tests.support.serving import serve_web


async def test_claiming_stops_above_the_memory_mark_and_goes_on_below_it(tmp_path: Path, engine: Engine) -> None:
    stalled: list[int] = []
    client = engine.client()

    async def squeeze(instances: list[Instance]) -> None:
        counters = instances[0].counters
        while counters.committed < 30:
            await asyncio.sleep(0.01)
        client.config_set("maxmemory", int(client.info("memory")["used_memory"] / 0.9))  # the mark is at 0.85
        while not counters.is_engine_full or counters.open_claims.total:
            await asyncio.sleep(0.01)
        before = counters.committed
        await asyncio.sleep(1.5)
        stalled.extend((before, counters.committed))
        client.config_set("maxmemory", 0)

    try:
        with serve_web(seed=13, domains=4, pages=4) as site:
            async with lab_names() as dns:
                settings = settings_of(
                    tmp_path / "c",
                    dns__nameservers=[dns],
                    scope__mode="any",
                    politeness__delay_s=0.03,
                    frontier__redis=engine.url,
                )
                done = await crawl(settings, site.web.seeds, meanwhile=squeeze)
            expected = site.web.expected(site.web.seeds, "any").committed
    finally:
        client.config_set("maxmemory", 0)
    assert done.errors == []
    assert stalled[0] == stalled[1]
    assert done.statuses == expected


async def test_a_page_is_acked_only_after_a_full_engine_takes_its_links(tmp_path: Path, engine: Engine) -> None:
    client = engine.client()

    async def fill_up(instances: list[Instance]) -> None:
        counters = instances[0].counters
        while counters.committed < 20:
            await asyncio.sleep(0.01)
        client.config_set("maxmemory", 1)
        await asyncio.sleep(2.5)
        client.config_set("maxmemory", 0)

    try:
        with serve_web(seed=14, domains=4, pages=4) as site:
            async with lab_names() as dns:
                settings = settings_of(
                    tmp_path / "c", dns__nameservers=[dns], scope__mode="any", frontier__redis=engine.url
                )
                done = await crawl(settings, site.web.seeds, meanwhile=fill_up)
            expected = site.web.expected(site.web.seeds, "any").committed
    finally:
        client.config_set("maxmemory", 0)
    assert done.errors == []
    assert done.statuses == expected
