"""A crawl of the made web (made_web.py), watched from outside: CPU and memory over time, and every request by its time.

What the crawler, its engine and the web server take is read from /proc a few times a second, so that any part of a run
can be looked at alone: without start-up, without the end. Knows nothing of what is measured with it.
"""

import contextlib
import os
import subprocess
import sys
import threading
import time
from bisect import bisect
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

import measure
from environments import clean_environment
from servers import cpu_of, pinned

PAGE_MIB = os.sysconf("SC_PAGE_SIZE") / 2**20
ROBOTS = "/robots.txt"


@dataclass(frozen=True, kw_only=True)
class Sample:
    """CPU seconds since the start of each, and memory that is resident now; `at_s` as time.monotonic()."""

    at_s: float
    crawler_cpu_s: float
    engine_cpu_s: float
    server_cpu_s: float
    crawler_mib: float
    engine_mib: float
    crawler_processes: int = 1


class Sampler(threading.Thread):
    """Samples everything below this process but `others`: engines by their name, the rest is the crawler."""

    def __init__(self, server_pid: int, every_s: float, engine_pid: int = 0) -> None:
        """`engine_pid`: one that runs already."""
        super().__init__(daemon=True)
        self.samples: list[Sample] = []
        self._server, self._every_s = server_pid, every_s
        self._others = measure.below(os.getpid()) - {engine_pid}
        self._cpu_s: dict[int, float] = {}
        self._engines: set[int] = set()
        self._over = threading.Event()

    def run(self) -> None:
        while not self._over.wait(self._every_s):
            self.samples.append(self._sample())

    def stop(self) -> None:
        self._over.set()
        self.join()

    def _sample(self) -> Sample:
        mib, processes = {True: 0.0, False: 0.0}, 0
        at_s = time.monotonic()
        for pid in measure.below(os.getpid()) - self._others:
            with contextlib.suppress(OSError, ValueError, IndexError):
                if Path(f"/proc/{pid}/comm").read_text().startswith(("valkey", "redis")):
                    self._engines.add(pid)
                self._cpu_s[pid] = cpu_of(pid)
                mib[pid in self._engines] += int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * PAGE_MIB
                processes += pid not in self._engines
        return Sample(
            at_s=at_s,
            crawler_cpu_s=sum(s for pid, s in self._cpu_s.items() if pid not in self._engines),
            engine_cpu_s=sum(s for pid, s in self._cpu_s.items() if pid in self._engines),
            server_cpu_s=cpu_of(self._server),
            crawler_mib=mib[False],
            engine_mib=mib[True],
            crawler_processes=processes,
        )


@dataclass(frozen=True)
class Request:
    """One request as the server saw it, in the shape that tests/support/pace.py reads; answered at once."""

    start: float
    host: str
    target: str

    @property
    def end(self) -> float:
        return self.start


@dataclass(frozen=True)
class Span:
    """What a part of a crawl took: pages (without robots.txt), wall seconds, CPU seconds."""

    pages: int
    robots: int
    wall_s: float
    crawler_cpu_s: float
    engine_cpu_s: float
    server_cpu_s: float


@dataclass(frozen=True)
class Watched:
    """One run. Requests in the order of their times."""

    usage: measure.Usage
    samples: Sequence[Sample]
    requests: Sequence[Request] = field(repr=False)

    def middle(self, begin: float = 0.15, end: float = 0.85, *, first: int = 0, last: int | None = None) -> Span:
        """The part between these shares of all pages: without start-up, and without the end, when some are idle.

        `first`, `last`: shares of those with these numbers only.
        """
        times = [request.start for request in self.requests if request.target != ROBOTS][first:last]
        return self.span(times[int(begin * len(times))], times[min(len(times) - 1, int(end * len(times)))])

    def first_contacts(self, share: float = 0.99) -> int:
        """How many pages were asked for until so many of the domains had been met: their robots.txt comes first."""
        met, pages = sum(request.target == ROBOTS for request in self.requests), 0
        left = int(share * met)
        for request in self.requests:
            if left <= 0:
                break
            left -= request.target == ROBOTS
            pages += request.target != ROBOTS
        return pages

    def span(self, since_s: float, until_s: float) -> Span:
        inside = [request for request in self.requests if since_s <= request.start < until_s]
        robots = sum(request.target == ROBOTS for request in inside)
        cpu = [
            self._at(until_s, name) - self._at(since_s, name)
            for name in ("crawler_cpu_s", "engine_cpu_s", "server_cpu_s")
        ]
        return Span(len(inside) - robots, robots, until_s - since_s, *cpu)

    def _at(self, at_s: float, name: str) -> float:
        """Between two samples, in proportion."""
        times = [sample.at_s for sample in self.samples]
        n = bisect(times, at_s)
        if not 0 < n < len(times):
            return float(getattr(self.samples[min(n, len(times) - 1)], name))
        before, after = self.samples[n - 1], self.samples[n]
        share = (at_s - before.at_s) / (after.at_s - before.at_s)
        return float(getattr(before, name) + share * (getattr(after, name) - getattr(before, name)))


@dataclass(frozen=True)
class MadeWeb:
    """A running server."""

    port: int
    process: subprocess.Popen[bytes]
    log: Path | None

    def url(self, number: int, path: str = "/") -> str:
        return f"http://d{number}.test:{self.port}{path}"

    def crawl_of(self, sites: int, scratch: Path) -> list[str]:
        """Arguments of a crawl that begins with so many of its sites, its files below `scratch`."""
        seeds = scratch / "seeds.txt"
        seeds.write_text("".join(f"{self.url(n)}\n" for n in range(sites)), encoding="utf-8")
        return ["-i", str(seeds), "--scope", "any", "--dir", str(scratch / "crawl")]

    def requests(self) -> list[Request]:
        """All of them; the server must have ended."""
        assert self.log is not None
        rows = (line.split(" ") for line in self.log.read_text(encoding="utf-8").splitlines())
        return sorted((Request(float(at), host, path) for at, host, path in rows), key=lambda r: r.start)

    def end(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait()


@contextlib.contextmanager
def made_web(core: int, *options: str, log: Path | None = None) -> Iterator[MadeWeb]:
    """Served from one core. `options` are those of made_web.py."""
    command = [sys.executable, str(Path(__file__).with_name("made_web.py")), *options]
    process = subprocess.Popen(
        [*command, *(["--log", str(log)] if log else [])], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        preexec_fn=pinned(core),  # noqa: PLW1509
    )  # fmt: skip
    assert process.stdout is not None
    web = MadeWeb(int(process.stdout.readline()), process, log)
    try:
        yield web
    finally:
        web.end()
        process.stdout.close()


def crawl(
    web: MadeWeb,
    arguments: Sequence[str],
    *,
    dns: str,
    scratch: Path,
    cores: set[int],
    engine_cores: set[int],
    concurrency: int = 64,
    program: Sequence[str] = ("-m", "crawler"),
    environment: Mapping[str, str] | None = None,
    timeout_s: float = 1800,
    every_s: float = 0.2,
    engine_pid: int = 0,
) -> Watched:
    """`crawler crawl` with these arguments, on loopback. Ends the web server: its log is read. Raises SystemExit when
    the crawl fails.
    """
    everywhere = ["--allow-private", "--nameserver", dns, "-c", str(concurrency), "-q"]
    # All names have one address, and its limit would be the only one that counts.
    clean = clean_environment() | {"CRAWLER_POLITENESS_CONCURRENCY_PER_ADDRESS": str(concurrency)}
    sampler = Sampler(web.process.pid, every_s, engine_pid)
    sampler.start()
    log = scratch / "output.log"
    try:
        usage = measure.run(
            [sys.executable, *program, "crawl", *arguments, *everywhere], clean | dict(environment or {}), log,
            cores=cores, engine_cores=engine_cores, timeout_s=timeout_s,
        )  # fmt: skip
    finally:
        sampler.stop()
    if usage.exit_code:
        raise SystemExit(f"the crawl ended with {usage.exit_code}:\n{log.read_text(errors='replace')[-2000:]}")
    web.end()
    return Watched(usage, sampler.samples, web.requests() if web.log else ())


def two_cores() -> tuple[int, int]:
    """One for the crawler, another for the servers; the same one twice where there is but one."""
    allowed = sorted(os.sched_getaffinity(0))
    return allowed[0], allowed[-1]


def slope(points: Sequence[tuple[float, float]]) -> float:
    """Theil and Sen's: the median of the slopes between points half the range apart; an outlier moves it little."""
    half = len(points) // 2
    rises = sorted((y2 - y1) / (x2 - x1) for (x1, y1), (x2, y2) in zip(points, points[half:], strict=False) if x2 > x1)
    return rises[len(rises) // 2] if rises else 0.0


def percentile(values: Sequence[float], share: float) -> float:
    """Of sorted values."""
    return values[min(len(values) - 1, int(share * len(values)))]


def gaps(times: Sequence[float]) -> list[float]:
    return [after - before for before, after in pairwise(times)]
