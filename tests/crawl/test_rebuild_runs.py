"""A rebuild and runs of jobs: those that ended need nothing more, active ones go on where their pages on disk end."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from crawler.crawl.opening import make_seeder, open_crawl
from tests.crawl.harness import entries_of, lab_names
from tests.crawl.rebuild_lab import WebLab, audit, given, rebuild
from tests.crawl.runs_lab import ONE, TWO, counts, end, finish, left_of, start
from tests.crawl.test_runs_in_a_crawl import assert_exact, of_run, run_until_idle
from tests.support.engine import Engine
from tests.support.serving import serve_web


@pytest.fixture
async def lab(tmp_path: Path, engine: Engine) -> AsyncIterator[WebLab]:
    with serve_web(seed=11, domains=4, pages=5) as site:
        async with lab_names() as dns:
            yield WebLab(site, dns, engine, tmp_path)


@pytest.mark.slow(ci=True)
async def test_a_rebuild_leaves_out_what_runs_fetched(lab: WebLab) -> None:
    """The pages of a run are not those of the crawl, neither as done nor as unknown ones."""
    seeds = lab.site.web.seeds
    async with open_crawl(lab.settings(), create=True) as crawl:
        await start(crawl, ONE, seeds)
        await run_until_idle(crawl)
        await finish(crawl, ONE)
        await make_seeder(crawl).add_all(map(given, seeds))
    before = len(entries_of(lab.home / "c"))
    lab.engine.flush()
    report = await rebuild(lab.settings())
    assert (report.committed, report.restored, report.orphans, report.unplaced) == (0, 0, 0, 0)
    assert report.records == before
    assert left_of(lab, ONE) == []
    async with open_crawl(lab.settings(), create=False) as crawl:
        await run_until_idle(crawl)
    entries = entries_of(lab.home / "c")
    assert_exact(lab, of_run(entries, ""), seeds, "any")
    assert len(of_run(entries, ONE)) == before
    assert await audit(lab.settings()) == 0


@pytest.mark.slow
async def test_a_rebuild_goes_on_with_active_runs(lab: WebLab) -> None:
    """As when the engine came back with an older state: what is on disk of them is not fetched again."""
    seeds = lab.site.web.seeds
    async with open_crawl(lab.settings(crawl__pages_max=80), create=True) as crawl:
        for run in (ONE, TWO):
            await start(crawl, run, seeds)
        await run_until_idle(crawl)
    before = {run: of_run(entries_of(lab.home / "c"), run) for run in (ONE, TWO)}
    assert all(before.values())
    lab.engine.flush()
    await rebuild(lab.settings())
    async with open_crawl(lab.settings(), create=False) as crawl:
        await start(crawl, TWO, seeds)
    report = await rebuild(lab.settings())
    assert report.restored == len(before[TWO])
    async with open_crawl(lab.settings(), create=False) as crawl:
        assert (await counts(crawl, TWO)).pages == len(before[TWO])
        await run_until_idle(crawl)
        assert (await finish(crawl, TWO)).pages == len(of_run(entries_of(lab.home / "c"), TWO))
        await end(crawl, ONE)
    found = of_run(entries_of(lab.home / "c"), TWO)  # fails for a page with two commits
    assert_exact(lab, found, seeds, "any")
    assert of_run(entries_of(lab.home / "c"), ONE) == before[ONE]
    assert await audit(lab.settings()) == 0
