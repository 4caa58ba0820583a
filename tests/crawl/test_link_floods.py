"""Pages with very many long links to domains that do not exist, next to an innocent site, in a small engine."""

import asyncio
import contextlib
from pathlib import Path

import pytest

from crawler.crawl.instance import Instance
from crawler.rules import introductions
from tests.crawl.harness import crawl, lab_names, settings_of
from tests.support.engine import Engine
from tests.support.serving import serve_resources
from tests.support.web import Resource

EVIL, GOOD = "evil.test", "good.test"
PAGES, LINKS, LINK_BYTES = 20, 300, 7900  # 47 MB
GOOD_PAGES = 30
ROOM_BYTES = 8 << 20


def web() -> dict[tuple[str, str], Resource]:
    tail = "x" * LINK_BYTES
    pages = {(EVIL, "/"): "".join(f'<a href="/{n}">' for n in range(PAGES))}
    for n in range(PAGES):
        pages[EVIL, f"/{n}"] = "".join(f'<a href="http://u{n}-{k}.example/{tail}">' for k in range(LINKS))
    pages[GOOD, "/"] = "".join(f'<a href="/{n}">' for n in range(GOOD_PAGES))
    pages |= {(GOOD, f"/{n}"): f'<a href="/">home</a>{n}' for n in range(GOOD_PAGES)}
    return {where: Resource(body=body) for where, body in pages.items()}


@pytest.mark.slow(ci=True)
async def test_an_innocent_site_is_crawled_while_others_would_fill_the_engine(
    tmp_path: Path, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(introductions, "BURST_BYTES", 1 << 20)
    with contextlib.closing(engine.client()) as client:
        idle = int(client.info("memory")["used_memory"])
        used: list[int] = []

        def good_ones() -> int:
            return len({r.target for r in site.requests() if r.host.startswith(GOOD) and not r.is_robots})

        async def until_the_good_is_done(instances: list[Instance]) -> None:
            counters = instances[0].counters
            async with asyncio.timeout(60):
                while good_ones() <= GOOD_PAGES or counters.committed < GOOD_PAGES + 2 or not counters.held_pages:
                    used.append(int(client.info("memory")["used_memory"]))
                    await asyncio.sleep(0.05)
            instances[0].stop()

        with serve_resources(web()) as site:
            async with lab_names() as dns:
                settings = settings_of(
                    tmp_path / "c", dns__nameservers=[dns], scope__mode="any", politeness__delay_s=0.02,
                    frontier__redis=engine.url, frontier__memory=idle + ROOM_BYTES, traps__off=["long"],
                    frontier__spill_folder=str(tmp_path / "spill"),
                )  # fmt: skip
                done = await crawl(settings, [site.url(EVIL), site.url(GOOD)], meanwhile=until_the_good_is_done)
    assert done.errors == []
    assert sum(GOOD in url for url in done.statuses) == GOOD_PAGES + 1
    assert max(used) < idle + 2 * ROOM_BYTES
    assert done.instances[0].counters.open_claims.total == 0, "what waited went back"
