"""Hosts that share one address share its limit."""

from pathlib import Path

from tests.crawl.harness import crawl, lab_names, settings_of
from tests.support.serving import serve_resources
from tests.support.web import Resource


async def test_requests_to_one_address_stay_under_its_limit(tmp_path: Path) -> None:
    hosts = [f"h{n}.test" for n in range(40)]
    pages = {(host, "/"): Resource(body="<p>one</p>", delay_s=0.05) for host in hosts}
    with serve_resources(pages) as site:
        async with lab_names() as dns:
            settings = settings_of(
                tmp_path / "c", dns__nameservers=[dns], politeness__concurrency_per_address=3, fetch__concurrency=32
            )
            done = await crawl(settings, [site.url(host) for host in hosts])
        requests = [r for r in site.requests() if not r.is_robots]
    assert len(done.entries) == 40
    assert max(sum(b.start <= a.start < b.end for b in requests) for a in requests) == 3
