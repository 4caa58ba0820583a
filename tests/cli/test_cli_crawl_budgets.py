"""Budgets of a whole crawl: it ends by them with exit 0, what is left is kept and shown, a larger one goes on."""

import json
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from crawler.crawl.opening import open_crawl
from crawler.frontier.stats import Totals
from crawler.settings import Settings
from tests.cli.cli_lab import HOST, QUICK, Ran, in_process, page
from tests.crawl.harness import crawl, entries_of, lab_names, settings_of
from tests.crawl.lab import QUICK as ENVIRONMENT
from tests.crawl.lab import name_server
from tests.support.engine import Engine
from tests.support.patience import PATIENCE_S
from tests.support.processes import Nursery, nursery
from tests.support.serving import GeneratedSite, Site, serve_resources, serve_web

pytestmark = pytest.mark.processes

PAGES = 40
ALL = PAGES + 1
BODY = len(page().body)


@pytest.fixture
def site() -> Iterator[Site]:
    """A home page that leads to forty pages without links."""
    names = [f"/p{n}" for n in range(PAGES)]
    with serve_resources({(HOST, name): page() for name in names} | {(HOST, "/"): page(*names)}) as site:
        yield site


class Crawl:
    """One crawl in a folder, by the command; its engine runs in the folder, too."""

    def __init__(self, programs: Nursery, site: Site, folder: Path) -> None:
        self.programs, self.site, self.folder = programs, site, folder

    def options(self, **budgets: int) -> list[str]:
        return [*QUICK, *(f"--set=budget.{name}={n}" for name, n in budgets.items())]

    def run(self, *words: str, **budgets: int) -> Ran:
        return in_process(
            self.programs, "crawl", self.site.url(HOST), *self.options(**budgets), "--dir", str(self.folder), *words
        )

    def json(self, *words: str) -> dict[str, Any]:
        ran = in_process(self.programs, *words, "--json", "--dir", str(self.folder))
        assert ran.code == 0, ran.err
        return dict(json.loads(ran.out))

    def over(self) -> dict[str, int]:
        return dict(self.json("stats")["totals"]["over_budget"])

    def audit(self) -> None:
        report = self.json("audit")
        assert {name: found for name, found in report["findings"].items() if found and found["count"]} == {}

    @property
    def pages(self) -> int:
        assert [url for url, n in Counter(e.url for e in entries_of(self.folder)).items() if n > 1] == []
        return len(entries_of(self.folder))


@pytest.mark.slow(ci=True)
def test_a_crawls_budget_of_pages_ends_it_and_a_larger_one_goes_on(
    programs: Nursery, site: Site, tmp_path: Path
) -> None:
    lab = Crawl(programs, site, tmp_path / "c")
    ended = lab.run(crawl_pages=15)
    assert (ended.code, lab.pages) == (0, 15), ended.err
    assert "Finished by its budget: 15 pages" in ended.out
    assert f"Budget: {ALL - 15} beyond the crawl's budget of pages; nothing is lost" in ended.out
    assert lab.over() == {"crawl:pages": ALL - 15}
    assert lab.json("stats", HOST)["crawl_spent"] == "crawl:pages"
    stats = in_process(programs, "stats", "--dir", str(lab.folder))
    assert f"budget    {ALL - 15} beyond the crawl's budget of pages (raise it to continue)" in stats.out, stats.out
    left = next(
        f"/p{n}" for n in range(PAGES) if site.url(HOST, f"/p{n}") not in {e.url for e in entries_of(lab.folder)}
    )
    told = in_process(programs, "explain", site.url(HOST, left), "--dir", str(lab.folder))
    assert "the whole crawl's budget of pages is used up (budget.crawl_pages = 15)" in told.out
    lab.audit()
    assert (lab.run(crawl_pages=15).code, lab.pages) == (0, 15), "it is used up still"
    assert (lab.run(crawl_pages=20).code, lab.pages, lab.over()) == (0, 20, {"crawl:pages": ALL - 20})
    lab.audit()
    ended = lab.run()
    assert (ended.code, lab.pages) == (0, 20), "the budget is stored with the crawl"
    ended = lab.run(crawl_pages=0)
    assert (ended.code, lab.pages, lab.over()) == (0, ALL, {})
    assert "changed for the whole crawl: budget.crawl_pages = 0 (it was 20)" in ended.err
    assert "Finished: " in ended.out
    lab.audit()


@pytest.mark.slow(ci=True)
def test_a_crawls_budget_of_bytes_ends_it_by_what_was_under_way(programs: Nursery, site: Site, tmp_path: Path) -> None:
    lab = Crawl(programs, site, tmp_path / "c")
    ended = lab.run(crawl_bytes=1)
    home = entries_of(lab.folder)[0].body_bytes
    assert (ended.code, lab.pages, lab.over()) == (0, 1, {"crawl:bytes": PAGES}), ended.err
    budget = home + 10 * BODY
    ended = lab.run("--delay", "0.05", crawl_bytes=budget)
    entries = lab.pages
    assert ended.code == 0
    assert 11 <= entries < ALL, "passed by no more than was under way"
    assert lab.over() == {"crawl:bytes": ALL - entries}
    lab.audit()
    assert (lab.run(crawl_bytes=10**9).code, lab.pages, lab.over()) == (0, ALL, {})
    lab.audit()


def test_a_crawls_budget_of_urls_defers_what_is_beyond_and_a_larger_one_takes_that_up(
    programs: Nursery, site: Site, tmp_path: Path
) -> None:
    lab = Crawl(programs, site, tmp_path / "c")
    ended = lab.run(crawl_urls=11)
    assert (ended.code, lab.pages, lab.over()) == (0, 11, {"crawl:urls": ALL - 11}), ended.err
    assert "Finished by its budget: 11 pages" in ended.out
    assert lab.json("stats", HOST)["deferred"] == {"crawl:urls": ALL - 11}
    left = next(
        f"/p{n}" for n in range(PAGES) if site.url(HOST, f"/p{n}") not in {e.url for e in entries_of(lab.folder)}
    )
    told = in_process(programs, "explain", site.url(HOST, left), "--dir", str(lab.folder))
    assert "it is deferred, beyond the crawl's budget of URLs" in told.out
    lab.audit()
    assert (lab.run(crawl_urls=16).code, lab.pages, lab.over()) == (0, 16, {"crawl:urls": ALL - 16})
    lab.audit()
    assert (lab.run(crawl_urls=0).code, lab.pages, lab.over()) == (0, ALL, {})
    assert lab.json("stats", HOST)["deferred"] == {}
    lab.audit()


@pytest.mark.slow
@pytest.mark.parametrize("budget", ["crawl_pages", "crawl_urls"])
def test_a_crawl_that_is_killed_and_begun_again_keeps_to_its_budget(tmp_path: Path, budget: str) -> None:
    """Two instances beneath a supervisor, killed in the middle; then to the end; then without a budget."""
    most = 60
    with name_server() as dns, serve_web(seed=16, domains=5, pages=4) as web, nursery(ENVIRONMENT) as programs:
        options = ["--scope", "any", "--nameserver", dns, "--allow-private", "--delay", "0.02", "-n", "2"]
        options += ["--set=crawl.partitions=16", "--dir", str(tmp_path / "c")]
        options += ["--set=politeness.concurrency_per_address=64"]
        begun = programs.crawler("crawl", *web.web.seeds, *options, f"--set=budget.{budget}={most}", "--quiet")
        wait_for_requests(web, 40)
        begun.kill()
        ended = programs.crawler("crawl", *web.web.seeds, *options, f"--set=budget.{budget}={most}")
        assert ended.wait(90) == 0, ended.err
        assert "Finished by its budget" in ended.out
        fetched = len(entries_of(tmp_path / "c"))
        stats = in_process(programs, "stats", "--json", "--dir", str(tmp_path / "c"))
        totals = json.loads(stats.out)["totals"]
        assert totals["fetched"] == fetched
        assert list(totals["over_budget"]) == [budget.replace("_", ":")]
        if budget == "crawl_pages":
            assert most <= fetched < 2 * most, "each instance takes no more than was left when it asked"
        last = programs.crawler("crawl", *web.web.seeds, *options, f"--set=budget.{budget}=0", "--quiet")
        assert last.wait(90) == 0, last.err
        entries = entries_of(tmp_path / "c")
        assert {e.url: e.status for e in entries} == web.web.expected(web.web.seeds, "any").committed
        assert len(entries) == len({e.url for e in entries})


def wait_for_requests(site: GeneratedSite, n: int) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while len(site.requests()) < n:
        assert time.monotonic() < deadline
        time.sleep(0.01)


async def totals_of(settings: Settings) -> Totals:
    async with open_crawl(settings, create=False) as opened:
        return await opened.stats.totals()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("budget", "least"), [("crawl_pages", 40), pytest.param("crawl_urls", 40, marks=pytest.mark.slow)]
)
async def test_two_instances_end_by_one_budget_and_lose_nothing(
    tmp_path: Path, engine: Engine, budget: str, least: int
) -> None:
    with serve_web(seed=16, domains=6, pages=4) as site:
        expected = site.web.expected(site.web.seeds, "any").committed
        async with lab_names() as dns:
            common: dict[str, Any] = {"dns__nameservers": [dns], "scope__mode": "any", "politeness__delay_s": 0.02}
            common["frontier__redis"] = engine.url
            for most in (least, 2 * least):
                settings = settings_of(tmp_path / "c", **common, **{f"budget__{budget}": most})
                done = await crawl(settings, site.web.seeds, instances=2)
                assert done.errors == []
                totals = await totals_of(settings)
                used = totals.fetched if budget == "crawl_pages" else totals.taken_in
                assert most <= used <= most + 32, "passed by no more than was under way"
                assert done.twice == []
            unlimited = settings_of(tmp_path / "c", **common, **{f"budget__{budget}": 0})
            done = await crawl(unlimited, site.web.seeds, instances=2)
    assert done.errors == []
    assert done.statuses == expected
    assert done.twice == []
