"""An origin whose robots.txt can't be read is not crawled: its URLs end as dead letters, and the crawl ends."""

from pathlib import Path

from tests.crawl.harness import crawl, lab_names, settings_of
from tests.support.serving import serve_resources
from tests.support.web import Resource


async def test_a_crawl_ends_when_robots_stays_unreachable_longer_than_its_entry_lives(tmp_path: Path) -> None:
    pages = {
        ("a.test", "/robots.txt"): Resource(fails=1_000_000, fail_status=503),
        ("a.test", "/"): Resource(body="<p>never asked for</p>"),
    }
    with serve_resources(pages) as site:
        async with lab_names() as dns:
            settings = settings_of(tmp_path / "c", dns__nameservers=[dns], politeness__delay_s=0.3)
            done = await crawl(settings, [site.url("a.test")])
        requests = site.requests()
    assert done.entries == []
    assert done.instances[0].counters.errors == settings.retry.attempts
    assert {r.target for r in requests} == {"/robots.txt"}
    assert len(requests) == settings.retry.attempts
