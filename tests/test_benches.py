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
        ("start --rounds 1", "`crawler crawl, first request`"),
        ("hostile --hostile 50 --good 5 --seconds 2 --delay 0.3", "0 heartbeats lost"),
        ("scaling --parts processes --rounds 1 --pages 300", "two processes on two cores, by CPU: "),
        ("scaling --parts queued --sizes 300,600 --pages 200", "queued, engine_ms: at most "),
    ],
)
def test_a_benchmark_runs_to_its_end(words: str, expected: str) -> None:
    run = scheduler(words)
    assert run.returncode == 0, run.stderr
    assert expected in run.stdout


def test_a_soak_of_seconds_has_a_verdict() -> None:
    run = scheduler("soak --minutes 0.1 --every 0.2 --sites 20")
    assert run.returncode in (0, 1), run.stderr
    assert "bytes for each added URL" in run.stdout


def scheduler(words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "scripts.bench_lib", *words.split()]
    return subprocess.run(command, capture_output=True, text=True, timeout=100, check=False, cwd=ROOT)
