"""What the benchmarks compute from their measurements: the parts that can be wrong without anybody noticing."""

import argparse
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from scripts.bench_lib import arguments, generated_web, measure, observed_crawl, scaling, soak
from scripts.bench_lib.__main__ import BENCHES
from scripts.bench_lib.__main__ import main as run_bench
from scripts.bench_lib.measure import Sample
from scripts.bench_lib.observed_crawl import ObservedCrawl, Request, Span

ROOT = Path(__file__).parent.parent


def samples(mib: list[float], *, every_s: float = 10.0) -> list[Any]:
    return [
        Sample(
            at_s=100 + every_s * n, crawler_cpu_s=float(n), engine_cpu_s=n / 10, server_cpu_s=n / 5, crawler_mib=one,
            engine_mib=10 + n / 60,
        )
        for n, one in enumerate(mib)
    ]  # fmt: skip


def test_a_slope_is_that_of_the_points_and_a_spike_does_not_move_it() -> None:
    points = [(float(x), 3.0 * x + 7) for x in range(100)]
    assert observed_crawl.slope(points) == pytest.approx(3)
    points[80] = (80.0, 1e6)
    assert observed_crawl.slope(points) == pytest.approx(3)
    assert observed_crawl.slope([(1.0, 1.0)]) == 0


def test_memory_is_flat_when_only_its_caches_fill() -> None:
    totals = {"fetched": 1000, "added": 100_000}
    filling = [100 + min(n, 100) + (n % 2) for n in range(360)]  # an hour
    assert soak.judge(samples(filling), totals, 5).is_flat
    growing = [200 + n / 10 for n in range(360)]  # 36 MiB an hour on 230
    verdict = soak.judge(samples(growing), totals, 5)
    assert not verdict.is_flat
    assert verdict.instance_mib_an_hour == pytest.approx(36)
    assert soak.judge(samples(growing), totals, 20).is_flat


def test_the_engine_is_judged_by_the_urls_that_it_holds() -> None:
    mib = [200.0] * 360  # while the engine grows by 6 MiB an hour
    assert soak.judge(samples(mib), {"fetched": 1, "added": 100_000}, 5).is_engine_fair
    verdict = soak.judge(samples(mib), {"fetched": 1, "added": 1_000}, 5)
    assert verdict.engine_bytes_a_url == pytest.approx(6 * 2**20 / 1000, rel=0.01)
    assert not verdict.is_engine_fair


def test_a_span_has_the_pages_of_its_time_and_the_cpu_between_two_samples() -> None:
    requests = [Request(100 + n / 10, "d1.test", f"/p/{n}") for n in range(1000)]
    requests.insert(500, Request(149.95, "d1.test", "/robots.txt"))
    run = ObservedCrawl(samples([1.0] * 11), requests)
    span = run.span(125.0, 155.0)
    assert (span.pages, span.robots, span.wall_s) == (300, 1, 30.0)
    assert span.crawler_cpu_s == pytest.approx(3.0)
    assert span.engine_cpu_s == pytest.approx(0.3)
    assert run.middle(0.1, 0.9).pages == 800
    assert run.middle(0.1, 0.9, first=500) == run.span(155.0, 195.0)
    assert run.middle(0.1, 0.9, last=100).pages == 80


def test_two_processes_are_compared_without_the_share_of_the_web_server() -> None:
    one = Span(pages=1000, robots=0, wall_s=1.0, crawler_cpu_s=0.9, engine_cpu_s=0.1, server_cpu_s=0.2)
    two = Span(pages=1800, robots=0, wall_s=1.0, crawler_cpu_s=1.62, engine_cpu_s=0.18, server_cpu_s=0.2)
    pair = scaling.Pair(one, two)
    assert pair.by_clock == pytest.approx(2.0)
    assert pair.by_cpu == pytest.approx(2.0)


def test_pages_of_the_generated_web_link_to_new_pages_unless_it_does_not_grow() -> None:
    endless = generated_web.Web(argparse.Namespace(grow=2, host_every=4, hosts=5, big_bytes=50_000))
    endless.open(8080)
    _, page = endless.answer("d3.test", "/p/7")
    assert b"<a href=/p/15>" in page
    assert b"<a href=/p/16>" in page
    assert page.count(b"http://d") == generated_web.LINKS_AWAY + 1, "every fourth page links to a new site"
    closed = generated_web.Web(argparse.Namespace(grow=0, host_every=0, hosts=0, big_bytes=50_000))
    closed.open(8080)
    _, page = closed.answer("d3.test", "/p/7")
    assert b"http://" not in page
    assert page.count(b"<a href=") == generated_web.LINKS_OWN
    assert 50_000 - 2 * len(page) < len(closed.answer("big1.test", "/p/1")[1]) < 51_000


@pytest.mark.parametrize("text", ["0", "-1", "1.5", "x", "", "1,2"])
def test_a_benchmark_refuses_a_number_of_rounds_that_makes_no_sense(text: str) -> None:
    assert arguments.positive_int("3") == 3
    with pytest.raises(argparse.ArgumentTypeError, match="is not a whole number of 1 or more"):
        arguments.positive_int(text)


@pytest.mark.parametrize("text", ["0", "-1", "x", "", "nan", "inf"])
def test_a_benchmark_refuses_a_time_that_makes_no_sense(text: str) -> None:
    assert arguments.positive_float("0.5") == 0.5
    with pytest.raises(argparse.ArgumentTypeError, match="is not a number above 0"):
        arguments.positive_float(text)


def test_a_benchmark_lists_the_known_names_when_one_is_unknown() -> None:
    read = arguments.names_of(["wget", "scrapy"])
    assert read("scrapy,wget") == ["scrapy", "wget"]
    with pytest.raises(argparse.ArgumentTypeError, match=r"unknown: moon \(use wget, scrapy\)"):
        read("wget,moon")


def test_first_contacts_end_when_nearly_all_domains_were_reached() -> None:
    requests = [
        Request(n + 0.1 * k, f"d{n}.test", path) for n in range(100) for k, path in enumerate(("/robots.txt", "/"))
    ]
    requests += [Request(100.0 + n, f"d{n}.test", "/2") for n in range(100)]
    run = ObservedCrawl([], requests)
    assert run.first_contacts(0.5) == 49  # the fiftieth robots.txt is fetched, its page is not yet
    assert run.first_contacts() == 98
    assert ObservedCrawl([], requests[200:]).first_contacts() == 0


@pytest.mark.parametrize("name", BENCHES)
def test_each_benchmark_describes_itself(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        run_bench([name, "--help"])
    assert ended.value.code == 0
    assert capsys.readouterr().out.startswith(f"usage: scripts/bench {name} [-h] ")


@pytest.mark.parametrize("words", [(), ("--help",)])
def test_bench_lists_all_benchmarks(words: tuple[str, ...]) -> None:
    run = scheduler(*words)
    assert run.returncode == 0
    assert [line.split()[0] for line in run.stdout.splitlines() if line.startswith("  ")] == list(BENCHES)


def test_an_unknown_benchmark_is_one_line() -> None:
    run = scheduler("speed")
    assert (run.returncode, run.stdout) == (2, "")
    assert run.stderr == f"bench: 'speed' is not a benchmark (use one of {', '.join(BENCHES)})\n"


def scheduler(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "scripts.bench_lib", *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, cwd=ROOT)


def test_a_program_runs_in_the_folder_of_its_log(tmp_path: Path) -> None:
    """In a checkout, Python would import the crawler of that folder instead of another commit's."""
    log, cores = tmp_path / "output.log", os.sched_getaffinity(0)
    command = [sys.executable, "-c", "import os; print(os.getcwd())"]
    usage, _ = measure.run(command, os.environ, log, cores=cores, engine_cores=cores, timeout_s=20)
    assert (usage.exit_code, log.read_text("utf-8").strip()) == (0, str(tmp_path))
