"""The benchmarks run and print their figures; what these are is nobody's test."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

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


def test_the_benchmark_of_starts_runs_to_its_end() -> None:
    run = of_the_lab("start.py", "--rounds", "1")
    assert run.returncode == 0, run.stderr
    assert "`crawler crawl, first request`" in run.stdout


def of_the_lab(name: str, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, SCRIPTS / "lab" / name, *words]
    paths = {"PYTHONPATH": str(SCRIPTS.parent)}
    return subprocess.run(command, capture_output=True, text=True, timeout=100, check=False, env=os.environ | paths)
