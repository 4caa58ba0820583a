"""A budget of hosts of the whole crawl: it is met, what is beyond is kept and shown, a larger one takes up more."""

import asyncio
import contextlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from crawler.app.instance import Instance
from crawler.app.open_crawl import open_crawl
from crawler.frontier.stats import Totals
from crawler.settings import Settings
from tests.cli.cli_lab import page
from tests.cli.operate_lab import Lab
from tests.crawl.harness import Crawled, crawl, entries_of, lab_names, settings_of
from tests.support.engine import Engine
from tests.support.serving import serve_linked
from tests.support.web import Resource

HUB = "a.test"
SITES = 12  # beside the hub, two to a domain
PAGES = 3  # of each
ANY = {"scope__mode": "any"}


def name_of(site: int) -> str:
    return f"h{site}.d{site // 2}.test"


def web(port: int) -> Mapping[tuple[str, str], Resource]:
    """A hub that leads to all sites; each has some pages, of which the last leads to the next site, too."""
    found = {(HUB, "/"): page(*(f"http://{name_of(n)}:{port}/" for n in range(SITES)))}
    for n in range(SITES):
        found[name_of(n), "/"] = page("/1", "/2")
        found[name_of(n), "/1"] = page("/", "/2")
        found[name_of(n), "/2"] = page(f"http://{name_of((n + 1) % SITES)}:{port}/2", f"http://{HUB}:{port}/")
    return found


@pytest.fixture
def lab(tmp_path: Path, engine: Engine, capsys: pytest.CaptureFixture[str]) -> Iterator[Lab]:
    with contextlib.ExitStack() as open_sites:
        yield Lab(tmp_path / "c", engine, open_sites.enter_context(serve_linked(web)), capsys)


def hosts_of(folder: Path) -> set[str]:
    return {str(urlsplit(entry.url).hostname) for entry in entries_of(folder)}


@pytest.mark.parametrize("queue_by", ["domain", "host"])
def test_a_crawl_of_one_instance_meets_its_budget_of_hosts_exactly_and_larger_ones_go_on(
    lab: Lab, queue_by: str
) -> None:
    options = ANY | {"frontier__queue_by": queue_by}
    for most in (5, 8):
        assert lab.crawl(host=HUB, budget__crawl_hosts=most, **options) == 1 + PAGES * (most - 1)
        assert len(hosts_of(lab.folder)) == most
        lab.audit()
        assert lab.crawl(host=HUB, budget__crawl_hosts=most, **options) == 1 + PAGES * (most - 1), "it is used up"
    left = next(n for n in range(SITES) if name_of(n) not in hosts_of(lab.folder))
    over = lab.json("stats")["totals"]["over_budget"]
    assert over.keys() == {"crawl:hosts"}
    shown = lab.json("stats", name_of(left) if queue_by == "host" else f"d{left // 2}.test")["parked"]
    assert shown.keys() == {"crawl:hosts"}
    assert "of hosts beyond the crawl's budget of hosts" in lab.say("explain", lab.site.url(name_of(left), "/"))
    assert lab.json("explain", lab.site.url(name_of(left), "/"))["parked"] == f"crawl:hosts:{name_of(left)}"
    assert lab.crawl(host=HUB, **options) == 1 + PAGES * SITES
    assert lab.json("stats")["totals"]["parked"] == 0
    lab.audit()


def test_a_host_that_people_give_is_taken_in_with_all_that_was_parked_of_it(lab: Lab) -> None:
    assert lab.crawl(host=HUB, budget__crawl_hosts=1, **ANY) == 1
    assert lab.json("stats")["totals"]["over_budget"] == {"crawl:hosts": SITES}
    assert lab.crawl(host=name_of(3), budget__crawl_hosts=1, **ANY) == 1 + PAGES, "it was parked, as its seed is"
    assert hosts_of(lab.folder) == {HUB, name_of(3)}
    lab.audit()


def test_budgets_of_hosts_and_of_urls_stand_side_by_side(lab: Lab) -> None:
    assert lab.crawl(host=HUB, budget__crawl_hosts=4, budget__crawl_urls=9, **ANY) == 9
    over = lab.json("stats")["totals"]["over_budget"]
    assert over.keys() == {"crawl:urls", "crawl:hosts"} or over.keys() == {"crawl:urls"}
    lab.audit()
    assert lab.crawl(host=HUB, **ANY) == 1 + PAGES * SITES
    lab.audit()


async def by_two(settings: Settings, seeds: list[str], meanwhile: Callable[[list[Instance]], Any]) -> Crawled:
    done = await crawl(settings, seeds, instances=2, meanwhile=meanwhile)
    assert (done.errors, done.twice) == ([], [])
    return done


async def totals_of(settings: Settings) -> Totals:
    async with open_crawl(settings, create=False) as opened:
        return await opened.stats.totals()


@pytest.mark.parametrize("leaves", [False, True])
async def test_two_instances_keep_to_one_budget_of_hosts_and_lose_nothing(
    tmp_path: Path, engine: Engine, leaves: bool
) -> None:
    """Also when one of them leaves in the middle, and the other takes over what it had."""

    async def meanwhile(instances: list[Instance]) -> None:
        while leaves and sum(i.flow.committed for i in instances) < 8:
            await asyncio.sleep(0.01)
        if leaves:
            instances[1].stop()

    with serve_linked(web) as site:
        async with lab_names() as dns:
            common = ANY | {"dns__nameservers": [dns], "politeness__delay_s": 0.05, "frontier__redis": engine.url}
            for most in (5, 9):
                settings = settings_of(tmp_path / "c", budget__crawl_hosts=most, **common)
                await by_two(settings, [site.url(HUB)], meanwhile)
                totals = await totals_of(settings)
                assert most <= totals.hosts <= most + 4, "passed by no more than was under way"
                assert len(hosts_of(tmp_path / "c")) == totals.hosts
                assert totals.beyond_hosts == totals.parked > 0
            done = await by_two(settings_of(tmp_path / "c", **common), [site.url(HUB)], meanwhile)
    assert len(done.entries) == 1 + PAGES * SITES
