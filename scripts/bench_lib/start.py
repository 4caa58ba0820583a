"""How long commands take to start: medians of several runs, compared with Python itself and with importing aiohttp.

`crawler crawl` is measured to its first request (robots.txt of a site on loopback, as the site's socket sees it) and to
the first page, each time in a new folder. `crawler stats` is measured on a finished crawl, where it starts and stops
the engine, and on a running one, whose engine is up. Files are warm: each command first runs once unmeasured.

A second table has what a busy machine bends less: CPU of the crawl of one page without its engine, how many modules it
has imported, and the memory of an instance that waits for work.
"""

import contextlib
import os
import platform
import resource
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
CPU, MODULES, AT_REST = "crawl of one page, CPU s", "crawl of one page, modules", "instance at rest, MB"
COSTS = {CPU: 0.75, MODULES: None, AT_REST: None}  # the highest values that are aimed at
COUNT_MODULES = """
import sys
from crawler.cli.main import main
main(sys.argv[1:])
print(len(sys.modules))
"""
SETTLED_LOOKS, LOOK_S = 5, 0.5  # memory that is the same so often is that of an instance at rest


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
    output(command)
    return time.monotonic() - began


def output(command: list[str]) -> str:
    """What it prints. Raises SystemExit when the command fails."""
    done = subprocess.run(command, env=clean_environment(), stdin=subprocess.DEVNULL, capture_output=True, check=False)
    if done.returncode:
        raise SystemExit(f"bench: {' '.join(command)}: {done.stderr.decode(errors='replace')[-500:]}")
    return done.stdout.decode()


def first_requests(home: Path, number: int) -> dict[str, float]:
    """With the CPU seconds of all processes of the crawl but the engine, which outlives who starts it."""
    with one_page(held=False) as site:
        began, before = time.monotonic(), resource.getrusage(resource.RUSAGE_CHILDREN)
        run(crawl_command(site, home / f"crawl-{number}"))
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return {
            FIRST_REQUEST: site.seen["/robots.txt"] - began,
            FIRST_PAGE: site.seen["/"] - began,
            CPU: after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime,
        }


def modules(folder: Path) -> float:
    """That a crawl of one page has imported at its end."""
    with one_page(held=False) as site:
        words = crawl_command(site, folder)[len(CRAWLER) :]
        return float(output([sys.executable, "-c", COUNT_MODULES, *words]))


def at_rest(folder: Path) -> float:
    """Resident memory of an instance that has nothing to do, MB."""
    process = subprocess.Popen(
        [*CRAWLER, "run", "--dir", str(folder)], env=clean_environment(), stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        kib, looks = 0, 0
        while looks < SETTLED_LOOKS:
            time.sleep(LOOK_S)
            found = int(Path(f"/proc/{process.pid}/statm").read_text().split()[1]) * resource.getpagesize() // 1024
            looks = looks + 1 if abs(found - kib) < 64 and (folder / "log").exists() else 0
            kib = found
        return kib / 1024
    finally:
        process.terminate()
        process.wait(60)


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
                for name, value in figures.items():
                    found.setdefault(name, []).extend([value] if number else [])
        found[MODULES] = [modules(home / "modules")]
        found[AT_REST] = [at_rest(home / f"rest-{number}") for number in range(3)]
    return found


def lines(found: dict[str, list[float]]) -> Iterator[str]:
    python, aiohttp = (statistics.median(found[name]) for name in (PYTHON, AIOHTTP))
    machine = f"{platform.platform()}, Python {platform.python_version()}, {os.cpu_count()} cores"
    yield f"{machine}; {len(found[PYTHON])} runs"
    yield "\n| | median s | range | target | of python -c pass | of import aiohttp |\n|---|---|---|---|---|---|"
    for name, runs in found.items():
        if name in COSTS:
            continue
        middle = statistics.median(runs)
        target = f"{TARGETS_S[name]:.2f}" if name in TARGETS_S else ""
        ratios = f"{middle / python:.1f} | {middle / aiohttp:.2f}"
        yield f"| `{name}` | {middle:.3f} | {min(runs):.3f} - {max(runs):.3f} | {target} | {ratios} |"
    yield "\n| | median | range | target |\n|---|---|---|---|"
    for name, wanted in COSTS.items():
        runs = found[name]
        yield f"| {name} | {statistics.median(runs):.4g} | {min(runs):.4g} - {max(runs):.4g} | {wanted or ''} |"


def main(words: Sequence[str]) -> int:
    parser = arguments.parser("start", __doc__)
    parser.add_argument("--rounds", type=arguments.positive_int, default=9, help="measured runs of each command")
    arguments.add_json(parser)
    options = parser.parse_args(words)
    found = measure(options.rounds)
    print(*lines(found), sep="\n")
    arguments.write_json(options.json, found)
    return 0
