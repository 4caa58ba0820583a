"""What viewers read of a real crawl: while it runs, and that it equals the counters afterwards."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from crawler.crawl.instance import Instance
from crawler.crawl.opening import OpenCrawl, member_of, open_crawl
from crawler.errors import UsageError
from crawler.frontier.domain_lists import SORTS
from crawler.frontier.operator import OverrideKind
from crawler.frontier.series import Sample
from crawler.runtime.clocks import wall_s
from crawler.testing.generated_web import Resource
from crawler.views.domain_reads import domain_detail, domain_page, domain_rows, domains_matching
from crawler.views.domains import DomainDetail
from crawler.views.figures import DomainState
from crawler.views.snapshot import CrawlState
from crawler.views.whole import crawl_series, overview, snapshot, totals
from crawler.worker import activity, archive
from tests.crawl.harness import crawl, lab_names, settings_of
from tests.support.engine import Engine
from tests.support.patience import PATIENCE_S
from tests.support.serving import Site, serve_resources
from tests.views.views_lab import seeded

SLOW, QUICK, GONE = "slow.test", "quick.test", "gone.test"
REQUEST_S = 1.5


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    links = "".join(f'<a href="/{n}">.</a>' for n in range(9))
    pages = {
        (QUICK, "/"): Resource(body=links),
        **{(QUICK, f"/{n}"): Resource(body="x") for n in range(9)},
        (SLOW, "/"): Resource(body="slow", delay_s=REQUEST_S),
        (GONE, "/"): Resource(status=404, body="no"),
    }
    with serve_resources(pages) as site:
        yield site


async def until(look: Any, is_there: Any) -> Any:
    async with asyncio.timeout(PATIENCE_S):
        while not is_there(found := await look()):
            await asyncio.sleep(0.02)
    return found


async def test_the_rate_and_the_time_left_are_of_the_instances_that_run(engine: Engine, tmp_path: Path) -> None:
    async with seeded(tmp_path / "c", engine) as one:
        now_s = wall_s()
        for ago in range(80, 0, -5):
            at_s = now_s - ago
            await one.series.write(Sample(at_s, added=105, done=(80 - ago), pages=(80 - ago) * 2))
        assert (await overview(one)).rates is None, "nothing runs"
        member = replace(member_of(one, "n", state="alive"), started_at=now_s - 90)
        await one.members.join(member)
        found = await overview(one)
        assert found.rates
        assert (found.rates.pages, found.left_s is not None) == (pytest.approx(2, rel=0.01), True)
        await one.members.leave(member)
        await one.members.join(replace(member, session="new", started_at=now_s - 1))
        found = await overview(one)
        assert (found.rates, found.left_s) == (None, None), "all that is known is of before a death"


async def test_a_crawl_and_its_domains_while_it_runs_and_afterwards(
    site: Site, engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(activity, "SEND_EVERY_MS", 50)
    monkeypatch.setattr(archive, "DRAIN_EVERY_S", 0.05)
    seen: list[DomainDetail] = []

    async def look(instances: list[Instance]) -> None:
        async with open_crawl(settings, create=False) as other:
            seen.append(await until(lambda: met(other), lambda one: one and one.domain.state is DomainState.FETCHING))
            head = await overview(other)
            assert (head.state, head.instances, head.crawl) == (CrawlState.RUNNING, 1, "main")

    async with lab_names() as dns:
        settings = settings_of(tmp_path / "c", frontier__redis=engine.url, dns__nameservers=[dns])
        done = await crawl(settings, [site.url(host) for host in (SLOW, QUICK, GONE)], meanwhile=look)
    assert done.errors == []
    (slow,) = seen
    assert (slow.domain.in_flight, slow.domain.claimed, slow.instances) == (1, 1, 1)
    assert slow.sentence == "node-0 fetches from it: 1 open request."
    async with open_crawl(settings, create=False) as crawl_now:
        await check(crawl_now)


async def met(crawl: OpenCrawl) -> DomainDetail | None:
    try:
        return await domain_detail(crawl, SLOW)
    except UsageError:
        return None  # not seeded so far


async def check(crawl: OpenCrawl) -> None:
    head, all_totals = await overview(crawl), await totals(crawl)
    assert head.state is CrawlState.FINISHED
    assert (head.pages, head.client_errors, head.pending, head.in_flight) == (12, 1, 0, 0)
    assert all_totals.totals == await crawl.stats.totals()
    assert (all_totals.totals.fetched, all_totals.domains, all_totals.pending) == (12, 3, 0)
    rows = await domain_rows(crawl, "pages", 9)
    assert [(row.domain, row.fetched, row.state) for row in rows.rows] == [
        (QUICK, 10, DomainState.DONE), (SLOW, 1, DomainState.DONE), (GONE, 1, DomainState.DONE),
    ]  # fmt: skip
    assert {row.in_flight for row in rows.rows} == {0}
    assert rows.total == 3
    one = await domain_detail(crawl, f"http://www.{SLOW}/x")
    assert one.domain == rows.rows[1]
    assert one.domain.latency_ms
    assert one.domain.latency_ms >= REQUEST_S * 1000
    assert sum(point.rates.pages * point.rates.seconds for point in one.series.fine) == pytest.approx(1)
    assert sum(point.rates.pages * point.rates.seconds for point in one.series.coarse) == pytest.approx(1)
    (robots,) = one.robots
    assert (robots.origin.partition("://")[2].partition(":")[0], robots.allows_front_page) == (SLOW, True)
    series = await crawl_series(crawl)
    assert sum(point.rates.pages * point.rates.seconds for point in series.fine) <= 12.001  # a float
    both = await snapshot(crawl, "errors", 1)
    assert (both.overview.pages, [row.domain for row in both.domains.rows]) == (12, [GONE])
    await check_pages(crawl)
    await crawl.operator.book.give(OverrideKind.BOOST, "never.test", 3)
    assert (await domain_detail(crawl, "never.test")).sentence == "Nothing is known of it but its name."
    with pytest.raises(UsageError, match=r"not met the domain nowhere\.test"):
        await domain_detail(crawl, "nowhere.test")


async def check_pages(crawl: OpenCrawl) -> None:
    first = await domain_page(crawl, "", 2)
    assert ([row.domain for row in first.rows], first.next) == ([GONE, QUICK], QUICK)
    second = await domain_page(crawl, first.next, 2)
    assert ([row.domain for row in second.rows], second.next) == ([SLOW], "")
    for text, names in (
        ("qu", [QUICK]),
        ("LOW", [SLOW]),
        ("e.t", [GONE]),
        (GONE, [GONE]),
        ("x", []),
        ("", [GONE, QUICK]),
    ):
        assert [row.domain for row in (await domains_matching(crawl, text, 2)).rows] == names, text
    for sort in SORTS:
        assert len((await domain_rows(crawl, sort, 1)).rows) <= 1
    assert (await domain_rows(crawl, "pages", 0)).rows == []
    with pytest.raises(UsageError, match="unknown order 'size'"):
        await domain_rows(crawl, "size", 1)
