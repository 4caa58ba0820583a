"""A URL that is a page and a requisite: neither is lost in the other, and one request is enough for both."""

from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from crawler.archive.folder import open_existing
from crawler.archive.warc_reader import read_content
from crawler.crawl.opening import open_crawl
from crawler.views.facts import explain
from crawler.views.reasons import explanation
from crawler.views.report import requisites_text
from tests.crawl.harness import crawl, lab_names
from tests.crawl.rebuild_lab import Lab, audit, rebuild
from tests.crawl.requisites_lab import page
from tests.support.engine import Engine
from tests.support.serving import serve_resources
from tests.support.web import Resource

HOST = "both.test"
WEB = {
    (HOST, "/robots.txt"): Resource(body="User-agent: *\nDisallow: /private\n", content_type="text/plain"),
    (HOST, "/"): page("<img src=/of-both><a href=/first>x</a>"),
    (HOST, "/first"): page("<img src=/><a href=/second>x</a>"),
    (HOST, "/second"): page("<a href=/of-both>x</a>"),
    (HOST, "/of-both"): page("<a href=/behind>x</a>"),
    (HOST, "/behind"): page("behind"),
}


@pytest.fixture
async def lab(tmp_path: Path, engine: Engine) -> AsyncIterator[Lab]:
    with serve_resources(WEB) as site:
        async with lab_names() as dns:
            yield Lab(site, dns, engine, tmp_path)


async def test_a_page_that_was_a_requisite_first_needs_no_request(lab: Lab) -> None:
    """Requisites come last: the pages that link to it are a second crawl's."""
    seed = lab.site.url(HOST)
    settings = lab.settings(scope__mode="host", scope__depth_max=0, requisites__fetch=True)
    first = await crawl(settings, [seed])
    assert Counter(entry.label for entry in first.entries) == {"": 1, "+requisite": 1}
    deeper = lab.settings(scope__mode="host", scope__depth_max=0, requisites__fetch=True)
    done = await crawl(deeper, [lab.site.url(HOST, "/of-both")])
    (of_page,) = (entry for entry in done.entries if entry.url.endswith("/of-both") and not entry.label)
    assert (of_page.status, of_page.original is not None) == (200, True)
    asked = Counter(request.target for request in lab.site.requests() if not request.is_robots)
    assert asked == {"/": 1, "/of-both": 1}
    assert b"/behind" in read_content(open_existing(settings.archive.dir), of_page).payload
    assert await audit(settings) == 0
    lab.engine.flush()
    await rebuild(settings)
    again = await crawl(settings, [])
    assert {(e.url, e.label) for e in again.entries} == {(e.url, e.label) for e in done.entries}
    assert Counter(request.target for request in lab.site.requests() if not request.is_robots) == asked
    assert await audit(settings) == 0


async def test_a_page_that_is_shown_as_a_picture_is_crawled_and_not_requested_again(lab: Lab) -> None:
    settings = lab.settings(scope__mode="host", requisites__fetch=True)
    done = await crawl(settings, [lab.site.url(HOST)])
    paths = {path for host, path in WEB if path != "/robots.txt"}
    pages = [entry for entry in done.entries if not entry.label]
    assert sorted(entry.url.removeprefix(lab.site.url(HOST)[:-1]) for entry in pages) == sorted(paths)
    asked = Counter(request.target for request in lab.site.requests() if not request.is_robots)
    assert asked == dict.fromkeys(paths, 1)
    async with open_crawl(settings, create=False) as opened:
        totals = await opened.stats.totals()
    assert totals.refused.get("archived", 0) + totals.requisites == 2  # "/" and "/of-both", in whatever order they came
    assert await audit(settings) == 0


async def test_explain_tells_of_a_url_as_page_and_as_requisite(lab: Lab) -> None:
    settings, seed = lab.settings(scope__mode="host", scope__depth_max=0, requisites__fetch=True), lab.site.url(HOST)
    await crawl(settings, [seed])
    async with open_crawl(settings, create=False) as opened:
        shown = explanation(await explain(opened, f"{seed}of-both"))
    assert shown.startswith("Fetched as what a page needs to be shown, and not as a page")
    await crawl(settings, [lab.site.url(HOST, "/first")])
    async with open_crawl(settings, create=False) as opened:
        both, totals = explanation(await explain(opened, seed)), await opened.stats.totals()
    assert both.startswith("Crawled: status 200")
    assert "requisite   of a page or style sheet: it is archived as a page" in both
    assert "1 archived as pages" in requisites_text(totals)
