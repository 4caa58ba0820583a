"""The three orders, by the log of a web server: one domain, one request at a time."""

from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from crawler.crawl.opening import make_seeder, open_crawl
from crawler.crawl.url_input import GivenUrl
from crawler.rules.order import Signals
from crawler.settings import PriorityRule, Settings
from tests.crawl.harness import crawl, lab_names, settings_of
from tests.crawl.rebuild_lab import rebuild
from tests.support.engine import Engine
from tests.support.serving import Site, serve_resources
from tests.support.web import Resource

A = "a.test"
DAY = 86400.0
ONE_AT_A_TIME = {
    "fetch__concurrency": 1,
    "politeness__delay_s": 0.01,  # with a delay, a queue is claimed from again once all of its claims are committed
    "frontier__claim_urls_max": 1,
    "frontier__half_life_s": 60.0,  # whatever is found 15 ms apart differs in age
    "archive__sync_s": 0.01,
}


def page(*targets: str) -> Resource:
    return Resource(body="".join(f"<a href='{target}'>x</a>" for target in targets), delay_s=0.03)


HUB = [f"/hub/{n}" for n in range(9)]
SITE = {
    "/": page("/list", "/plain", "/many"),
    "/list": page("/news/1", "/news/2", "/tag/x"),
    "/plain": page("/deep"),
    "/many": page(*HUB),
    "/deep": page(),
    **{target: page() for target in ("/news/1", "/news/2", "/tag/x", *HUB)},
}


@pytest.fixture
async def dns() -> AsyncIterator[str]:
    async with lab_names() as dns:
        yield dns


def asked(site: Site) -> list[str]:
    return [request.target for request in site.requests() if not request.is_robots]


async def order_of(tmp_path: Path, dns: str, **options: Any) -> list[str]:
    """In which order the pages of SITE are asked for, from its home page on."""
    with serve_resources({(A, target): answer for target, answer in SITE.items()}) as site:
        settings = settings_of(tmp_path, dns__nameservers=[dns], **(ONE_AT_A_TIME | options))
        await crawl(settings, [site.url(A)])
        found = asked(site)
    assert sorted(found) == sorted(SITE)
    return found


async def test_breadth_order_goes_by_depth_then_by_time_found(tmp_path: Path, dns: str) -> None:
    found = await order_of(tmp_path, dns)
    assert found[0] == "/"
    assert set(found[1:4]) == {"/list", "/plain", "/many"}
    children = {"/list": ["/news/1", "/news/2", "/tag/x"], "/plain": ["/deep"], "/many": HUB}
    rest = found[4:]
    for parent in found[1:4]:
        first, rest = rest[: len(children[parent])], rest[len(children[parent]) :]
        assert sorted(first) == sorted(children[parent])


async def test_priority_asks_by_rules_whatever_the_depth(tmp_path: Path, dns: str) -> None:
    wanted = [{"match": "/(news|list)", "add": 2.0}, {"match": "/tag/", "add": -3.0}]
    found = await order_of(tmp_path, dns, frontier__order="priority", frontier__rules=wanted)
    assert found[:2] == ["/", "/list"]
    assert set(found[2:4]) == {"/news/1", "/news/2"}
    assert found[-1] == "/tag/x"


async def test_priority_asks_first_for_what_stands_among_few_links(tmp_path: Path, dns: str) -> None:
    found = await order_of(tmp_path, dns, frontier__order="priority")
    assert found[4] == "/deep"
    assert sorted(found[-len(HUB) :]) == sorted(HUB)


async def test_freshness_asks_first_for_what_was_found_last(tmp_path: Path, dns: str) -> None:
    options = {"frontier__order": "freshness", "frontier__depth_weight": 0.0, "frontier__links_weight": 0.0}
    found = await order_of(tmp_path, dns, **options)
    children = {"/list": {"/news/1", "/news/2", "/tag/x"}, "/plain": {"/deep"}, "/many": set(HUB)}
    for parent, mine in children.items():
        at = found.index(parent) + 1
        assert set(found[at : at + len(mine)]) == mine


async def given_with(settings: Settings, site: Site, signals: Mapping[str, Signals]) -> None:
    async with open_crawl(settings, create=True) as opened:
        await make_seeder(opened).add_all(GivenUrl("sitemap", site.url(A, t), s) for t, s in signals.items())


BEGIN = 1_700_000_000.0
OF_SITEMAP = {
    "/low": Signals(sitemap_priority=0.1),
    "/high": Signals(sitemap_priority=1.0),
    "/plain": Signals(),
}
DATED = {f"/{days}-days": Signals(changed_at=BEGIN - days * DAY) for days in (3, 0, 40, 1)}


@pytest.mark.parametrize("rebuilt", [False, True], ids=["", "rebuilt"])
@pytest.mark.parametrize(
    ("order", "signals", "expected"),
    [
        ("priority", OF_SITEMAP, ["/high", "/plain", "/low"]),
        ("freshness", DATED, ["/0-days", "/1-days", "/3-days", "/40-days"]),
        ("breadth", OF_SITEMAP, None),
    ],
)
async def test_what_a_sitemap_says_counts_also_after_a_rebuild(
    tmp_path: Path,
    dns: str,
    engine: Engine,
    order: str,
    signals: dict[str, Signals],
    expected: list[str] | None,
    rebuilt: bool,
) -> None:
    with serve_resources({(A, target): page() for target in signals}) as site:
        options = {
            "dns__nameservers": [dns], "frontier__redis": engine.url, "frontier__order": order,
            "frontier__half_life_s": DAY,
        }  # fmt: skip
        settings = settings_of(tmp_path, **(ONE_AT_A_TIME | options))
        await given_with(settings, site, signals)
        if rebuilt:
            engine.flush()
            await rebuild(settings_of(tmp_path, **(ONE_AT_A_TIME | options | {"frontier__order": "breadth"})))
        await crawl(settings, [])
        found = asked(site)
    assert sorted(found) == sorted(signals)
    assert expected is None or found == expected


async def test_the_order_is_the_crawls_whatever_settings_a_later_instance_has(tmp_path: Path) -> None:
    rules = (PriorityRule(match="/news/", add=2.0),)
    made = settings_of(tmp_path, frontier__order="freshness", frontier__rules=[{"match": "/news/", "add": 2.0}])
    async with open_crawl(made, create=True) as first:
        assert (first.record.ordering.order, first.record.ordering.rules) == ("freshness", rules)
        async with open_crawl(settings_of(tmp_path), create=True) as second:
            assert second.record.ordering == first.record.ordering
