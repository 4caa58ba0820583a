"""Does a second process on a second core bring twice as much? Does a page cost the same however much is queued?

processes: the same endless web crawled by one process and by two, in turn. With one, crawler and engine have one core
and the web server the other. With two, all share both cores, and the server's share is subtracted: pages / (wall time -
its CPU seconds / 2). Beside it the same by CPU alone: 2 x what a page cost one process / what it costs two, engine
included; this is what two cores give when they are kept busy, and other programs on the machine do not touch it.

queued, domains: CPU per page of crawler and engine, of a crawl of --pages pages out of a queue of 5,000 to 5,000,000
URLs over 100 domains, and of --urls URLs over 10 to 100,000 domains (filled by the real client; pages lead to what is
known only); and of the frontier alone, microseconds a URL of adding all and of claiming and committing some. A domain's
first page comes with its robots.txt and name: the pages are those after 99 in 100 domains were met, and where there are
thousands of domains, what a page costs until then stands beside them. Few domains are asked over connections that stay
open, each page of thousands needs a new one: `closed` is the curve of domains where the server ends each connection.

All figures are of the middle part of each crawl. `constant`: the dearest point of a curve beside its median.
"""

import argparse
import asyncio
import json
import math
import os
import platform
import statistics
import sys
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

import filled
import given
import measure
import plots
from watched import Span

from tests.crawl.lab import name_server

PARTS = ("processes", "queued", "domains", "closed")
SIZES = (5_000, 50_000, 500_000, 5_000_000)
DOMAINS = (10, 100, 1_000, 10_000, 100_000)
DOMAINS_OF_SIZES = 100
FIRST_PAGES_MIN = 1_000  # fewer take too little time to be measured
AIM = 1.8


@dataclass(frozen=True)
class Pair:
    """One round of one process and two."""

    one: Span
    two: Span

    @property
    def by_clock(self) -> float:
        return rate(self.two, shares_server=True) / rate(self.one, shares_server=False)

    @property
    def by_cpu(self) -> float:
        return 2 * cost_ms(self.one) / cost_ms(self.two)


@dataclass(frozen=True, kw_only=True)
class Point:
    """One place on a curve. Milliseconds of CPU a page; microseconds a URL of the frontier alone.

    `first_ms`: of crawler and engine for the first page of a domain; None where there are too few to tell.
    """

    urls: int
    domains: int
    pages: int
    robots: int
    crawler_ms: float
    engine_ms: float
    first_ms: float | None
    added_engine_us: float
    added_client_us: float
    claimed_engine_us: float
    claimed_client_us: float


def main() -> int:
    options = parse_arguments()
    measure.adopt_orphans()
    os.sched_setaffinity(0, {options.cores[-1]})
    print(f"{platform.platform()}, Python {platform.python_version()}, cores {options.cores}")
    found: dict[str, object] = {}
    by_size = [(urls, DOMAINS_OF_SIZES) for urls in options.sizes]
    by_domains = [(options.urls, domains) for domains in options.domains]
    with name_server() as dns:
        if "processes" in options.parts:
            pairs = [pair(options, dns, number) for number in range(options.rounds)]
            found["processes"] = of_processes(pairs)
        for name, axis, points in (
            ("queued", "URLs queued", by_size),
            ("domains", "domains", by_domains),
            ("closed", "domains, a connection for each page", by_domains),
        ):
            if name in options.parts:
                measured = [point(options, dns, urls, domains, closes=name == "closed") for urls, domains in points]
                found[name] = of_curve(name, axis, measured, options)
    if options.output:
        write(options.output / "scaling.json", found)
    return 0


def parse_arguments() -> argparse.Namespace:
    p = argparse.ArgumentParser(
        prog="scripts/bench-scaling", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    p.add_argument(
        "--parts", type=given.some_of(PARTS), default=PARTS, help=f"some of {', '.join(PARTS)}: comma-separated"
    )
    p.add_argument("--rounds", type=given.count, default=3, help="of one process and two (default: 3)")
    p.add_argument(
        "--pages", type=given.count, default=8_000, help="of each crawl; twice that with two (default: 8000)"
    )
    p.add_argument("--claimed", type=given.count, default=20_000, help="URLs of the frontier alone (default: 20000)")
    p.add_argument("--sizes", type=given.counts, default=SIZES, help="URLs queued (default: 5000,...,5000000)")
    p.add_argument("--domains", type=given.counts, default=DOMAINS, help="(default: 10,...,100000)")
    p.add_argument("--urls", type=given.count, default=1_000_000, help="queued over these domains (default: 1000000)")
    p.add_argument("--output", type=Path, metavar="DIR", help="write scaling.json and the plots here")
    options = p.parse_args()
    if options.urls < 2 * max(options.domains):
        p.error(f"--urls {options.urls}: two for each of {max(options.domains)} domains are needed at least")
    if min(options.sizes) < 2 * DOMAINS_OF_SIZES:
        p.error(f"--sizes: {2 * DOMAINS_OF_SIZES} URLs at least, for they are of {DOMAINS_OF_SIZES} domains")
    options.cores = sorted(os.sched_getaffinity(0))
    return options


def write(file: Path, found: dict[str, object]) -> None:
    """Parts that were not measured now stay as they are."""
    before = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(before | found, indent=1) + "\n", encoding="utf-8")


# --- processes ---


def pair(options: argparse.Namespace, dns: str, number: int) -> Pair:
    one, two = (filled.endless(dns, options.pages * n, processes=n, cores=options.cores) for n in (1, 2))
    found = Pair(one, two)
    print(
        f"round {number + 1}: one {rate(one, shares_server=False):.0f} pages/s, {cost_ms(one):.2f} ms of CPU a page; "
        f"two {rate(two, shares_server=True):.0f} ({two.pages / two.wall_s:.0f} with the server's share), "
        f"{cost_ms(two):.2f} ms; {found.by_clock:.2f}x by the clock, {found.by_cpu:.2f}x by CPU",
        flush=True,
    )
    return found


def rate(span: Span, *, shares_server: bool) -> float:
    """Pages/s; without what the web server took of two cores, if it had no core of its own."""
    return span.pages / (span.wall_s - (span.server_cpu_s / 2 if shares_server else 0))


def cost_ms(span: Span) -> float:
    return 1000 * (span.crawler_cpu_s + span.engine_cpu_s) / span.pages


def of_processes(pairs: list[Pair]) -> dict[str, object]:
    clock, cpu = ([getattr(p, name) for p in pairs] for name in ("by_clock", "by_cpu"))
    for name, values in (("by the clock", clock), ("by CPU", cpu)):
        print(
            f"two processes on two cores, {name}: {statistics.median(values):.2f}x "
            f"({min(values):.2f} - {max(values):.2f}; aimed at: {AIM})"
        )
    return {"by_clock": clock, "by_cpu": cpu, "rounds": [asdict(p) for p in pairs]}


# --- curves ---


def point(options: argparse.Namespace, dns: str, urls: int, domains: int, *, closes: bool) -> Point:
    alone = asyncio.run(filled.frontier_alone(urls, domains, min(options.claimed, urls)))
    first, span = filled.out_of_a_queue(dns, urls, domains, options.pages, cores=options.cores, closes=closes)
    found = Point(
        urls=urls,
        domains=domains,
        pages=span.pages,
        robots=span.robots,
        crawler_ms=1000 * span.crawler_cpu_s / span.pages,
        engine_ms=1000 * span.engine_cpu_s / span.pages,
        first_ms=cost_ms(first) if first.pages >= FIRST_PAGES_MIN else None,
        **alone,
    )
    met = f"; a domain's first page {found.first_ms:.2f} ms" if found.first_ms is not None else ""
    print(
        f"{urls:>9,} URLs, {domains:>7,} domains: crawler {found.crawler_ms:.2f} ms, engine {found.engine_ms:.2f} ms a "
        f"page ({found.robots} robots.txt for {found.pages}){met}; frontier alone, us a URL, engine + client: "
        f"added {found.added_engine_us:.1f} + {found.added_client_us:.1f}, "
        f"claimed and committed {found.claimed_engine_us:.1f} + {found.claimed_client_us:.1f}",
        flush=True,
    )
    return found


def of_curve(name: str, axis: str, points: list[Point], options: argparse.Namespace) -> list[dict[str, object]]:
    for what in ("crawler_ms", "engine_ms", "claimed_engine_us", "claimed_client_us"):
        values = [getattr(one, what) for one in points]
        print(f"{name}, {what}: at most {max(values) / statistics.median(values):.2f}x the median")
    if options.output:
        x = [one.urls if name == "queued" else one.domains for one in points]
        draw(
            options.output / f"scaling-{name}.png",
            f"CPU per page by {axis}",
            axis,
            x,
            points,
            CRAWL,
            "ms of CPU a page",
        )
        title, unit = f"The frontier alone by {axis}", "us of CPU a URL"
        draw(options.output / f"scaling-{name}-frontier.png", title, axis, x, points, ALONE, unit)
    return [asdict(one) for one in points]


CRAWL: dict[str, Callable[[Point], float]] = {
    "crawler and engine": lambda p: p.crawler_ms + p.engine_ms,
    "crawler": lambda p: p.crawler_ms,
    "engine": lambda p: p.engine_ms,
    "first page of a domain": lambda p: math.nan if p.first_ms is None else p.first_ms,
}
ALONE: dict[str, Callable[[Point], float]] = {
    "engine: claim and commit": lambda p: p.claimed_engine_us,
    "client: claim and commit": lambda p: p.claimed_client_us,
    "engine: add": lambda p: p.added_engine_us,
    "client: add": lambda p: p.added_client_us,
}


def draw(
    file: Path, title: str, axis: str, x: list[int], points: Iterable[Point],
    curves: dict[str, Callable[[Point], float]], unit: str,
) -> None:  # fmt: skip
    found = list(points)
    lines = {name: (x, [y(p) for p in found]) for name, y in curves.items()}
    measured = {name: line for name, line in lines.items() if not all(map(math.isnan, line[1]))}
    plots.lines(file, title, (axis, unit), measured, is_log_x=True)


if __name__ == "__main__":
    sys.exit(main())
