"""How long commands take to answer: medians of several runs, beside Python itself and beside importing aiohttp.

`crawler crawl` is measured to its first request (the robots.txt of a site on loopback, as that site's socket sees it)
and to the first page, in a folder of its own each time; `crawler stats` on a crawl that is over (it starts the engine
and stops it again), and beside one that runs, whose engine is there. Files are warm: each command runs once unmeasured.
"""

import argparse
import contextlib
import json
import os
import platform
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import given
from environments import clean_environment

CRAWLER = [sys.executable, "-m", "crawler"]
PAGE = b"<!doctype html><title>One page</title><p>It leads nowhere.</p>"
ROBOTS = b"User-agent: *\nDisallow:\n"
PYTHON, AIOHTTP = "python -c pass", 'python -c "import aiohttp"'
HELP, STATS, STATS_BESIDE = "crawler --help", "crawler stats, crawl over", "crawler stats, crawl running"
FIRST_REQUEST, FIRST_PAGE = "crawler crawl, first request", "crawler crawl, first page"
TARGETS_S = {HELP: 0.15, FIRST_REQUEST: 0.8, STATS: 0.3, STATS_BESIDE: 0.3}


@dataclass
class OnePage:
    """A site of one page. `seen` has when each request came, by its path; a held page is answered when released."""

    listener: socket.socket
    seen: dict[str, float] = field(default_factory=dict)
    arrived: threading.Event = field(default_factory=threading.Event)
    release: threading.Event = field(default_factory=threading.Event)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.listener.getsockname()[1]}/"

    def serve(self) -> None:
        with contextlib.suppress(OSError):  # until the listener is closed
            while True:
                connection, _ = self.listener.accept()
                threading.Thread(target=self._answer, args=(connection,), daemon=True).start()

    def _answer(self, connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError):
            while data := connection.recv(65_536):
                path = data.split(b" ", 2)[1].decode()
                self.seen.setdefault(path, time.monotonic())
                body, kind = (ROBOTS, b"text/plain") if path == "/robots.txt" else (PAGE, b"text/html")
                if path == "/":
                    self.arrived.set()
                    self.release.wait(60)
                head = b"HTTP/1.1 200 OK\r\nContent-Type: %b\r\nContent-Length: %d\r\n\r\n" % (kind, len(body))
                connection.sendall(head + body)


@contextlib.contextmanager
def one_page(*, held: bool) -> Iterator[OnePage]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        site = OnePage(listener)
        if not held:
            site.release.set()
        threading.Thread(target=site.serve, daemon=True).start()
        try:
            yield site
        finally:
            site.release.set()


def crawl_command(site: OnePage, folder: Path) -> list[str]:
    return [*CRAWLER, "crawl", site.url, "--allow-private", "--dir", str(folder), "-q"]


def run(command: list[str]) -> float:
    """Seconds from start to end of a command that has to succeed."""
    began = time.monotonic()
    done = subprocess.run(command, env=clean_environment(), stdin=subprocess.DEVNULL, capture_output=True, check=False)
    seconds = time.monotonic() - began
    if done.returncode:
        raise SystemExit(f"bench-start: {' '.join(command)}: {done.stderr.decode(errors='replace')[-500:]}")
    return seconds


def first_requests(home: Path, number: int) -> dict[str, float]:
    with one_page(held=False) as site:
        began = time.monotonic()
        run(crawl_command(site, home / f"crawl-{number}"))
        return {FIRST_REQUEST: site.seen["/robots.txt"] - began, FIRST_PAGE: site.seen["/"] - began}


@contextlib.contextmanager
def running_crawl(folder: Path) -> Iterator[None]:
    """A crawl that waits for its only page."""
    with one_page(held=True) as site:
        process = subprocess.Popen(crawl_command(site, folder), env=clean_environment(), stdin=subprocess.DEVNULL)
        try:
            if not site.arrived.wait(60):
                raise SystemExit("bench-start: the crawl asks for nothing")
            yield
        finally:
            site.release.set()
            process.wait(60)


def measure(rounds: int) -> dict[str, list[float]]:
    """Interleaved, so that whatever else the machine does meets all alike. The first round is not counted."""
    found: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory(prefix="bench-start-") as scratch:
        home = Path(scratch)
        first_requests(home, 0)
        with running_crawl(home / "running"):
            single: dict[str, Callable[[], float]] = {
                PYTHON: lambda: run([sys.executable, "-c", "pass"]),
                AIOHTTP: lambda: run([sys.executable, "-c", "import aiohttp"]),
                HELP: lambda: run([*CRAWLER, "--help"]),
                STATS: lambda: run([*CRAWLER, "stats", "--dir", str(home / "crawl-0")]),
                STATS_BESIDE: lambda: run([*CRAWLER, "stats", "--dir", str(home / "running")]),
            }
            for number in range(rounds + 1):
                figures = {name: measured() for name, measured in single.items()}
                figures |= first_requests(home, number + 1)
                for name, seconds in figures.items():
                    found.setdefault(name, []).extend([seconds] if number else [])
    return found


def lines(found: dict[str, list[float]]) -> Iterator[str]:
    python, aiohttp = (statistics.median(found[name]) for name in (PYTHON, AIOHTTP))
    python_is = f"{platform.platform()}, Python {platform.python_version()}, {os.cpu_count()} cores"
    yield f"{python_is}; {len(found[PYTHON])} runs"
    yield "\n| | median s | from - to | aimed at | of python -c pass | of import aiohttp |\n|---|---|---|---|---|---|"
    for name, runs in found.items():
        middle = statistics.median(runs)
        aim = f"{TARGETS_S[name]:.2f}" if name in TARGETS_S else ""
        ratios = f"{middle / python:.1f} | {middle / aiohttp:.2f}"
        yield f"| `{name}` | {middle:.3f} | {min(runs):.3f} - {max(runs):.3f} | {aim} | {ratios} |"


def main() -> None:
    parser = argparse.ArgumentParser(prog="scripts/bench-start", description=__doc__)
    parser.add_argument("--rounds", type=given.count, default=9, help="runs of each command that count (default: 9)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every run's seconds")
    options = parser.parse_args()
    found = measure(options.rounds)
    for line in lines(found):
        print(line)
    if options.json:
        options.json.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
