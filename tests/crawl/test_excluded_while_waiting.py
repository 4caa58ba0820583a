"""An `exclude` that is given later holds for URLs that wait, and a purge by expression drops them."""

import asyncio
import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from crawler.cli.main import main
from crawler.crawl.opening import make_router, open_crawl
from crawler.crawl.terms import change
from crawler.routing.runs_known import RunBook
from crawler.routing.traps_learned import TrapMemory
from crawler.settings import Settings
from crawler.views.facts import explain
from crawler.views.reasons import verdict
from crawler.views.summary import summary
from tests.cli.operate_lab import Desk
from tests.crawl.harness import crawl, lab_names, settings_of
from tests.support.engine import Engine
from tests.support.serving import serve_resources
from tests.support.web import Resource

HOST, EACH = "a.test", 20
LINKS = "".join(f"<a href='/keep/{n}'>x</a><a href='/drop/{n}'>x</a>" for n in range(EACH))
WEB = {(HOST, "/"): Resource(body=LINKS)} | {
    (HOST, f"/{kind}/{n}"): Resource(body="<p>a page</p>") for kind in ("keep", "drop") for n in range(EACH)
}


def requested(site: Any, kind: str) -> int:
    return sum(f"/{kind}/" in request.target for request in site.requests())


async def totals_of(settings: Settings) -> Any:
    async with open_crawl(settings, create=False) as opened:
        return await opened.stats.totals()


@pytest.fixture
def site() -> Iterator[Any]:
    with serve_resources(WEB) as one:
        yield one


async def test_urls_that_wait_are_refused_without_a_request_when_they_are_excluded(
    tmp_path: Path, engine: Engine, site: Any
) -> None:
    async with lab_names() as dns:
        given = {"frontier__redis": engine.url, "dns__nameservers": [dns]}
        await crawl(settings_of(tmp_path, **given, crawl__pages_max=1), [site.url(HOST)])
        settings, url = settings_of(tmp_path, **given), f"{site.url(HOST)}drop/7"
        async with open_crawl(settings, create=False) as opened:
            assert verdict(await explain(opened, url)).startswith("Will be crawled")
            (line,) = await change(opened, {"scope.exclude": ["/drop/"]})
            assert line.endswith("URLs that wait and match it now are refused permanently when their turn comes")
            assert verdict(await explain(opened, url)) == (
                "Will not be crawled: exclude //drop// matches, so it is refused when its turn comes."
            )
        done = await crawl(settings, [])
        async with open_crawl(settings, create=False) as opened:
            assert verdict(await explain(opened, url)) == "Not crawled: exclude //drop// matches."
            told = await summary(
                opened, await opened.stats.totals(), (), new=EACH, seconds=1.0, why="finished", outputs=()
            )
            assert f"\nExcluded: {EACH} URLs that waited\n" in told
            await change(opened, {"scope.exclude": []})
        totals = await totals_of(settings)
        assert (totals.pending, totals.fetched, totals.refused) == (0, EACH + 1, {"excluded": EACH})
        assert totals.added == totals.done
        assert len(done.entries) == EACH + 1
        assert len((await crawl(settings, [site.url(HOST)])).entries) == EACH + 1, "what was refused stays refused"
    assert requested(site, "drop") == 0


async def test_an_instance_at_work_follows_an_exclude_for_what_waits(tmp_path: Path, engine: Engine) -> None:
    """Of runs as well, whose scope has the crawl's exclude."""
    settings = settings_of(tmp_path, frontier__redis=engine.url)
    async with open_crawl(settings, create=True) as opened:
        router = make_router(opened)
        book = RunBook(opened.runs, router, TrapMemory(settings.traps))
        assert not book.excludes("http://a.test/drop/1")
        await change(opened, {"scope.exclude": ["/drop/"]})
        router.follow(*await opened.crawls.shared())
        assert book.excludes("http://a.test/drop/1")
        assert not book.excludes("http://a.test/keep/1")


@pytest.mark.slow(ci=True)
@pytest.mark.parametrize("domain", ["", HOST])
async def test_a_purge_by_expression_counts_first_and_drops_what_waits(
    tmp_path: Path, engine: Engine, site: Any, capsys: pytest.CaptureFixture[str], domain: str
) -> None:
    async with lab_names() as dns:
        given = {"frontier__redis": engine.url, "dns__nameservers": [dns]}
        await crawl(settings_of(tmp_path, **given, crawl__pages_max=1), [site.url(HOST)])
        desk, words = Desk(tmp_path, engine, site, capsys), ("purge", *[domain] * bool(domain), "--matching", "/drop/")
        of = f" of {HOST}" if domain else ""
        say = partial(asyncio.to_thread, desk.say)
        assert f"{EACH} URLs{of} match and would be dropped; nothing is changed" in await say(*words, "--dry-run")
        assert json.loads(await say(*words, "--json")) == {"domain": domain or None, "purged": EACH}
        assert f"0 URLs{of} dropped" in await say(*words)
        assert "matching /drop/, 2 times" in await say("oplog"), "a dry run is not logged"
        await crawl(settings_of(tmp_path, **given), [])
        totals = await totals_of(settings_of(tmp_path, **given))
    assert (totals.pending, totals.fetched, totals.refused) == (0, EACH + 1, {"purged": EACH})
    assert requested(site, "drop") == 0


@pytest.mark.parametrize(
    ("words", "why"),
    [((), "purge: give a domain, or --matching REGEX"), (("--dry-run",), "--dry-run is for --matching"),
     (("--matching", ""), "--matching is empty"), (("a.test", "--matching", ""), "--matching is empty"),
     (("--matching", "("), "--matching '(':"), (("--matching", "a(?=b)"), "look-ahead is not supported"),
     (("http://a.test/x", "--matching", "y"), "purge acts on all of a domain")],
)  # fmt: skip
def test_a_purge_that_does_not_say_what_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: tuple[str, ...], why: str
) -> None:
    assert main(["purge", *words, "--dir", str(tmp_path / "c")]) == 2
    assert why in capsys.readouterr().err
