"""What pages need to be shown is fetched with them, each once, of any host, and is no page."""

from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from crawler.archive.folder import open_existing
from crawler.crawl.opening import open_crawl
from crawler.outputs.records import Pages
from tests.crawl.harness import crawl, lab_names
from tests.crawl.rebuild_lab import Lab, audit, rebuild
from tests.crawl.requisites_lab import PICTURE, page, sheet
from tests.support.engine import Engine
from tests.support.serving import serve_linked
from tests.support.web import Resource

HOST, OTHER = "shown.test", "pictures.test"
WEB = {
    (HOST, "/robots.txt"): Resource(body="User-agent: *\nDisallow: /private\n", content_type="text/plain"),
    (HOST, "/"): page(
        "<a href=/a>a</a><link rel=stylesheet href=/1.css><img src=/p.gif><img src='http://pictures.test:PORT/o.gif'>"
        "<img src=/private/p.gif><img src=/moved.gif><img src=/gone.gif><object data=/framed></object>"
    ),
    (HOST, "/a"): page("<img src=/p.gif><link rel=stylesheet href=/1.css><script src=/s.js></script>"),
    (HOST, "/framed"): page("<a href=/never>x</a><img src=/in-frame.gif>"),
    (HOST, "/gone.gif"): page("<img src=/never.gif>", status=404),
    (HOST, "/never"): page("never"),
    (HOST, "/p.gif"): PICTURE,
    (HOST, "/s.js"): Resource(body="var a", content_type="text/javascript"),
    (HOST, "/moved.gif"): Resource(status=302, headers={"Location": "/p.gif"}),
    (HOST, "/1.css"): sheet("@import '/2.css'; body { background: url(/b.gif) }"),
    (HOST, "/2.css"): sheet("@import '/3.css'; @import '/1.css';"),
    (HOST, "/3.css"): sheet("@import '/4.css'; body { background: url(/3.gif) }"),
    (HOST, "/4.css"): sheet("body { background: url(/too-deep.gif) }"),
    **{(HOST, f"/{name}.gif"): PICTURE for name in ("b", "3", "too-deep", "in-frame", "never")},
    (OTHER, "/o.gif"): PICTURE,
}
PAGES = {"/", "/a"}
REQUISITES = {
    "/1.css", "/2.css", "/3.css", "/4.css", "/p.gif", "/b.gif", "/3.gif", "/s.js", "/moved.gif", "/gone.gif", "/framed",
    "/in-frame.gif",
}  # fmt: skip


def web(port: int) -> dict[tuple[str, str], Resource]:
    return {place: replace(one, body=one.body.replace("PORT", str(port))) for place, one in WEB.items()}


@pytest.fixture
async def lab(tmp_path: Path, engine: Engine) -> AsyncIterator[Lab]:
    with serve_linked(web) as site:
        async with lab_names() as dns:
            yield Lab(site, dns, engine, tmp_path)


async def test_requisites_are_fetched_each_once_and_are_no_pages(lab: Lab) -> None:
    settings, seed = lab.settings(scope__mode="host", requisites__fetch=True), lab.site.url(HOST)
    done = await crawl(settings, [seed])
    base = seed.removesuffix("/")
    found = {entry.url.removeprefix(base): entry for entry in done.entries}
    other = lab.site.url(OTHER, "/o.gif")
    assert set(found) == PAGES | REQUISITES | {other}
    assert {path for path, entry in found.items() if entry.is_requisite} == REQUISITES | {other}
    exported = [
        record["url"]
        for entry in done.entries
        for record in Pages(open_existing(settings.archive.dir)).records_of(entry)
    ]
    assert {str(url).removeprefix(base) for url in exported} == PAGES
    async with open_crawl(settings, create=False) as opened:
        totals = await opened.stats.totals()
    assert (totals.fetched, totals.requisites, totals.pending) == (len(PAGES), len(REQUISITES) + 1, 0)
    assert totals.refused == {"robots": 1, "depth": 1}
    size = {path: entry.body_bytes for path, entry in found.items()}
    assert totals.bytes == sum(size[path] for path in PAGES)
    assert totals.requisite_bytes == sum(size.values()) - totals.bytes
    asked = [request for request in lab.site.requests() if not request.is_robots]
    assert max(Counter((request.host, request.target) for request in asked).values()) == 1
    order = [request.target for request in asked]
    assert order.index("/a") < order.index("/p.gif"), "pages first"
    assert await audit(settings) == 0
    lab.engine.flush()
    await rebuild(settings)
    again = await crawl(settings, [])
    assert {e.url: (e.label, e.depth) for e in again.entries} == {e.url: (e.label, e.depth) for e in done.entries}
    assert len([request for request in lab.site.requests() if not request.is_robots]) == len(asked)
    async with open_crawl(settings, create=False) as opened:
        renewed = await opened.stats.totals()
    assert (renewed.fetched, renewed.bytes) == (totals.fetched, totals.bytes)
    assert (renewed.requisites, renewed.requisite_bytes) == (totals.requisites, totals.requisite_bytes)
    assert await audit(settings) == 0


async def test_a_crawl_without_them_fetches_none(lab: Lab) -> None:
    done = await crawl(lab.settings(scope__mode="host"), [lab.site.url(HOST)])
    assert len(done.entries) == len(PAGES)


async def test_a_page_of_many_pictures_of_one_victim_uses_up_the_bound_and_not_its_pages(
    tmp_path: Path, engine: Engine
) -> None:
    """What is beyond the bounds is deferred, or cut and counted; the victim's own pages are crawled."""
    pictures = "".join(f"<img src='http://victim.test:PORT/i{n}.gif'>" for n in range(3000))

    def hostile(port: int) -> dict[tuple[str, str], Resource]:
        pages = {("victim.test", f"/{n}"): page(f"<a href=/{(n + 1) % 20}>x</a>") for n in range(20)}
        return pages | {
            ("evil.test", "/"): page(pictures.replace("PORT", str(port))),
            **{("victim.test", f"/i{n}.gif"): PICTURE for n in range(3000)},
        }

    with serve_linked(hostile) as site:
        async with lab_names() as dns:
            lab = Lab(site, dns, engine, tmp_path)
            bounds = {"requisites__urls": 50, "budget__urls": 20, "budget__pages": 100}
            settings = lab.settings(requisites__fetch=True, **bounds)
            done = await crawl(settings, [site.url("evil.test"), site.url("victim.test", "/0")])
            async with open_crawl(settings, create=False) as opened:
                totals = await opened.stats.totals()
            raised = lab.settings(requisites__fetch=True, **(bounds | {"requisites__urls": 60}))
            more = await crawl(raised, [])
            fewer = lab.settings(
                requisites__fetch=True, **(bounds | {"requisites__urls": 80, "requisites__bytes": 121_000})
            )
            last = await crawl(fewer, [])
    assert sum(entry.is_page for entry in done.entries) == 21, "evil's page, and twenty of the victim"
    assert (totals.requisites, totals.deferred_by, totals.lost) == (50, {"requisites": 1950}, {"requisites": 1000})
    assert sum(entry.is_requisite for entry in more.entries) == 60
    assert 60 <= sum(entry.is_requisite for entry in last.entries) < 80, "bytes stop it, but for open requests"


async def test_a_requisite_beyond_the_bound_of_one_is_cut_and_counted(lab: Lab) -> None:
    bound = 1000
    assert len(PICTURE.body) > bound
    settings = lab.settings(scope__mode="host", requisites__fetch=True, requisites__body_bytes_max=bound)
    done = await crawl(settings, [lab.site.url(HOST)])
    cut = [entry for entry in done.entries if entry.truncated]
    assert {(entry.is_requisite, entry.truncated, entry.body_bytes) for entry in cut} == {(True, "length", bound)}
    async with open_crawl(settings, create=False) as opened:
        assert (await opened.stats.totals()).lost["body:length"] == len(cut)
