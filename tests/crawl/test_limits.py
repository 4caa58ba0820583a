"""A limit ends a crawl in order; what is left waits for the next one."""

import asyncio
from pathlib import Path

import pytest

from crawler.frontier.stats import Stats, Totals
from tests.crawl.harness import crawl, lab_names, settings_of
from tests.support.serving import serve_web


@pytest.mark.slow(ci=True)
async def test_a_page_limit_is_the_crawls_and_the_rest_waits(tmp_path: Path) -> None:
    with serve_web(seed=16, domains=4, pages=4) as site:
        expected = site.web.expected(site.web.seeds, "any").committed
        async with lab_names() as dns:
            common = {"dns__nameservers": [dns], "scope__mode": "any", "politeness__delay_s": 0.02}
            counts = []
            for limit in (15, 15, 40):
                done = await crawl(settings_of(tmp_path / "c", crawl__pages_max=limit, **common), site.web.seeds)
                assert [i.stopped_because for i in done.instances] == ["pages"]
                counts.append(len(done.entries))
            assert counts == [15, 15, 40]
            done = await crawl(settings_of(tmp_path / "c", **common), site.web.seeds)
    assert done.statuses == expected
    assert done.twice == []


@pytest.mark.slow(ci=True)
async def test_a_page_limit_is_met_although_pages_are_committed_during_the_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was committed between the two looks, at our own count and at the crawl's, must not be taken for others'."""
    totals = Stats.totals

    async def slow(stats: Stats) -> Totals:
        await asyncio.sleep(0.2)
        return await totals(stats)

    monkeypatch.setattr(Stats, "totals", slow)
    with serve_web(seed=16, domains=4, pages=4) as site:
        async with lab_names() as dns:
            options = {"dns__nameservers": [dns], "scope__mode": "any", "politeness__delay_s": 0.02}
            done = await crawl(settings_of(tmp_path, crawl__pages_max=200, **options), site.web.seeds)
    assert len(done.entries) == 200


@pytest.mark.slow(ci=True)
async def test_several_instances_share_a_page_limit(tmp_path: Path) -> None:
    """Each claimed up to all of it. They may still exceed it by what they claim between two counts."""
    with serve_web(seed=16, domains=12, pages=20) as site:
        async with lab_names() as dns:
            settings = settings_of(tmp_path, dns__nameservers=[dns], scope__mode="any", crawl__pages_max=100)
            done = await crawl(settings, site.web.seeds, instances=3)
    assert {i.stopped_because for i in done.instances} == {"pages"}
    assert 100 <= len(done.entries) <= 115
    assert done.twice == []


@pytest.mark.slow(ci=True)
async def test_a_time_limit_ends_the_crawl_in_order(tmp_path: Path) -> None:
    with serve_web(seed=17, domains=4, pages=4) as site:
        expected = site.web.expected(site.web.seeds, "any").committed
        async with lab_names() as dns:
            common = {"dns__nameservers": [dns], "scope__mode": "any", "politeness__delay_s": 0.02}
            first = await crawl(settings_of(tmp_path / "c", crawl__time_max_s=0.8, **common), site.web.seeds)
            assert first.instances[0].stopped_because == "time"
            assert 0 < len(first.entries) < len(expected)
            done = await crawl(settings_of(tmp_path / "c", **common), site.web.seeds)
    assert done.statuses == expected
    assert done.twice == []
