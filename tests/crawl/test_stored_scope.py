"""The stored scope of a crawl applies to every instance that resumes it, whatever its settings."""

from pathlib import Path

from tests.crawl.harness import crawl, lab_names, settings_of
from tests.support.serving import serve_resources
from tests.support.web import Resource

WEB = {
    ("d0.test", "/"): Resource(body="<a href='/a'>a</a>"),
    ("d0.test", "/a"): Resource(body="<a rel=nofollow href='/b'>b</a>"),
    ("d0.test", "/b"): Resource(body="<p>a leaf</p>"),
}


async def test_a_crawl_that_follows_every_link_goes_on_to_do_so(tmp_path: Path) -> None:
    """Otherwise the second half of a crawl would silently find fewer links than the first."""
    with serve_resources(WEB) as site:
        async with lab_names() as dns:
            begun = settings_of(tmp_path, dns__nameservers=[dns], scope__nofollow=False, crawl__pages_max=1)
            seeds = [site.url("d0.test")]
            assert len((await crawl(begun, seeds)).entries) == 1
            done = await crawl(settings_of(tmp_path, dns__nameservers=[dns]), seeds)
    assert {entry.url for entry in done.entries} == {site.url(*page) for page in WEB}
