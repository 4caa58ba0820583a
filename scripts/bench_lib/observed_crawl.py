"""A crawl of the generated web, observed from outside: CPU and memory over time, and every request with its time.

CPU and memory of the crawler, its engine and the web server are sampled a few times a second, so any part of a run can
be judged alone: without start-up, without the end.
"""

import contextlib
import subprocess
import sys
from bisect import bisect
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from scripts.bench_lib import measure
from scripts.bench_lib.measure import Sample
from scripts.bench_lib.peer_environments import clean_environment
from scripts.bench_lib.servers import pinned

ROBOTS = "/robots.txt"
SMALL_CACHES = {"CRAWLER_DNS_CACHE_SIZE": "10000", "CRAWLER_FRONTIER_RECENT_URLS": "20000"}  # a tenth: full soon


@dataclass(frozen=True)
class Request:
    """One request as the server saw it, in the form that tests/support/pace.py reads; answered at once."""

    start: float
    host: str
    target: str

    @property
    def end(self) -> float:
        return self.start


@dataclass(frozen=True)
class Span:
    """What a part of a crawl took. `pages` are without robots.txt."""

    pages: int
    robots: int
    wall_s: float
    crawler_cpu_s: float
    engine_cpu_s: float
    server_cpu_s: float


@dataclass(frozen=True)
class ObservedCrawl:
    """One run. Requests are in the order of their times."""

    samples: Sequence[Sample]
    requests: Sequence[Request] = field(repr=False)

    def middle(self, begin: float = 0.15, end: float = 0.85, *, first: int = 0, last: int | None = None) -> Span:
        """The part between these shares of all pages: without start-up, and without the end, when some queues are idle.

        With `first` and `last`, of the pages with these numbers only.
        """
        times = [request.start for request in self.requests if request.target != ROBOTS][first:last]
        return self.span(times[int(begin * len(times))], times[min(len(times) - 1, int(end * len(times)))])

    def first_contacts(self, share: float = 0.99) -> int:
        """How many pages were requested before this share of the domains was reached: robots.txt comes first."""
        reached, pages = sum(request.target == ROBOTS for request in self.requests), 0
        left = int(share * reached)
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
        """Interpolated between two samples."""
        times = [sample.at_s for sample in self.samples]
        n = bisect(times, at_s)
        if not 0 < n < len(times):
            return float(getattr(self.samples[min(n, len(times) - 1)], name))
        before, after = self.samples[n - 1], self.samples[n]
        share = (at_s - before.at_s) / (after.at_s - before.at_s)
        return float(getattr(before, name) + share * (getattr(after, name) - getattr(before, name)))


@dataclass(frozen=True)
class GeneratedWeb:
    """A running server."""

    port: int
    process: subprocess.Popen[bytes]
    log: Path | None

    def url(self, number: int, path: str = "/") -> str:
        return f"http://d{number}.test:{self.port}{path}"

    def crawl_of(self, sites: int, scratch: Path) -> list[str]:
        """Arguments of a crawl with this many of its sites as seeds and its files below `scratch`."""
        seeds = scratch / "seeds.txt"
        seeds.write_text("".join(f"{self.url(n)}\n" for n in range(sites)), encoding="utf-8")
        return ["-i", str(seeds), "--scope", "any", "--dir", str(scratch / "crawl")]

    def requests(self) -> list[Request]:
        """All of them; none without a log. The server must have ended."""
        text = self.log.read_text(encoding="utf-8") if self.log else ""
        rows = (line.split(" ") for line in text.splitlines())
        return sorted((Request(float(at), host, path) for at, host, path in rows), key=lambda r: r.start)

    def end(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait()


@contextlib.contextmanager
def generated_web(cores: set[int], *options: str, log: Path | None = None) -> Iterator[GeneratedWeb]:
    """Serve it from these cores. `options` are those of generated_web.py."""
    command = [sys.executable, "-P", str(Path(__file__).with_name("generated_web.py")), *options]
    process = subprocess.Popen(
        [*command, *(["--log", str(log)] if log else [])], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        preexec_fn=pinned(*cores),  # noqa: PLW1509
    )  # fmt: skip
    assert process.stdout is not None
    web = GeneratedWeb(int(process.stdout.readline()), process, log)
    try:
        yield web
    finally:
        web.end()
        process.stdout.close()


def crawl(
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
    sampling: measure.Sampling | None = None,
) -> tuple[measure.Usage, list[Sample]]:
    """Run `crawler crawl` with these arguments, on loopback. Raises SystemExit when it fails."""
    everywhere = ["--allow-private", "--nameserver", dns, "-c", str(concurrency), "-q"]
    # All names have one address: its own limit must not be the one that counts.
    address_limit = {"CRAWLER_POLITENESS_CONCURRENCY_PER_ADDRESS": str(concurrency)}
    log = scratch / "output.log"
    usage, samples = measure.run(
        [sys.executable, *program, "crawl", *arguments, *everywhere],
        clean_environment() | address_limit | dict(environment or {}),
        log, cores=cores, engine_cores=engine_cores, timeout_s=timeout_s, sampling=sampling,
    )  # fmt: skip
    if usage.exit_code:
        output = log.read_text(errors="replace")[-2000:]
        raise SystemExit(f"bench: the crawl failed with exit code {usage.exit_code}:\n{output}")
    return usage, samples


def observed(
    web: GeneratedWeb, arguments: Sequence[str], *, every_s: float = 0.2, engine_pid: int = 0, **how: object
) -> ObservedCrawl:
    """Crawl the web and end its server, whose log is read then. `how` is what crawl() takes."""
    sampling = measure.Sampling(server_pid=web.process.pid, every_s=every_s, engine_pid=engine_pid)
    _, samples = crawl(arguments, sampling=sampling, **how)  # type: ignore[arg-type]
    web.end()
    return ObservedCrawl(samples, web.requests())


def slope(points: Sequence[tuple[float, float]]) -> float:
    """The Theil-Sen slope: the median of the slopes between points half the range apart; an outlier moves it little."""
    half = len(points) // 2
    rises = sorted((y2 - y1) / (x2 - x1) for (x1, y1), (x2, y2) in zip(points, points[half:], strict=False) if x2 > x1)
    return rises[len(rises) // 2] if rises else 0.0
