"""How long commands take to start: medians of several runs, compared with Python itself and with importing aiohttp.

`crawler crawl` is measured to its first request (robots.txt of a site on loopback, as the site's socket sees it) and to
the first page, each time in a new folder. `crawler stats` is measured on a finished crawl, where it starts and stops
the engine, and on a running one, whose engine is up. Files are warm: each command first runs once unmeasured.
"""

import contextlib
import os
import platform
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from scripts.bench_lib import arguments
from scripts.bench_lib.peer_environments import CRAWLER, clean_environment

PAGE = b"<!doctype html><title>One page</title><p>It leads nowhere.</p>"
ROBOTS = b"User-agent: *\nDisallow:\n"
PYTHON, AIOHTTP = "python -c pass", 'python -c "import aiohttp"'
HELP, STATS, STATS_RUNNING = "crawler --help", "crawler stats, finished crawl", "crawler stats, running crawl"
FIRST_REQUEST, FIRST_PAGE = "crawler crawl, first request", "crawler crawl, first page"
TARGETS_S = {HELP: 0.15, FIRST_REQUEST: 0.8, STATS: 0.3, STATS_RUNNING: 0.3}


@dataclass
class OnePage:
    """A site of one page. `seen` has the time of each path's first request; a held page is answered when released."""

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
    """Seconds from start to end. Raises SystemExit when the command fails."""
    began = time.monotonic()
    done = subprocess.run(command, env=clean_environment(), stdin=subprocess.DEVNULL, capture_output=True, check=False)
    seconds = time.monotonic() - began
    if done.returncode:
        raise SystemExit(f"bench: {' '.join(command)}: {done.stderr.decode(errors='replace')[-500:]}")
    return seconds


def first_requests(home: Path, number: int) -> dict[str, float]:
    with one_page(held=False) as site:
        began = time.monotonic()
        run(crawl_command(site, home / f"crawl-{number}"))
        return {FIRST_REQUEST: site.seen["/robots.txt"] - began, FIRST_PAGE: site.seen["/"] - began}


@contextlib.contextmanager
def running_crawl(folder: Path) -> Iterator[None]:
    """A crawl that is waiting for its only page."""
    with one_page(held=True) as site:
        process = subprocess.Popen(crawl_command(site, folder), env=clean_environment(), stdin=subprocess.DEVNULL)
        try:
            if not site.arrived.wait(60):
                raise SystemExit("bench: the crawl sent no request")
            yield
        finally:
            site.release.set()
            process.wait(60)


def measure(rounds: int) -> dict[str, list[float]]:
    """Interleaved, so that other programs slow all commands alike. The first round does not count."""
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
                STATS_RUNNING: lambda: run([*CRAWLER, "stats", "--dir", str(home / "running")]),
            }
            for number in range(rounds + 1):
                figures = {name: measured() for name, measured in single.items()}
                figures |= first_requests(home, number + 1)
                for name, seconds in figures.items():
                    found.setdefault(name, []).extend([seconds] if number else [])
    return found


def lines(found: dict[str, list[float]]) -> Iterator[str]:
    python, aiohttp = (statistics.median(found[name]) for name in (PYTHON, AIOHTTP))
    machine = f"{platform.platform()}, Python {platform.python_version()}, {os.cpu_count()} cores"
    yield f"{machine}; {len(found[PYTHON])} runs"
    yield "\n| | median s | range | target | of python -c pass | of import aiohttp |\n|---|---|---|---|---|---|"
    for name, runs in found.items():
        middle = statistics.median(runs)
        target = f"{TARGETS_S[name]:.2f}" if name in TARGETS_S else ""
        ratios = f"{middle / python:.1f} | {middle / aiohttp:.2f}"
        yield f"| `{name}` | {middle:.3f} | {min(runs):.3f} - {max(runs):.3f} | {target} | {ratios} |"


def main(words: Sequence[str]) -> int:
    parser = arguments.parser("start", __doc__)
    parser.add_argument("--rounds", type=arguments.positive_int, default=9, help="measured runs of each command")
    arguments.add_json(parser)
    options = parser.parse_args(words)
    found = measure(options.rounds)
    print(*lines(found), sep="\n")
    arguments.write_json(options.json, found)
    return 0
