"""Hosts that share one address share its limit, and do not delay hosts at other addresses."""

from collections.abc import Mapping
from pathlib import Path
from statistics import median

import pytest

from tests.crawl.harness import crawl, lab_names, settings_of
from tests.crawl.lab import name_server
from tests.support.pace import turns_of
from tests.support.serving import Request, serve_resources
from tests.support.web import Resource

LIMIT = 4
FETCH_S = 0.05
DELAY_S = 0.2


def open_at_once(requests: list[Request]) -> int:
    """The most requests that were open at a time."""
    steps = sorted([(r.start, 1) for r in requests] + [(r.end, -1) for r in requests])
    most = now = 0
    for _, step in steps:
        now += step
        most = max(most, now)
    return most


def chains(hosts: list[str], pages: int) -> Mapping[tuple[str, str], Resource]:
    """Sites whose pages lead from one to the next; each answer takes a moment."""
    found = {}
    for host in hosts:
        found[host, "/robots.txt"] = Resource(body="", content_type="text/plain", delay_s=FETCH_S)
        for n in range(pages):
            body = f"<p>{host} {n}</p>" + (f"<a href='/{n + 1}'>next</a>" if n + 1 < pages else "")
            found[host, f"/{n}" if n else "/"] = Resource(body=body, delay_s=FETCH_S)
    return found


async def test_requests_to_one_address_stay_under_its_limit(tmp_path: Path) -> None:
    hosts = [f"h{n}.test" for n in range(40)]
    pages = {(host, "/"): Resource(body="<p>one</p>", delay_s=0.05) for host in hosts}
    with serve_resources(pages) as site:
        async with lab_names() as dns:
            settings = settings_of(
                tmp_path / "c", dns__nameservers=[dns], politeness__concurrency_per_address=3, fetch__concurrency=32
            )
            done = await crawl(settings, [site.url(host) for host in hosts])
        requests = [r for r in site.requests() if not r.is_robots]
    assert len(done.entries) == 40
    assert max(sum(b.start <= a.start < b.end for b in requests) for a in requests) == 3


@pytest.mark.slow
@pytest.mark.parametrize("instances", [1, 2])
async def test_domains_on_one_address_are_limited_without_delaying_others(tmp_path: Path, instances: int) -> None:
    """They are four times as many as the address can serve at their delay, and more than an instance claims."""
    crowd, others = [f"c{n}.test" for n in range(200)], [f"o{n}.example" for n in range(8)]
    with (
        serve_resources(chains(crowd, 3)) as shared,
        serve_resources(chains(others, 12), address="127.0.0.2") as own,
        name_server("*.example=127.0.0.2") as dns,
    ):
        settings = settings_of(
            tmp_path / "c",
            dns__nameservers=[dns],
            politeness__concurrency_per_address=LIMIT,
            politeness__delay_s=DELAY_S,
            fetch__concurrency=16,
        )
        seeds = [*map(shared.url, crowd), *map(own.url, others)]
        done = await crawl(settings, seeds, instances=instances)
        at_shared, at_own = shared.requests(), own.requests()
    assert sorted(done.statuses.values()) == [200] * (200 * 3 + 8 * 12)
    assert done.twice == []
    busy = open_at_once(at_shared)
    assert busy <= LIMIT * instances
    assert busy > LIMIT * (instances - 1), "the limit is each instance's own"
    span_s = max(r.end for r in at_shared) - min(r.start for r in at_shared)
    share = sum(r.end - r.start for r in at_shared) / span_s / (LIMIT * instances)
    crowded, alone = [
        median(turn.late for mine in turns_of(requests, delay_s=DELAY_S).values() for turn in mine[1:])
        for requests in (at_shared, at_own)
    ]
    assert share > 0.2, "its time was used"
    assert alone < crowded / 2, "no other host is delayed"
