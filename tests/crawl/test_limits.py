"""A limit ends a crawl in order; what is left waits for the next one."""

from pathlib import Path

from tests.crawl.harness import crawl, lab_names, settings_of
from tests.support.serving import serve_web


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
