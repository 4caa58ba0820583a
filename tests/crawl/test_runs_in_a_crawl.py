"""Runs of jobs next to the crawl on the same site: each fetches each page once, ends exactly, and leaves nothing."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from crawler.crawl.build import open_instance
from crawler.crawl.instance import Instance
from crawler.crawl.opening import OpenCrawl, make_seeder, open_crawl
from crawler.errors import NotMetError
from crawler.frontier.operator_log import Actor, Via
from crawler.jobs import runs
from crawler.model import CommitEntry
from crawler.rules.job_runs import RunCounts
from crawler.views.facts import explain
from crawler.views.pruning import Wanted, prune
from crawler.views.reasons import explanation, state_of
from tests.crawl import handlers_lab
from tests.crawl.handlers_lab import HOST, page
from tests.crawl.harness import entries_of, lab_names
from tests.crawl.rebuild_lab import WebLab, audit, given, page_of
from tests.crawl.runs_lab import ONE, TWO, close, counts, end, finish, left_of, runs_of, start, waiting_for_urls, write
from tests.support.engine import Engine
from tests.support.serving import serve_linked, serve_resources, serve_web
from tests.support.web import Resource


@pytest.fixture
async def lab(tmp_path: Path, engine: Engine) -> AsyncIterator[WebLab]:
    with serve_web(seed=11, domains=4, pages=5) as site:
        async with lab_names() as dns:
            yield WebLab(site, dns, engine, tmp_path)


def of_run(entries: Sequence[CommitEntry], run: str) -> dict[str, int]:
    """The pages of a run with their status; fails for one that was committed twice."""
    mine = [e for e in entries if e.run == run]
    assert len({e.url for e in mine}) == len(mine)
    return {e.url: e.status for e in mine}


async def run_until_idle(crawl: OpenCrawl, node: str = "n") -> Instance:
    """An instance that works until nothing is pending. It ends no run: the test does, in `finish`."""
    with patch.object(runs, "LOOK_S", (600.0, 600.0)), waiting_for_urls(crawl):
        async with open_instance(await crawl.reloaded(), node=node, until_finished=True) as instance:
            await instance.run()
    return instance


def assert_exact(lab: WebLab, found: dict[str, int], seeds: Sequence[str], scope: str) -> None:
    """A page that fails three times fails once only, so others may have it."""
    expected = lab.site.web.expected(seeds, scope)  # type: ignore[arg-type]
    assert expected.committed.items() <= found.items()
    assert set(found) <= set(expected.committed) | expected.dead


@pytest.mark.slow
async def test_the_crawl_and_two_runs_fetch_each_page_once_each(lab: WebLab) -> None:
    seeds = lab.site.web.seeds
    async with open_crawl(lab.settings(), create=True) as crawl:
        await make_seeder(crawl).add_all(map(given, seeds))
        for run in (ONE, TWO):
            assert (await start(crawl, run, seeds)).report.new == len(seeds)
            assert (await start(crawl, run, seeds)).report.seen == len(seeds)
        await run_until_idle(crawl)
        entries = entries_of(lab.home / "c")
        for run in (ONE, TWO):
            found = of_run(entries, run)
            assert_exact(lab, found, seeds, "any")
            n = await counts(crawl, run)
            assert n.pages == len(found)
            assert n.added == n.done + n.dead
            assert n.bytes == sum(e.body_bytes for e in entries if e.run == run)
            assert Counter(status // 100 for status in found.values()) == {2: n.s2, 3: n.s3, 4: n.s4}
        assert_exact(lab, of_run(entries, ""), seeds, "any")
        committed = Counter(page_of(e.url) for e in entries)
        assert {page: n for page, n in lab.asked().items() if n != committed[page]} == {}
        assert await audit(lab.settings()) == 0  # both are active
        assert (await finish(crawl, ONE)).pages == len(of_run(entries, ONE))
        assert await audit(lab.settings()) == 0  # one is
        await finish(crawl, TWO)
    assert left_of(lab, ONE) == left_of(lab, TWO) == []
    assert await audit(lab.settings()) == 0


@pytest.mark.slow
async def test_pages_of_an_old_run_are_pruned_and_all_else_stays(lab: WebLab) -> None:
    seeds = lab.site.web.seeds
    async with open_crawl(lab.settings(), create=True) as crawl:
        await make_seeder(crawl).add_all(map(given, seeds))
        for run in (ONE, TWO):
            await start(crawl, run, seeds)
        await run_until_idle(crawl)
        before = entries_of(lab.home / "c")
        wanted, ann = Wanted(keep_runs=1), Actor(who="ann", via=Via.CLI)
        await finish(crawl, ONE)
        assert (await prune(crawl, wanted, dry_run=False, actor=ann)).pages == 0, "the newest that has ended"
        await finish(crawl, TWO)
        assert (await prune(crawl, wanted, dry_run=False, actor=ann)).pages == len(of_run(before, ONE))
        after = entries_of(lab.home / "c")
        assert {run: of_run(after, run) for run in (ONE, TWO, "")} == {
            ONE: {}, TWO: of_run(before, TWO), "": of_run(before, ""),
        }  # fmt: skip
        assert await audit(lab.settings()) == 0


@pytest.mark.slow(ci=True)
async def test_a_run_has_a_scope_and_a_depth_of_its_own(lab: WebLab) -> None:
    seed = lab.site.web.seeds[0]
    async with open_crawl(lab.settings(), create=True) as crawl:
        await start(crawl, ONE, [seed], scope="domain")
        await start(crawl, TWO, [seed], depth=1, priority=5.0)
        assert state_of(await explain(crawl, seed)) == "unknown", "to the crawl itself"
        waits = await explain(crawl, seed, run=TWO)
        assert (state_of(waits), waits.where.place) == ("queued", 0)
        outside = "http://elsewhere.test/"
        allowed = [(await explain(crawl, outside, run=run)).scope.allowed for run in (ONE, TWO)]
        assert allowed == [False, True]
        await run_until_idle(crawl)
        entries = entries_of(lab.home / "c")
        explained = await explain(crawl, seed)
        assert ([*explained.commits], explained.where.seen) == ([], False), "it is not of the crawl itself"
        assert [entry.run for entry in explained.of_runs] == [TWO, ONE], "by their priority"
        assert explanation(explained).startswith("Crawled for 2 runs of jobs: status 200 at ")
        assert f", for run {ONE}" in explanation(explained)
        of_one = await explain(crawl, seed, run=ONE)
        assert ([entry.run for entry in of_one.commits], of_one.of_runs, of_one.where.seen) == ([ONE], [], True)
        assert explanation(of_one).startswith("Crawled: status 200")
        assert_exact(lab, of_run(entries, ONE), [seed], "domain")
        assert {e.depth for e in entries if e.run == TWO} == {0, 1}
        await finish(crawl, ONE)
        await finish(crawl, TWO)
        with pytest.raises(NotMetError, match=f"run {ONE} is not active"):
            await explain(crawl, seed, run=ONE)
    assert await audit(lab.settings()) == 0


@pytest.mark.slow(ci=True)
async def test_a_run_is_finished_exactly_when_its_last_page_is(lab: WebLab) -> None:
    """Two instances work; what they have committed when the run counts as finished is all that there is."""
    seeds = lab.site.web.seeds
    async with open_crawl(lab.settings(), create=True) as crawl, open_crawl(lab.settings("d"), create=True) as other:
        await start(crawl, ONE, seeds)
        ended = asyncio.ensure_future(finish(crawl, ONE))
        async with (
            open_instance(await crawl.reloaded(), node="n-0", until_finished=False) as one,
            open_instance(await other.reloaded(), node="n-1", until_finished=False) as two,
        ):
            working = [asyncio.ensure_future(instance.run()) for instance in (one, two)]
            n = await ended
            one.stop()
            two.stop()
            await asyncio.gather(*working)
    entries = [*entries_of(lab.home / "c"), *entries_of(lab.home / "d")]
    assert_exact(lab, of_run(entries, ONE), seeds, "any")
    assert n.pages == len(entries)
    assert left_of(lab, ONE) == []


@pytest.mark.slow(ci=True)
async def test_a_run_goes_on_where_an_instance_stopped(lab: WebLab) -> None:
    """What one instance left in the middle, another one takes up, with all that it knew of the run."""
    seeds = lab.site.web.seeds
    async with open_crawl(lab.settings(crawl__pages_max=60), create=True) as crawl:
        await start(crawl, ONE, seeds)
        assert (await run_until_idle(crawl, "n-0")).stopped_because == "pages"
        assert (await counts(crawl, ONE)).pending > 0
    async with open_crawl(lab.settings(), create=False) as crawl:
        await run_until_idle(crawl, "n-1")
        n = await finish(crawl, ONE)
    found = of_run(entries_of(lab.home / "c"), ONE)
    assert_exact(lab, found, seeds, "any")
    assert n.pages == len(found)
    assert await audit(lab.settings()) == 0


@pytest.mark.parametrize("how", ["ended", "closed", "stopped"])
async def test_what_waits_of_a_run_that_is_over_is_refused(lab: WebLab, how: str) -> None:
    seeds = lab.site.web.seeds
    async with open_crawl(lab.settings(), create=True) as crawl:
        await start(crawl, ONE, seeds, stopped="pages" if how == "stopped" else "")
        if how != "stopped":
            await end(crawl, ONE)
        if how == "closed":
            await close(crawl, ONE)
        await run_until_idle(crawl)
        expected = RunCounts() if how == "closed" else RunCounts(added=len(seeds), done=len(seeds), refused=len(seeds))
        assert await counts(crawl, ONE) == expected
        totals = await crawl.stats.totals()
        assert totals.refused == {"run_pages" if how == "stopped" else "run_ended": len(seeds)}
        await end(crawl, ONE)
        await close(crawl, ONE)
    assert lab.asked() == {}
    assert left_of(lab, ONE) == []
    assert await audit(lab.settings()) == 0


REDIRECTED = {
    ("d0.test", "/"): Resource(status=301, headers={"Location": "//d1.test/"}),
    ("d1.test", "/"): Resource(body="<a href='/a'>a</a> <a href='//d2.test/'>out of scope</a>"),
    ("d1.test", "/a"): Resource(body="<a href='/b'>b</a> <a href='//d0.test/c'>c</a>"),
    ("d1.test", "/b"): Resource(body="<p>a leaf</p>"),
    ("d0.test", "/c"): Resource(body="<a href='//d1.test/d'>d</a>"),
    ("d1.test", "/d"): Resource(body="<p>a leaf</p>"),
    ("d2.test", "/"): Resource(body="<p>elsewhere</p>"),
}


@pytest.mark.parametrize("policy", ["site", "follow"])
async def test_the_target_of_a_redirected_seed_joins_the_scope_of_its_run(
    tmp_path: Path, engine: Engine, policy: str
) -> None:
    """Also for the instance that takes over after the redirect."""
    with serve_linked(lambda port: {k: with_port(v, port) for k, v in REDIRECTED.items()}) as site:
        async with lab_names() as dns:
            lab = WebLab(site, dns, engine, tmp_path)  # type: ignore[arg-type]
            options: dict[str, Any] = {"scope__mode": "domain", "scope__redirected_seeds": policy}
            opened = "domain:d1.test" if policy == "follow" else f"page:{site.url('d1.test')} {site.url('d0.test')}"
            async with open_crawl(lab.settings(crawl__pages_max=1, **options), create=True) as crawl:
                await start(crawl, ONE, [site.url("d0.test")])
                await run_until_idle(crawl, "n-0")
            async with open_crawl(lab.settings(**options), create=False) as crawl:
                record = (await runs_of(crawl).read([ONE]))[ONE]
                assert record is not None
                assert record.roots == ("domain:d0.test", opened)
                await write(crawl, record)
                await run_until_idle(crawl, "n-1")
            found = of_run(entries_of(tmp_path / "c"), ONE)
    there = (
        {("d0.test", "/"), ("d1.test", "/")}
        if policy == "site"
        else {page for page in REDIRECTED if page[0] != "d2.test"}
    )
    assert set(found) == {site.url(*page) for page in there}


def with_port(page: Resource, port: int) -> Resource:
    """Links to other hosts of this web need its port."""
    where = f".test:{port}/"
    headers = {name: value.replace(".test/", where) for name, value in page.headers.items()}
    return Resource(status=page.status, body=page.body.replace(".test/", where), headers=headers)


async def test_handlers_are_told_of_which_run_a_page_is(tmp_path: Path) -> None:
    made = handlers_lab.lab(
        tmp_path,
        """
        @app.page("*/other", processes=True)
        def other(page):
            yield {"title": page.title, "run": page.run}

        @app.page("*")
        def here(page):
            yield {"title": page.title, "run": page.run}
        """,
    )
    web = {(HOST, "/"): page("/other", title="/"), (HOST, "/other"): page(title="other")}
    with serve_resources(web) as site:
        async with open_crawl(made.settings, create=True) as crawl:
            await make_seeder(crawl).add_all([given(site.url(HOST))])
            await start(crawl, ONE, [site.url(HOST)])
            await run_until_idle(crawl)
    found = sorted((item["title"], item["run"]) for item in made.items)
    assert found == [("/", ""), ("/", ONE), ("other", ""), ("other", ONE)]
