"""Sitemaps that robots.txt names are a part of the crawl, and no pages; what they name is crawled."""

import shutil
import time
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from crawler.archive.folder import open_existing
from crawler.crawl.opening import open_crawl
from crawler.frontier.restore import DoneUrl
from crawler.model import SITEMAP
from crawler.outputs.records import Pages
from crawler.parsing.parse import SITEMAP_INLINE_BYTES
from crawler.views.losses import losses_of
from tests.crawl.harness import crawl, entries_of, lab_names
from tests.crawl.lab import QUICK, name_server
from tests.crawl.rebuild_lab import Lab, audit, doors_of, forget_commits, rebuild
from tests.crawl.test_crash import kill_engine
from tests.support.engine import Engine
from tests.support.processes import nursery
from tests.support.serving import serve_resources
from tests.support.web import Resource

HOST = "mapped.test"
RSS = "<rss><channel><item><link>/of-feed</link></item></channel></rss>"


def xml(root: str, *locs: str) -> Resource:
    inner = "url" if root == "urlset" else "sitemap"
    body = "".join(f"<{inner}><loc>{loc}</loc></{inner}>" for loc in locs)
    return Resource(body=f"<{root}>{body}</{root}>", content_type="application/xml")


def page(text: str) -> Resource:
    return Resource(body=f"<title>{text}</title>{text}", content_type="text/html")


WEB = {
    (HOST, "/robots.txt"): Resource(
        body="User-agent: *\nDisallow: /private\nSitemap: /index.xml\nSitemap: /private/map.xml\nSitemap: http://elsewhere.test/map.xml\n",
        content_type="text/plain",
    ),
    (HOST, "/"): page("<a href='/linked'>x</a><a href='/feed'>x</a>"),
    (HOST, "/linked"): page("linked"),
    (HOST, "/feed"): Resource(body=RSS, content_type="application/rss+xml"),
    (HOST, "/of-feed"): page("of a feed"),
    (HOST, "/index.xml"): xml("sitemapindex", "/1.xml", "/2.xml", "/index.xml", "/deeper.xml", "/gone.xml"),
    (HOST, "/1.xml"): xml("urlset", "/a", "/linked", "http://elsewhere.test/", "/private/x"),
    (HOST, "/2.xml"): Resource(body="http://mapped.test/no-port\n", content_type="text/plain"),
    (HOST, "/deeper.xml"): xml("sitemapindex", "/3.xml"),
    (HOST, "/3.xml"): xml("urlset", "/b"),
    (HOST, "/a"): page("<a href='/under-a'>x</a>"),
    (HOST, "/under-a"): page("under a"),
    (HOST, "/b"): page("b"),
}
PAGES = {"/", "/linked", "/feed", "/of-feed", "/a", "/under-a", "/b"}
SITEMAPS = {"/index.xml", "/1.xml", "/2.xml", "/deeper.xml", "/3.xml", "/gone.xml"}


@pytest.fixture
async def lab(tmp_path: Path, engine: Engine) -> AsyncIterator[Lab]:
    with serve_resources(WEB) as site:
        async with lab_names() as dns:
            yield Lab(site, dns, engine, tmp_path)


async def test_sitemaps_of_robots_txt_are_a_part_of_the_crawl_and_no_pages(lab: Lab) -> None:
    settings, seed = lab.settings(scope__mode="domain"), lab.site.url(HOST)
    done = await crawl(settings, [seed])
    paths = {entry.url.removeprefix(seed[:-1]): entry for entry in done.entries}
    assert set(paths) == PAGES | SITEMAPS
    assert {path for path, entry in paths.items() if entry.is_sitemap} == SITEMAPS
    assert {path: paths[path].depth for path in ("/linked", "/a", "/b", "/under-a")} == {
        "/linked": 1, "/a": 1, "/b": 1, "/under-a": 2,
    }  # fmt: skip
    records = Pages(open_existing(settings.archive.dir))
    exported = [record["url"] for entry in done.entries for record in records.records_of(entry)]
    assert {str(url).removeprefix(seed[:-1]) for url in exported} == PAGES
    async with open_crawl(settings, create=False) as opened:
        totals = await opened.stats.totals()
    assert (totals.fetched, totals.sitemaps, totals.pending) == (len(PAGES), len(SITEMAPS), 0)
    order = [request.target for request in lab.site.requests() if not request.is_robots]
    assert order.index("/index.xml") > max(map(order.index, ("/linked", "/feed"))), "pages' links first"
    assert len(order) == len(set(order))
    assert await audit(settings) == 0
    lab.engine.flush()
    await rebuild(settings)
    again = await crawl(settings, [])
    assert {e.url: e.label for e in again.entries} == {e.url: e.label for e in done.entries}
    assert [request.target for request in lab.site.requests() if not request.is_robots] == order
    assert await audit(settings) == 0


@pytest.mark.slow(ci=True)
@pytest.mark.parametrize(
    ("changes", "are_read"),
    [
        ({}, True), ({"scope__mode": "host"}, True),
        ({"scope__mode": "prefix"}, False), ({"scope__mode": "any"}, False),
        ({"scope__mode": "prefix", "robots__sitemaps": "yes"}, True), ({"robots__sitemaps": "no"}, False),
        ({"robots__obey": False}, False), ({"scope__depth_max": 0}, False),
    ],
)  # fmt: skip
async def test_a_crawl_reads_sitemaps_as_it_was_begun(lab: Lab, changes: dict[str, object], *, are_read: bool) -> None:
    settings = lab.settings(**({"scope__mode": "domain"} | changes))
    done = await crawl(settings, [lab.site.url(HOST)])
    assert any(entry.label == SITEMAP for entry in done.entries) is are_read


async def test_a_long_sitemap_is_read_in_a_process_and_what_is_missing_of_it_is_counted(
    tmp_path: Path, engine: Engine
) -> None:
    """Of two long ones, one is cut off; and one of them is a page to a browser."""
    urls = "".join(f"<url><loc>/private/{n}</loc></url>" for n in range(3000))
    text = {"content_type": "text/plain"}
    web = {
        (HOST, "/robots.txt"): Resource(body="Sitemap: /long.xml\nSitemap: /cut.xml\nSitemap: /page\n", **text),
        (HOST, "/"): page("home"),
        (HOST, "/page"): page("<a href='/of-page'>x</a>"),
        (HOST, "/long.xml"): xml("urlset", *["/a"] * 3000),
        (HOST, "/cut.xml"): Resource(body=f"<urlset><url><loc>/b</loc></url>{urls}", **text),
        (HOST, "/a"): page("a"),
        (HOST, "/b"): page("b"),
    }
    assert len(web[HOST, "/long.xml"].body) > SITEMAP_INLINE_BYTES
    with serve_resources(web) as site:
        async with lab_names() as dns:
            settings = Lab(site, dns, engine, tmp_path).settings(scope__mode="domain", scope__exclude=("/private/",))
            done = await crawl(settings, [site.url(HOST)])
            async with open_crawl(settings, create=False) as opened:
                totals, examples = await opened.stats.totals_and_examples()
    assert {entry.url.rpartition("/")[2] for entry in done.entries} == {"", "page", "long.xml", "cut.xml", "a", "b"}
    assert [(loss.reason, loss.count) for loss in losses_of(totals, examples)] == [("sitemap", 2)]


@pytest.mark.slow
@pytest.mark.processes
def test_kill_9_within_an_index_of_200_sitemaps_and_a_rebuild_in_between_are_exact(tmp_path: Path) -> None:
    web = {
        (HOST, "/robots.txt"): Resource(body="Sitemap: /index.xml\n", content_type="text/plain"),
        (HOST, "/"): page("home"),
        (HOST, "/index.xml"): xml("sitemapindex", *(f"/{n}.xml" for n in range(200))),
    }
    for n in range(200):
        web[HOST, f"/{n}.xml"] = xml("urlset", f"/{n}/a", f"/{n}/b")
        web |= {(HOST, f"/{n}/{name}"): page(f"{n} {name}") for name in "ab"}
    folder = tmp_path / "c"
    with name_server() as dns, serve_resources(web) as site, nursery(QUICK | {"CRAWLER_DNS_NAMESERVERS": dns}) as lab:
        options = ("--dir", str(folder), "--delay", "0.005", "--quiet")
        for kill_at in (30, 120, 260):
            program = lab.crawler("crawl", site.url(HOST), *options)
            while len(site.requests()) < kill_at:
                assert program.process.poll() is None, program.err
                time.sleep(0.005)
            program.kill()
        kill_engine(folder)
        shutil.rmtree(folder / "engine")
        assert lab.crawler("rebuild", "--dir", str(folder)).wait(60) == 0
        last = lab.crawler("crawl", site.url(HOST), *options)
        assert last.wait(100) == 0, last.err
    entries = entries_of(folder)
    found = Counter(entry.url.removeprefix(site.url(HOST)[:-1]) for entry in entries)
    assert found == Counter({target for host, target in web if target != "/robots.txt"})
    assert {entry.url.rpartition(".")[2] for entry in entries if entry.is_sitemap} == {"xml"}


async def test_the_audit_misses_a_sitemap_that_robots_txt_named_and_the_crawl_lost(
    lab: Lab, capsys: pytest.CaptureFixture[str]
) -> None:
    settings, sitemap = lab.settings(scope__mode="domain"), lab.site.url(HOST, "/index.xml")
    done = await crawl(settings, [lab.site.url(HOST)])
    assert await audit(settings) == 0
    forget_commits(open_existing(settings.archive.dir), [sitemap])
    (entry,) = (entry for entry in done.entries if entry.url == sitemap)
    async with open_crawl(settings, create=False) as opened:
        doors = doors_of(opened)
        domain, queue, partition = doors.router.placement.of(sitemap)
        lost = DoneUrl(
            fingerprint=entry.fingerprint, partition=partition, domain=domain, queue=queue, status=entry.counted_status,
            body_bytes=entry.body_bytes, fetch_ms=entry.fetch_ms, url=sitemap,
        )  # fmt: skip
        assert await doors.restoring.reopen([lost]) == 1
        await doors.rereader.close()
    assert await audit(settings) == 8
    assert "not clean: 1 URL lost" in capsys.readouterr().err
