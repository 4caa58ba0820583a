"""The history of a crawl agrees with the web server's log, the index and the dead letters."""

import asyncio
from collections import Counter
from pathlib import Path

import pytest

from crawler.archive.folder import open_existing
from crawler.archive.history import Attempt, segments, status_of, to_attempt
from crawler.crawl.instance import Instance
from tests.crawl.harness import crawl, lab_names, settings_of
from tests.support.serving import serve_web


def attempts_in(folder: Path) -> list[Attempt]:
    lines = [line for path in segments(open_existing(folder)) for line in path.read_bytes().splitlines()]
    return [attempt for line in lines if (attempt := to_attempt(line)) is not None]


@pytest.mark.slow
async def test_three_instances_note_each_request_once_and_each_result_with_its_end(tmp_path: Path) -> None:
    """The generated web has pages that fail at first, or always, redirects, and forbidden pages."""
    with serve_web(seed=5, domains=8, pages=10) as site:
        expected = site.web.expected(site.web.seeds, "any")
        async with lab_names() as dns:
            settings = settings_of(tmp_path / "c", dns__nameservers=[dns], scope__mode="any")
            done = await crawl(settings, site.web.seeds, instances=3)
        requested = Counter(site.url(r.host, r.target) for r in site.requests() if not r.is_robots)
    found = attempts_in(tmp_path / "c")
    assert {a.url: a.http_status for a in found if a.became == "committed"} == done.statuses == expected.committed
    assert {a.url for a in found if a.became == "dead"} == expected.dead
    assert {a.url for a in found if a.became == "refused" and a.kind == "robots"} <= expected.refused
    assert not [a for a in found if a.became == "lost"]
    answered = Counter(a.url for a in found if a.http_status or a.kind.startswith("server_"))
    assert answered == requested
    for url in expected.committed.keys() | expected.dead:
        course = sorted((a for a in found if a.url == url), key=lambda a: a.last_at)
        assert [a.attempt for a in course] == list(range(1, len(course) + 1)), url
        assert [a.became for a in course[:-1]] == ["retry"] * (len(course) - 1)
    for a in found:
        assert list(a.times.values()) == sorted(a.times.values())
        assert status_of(a.times) == {"committed": "finished", "refused": "refused"}.get(a.became, "failed")
    assert {a.session for a in found} <= {instance.membership.heartbeat.member.session for instance in done.instances}


async def test_a_request_cut_off_by_the_sessions_end_is_noted_as_lost(tmp_path: Path) -> None:
    slow = {"slow_s": 3.0}
    with serve_web(seed=2, domains=2, pages=6, **slow) as site:

        async def stop_in_flight(instances: list[Instance]) -> None:
            while not any(a for a in instances[0].stages.fetching.in_turn if "/slow" in a.url):
                await asyncio.sleep(0.01)
            await asyncio.sleep(0.3)
            instances[0].stop()

        async with lab_names() as dns:
            settings = settings_of(
                tmp_path / "c", dns__nameservers=[dns], scope__mode="any", membership__drain_timeout_s=0.2
            )
            await crawl(settings, site.web.seeds, meanwhile=stop_in_flight)
    lost = [a for a in attempts_in(tmp_path / "c") if a.became == "lost"]
    assert [a for a in lost if "/slow" in a.url]
    assert {status_of(a.times) for a in lost} == {"lost"}
    assert all(a.claimed <= a.started <= a.lost for a in lost)
