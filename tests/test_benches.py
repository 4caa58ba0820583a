"""The benchmarks run and print their figures; what these are is nobody's test."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

SCRIPTS = Path(__file__).parent.parent / "scripts"


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("bench-lives", "--urls", "400", "--domains", "40"), "whole lives per second"),
        (("bench-lives", "--urls", "400", "--domains", "40", "--together", "10", "--links", "5"), "whole lives"),
        (("bench-memory", "--urls", "20000"), "idle domain"),
    ],
    ids=["lives", "lives with links", "memory"],
)
def test_a_benchmark_of_the_frontier_runs_to_its_end(words: tuple[str, ...], expected: str) -> None:
    run = subprocess.run(
        [sys.executable, SCRIPTS / words[0], *words[1:]], capture_output=True, text=True, timeout=100, check=False
    )
    assert run.returncode == 0, run.stderr
    assert expected in run.stdout


@pytest.mark.skipif(not any(Path("/usr/share/doc").rglob("*.html")), reason="needs HTML under /usr/share/doc")
def test_the_benchmark_of_handlers_runs_to_its_end() -> None:
    run = of_the_lab("handling.py", "--pages", "30", "--rounds", "1")
    assert run.returncode == 0, run.stderr
    assert "def, in threads" in run.stdout


@pytest.mark.parametrize(
    ("script", "words", "expected"),
    [
        ("start.py", "--rounds 1", "`crawler crawl, first request`"),
        ("latency.py", "--part load --seconds 5 --overload 20", "due queues fetched late by: "),
        ("latency.py", "--part heartbeat --seconds 5 --big-sites 1 --big-bytes 5000000", "event loop late by: "),
        ("hostile.py", "--hostile 50 --good 5 --seconds 2 --delay 0.3", "0 heartbeats lost"),
        ("scaling.py", "--parts processes --rounds 1 --pages 300", "two processes on two cores, by CPU: "),
        ("scaling.py", "--parts queued --sizes 300,600 --pages 200", "queued, engine_ms: at most "),
    ],
)
def test_a_benchmark_of_the_whole_crawler_runs_to_its_end(script: str, words: str, expected: str) -> None:
    run = of_the_lab(script, *words.split())
    assert run.returncode == 0, run.stderr
    assert expected in run.stdout


def test_the_soak_runs_to_its_end_and_says_what_it_found_of_so_short_a_time() -> None:
    run = of_the_lab("soak.py", "--minutes", "0.1", "--every", "0.2", "--sites", "20")
    assert run.returncode in (0, 1), run.stderr
    assert "bytes for each URL that was added" in run.stdout


def of_the_lab(name: str, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, SCRIPTS / "lab" / name, *words]
    paths = {"PYTHONPATH": str(SCRIPTS.parent)}
    return subprocess.run(command, capture_output=True, text=True, timeout=100, check=False, env=os.environ | paths)
