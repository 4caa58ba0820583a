"""Whole crawls of the trap sites: each ends by itself with all real pages, in few requests; the rest is deferred."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from crawler.archive.folder import open_existing
from crawler.audit.judge_links import CrawlRules
from crawler.audit.report import violations_text
from crawler.audit.run_audit import Subject, WebLogs, audit
from crawler.crawl.instance import Instance
from crawler.crawl.opening import OpenCrawl, open_crawl
from crawler.frontier.bulk import BulkLookup
from crawler.frontier.codec import pairs_of
from crawler.frontier.dead_letters import DeadLetters
from crawler.frontier.deferred import DeferredUrls
from crawler.frontier.job_audit import JobBooks
from crawler.frontier.leases import Takeovers
from tests.crawl.harness import crawl, lab_names, settings_of
from tests.support.serving import Site, serve_traps
from tests.support.trap_sites import NAMES, trap_site

# Without a delay, what was handed out is fetched whatever the first of it showed: twice this, for each of 24 steps.
HANDED_OUT = 8
FETCHED_MAX = {
    "repeats": 850, "path": 2000, "query": 1150, "calendar": 1100, "session": 350, "jsessionid": 181, "hosts": 800,
    "soft_404": 350, "long": 1150, "chain": 380,
}  # fmt: skip


@pytest.fixture(scope="module")
def web() -> Iterator[Site]:
    with serve_traps() as site:
        yield site


async def violations(opened: OpenCrawl) -> str:
    """What `crawler audit` finds wrong."""
    subject = Subject(
        settings=opened.settings,
        folders=[open_existing(opened.folder.root)],
        rules=CrawlRules(record=opened.record, roots=opened.roots, history=await opened.crawls.history()),
        states=BulkLookup(opened.engine, opened.keys, opened.record.partitions),
        letters=DeadLetters(opened.frontier, opened.record.partitions),
        stats=opened.stats,
        jobs=JobBooks(opened.engine, opened.keys, opened.record.partitions),
        runs=opened.runs,
        takeovers=Takeovers(opened.engine, opened.keys),
        overrides=opened.operator.book,
        web_logs=WebLogs(),
    )
    return violations_text(await audit(subject))


# Only where the slow ones run, too; tests/rules/test_traps_on_sites.py has their rules in any run.
LONG = ("path", "query", "calendar", "long", "session", "repeats")


@pytest.mark.slow(ci=True)
@pytest.mark.parametrize("name", [pytest.param(n, marks=pytest.mark.slow) if n in LONG else n for n in NAMES])
async def test_a_crawl_of_a_trap_ends_with_all_real_pages(name: str, web: Site, tmp_path: Path) -> None:
    site = trap_site(name, web.port)
    async with lab_names() as dns:
        settings = settings_of(
            tmp_path, dns__nameservers=[dns], scope__mode="any", frontier__claim_urls_max=HANDED_OUT,
            crawl__time_max_s=60.0,
        )  # fmt: skip
        done = await crawl(settings, [site.seed])
        async with open_crawl(settings, create=False) as opened:
            deferred = await DeferredUrls(opened.frontier, opened.record.partitions).deferred()
            wrong = await violations(opened)
    assert [i.stopped_because for i in done.instances] == ["finished"]
    assert done.twice == []
    assert site.real - {site.forget(e.url) for e in done.entries if e.status == 200} == set()
    # Those of jsessionid have one identity, so none is deferred.
    expected = set() if name == "jsessionid" else {"trap:session" if name == "chain" else f"trap:{name}"}
    assert {p.reason for p in deferred} == expected
    assert wrong == ""
    asked = [r for r in web.requests() if r.host.partition(":")[0].endswith(site.host) and not r.is_robots]
    assert len(asked) <= FETCHED_MAX[name]


@pytest.mark.slow
async def test_urls_released_during_the_crawl_are_fetched_and_it_ends(web: Site, tmp_path: Path) -> None:
    site, reason = trap_site("repeats", web.port), "trap:repeats"
    released: list[str] = []

    async def release(instances: list[Instance]) -> None:
        """The best deferred URL, as soon as there is one."""
        frontier, router = instances[0].stages.claimer._frontier, instances[0].stages.committer._route.router
        partition, deferred_urls = router.placement.of(site.seed)[2], DeferredUrls(frontier, router.record.partitions)
        while sum(p.urls for p in await deferred_urls.deferred()) < 20:
            await asyncio.sleep(0.01)
        row = frontier.keys.of(partition, f"q:repeats.test|{reason}")
        best = await frontier.engine.command("ZREVRANGE", row, 0, 9)
        origins = await frontier.engine.command("HGETALL", frontier.keys.of(partition, "g:repeats.test"))
        listed = dict(pairs_of(origins))
        released.extend((listed[member[:1]] + b"/" + member.partition(b"/")[2]).decode() for member in best)
        await deferred_urls.release(partition, "repeats.test", reason, 200)

    async with lab_names() as dns:
        settings = settings_of(
            tmp_path, dns__nameservers=[dns], scope__mode="any", frontier__claim_urls_max=HANDED_OUT,
            crawl__time_max_s=60.0,
        )  # fmt: skip
        done = await crawl(settings, [site.seed], meanwhile=release)
        async with open_crawl(settings, create=False) as opened:
            wrong = await violations(opened)
    assert [i.stopped_because for i in done.instances] == ["finished"]
    assert len(released) == 10
    assert set(released) <= {e.url for e in done.entries}
    assert wrong == ""
