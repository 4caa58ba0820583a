"""What viewers cost a crawl, and whether hostile clients of `crawler serve` can slow it down.

Crawls the synthetic web in turns: alone, then with `crawler serve`, a client of its events, its table and its metrics
every few seconds, and `crawler top`. Prints the CPU of a page of the crawler and of the engine, as ratios. Then it
crawls at a fixed rate: alone, and while hostile clients hold the server: open event streams, requests that arrive a
byte a second, huge bodies, wrong tokens, foreign hosts. Prints the rates. Exit code 1: --judge, and a target is missed.
"""

import argparse
import contextlib
import http.client
import os
import pty
import select
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

from scripts.bench_lib import arguments
from scripts.bench_lib.measure import Cores, FailedError, below, take_cores
from scripts.bench_lib.peer_clients import all_clients
from scripts.bench_lib.peer_environments import CRAWLER, ROOT
from scripts.bench_lib.servers import RunningWeb, cpu_of, pinned, raise_file_limit, serving
from scripts.bench_lib.webs import SyntheticWeb
from tests.support.engine import Engine, free_ports, running_engine

DOMAINS = 500
CPU_TARGET, RATE_TARGET = 1.02, 0.95
TABLE_EVERY_S, METRICS_EVERY_S = 2.0, 5.0
HUGE_BYTES, PIECE = 64_000_000, b"a" * 65_536
POLL_S = 0.05
LINES, COLUMNS = 50, 200  # of the terminal of `crawler top`


@dataclass(frozen=True)
class Run:
    """What one crawl took, for a page in ms of CPU."""

    pages_per_s: float
    crawler_ms: float
    engine_ms: float


class Viewers(contextlib.ExitStack):
    """`crawler serve` and others on a crawl, until the context ends."""

    def __init__(self, where: Sequence[str], cores: Cores, environment: dict[str, str]) -> None:
        super().__init__()
        self._where, self._cores, self._environment = where, cores, environment
        (self.port,) = free_ports(1)
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self.over = threading.Event()
        self.callback(self.over.set)

    def serve(self) -> None:
        """Start `crawler serve` and wait until it answers."""
        self._start("serve", "--listen", f"127.0.0.1:{self.port}", output=subprocess.DEVNULL)
        deadline = time.monotonic() + 30
        while self.get("/readyz") != 200:
            if time.monotonic() > deadline:
                raise FailedError("`crawler serve` did not start")
            time.sleep(POLL_S)

    def top(self) -> None:
        """Start `crawler top` on a terminal, which is read and thrown away."""
        ours, theirs = pty.openpty()
        self.callback(os.close, ours)
        self._environment |= {"TERM": "xterm-256color", "LINES": str(LINES), "COLUMNS": str(COLUMNS)}
        self._start("top", output=theirs)
        os.close(theirs)
        self.every(0, lambda: self._read_terminal(ours))

    def _read_terminal(self, terminal: int) -> None:
        ready, _, _ = select.select([terminal], [], [], 0.5)
        if ready and not self.over.is_set():
            os.read(terminal, 65_536)

    def _start(self, *command: str, output: int) -> None:
        process = subprocess.Popen(
            [*CRAWLER, *command, *self._where], env=self._environment, preexec_fn=pinned(*self._cores.servers),  # noqa: PLW1509
            stdin=output if command[0] == "top" else subprocess.DEVNULL, stdout=output, stderr=output,
        )  # fmt: skip
        self._processes[command[0]] = process
        self.callback(process.wait)
        self.callback(process.send_signal, signal.SIGTERM)

    @property
    def failed(self) -> str:
        """The one that has ended, or ""."""
        return next((name for name, process in self._processes.items() if process.poll() is not None), "")

    def every(self, pause_s: float, call: Callable[[], object]) -> None:
        """Call it in a thread of its own until the context ends."""
        repeat(pause_s, call, self.over)

    def get(self, path: str) -> int:
        """The status of a request to `crawler serve`."""
        return get(self.port, path)

    def read_events(self) -> None:
        """Read the stream of events until it ends."""
        with opened(self.port, head(self.port, "/v1/events")) as sock:
            while not self.over.is_set() and sock.recv(65_536):
                pass

    def attack(self, streams: int) -> None:
        """Start hostile clients on the cores of the crawler: they come from elsewhere, and it leaves them time."""
        command = [sys.executable, "-m", "scripts.bench_lib.watched", str(self.port), str(streams)]
        process = subprocess.Popen(command, cwd=ROOT, preexec_fn=pinned(*self._cores.client))  # noqa: PLW1509
        self.callback(process.wait)
        self.callback(process.kill)


def repeat(pause_s: float, call: Callable[[], object], over: threading.Event) -> None:
    """Call it in a thread of its own again and again until the event is set."""

    def loop() -> None:
        while not over.is_set():
            with contextlib.suppress(OSError, http.client.HTTPException):
                call()
            over.wait(pause_s)

    threading.Thread(target=loop, daemon=True).start()


def get(port: int, path: str, **headers: str) -> int:
    """The status of a request, 0 without an answer; the body is read and thrown away."""
    try:
        with contextlib.closing(http.client.HTTPConnection("127.0.0.1", port, timeout=10)) as connection:
            connection.request("GET", path, headers=headers)
            answer = connection.getresponse()
            answer.read()
            return answer.status
    except (OSError, http.client.HTTPException):
        return 0


def opened(port: int, request: bytes) -> socket.socket:
    """A connection on which a request was begun."""
    sock = socket.create_connection(("127.0.0.1", port), timeout=10)
    sock.sendall(request)
    return sock


def head(port: int, path: str, method: str = "GET", more: str = "") -> bytes:
    return f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n{more}\r\n".encode()


def attack(port: int, streams: int) -> None:
    """All that hostile clients do, until this process is killed."""
    raise_file_limit()
    over, kept = threading.Event(), []
    for _ in range(streams):
        with contextlib.suppress(OSError):
            kept.append(opened(port, head(port, "/v1/events")))
    slow = [opened(port, b"GET /v1/overview HTTP/1.1\r\n") for _ in range(50)]

    def send_huge_body() -> None:
        length = f"Content-Type: application/json\r\nContent-Length: {HUGE_BYTES}\r\n"
        with opened(port, head(port, "/v1/seeds", "POST", length)) as sock:
            for _ in range(HUGE_BYTES // len(PIECE)):
                sock.sendall(PIECE)

    repeat(1.0, lambda: [sock.send(b"a") for sock in slow], over)
    repeat(0.1, send_huge_body, over)
    for headers in ({"Authorization": "Bearer wrong"}, {"Host": "evil.example"}, {}):
        repeat(0.02, partial(get, port, "/v1/domains", **headers), over)
    over.wait()


def crawled(running: RunningWeb, cores: Cores, rate: float, way: Callable[[Viewers], None] | None) -> Run:
    """Crawl the web to its end, from its first second on with viewers. `rate`: pages/s, 0 for all it can."""
    client = all_clients(64)["crawler"]
    with running_engine() as engine, tempfile.TemporaryDirectory(prefix="bench-") as scratch:
        os.sched_setaffinity(engine.pid, cores.servers)
        folder, environment = Path(scratch), client.full_environment(running)
        where = ["--dir", str(folder / "crawl"), "--redis", engine.url]
        command = [*client.command(running, folder), "--redis", engine.url]
        if rate:
            command[command.index("--delay") + 1] = str(DOMAINS / rate)
        with (folder / "log").open("wb") as log:
            process = subprocess.Popen(
                command, env=environment, cwd=folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                preexec_fn=pinned(*cores.client),  # noqa: PLW1509
            )  # fmt: skip
            with Viewers(where, cores, environment | {"CRAWLER_FETCH_ALLOW_PRIVATE": "yes"}) as viewers:
                if way:
                    wait_for_crawl(engine, process)
                    way(viewers)
                return measured(running, engine, process, viewers, folder / "log")


def wait_for_crawl(engine: Engine, process: "subprocess.Popen[bytes]") -> None:
    with contextlib.closing(engine.client()) as client:
        while not client.exists("{main}:members"):
            if process.poll() is not None:
                raise FailedError("the crawl has ended before anybody could look")
            time.sleep(POLL_S)


def measured(
    running: RunningWeb, engine: Engine, process: "subprocess.Popen[bytes]", viewers: Viewers, log: Path
) -> Run:
    """What the crawl takes between its first tenth of requests and its last one, as the web server counts them."""
    marks: list[tuple[float, int, float, float]] = []
    while process.poll() is None:
        with contextlib.suppress(OSError, IndexError):  # it may just have ended
            cpu_s = sum(map(cpu_of, {process.pid} | below(process.pid)))
            marks.append((time.monotonic(), running.requests(), cpu_s, cpu_of(engine.pid)))
        time.sleep(0.25)
    if process.returncode:
        raise FailedError(f"the crawl failed: {log.read_text(errors='replace')[-2000:]}")
    if viewers.failed:
        raise FailedError(f"crawler {viewers.failed} has ended by itself")
    first, last = marks[0][1], marks[-1][1]
    inside = [mark for mark in marks if 0.1 <= (mark[1] - first) / max(1, last - first) <= 0.9]
    if len(inside) < 2:
        raise FailedError("the crawl was too short to be measured: give it more --pages")
    (t0, n0, c0, e0), (t1, n1, c1, e1) = inside[0], inside[-1]
    pages = n1 - n0 - len(inside)  # each count was a request, too
    return Run(pages / (t1 - t0), 1000 * (c1 - c0) / pages, 1000 * (e1 - e0) / pages)


def look(viewers: Viewers) -> None:
    """As people do: a dashboard, a terminal, and a scrape."""
    viewers.serve()
    viewers.top()
    viewers.every(0, viewers.read_events)
    viewers.every(TABLE_EVERY_S, partial(viewers.get, "/v1/domains?sort=rate&limit=50"))
    viewers.every(METRICS_EVERY_S, partial(viewers.get, "/metrics"))


def main(words: Sequence[str]) -> int:
    options = parse_arguments(words)
    raise_file_limit()
    cores = take_cores()

    def with_attack(viewers: Viewers) -> None:
        viewers.serve()
        viewers.attack(options.streams)

    web = SyntheticWeb(domains=DOMAINS, pages_each=options.pages // DOMAINS, own=2, away=48)
    with serving(web) as running:
        free = in_turns(running, cores, 0, {"alone": None, "watched": look}, options.rounds)
        paced = in_turns(running, cores, options.rate, {"alone": None, "attacked": with_attack}, 1)
    cpu, engine = (ratio(free, "watched", what) for what in ("crawler_ms", "engine_ms"))
    rate = ratio(paced, "attacked", "pages_per_s")
    print(f"\nwatched / alone: {cpu:.3f} of the CPU of a page, {engine:.3f} of the engine's")
    print(f"attacked / alone: {rate:.3f} of the rate, at {options.rate:g} pages/s")
    arguments.write_json(options.json, {"free": shown(free), "paced": shown(paced), "cpu": cpu, "rate": rate})
    return 1 if options.judge and (cpu > CPU_TARGET or rate < RATE_TARGET) else 0


def in_turns(
    running: RunningWeb, cores: Cores, rate: float, ways: dict[str, Callable[[Viewers], None] | None], rounds: int
) -> dict[str, list[Run]]:
    """Every second round the other way round: a run leaves the machine changed for the next one."""
    runs: dict[str, list[Run]] = {name: [] for name in ways}
    for number in range(rounds):
        for name in list(ways)[:: -1 if number % 2 else 1]:
            one = crawled(running, cores, rate, ways[name])
            runs[name].append(one)
            print(
                f"{name:<9}{one.pages_per_s:8.1f} pages/s, {one.crawler_ms:.3f} ms a page, engine {one.engine_ms:.3f}",
                flush=True,
            )
    return runs


def ratio(runs: dict[str, list[Run]], name: str, what: str) -> float:
    """Of the medians, to those of the crawl alone."""
    mine, alone = (statistics.median(getattr(run, what) for run in runs[one]) for one in (name, "alone"))
    return mine / alone


def shown(runs: dict[str, list[Run]]) -> dict[str, list[dict[str, float]]]:
    return {name: [asdict(run) for run in some] for name, some in runs.items()}


def parse_arguments(words: Sequence[str]) -> argparse.Namespace:
    parser, one, number = arguments.parser("watched", __doc__), arguments.positive_int, arguments.positive_float
    parser.add_argument("--pages", type=one, default=20_000, help=f"of the web, on {DOMAINS} domains")
    parser.add_argument("--rounds", type=one, default=4, help="crawls of each kind at full speed")
    parser.add_argument("--rate", type=number, default=300.0, metavar="PAGES", help="pages/s while it is attacked")
    parser.add_argument("--streams", type=one, default=1000, help="open event streams of the attack")
    parser.add_argument("--judge", action="store_true", help="exit with 1 when a target is missed")
    arguments.add_json(parser)
    return parser.parse_args(words)


if __name__ == "__main__":  # the hostile clients
    attack(int(sys.argv[1]), int(sys.argv[2]))
