"""An unexpected error with one URL's content fails that URL: the crawl goes on, and ends with exit code 0."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from crawler.archive.warc_writer import WarcWriter
from crawler.errors import ArchiveError, InvariantError
from crawler.hosts.robots_cache import RobotsCache
from crawler.model import FailureKind
from crawler.parsing.parse import PageParser
from crawler.routing.router import Router
from crawler.rules.robots import RobotsRules
from crawler.web.fetcher import Fetcher
from crawler.worker import internal_errors
from crawler.worker.archive import ArchiveStage
from crawler.worker.outcomes import Failed, Outcome
from tests.cli.cli_lab import HOST, page
from tests.crawl.harness import Crawled, crawl, settings_of
from tests.support.serving import serve_resources

PAGES = [f"/p{n}" for n in range(6)]
BAD = "/p3"
Arrange = Callable[[pytest.MonkeyPatch], None]


class Unexpected(Exception):
    """With text that can't be stored."""


def raises(where: Any, name: str, url_of: Callable[..., str]) -> Arrange:
    """The method raises when it is called for the bad page."""
    original = getattr(where, name)

    def arrange(monkeypatch: pytest.MonkeyPatch) -> None:
        def broken(self: Any, *args: Any, **kwargs: Any) -> Any:
            if BAD in url_of(*args):
                raise Unexpected("\ud800\x1b]0;x")
            return original(self, *args, **kwargs)

        monkeypatch.setattr(where, name, broken)

    return arrange


def unstorable_title(monkeypatch: pytest.MonkeyPatch) -> None:
    """It gets past every stage, and can't be written into a call to the engine."""
    original = PageParser._here

    def titled(self: PageParser, response: Any, *args: Any, **kwargs: Any) -> Any:
        parsed, tree = original(self, response, *args, **kwargs)
        return replace(parsed, title="\ud800") if BAD in response.url else parsed, tree

    monkeypatch.setattr(PageParser, "_here", titled)


STEPS: dict[str, Arrange] = {
    "fetch": raises(Fetcher, "fetch", lambda url: url),
    "robots rules": raises(RobotsRules, "allows", lambda url: url),
    "parse": raises(PageParser, "_here", lambda response, *_: response.url),
    "record": raises(WarcWriter, "add", lambda response, *_: response.url),
    "links": raises(Router, "links", lambda claim, *_: claim.url),
    "ack": unstorable_title,
}


async def crawled(folder: Path, outcomes: list[Outcome], pages: list[str] = PAGES, **options: Any) -> Crawled:
    web = {(HOST, path): page("/") for path in pages} | {(HOST, "/"): page(*pages)}
    with serve_resources(web) as site:

        def watch(instances: list[Any]) -> Any:
            for instance in instances:
                ended = instance.stages.committer._ack.end

                async def end(some: Any, answered: Any, ended: Any = ended) -> None:
                    outcomes.extend(some)
                    await ended(some, answered)

                instance.stages.committer._ack.end = end
            return _nothing()

        return await crawl(settings_of(folder, **options), [site.url(HOST)], meanwhile=watch)


async def _nothing() -> None:
    pass


@pytest.mark.parametrize("step", STEPS)
async def test_an_unexpected_error_fails_its_url_alone(
    step: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    STEPS[step](monkeypatch)
    outcomes: list[Outcome] = []
    done = await crawled(tmp_path / "c", outcomes)
    assert done.errors == []
    assert {url.rpartition("/")[2] for url in done.statuses} == {"", *(p[1:] for p in PAGES if p != BAD)}
    (failed,) = (outcome for outcome in outcomes if isinstance(outcome, Failed))
    assert (failed.kind, failed.retry_in_ms) == (FailureKind.INTERNAL, -1)
    assert failed.claim.url.endswith(BAD)
    assert "Traceback" in failed.trace
    (report,) = (tmp_path / "c" / "log").glob("bug-*.txt")
    assert BAD in report.read_text()


async def test_an_unreadable_robots_txt_fails_the_urls_of_its_site(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def judge(self: RobotsCache, origin: str, result: Any) -> Any:
        raise Unexpected

    monkeypatch.setattr(RobotsCache, "judge", judge)
    outcomes: list[Outcome] = []
    done = await crawled(tmp_path / "c", outcomes)
    assert done.errors == []
    assert done.statuses == {}
    assert [outcome.claim.url.rpartition("/")[2] for outcome in outcomes] == [""]


@pytest.mark.parametrize("error", [ArchiveError("the disk is full"), InvariantError("two sessions")])
async def test_errors_of_disk_and_ownership_blame_no_url(
    error: Exception, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def place(self: ArchiveStage, outcome: Any) -> Any:
        raise error

    monkeypatch.setattr(ArchiveStage, "_place", place)
    outcomes: list[Outcome] = []
    done = await crawled(tmp_path / "c", outcomes)
    assert done.errors == [error]
    assert outcomes == []


async def test_the_same_error_at_many_sites_in_a_row_ends_the_instance(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(internal_errors, "SITES_IN_A_ROW_MAX", 1)
    raises(PageParser, "_here", lambda response, *_: response.url)(monkeypatch)
    outcomes: list[Outcome] = []
    done = await crawled(tmp_path / "c", outcomes)
    assert [type(error) for error in done.errors] == [Unexpected]
    assert outcomes == []
