"""What a crawl depends on is stored with it, and what a setting refuses waits for the setting to change."""

from pathlib import Path

from crawler.app.open_crawl import open_crawl
from crawler.frontier.stats import Totals
from crawler.settings import Settings
from tests.crawl.harness import crawl, lab_names
from tests.crawl.rebuild_lab import Lab, audit
from tests.support.engine import Engine
from tests.support.serving import serve_resources
from tests.support.web import Resource

HOST = "kept.test"
WEB = {
    (HOST, "/"): Resource(body="<a href='/a'>x</a><a href='http://10.1.2.3:22/'>x</a>", content_type="text/html"),
    (HOST, "/a"): Resource(body="a", content_type="text/html"),
}


async def totals_of(settings: Settings) -> Totals:
    async with open_crawl(settings, create=False) as opened:
        return await opened.stats.totals()


async def test_urls_at_private_addresses_wait_until_these_are_allowed(tmp_path: Path, engine: Engine) -> None:
    with serve_resources(WEB) as site:
        async with lab_names() as dns:
            lab = Lab(site, dns, engine, tmp_path)
            strict = lab.settings(fetch__allow_private=False)
            assert not (await crawl(strict, [site.url(HOST)])).entries
            totals = await totals_of(strict)
            assert (totals.pending, totals.dead, totals.deferred_by) == (0, 0, {"allow_private": 1})
            assert await audit(strict) == 0
            again = await crawl(strict, [])
            assert not again.entries
            done = await crawl(lab.settings(), [])
            totals = await totals_of(strict)
            assert {url.removeprefix(site.url(HOST)) for url in done.statuses} == {"", "a"}
            assert (totals.deferred, totals.dead_by) == (0, {"port_refused": 1}), "no setting allows that port"
            assert await audit(strict) == 0
