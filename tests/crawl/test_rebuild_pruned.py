"""A crawl rebuilt from a folder of which pages were pruned: they stay done, or are fetched again if that is wanted."""

from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from crawler.frontier.operator_log import Actor, Via
from crawler.views.pruning import PruneResult, Wanted, prune
from tests.crawl.harness import crawl, entries_of, lab_names
from tests.crawl.rebuild_lab import WebLab, audit, opened, page_of, rebuild
from tests.support.engine import Engine
from tests.support.serving import serve_web


@pytest.fixture
async def lab(tmp_path: Path, engine: Engine) -> AsyncIterator[WebLab]:
    with serve_web(seed=11, domains=4, pages=5) as site:
        async with lab_names() as dns:
            yield WebLab(site, dns, engine, tmp_path)


async def pruned_by(lab: WebLab, wanted: Wanted) -> PruneResult:
    async with opened(lab.settings()) as found:
        return await prune(found, wanted, dry_run=False, actor=Actor(who="ann", via=Via.CLI))


async def half_pruned(lab: WebLab) -> set[str]:
    """Crawl some pages, and prune those that were fetched first."""
    some = await lab.crawl_some(120)
    times = sorted(one.fetched_at for one in some.entries)
    result = await pruned_by(lab, Wanted(before=times[60]))
    assert result.pages == 60
    return {one.url for one in some.entries if one.fetched_at < times[60]}


@pytest.mark.slow(ci=True)
async def test_a_rebuild_does_not_fetch_pruned_pages_again(lab: WebLab) -> None:
    gone = await half_pruned(lab)
    lab.engine.flush()
    report = await rebuild(lab.settings())
    assert (report.committed, report.restored, report.pruned, report.unreadable) == (120, 120, 60, Counter())
    assert await audit(lab.settings()) == 0
    done = await crawl(lab.settings(), [])
    assert not done.errors
    asked = lab.asked()
    assert {asked[page_of(url)] for url in gone} == {1}
    assert max(asked[page_of(url)] for url in done.statuses) == 1
    assert gone.isdisjoint(done.statuses)
    assert await audit(lab.settings()) == 0


@pytest.mark.slow(ci=True)
async def test_a_rebuild_may_fetch_them_again_and_then_finds_everything(lab: WebLab) -> None:
    gone = await half_pruned(lab)
    lab.engine.flush()
    report = await rebuild(lab.settings(), refetch=True)
    assert (report.pruned, report.refetched) == (0, 60)
    await lab.finish(lab.settings())
    asked = lab.asked()
    assert {asked[page_of(url)] for url in gone} == {2}
    assert await audit(lab.settings()) == 0


@pytest.mark.slow(ci=True)
async def test_a_crawl_goes_on_after_a_prune_and_ends_with_all_other_pages(lab: WebLab) -> None:
    gone = await half_pruned(lab)
    done = await crawl(lab.settings(), [])
    assert not done.errors
    assert {one.url for one in entries_of(Path(lab.settings().archive.dir))} == lab.expected.keys() - gone
    assert max(lab.asked()[page_of(url)] for url in lab.expected) == 1
    assert await audit(lab.settings()) == 0


@pytest.mark.slow(ci=True)
async def test_pages_are_pruned_while_an_instance_crawls(lab: WebLab) -> None:
    """Nothing of what it still writes goes, whatever the rule matches."""
    results = list[PruneResult]()

    async def remove(instances: list) -> None:  # type: ignore[type-arg]
        while instances[0].counters.committed < 60:
            await pruned_by(lab, Wanted(before=4_000_000_000.0))
        results.append(await pruned_by(lab, Wanted(before=4_000_000_000.0)))

    done = await crawl(lab.settings(politeness__delay_s=0.02), lab.site.web.seeds, meanwhile=remove)
    assert not done.errors
    assert done.statuses == lab.expected, "all of it is in files that are being written"
    assert results[0].pages == 0
    assert results[0].waiting["running"] > 0
    assert await audit(lab.settings()) == 0
    assert (await pruned_by(lab, Wanted(before=4_000_000_000.0))).pages == len(lab.expected)
    assert await audit(lab.settings()) == 0
