"""What is known of a URL, and the newest attempts at it, as functions on a crawl that has ended."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from crawler.crawl.opening import OpenCrawl, open_crawl
from crawler.errors import UsageError
from crawler.views.attempts import recent_attempts
from crawler.views.facts import explain
from crawler.views.reasons import CommitAnswer, explanation, record_of
from tests.cli.cli_lab import HOST, page
from tests.crawl.harness import crawl, settings_of
from tests.support.engine import Engine
from tests.support.serving import Site, serve_resources
from tests.support.web import Resource

TRIES = 2


@pytest.fixture
def site() -> Iterator[Site]:
    web = {
        (HOST, "/"): page("/fails", "/private/x", "/well"),
        (HOST, "/fails"): Resource(status=500),
        (HOST, "/well"): page("/"),
        (HOST, "/robots.txt"): Resource(content_type="text/plain", body="User-agent: *\nDisallow: /private/\n"),
    }
    with serve_resources(web) as one:
        yield one


@pytest.fixture
async def done(site: Site, tmp_path: Path, engine: Engine) -> AsyncIterator[OpenCrawl]:
    """The crawl, open again after its end."""
    settings = settings_of(tmp_path / "c", frontier__redis=engine.url, retry__attempts=TRIES, retry__backoff_s=0.02)
    assert (await crawl(settings, [site.url(HOST)])).errors == []
    async with open_crawl(settings, create=False) as opened:
        yield opened


async def test_a_url_is_explained_as_a_record(done: OpenCrawl, site: Site) -> None:
    well = record_of(await explain(done, site.url(HOST, "/well")))
    assert (well.state, well.domain, well.suggested, well.seen) == ("committed", HOST, "", True)
    (commit,) = well.commits
    assert commit == CommitAnswer(status=200, fetched_at=commit.fetched_at, visit=1)
    fails = record_of(await explain(done, site.url(HOST, "/fails")))
    assert (fails.state, fails.dead_reason, fails.attempts) == ("dead", "server_error", TRIES)
    private = record_of(await explain(done, site.url(HOST, "/private/x")))
    assert (private.state, private.robots.allowed, private.robots.line_number) == ("refused", False, 2)
    unknown = record_of(await explain(done, "http://elsewhere.test/", given="elsewhere.test"))
    assert (unknown.state, unknown.scope.allowed, unknown.commits) == ("unknown", False, [])


async def test_links_that_were_left_out_are_told_of_their_page_and_of_urls_that_nothing_led_to(
    site: Site, tmp_path: Path, engine: Engine
) -> None:
    settings = settings_of(tmp_path / "c", frontier__redis=engine.url, fetch__links_max=1, robots__obey=False)
    assert (await crawl(settings, [site.url(HOST)])).errors == []
    async with open_crawl(settings, create=False) as opened:
        page, well = [await explain(opened, site.url(HOST, path)) for path in ("/", "/well")]
    assert record_of(page).commits[0].links_dropped == 2
    assert "2 links beyond fetch.links_max left out" in explanation(page)
    assert record_of(well).state == "unknown"
    assert "one of the 2 links beyond fetch.links_max" in explanation(well)


async def test_an_explanation_knows_a_scope_that_was_changed_since_the_crawl_was_opened(
    done: OpenCrawl, site: Site
) -> None:
    await done.crawls.add_roots(["domain:elsewhere.test"])
    assert record_of(await explain(done, "http://elsewhere.test/")).scope.allowed


async def test_the_newest_attempts_come_first(done: OpenCrawl, site: Site) -> None:
    tries = await recent_attempts(done, url=site.url(HOST, "/fails"))
    assert [(one.attempt, one.became, one.status) for one in tries] == [(2, "dead", "failed"), (1, "retry", "failed")]
    of_domain = await recent_attempts(done, domain=HOST, limit=3)
    assert len(of_domain) == 3
    assert [one.last_at for one in of_domain] == sorted((one.last_at for one in of_domain), reverse=True)
    assert await recent_attempts(done, domain="other.test") == []


async def test_without_a_folder_here_there_are_no_attempts(done: OpenCrawl) -> None:
    elsewhere = replace(done.settings, archive=replace(done.settings.archive, dir=""))
    async with open_crawl(elsewhere, create=False) as opened:
        assert await recent_attempts(opened, domain=HOST) == []


@pytest.mark.parametrize("limit", [0, -1, 1001])
async def test_a_limit_out_of_bounds_is_refused(done: OpenCrawl, limit: int) -> None:
    with pytest.raises(UsageError, match=f"limit {limit}: expected 1 to 1,000 attempts"):
        await recent_attempts(done, domain=HOST, limit=limit)
