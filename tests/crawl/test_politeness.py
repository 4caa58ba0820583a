"""What the web server saw: the delay between requests of a queue, one owner at a time."""

from pathlib import Path

import pytest

from tests.crawl.harness import crawl, lab_names, settings_of
from tests.crawl.lab import closest_pairs
from tests.support.serving import serve_web


@pytest.mark.slow
async def test_every_domain_keeps_its_delay_across_owners(tmp_path: Path) -> None:
    delay_s = 0.15
    with serve_web(seed=3, domains=6, pages=4) as site:
        async with lab_names() as dns:
            settings = settings_of(
                tmp_path / "c", dns__nameservers=[dns], scope__mode="any", politeness__delay_s=delay_s
            )
            done = await crawl(settings, site.web.seeds, instances=3)
        assert done.statuses == site.web.expected(site.web.seeds, "any").committed
        closest = closest_pairs(site.requests())
    assert len(closest) == 6
    assert {d: s for d, s in closest.items() if s < delay_s} == {}
