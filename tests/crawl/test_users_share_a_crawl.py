"""A user with few URLs next to one with very many: on other domains, and on the same one."""

import asyncio
from itertools import pairwise
from pathlib import Path

import pytest

from crawler.crawl.instance import Instance
from crawler.crawl.opening import open_crawl
from tests.crawl.harness import crawl, lab_names, settings_of
from tests.crawl.runs_lab import start
from tests.support.engine import Engine
from tests.support.serving import Request, Site, serve_resources
from tests.support.web import Resource

ANN, BEN, LATER = "job00000.0.1", "job00001.0.1", "job00002.0.1"  # runs of their jobs
DOMAINS, EACH, SHARED = 150, 4, 120
DELAY_S = 0.1
SLOTS = 25  # for ten URLs that alternate with those of another user, and what was claimed before


def web() -> dict[tuple[str, str], Resource]:
    page = Resource(body="<p>a page</p>", delay_s=0.05)
    found = {(f"a{n}.test", f"/{i}"): page for n in range(DOMAINS) for i in range(EACH)}
    found |= {("shared.test", f"/{i}"): page for i in range(SHARED)}
    found |= {("shared.test", f"/b{i}"): page for i in range(10)} | {(f"b{n}.test", "/"): page for n in range(10)}
    return found | {("first.test", "/"): page}


def pages(site: Site, *hosts: str) -> list[Request]:
    """Those of hosts whose names begin so, in order of their start."""
    return [r for r in site.requests() if r.host.startswith(hosts) and not r.is_robots]


def of_ben(request: Request) -> bool:
    return request.host.startswith("b") or request.target.startswith("/b")


async def until(site: Site, *hosts: str, n: int) -> None:
    while len([r for r in pages(site, *hosts) if of_ben(r) or hosts == ("a",)]) < n:
        await asyncio.sleep(0.05)


@pytest.mark.slow(ci=True)
async def test_ten_urls_are_fetched_soon_whatever_waits_of_another_user(tmp_path: Path, engine: Engine) -> None:
    with serve_resources(web()) as site:
        async with lab_names() as dns:
            settings = settings_of(
                tmp_path / "c", frontier__redis=engine.url, dns__nameservers=[dns], politeness__delay_s=DELAY_S,
                fetch__concurrency=8, crawl__partitions=32, frontier__claim_ahead_s=DELAY_S,
            )  # fmt: skip

            async with open_crawl(settings, create=True) as opened:
                backlog = [site.url(f"a{n}.test", f"/{i}") for n in range(DOMAINS) for i in range(EACH)]
                await start(opened, ANN, [*backlog, *(site.url("shared.test", f"/{i}") for i in range(SHARED))])

            async def meanwhile(instances: list[Instance]) -> None:
                async with open_crawl(settings, create=False) as opened:
                    await until(site, "a", n=60)
                    await start(opened, BEN, [site.url(f"b{n}.test", "/") for n in range(10)], user="ben")
                    before = len(pages(site, "a"))
                    await until(site, "b", n=10)
                    mine = [i for i, r in enumerate(pages(site, "a", "b")) if of_ben(r)]
                    others = mine[9] - 9 - before  # by the order of requests: this loop may see them late
                    assert others < DOMAINS * EACH / 2, "of those that had been waiting for longer"
                    await start(opened, LATER, [site.url("shared.test", f"/b{n}") for n in range(10)], user="ben")
                    before = len(pages(site, "shared."))
                    await until(site, "shared.", n=10)
                    last = max(i for i, r in enumerate(pages(site, "shared.")) if of_ben(r))
                    assert last - before <= SLOTS
                    for instance in instances:
                        instance.stop()

            done = await crawl(settings, [site.url("first.test")], meanwhile=meanwhile)
        starts = sorted(r.start for r in site.requests() if r.host.startswith("shared."))
    assert done.errors == []
    closest = min(after - before for before, after in pairwise(starts))
    assert closest >= DELAY_S - 0.005, "one clock for all users"
