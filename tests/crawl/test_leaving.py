"""Instances leave and join in the middle of a crawl: work moves, and no page is asked for twice."""

import asyncio
from pathlib import Path

import pytest

from crawler.crawl.instance import Instance
from tests.crawl.harness import crawl, lab_names, settings_of
from tests.crawl.lab import closest_pairs, fetched_twice
from tests.support.serving import serve_web

DELAY_S = 0.05


@pytest.mark.parametrize("why", ["signal", pytest.param("evicted", marks=pytest.mark.slow)])
async def test_a_leaver_hands_over_and_nothing_is_fetched_twice(tmp_path: Path, why: str) -> None:
    with serve_web(seed=11, domains=8, pages=4) as site:

        async def leave_in_the_middle(instances: list[Instance]) -> None:
            while sum(i.counters.committed for i in instances) < 60 or not instances[2].counters.committed:
                await asyncio.sleep(0.01)
            heartbeat = instances[2].membership.heartbeat
            if why == "evicted":
                await heartbeat._members.evict(heartbeat.member)
            else:
                instances[2].stop()

        async with lab_names() as dns:
            settings = settings_of(
                tmp_path / "c", dns__nameservers=[dns], scope__mode="any", politeness__delay_s=DELAY_S
            )
            done = await crawl(settings, site.web.seeds, instances=3, meanwhile=leave_in_the_middle)
        requests = site.requests()
        expected = site.web.expected(site.web.seeds, "any").committed
    assert done.errors == []
    assert [i.stopped_because for i in done.instances] == ["finished", "finished", why]
    assert done.statuses == expected
    assert fetched_twice(requests) == []
    assert min(closest_pairs(requests).values()) >= DELAY_S
    assert done.instances[2].counters.committed > 0


@pytest.mark.slow
async def test_a_joiner_takes_its_share_and_nothing_is_fetched_twice(tmp_path: Path) -> None:
    with serve_web(seed=12, domains=10, pages=4) as site:
        async with lab_names() as dns:
            settings = settings_of(
                tmp_path / "c", dns__nameservers=[dns], scope__mode="any", politeness__delay_s=DELAY_S
            )
            done = await crawl(settings, site.web.seeds, instances=2, start_after=[0, 40])
        requests = site.requests()
        expected = site.web.expected(site.web.seeds, "any").committed
    assert done.errors == []
    assert done.statuses == expected
    assert fetched_twice(requests) == []
    assert min(closest_pairs(requests).values()) >= DELAY_S
    assert done.instances[1].counters.committed > 0
