"""What the scripts that measure make of what they saw: the parts that can be wrong without anybody noticing."""

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

LAB = Path(__file__).parent.parent / "scripts" / "lab"
USAGE: Any = None


@pytest.fixture(scope="module")
def lab() -> Iterator[ModuleType]:
    """watched.py; the others of its folder can be imported meanwhile."""
    sys.path.insert(0, str(LAB))
    try:
        import watched

        yield watched
    finally:
        sys.path.remove(str(LAB))


def samples(lab: ModuleType, mib: list[float], *, every_s: float = 10.0) -> list[Any]:
    return [
        lab.Sample(
            at_s=100 + every_s * n, crawler_cpu_s=float(n), engine_cpu_s=n / 10, server_cpu_s=n / 5, crawler_mib=one,
            engine_mib=10 + n / 60,
        )
        for n, one in enumerate(mib)
    ]  # fmt: skip


def test_a_slope_is_that_of_the_points_and_a_spike_does_not_move_it(lab: ModuleType) -> None:
    points = [(float(x), 3.0 * x + 7) for x in range(100)]
    assert lab.slope(points) == pytest.approx(3)
    points[80] = (80.0, 1e6)
    assert lab.slope(points) == pytest.approx(3)
    assert lab.slope([(1.0, 1.0)]) == 0


def test_memory_that_fills_its_caches_and_stays_is_flat_and_memory_that_grows_is_not(lab: ModuleType) -> None:
    import soak

    totals = {"fetched": 1000, "added": 100_000}
    filling = [100 + min(n, 100) + (n % 2) for n in range(360)]  # an hour
    assert soak.judge(samples(lab, filling), totals, 5).is_flat
    growing = [200 + n / 10 for n in range(360)]  # 36 MiB an hour on 230
    verdict = soak.judge(samples(lab, growing), totals, 5)
    assert not verdict.is_flat
    assert verdict.instance_mib_an_hour == pytest.approx(36)
    assert soak.judge(samples(lab, growing), totals, 20).is_flat


def test_the_engine_is_judged_by_the_urls_that_it_holds(lab: ModuleType) -> None:
    import soak

    mib = [200.0] * 360  # while the engine grows by 6 MiB an hour
    assert soak.judge(samples(lab, mib), {"fetched": 1, "added": 100_000}, 5).is_engine_fair
    verdict = soak.judge(samples(lab, mib), {"fetched": 1, "added": 1_000}, 5)
    assert verdict.engine_bytes_a_url == pytest.approx(6 * 2**20 / 1000, rel=0.01)
    assert not verdict.is_engine_fair


def test_a_span_has_the_pages_of_its_time_and_the_cpu_between_two_samples(lab: ModuleType) -> None:
    requests = [lab.Request(100 + n / 10, "d1.test", f"/p/{n}") for n in range(1000)]
    requests.insert(500, lab.Request(149.95, "d1.test", "/robots.txt"))
    run = lab.Watched(USAGE, samples(lab, [1.0] * 11), requests)
    span = run.span(125.0, 155.0)
    assert (span.pages, span.robots, span.wall_s) == (300, 1, 30.0)
    assert span.crawler_cpu_s == pytest.approx(3.0)
    assert span.engine_cpu_s == pytest.approx(0.3)
    assert run.middle(0.1, 0.9).pages == 800
    assert run.middle(0.1, 0.9, first=500) == run.span(155.0, 195.0)
    assert run.middle(0.1, 0.9, last=100).pages == 80


def test_two_processes_are_compared_without_the_share_of_the_web_server(lab: ModuleType) -> None:
    import scaling

    one = lab.Span(pages=1000, robots=0, wall_s=1.0, crawler_cpu_s=0.9, engine_cpu_s=0.1, server_cpu_s=0.2)
    two = lab.Span(pages=1800, robots=0, wall_s=1.0, crawler_cpu_s=1.62, engine_cpu_s=0.18, server_cpu_s=0.2)
    pair = scaling.Pair(one, two)
    assert pair.by_clock == pytest.approx(2.0)
    assert pair.by_cpu == pytest.approx(2.0)


def test_heartbeats_are_found_among_what_an_engine_says_that_it_was_asked(lab: ModuleType) -> None:
    import monitor

    said = (
        b'+1790000000.250000 [0 unix:/x/engine.sock] "FCALL" "crawler_0a1b_beat" "2" "k" "\\x01"\r\n'
        b'+1790000000.300000 [0 unix:/x/engine.sock] "FCALL" "crawler_0a1b_ack" "2" "k" "crawler_0a1b_beat"\r\n'
        b'+1790000000.500000 [0 lua] "HSET" "k" "v"\r\n'
    )
    assert monitor.beats_in(said) == [1790000000.25]


def test_pages_of_the_made_web_lead_on_for_ever_and_those_of_a_filled_queue_to_what_is_known(lab: ModuleType) -> None:
    import argparse

    import made_web

    endless = made_web.Web(argparse.Namespace(grow=2, host_every=4, hosts=5, big_bytes=50_000))
    endless.open(8080)
    _, page = endless.answer("d3.test", "/p/7")
    assert b"<a href=/p/15>" in page
    assert b"<a href=/p/16>" in page
    assert page.count(b"http://d") == made_web.LINKS_AWAY + 1, "the seventh of every four leads to a new site"
    closed = made_web.Web(argparse.Namespace(grow=0, host_every=0, hosts=0, big_bytes=50_000))
    closed.open(8080)
    _, page = closed.answer("d3.test", "/p/7")
    assert b"http://" not in page
    assert page.count(b"<a href=") == made_web.LINKS_OWN
    assert 50_000 - 2 * len(page) < len(closed.answer("big1.test", "/p/1")[1]) < 51_000


@pytest.mark.parametrize("text", ["0", "-1", "1.5", "x", "", "1,2"])
def test_a_benchmark_refuses_a_number_of_rounds_that_makes_no_sense(lab: ModuleType, text: str) -> None:
    import given

    assert given.count("3") == 3
    with pytest.raises(argparse.ArgumentTypeError, match="whole number of 1 or more"):
        given.count(text)


@pytest.mark.parametrize("text", ["0", "-1", "x", "", "nan", "inf"])
def test_a_benchmark_refuses_a_time_that_makes_no_sense(lab: ModuleType, text: str) -> None:
    import given

    assert given.amount("0.5") == 0.5
    with pytest.raises(argparse.ArgumentTypeError, match="a number above 0"):
        given.amount(text)


def test_a_benchmark_names_what_it_knows_when_it_is_asked_for_something_else(lab: ModuleType) -> None:
    import given

    read = given.some_of(["wget", "scrapy"])
    assert read("scrapy,wget") == ["scrapy", "wget"]
    with pytest.raises(argparse.ArgumentTypeError, match=r"unknown: moon \(known: wget, scrapy\)"):
        read("wget,moon")


def test_first_contacts_are_over_when_nearly_all_domains_were_met(lab: ModuleType) -> None:
    requests = [
        lab.Request(n + 0.1 * k, f"d{n}.test", path) for n in range(100) for k, path in enumerate(("/robots.txt", "/"))
    ]
    requests += [lab.Request(100.0 + n, f"d{n}.test", "/2") for n in range(100)]
    run = lab.Watched(USAGE, [], requests)
    assert run.first_contacts(0.5) == 49  # the fiftieth robots.txt is answered, its page is not yet asked for
    assert run.first_contacts() == 98
    assert lab.Watched(USAGE, [], requests[200:]).first_contacts() == 0
