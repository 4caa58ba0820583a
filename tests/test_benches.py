"""The benchmarks run and print their figures; what these are is nobody's test."""

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parent.parent


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("lives --urls 400 --domains 40", "whole lives per second"),
        ("lives --urls 400 --domains 40 --together 10 --links 5", "whole lives per second"),
        ("memory --urls 20000", "idle domain"),
        ("frontier", "ack, 50 links, 40 seen"),
        ("index --segments 300 --distinct 2", "lines in order"),
        ("jobs minute --jobs 500 --instances 4 --no-judge", "nominal times without exactly one row 0"),
        ("jobs day --jobs 500 --hours 1 --no-judge", "nominal times without exactly one row 0"),
        ("broad --domains 20 --delay 0.3 --seconds 3", "share of what the delays allow"),
        ("start --rounds 1", "`crawler crawl, first request`"),
        ("latency --part load --seconds 5 --overload 20", "due queues fetched late by: "),
        ("latency --part heartbeat --seconds 5 --big-sites 1 --big-bytes 5000000", "event loop late by: "),
        ("hostile --hostile 50 --good 5 --seconds 2 --delay 0.3", "0 heartbeats lost"),
        ("scaling --parts processes --rounds 1 --pages 300", "two processes on two cores, by CPU: "),
        ("scaling --parts queued --sizes 300,600 --pages 200", "queued, engine_ms: at most "),
    ],
)
def test_a_benchmark_runs_to_its_end(words: str, expected: str) -> None:
    run = scheduler(words)
    assert run.returncode == 0, run.stderr
    assert expected in run.stdout


@pytest.mark.skipif(not any(Path("/usr/share/doc").rglob("*.html")), reason="needs HTML under /usr/share/doc")
def test_the_benchmark_of_handlers_runs_to_its_end() -> None:
    run = scheduler("handlers --pages 30 --rounds 1")
    assert run.returncode == 0, run.stderr
    assert "def, in threads" in run.stdout


def test_a_soak_of_seconds_has_a_verdict() -> None:
    run = scheduler("soak --minutes 0.1 --every 0.2 --sites 20")
    assert run.returncode in (0, 1), run.stderr
    assert "bytes for each added URL" in run.stdout


def scheduler(words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "scripts.bench_lib", *words.split()]
    return subprocess.run(command, capture_output=True, text=True, timeout=100, check=False, cwd=ROOT)
