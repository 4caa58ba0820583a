"""The whole pipeline on a web that is known to the last link: what was committed equals what plain search finds."""

from collections import defaultdict
from pathlib import Path

import pytest

from tests.crawl.harness import crawl, lab_names, settings_of
from tests.support.serving import serve_web


@pytest.mark.slow(ci=True)
@pytest.mark.parametrize("instances", [pytest.param(1, marks=pytest.mark.slow), 3])
async def test_the_committed_set_equals_the_expected_set(tmp_path: Path, instances: int) -> None:
    with serve_web(seed=5, domains=8, pages=10) as site:
        expected = site.web.expected(site.web.seeds, "any")
        async with lab_names() as dns:
            settings = settings_of(tmp_path / "c", dns__nameservers=[dns], scope__mode="any")
            done = await crawl(settings, site.web.seeds, instances=instances)
        assert done.errors == []
        assert done.statuses == expected.committed
        assert done.twice == []
        requests = site.requests()
    asked = [r for r in requests if not r.is_robots]
    assert not {f"http://{r.host}{r.target}" for r in asked} & expected.refused
    hits = defaultdict(int)
    for r in asked:
        hits[r.host, r.target, r.status] += 1
    assert [hit for hit, n in hits.items() if n > 1 and hit[2] < 500] == []
    assert sum(i.counters.committed for i in done.instances) == len(done.entries)
    assert all(i.stopped_because == "finished" for i in done.instances)


@pytest.mark.slow(ci=True)
async def test_scope_by_domain_keeps_the_crawl_at_home(tmp_path: Path) -> None:
    with serve_web(seed=2, domains=4, pages=8) as site:
        expected = site.web.expected(site.web.seeds, "domain")
        async with lab_names() as dns:
            done = await crawl(settings_of(tmp_path / "c", dns__nameservers=[dns]), site.web.seeds)
        assert done.statuses == expected.committed
        assert {r.host.partition(":")[0] for r in site.requests()} == {"d0.test", "a0.d0.test"}
