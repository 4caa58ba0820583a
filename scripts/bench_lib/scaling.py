"""Does a second process on a second core double the rate? Does a page cost the same however many URLs are queued?

processes: one process and two crawl the same endless web in turn. With one, crawler and engine have one core and the
web server the other. With two, all share both cores, and the server's share is subtracted: pages / (wall time - its CPU
seconds / 2). Also the same by CPU alone: 2 x the cost of a page with one process / its cost with two, engine included.
This is what two busy cores give; other programs on the machine don't change it.

queued, domains: CPU for a page of crawler and engine, of a crawl of --pages pages out of a queue of 5,000 to 5,000,000
URLs over 100 domains, and of --urls URLs over 10 to 100,000 domains. The crawler's own client fills the queue, and
pages link to known URLs only. Also of the frontier alone: microseconds a URL to add all, and to claim and commit some.
A domain's first page also costs its robots.txt and name, so the pages after the first of 99 in 100 domains are
measured; with thousands of domains, the cost of the pages before is printed too. Few domains use connections that stay
open; each page of thousands needs a new one: `closed` is the curve of domains where the server ends each connection.

All figures are of the middle part of each crawl. At the end of a curve: its most expensive point and its median.
"""

import argparse
import asyncio
import contextlib
import json
import math
import platform
import statistics
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from crawler.crawl.build import tune_process
from crawler.crawl.opening import OpenCrawl, open_crawl
from crawler.engine.client import Engine
from crawler.engine.embedded import EmbeddedEngine
from crawler.errors import EngineDown
from crawler.frontier.owner import Frontier
from crawler.model import Candidate
from crawler.rules.places import partition_of
from crawler.settings import load
from scripts.bench_lib import arguments, plots
from scripts.bench_lib.frontier_session import candidate, embedded_engine
from scripts.bench_lib.lives import Lives
from scripts.bench_lib.measure import Cores, take_cores
from scripts.bench_lib.observed_crawl import GeneratedWeb, Span, generated_web, observed
from tests.crawl.lab import name_server

PARTS = ("processes", "queued", "domains", "closed")
SIZES = (5_000, 50_000, 500_000, 5_000_000)
DOMAINS = (10, 100, 1_000, 10_000, 100_000)
DOMAINS_OF_SIZES = 100
SITES = 200  # of the endless web
FIRST_PAGES_MIN = 1_000  # fewer take too little time to be measured
TARGET = 1.8
ADDED_AT_ONCE, CALLS_AT_ONCE = 64, 16
ADD_TRIES = 30
TOGETHER = 10  # URLs of a domain, in the frontier alone


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
    """One point of a curve. Milliseconds of CPU a page; microseconds a URL of the frontier alone.

    `first_ms`: of crawler and engine for the first page of a domain; None where there are too few pages to tell.
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


def main(words: Sequence[str]) -> int:
    options = parse_arguments(words)
    options.cores = take_cores()
    options.all_cores = options.cores.client | options.cores.servers
    print(f"{platform.platform()}, Python {platform.python_version()}, cores {sorted(options.all_cores)}")
    found: dict[str, object] = {}
    by_size = [(urls, DOMAINS_OF_SIZES) for urls in options.sizes]
    by_domains = [(options.urls, domains) for domains in options.domains]
    with name_server() as dns:
        if "processes" in options.parts:
            found["processes"] = of_processes([pair(options, dns, number) for number in range(options.rounds)])
        for name, axis, points in (
            ("queued", "URLs queued", by_size),
            ("domains", "domains", by_domains),
            ("closed", "domains, a connection for each page", by_domains),
        ):
            if name in options.parts:
                measured = [point(options, dns, urls, domains, closes=name == "closed") for urls, domains in points]
                found[name] = of_curve(name, axis, measured, options.output)
    if options.output:
        file = options.output / "scaling.json"
        before = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
        arguments.write_json(file, before | found)  # parts that were not measured now stay unchanged
    return 0


def parse_arguments(words: Sequence[str]) -> argparse.Namespace:
    p, one, many = arguments.parser("scaling", __doc__), arguments.positive_int, arguments.positive_ints
    p.add_argument("--parts", type=arguments.names_of(PARTS), default=PARTS, help="which parts to measure")
    p.add_argument("--rounds", type=one, default=3, help="rounds of one process and two")
    p.add_argument("--pages", type=one, default=8_000, help="pages of each crawl; twice as many with two processes")
    p.add_argument("--claimed", type=one, default=20_000, help="URLs that are claimed of the frontier alone")
    p.add_argument("--sizes", type=many, default=SIZES, help="URLs queued, for `queued`")
    p.add_argument("--domains", type=many, default=DOMAINS, help="numbers of domains, for `domains` and `closed`")
    p.add_argument("--urls", type=one, default=1_000_000, help="URLs queued over these domains")
    p.add_argument("--output", type=Path, metavar="DIR", help="write scaling.json and the plots to this folder")
    options = p.parse_args(words)
    if {"domains", "closed"} & set(options.parts) and options.urls < 2 * max(options.domains):
        p.error(f"--urls {options.urls}: use at least {2 * max(options.domains)}, two for each domain")
    if min(options.sizes) < 2 * DOMAINS_OF_SIZES:
        p.error(f"--sizes: use at least {2 * DOMAINS_OF_SIZES}, two URLs for each of {DOMAINS_OF_SIZES} domains")
    return options


# --- processes ---


def pair(options: argparse.Namespace, dns: str, number: int) -> Pair:
    found = Pair(*(endless(options, dns, processes=n) for n in (1, 2)))
    one, two = found.one, found.two
    print(
        f"round {number + 1}: one {rate(one, shares_server=False):.0f} pages/s, {cost_ms(one):.2f} ms of CPU a page; "
        f"two {rate(two, shares_server=True):.0f} ({two.pages / two.wall_s:.0f} with the server's share), "
        f"{cost_ms(two):.2f} ms; {found.by_clock:.2f}x by the clock, {found.by_cpu:.2f}x by CPU",
        flush=True,
    )
    return found


def endless(options: argparse.Namespace, dns: str, *, processes: int) -> Span:
    """The middle of a crawl. One process shares the first core with its engine; two have all cores."""
    with scratch_folder() as scratch:
        grown = ("--grow", "2", "--hosts", str(SITES))
        with generated_web(options.cores.servers, *grown, log=scratch / "web.log") as web:
            cores = options.all_cores if processes > 1 else options.cores.client
            words = [*web.crawl_of(SITES, scratch), "--delay", "0", "--pages", str(processes * options.pages)]
            words += ["-n", str(processes)] if processes > 1 else []
            run = observed(web, words, dns=dns, scratch=scratch, cores=cores, engine_cores=cores)
        return run.middle(0.2, 0.85)


def rate(span: Span, *, shares_server: bool) -> float:
    """Pages/s; without the web server's share of two cores, if it had no core of its own."""
    return span.pages / (span.wall_s - (span.server_cpu_s / 2 if shares_server else 0))


def cost_ms(span: Span) -> float:
    return 1000 * (span.crawler_cpu_s + span.engine_cpu_s) / span.pages


def of_processes(pairs: list[Pair]) -> dict[str, object]:
    clock, cpu = ([getattr(p, name) for p in pairs] for name in ("by_clock", "by_cpu"))
    for name, values in (("by the clock", clock), ("by CPU", cpu)):
        print(
            f"two processes on two cores, {name}: {statistics.median(values):.2f}x "
            f"({min(values):.2f} - {max(values):.2f}; target: {TARGET})"
        )
    return {"by_clock": clock, "by_cpu": cpu, "rounds": [asdict(p) for p in pairs]}


# --- curves ---


def point(options: argparse.Namespace, dns: str, urls: int, domains: int, *, closes: bool) -> Point:
    alone = asyncio.run(frontier_alone(urls, domains, min(options.claimed, urls)))
    first, span = out_of_a_queue(options, dns, urls, domains, closes=closes)
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
    first_page = f"; a domain's first page {found.first_ms:.2f} ms" if found.first_ms is not None else ""
    print(
        f"{urls:>9,} URLs, {domains:>7,} domains: crawler {found.crawler_ms:.2f} ms, engine {found.engine_ms:.2f} ms a "
        f"page ({found.robots} robots.txt for {found.pages}){first_page}; frontier alone, us a URL, engine + client: "
        f"added {found.added_engine_us:.1f} + {found.added_client_us:.1f}, "
        f"claimed and committed {found.claimed_engine_us:.1f} + {found.claimed_client_us:.1f}",
        flush=True,
    )
    return found


def of_curve(name: str, axis: str, points: list[Point], output: Path | None) -> list[dict[str, object]]:
    for what in ("crawler_ms", "engine_ms", "claimed_engine_us", "claimed_client_us"):
        values = [getattr(one, what) for one in points]
        print(f"{name}, {what}: at most {max(values) / statistics.median(values):.2f}x the median")
    if output:
        x = [one.urls if name == "queued" else one.domains for one in points]
        for suffix, title, unit, curves in (
            ("", "CPU per page", "ms of CPU a page", CRAWL),
            ("-frontier", "The frontier alone", "us of CPU a URL", ALONE),
        ):
            lines = {label: (x, [y(p) for p in points]) for label, y in curves.items()}
            known = {label: line for label, line in lines.items() if not all(map(math.isnan, line[1]))}
            plots.lines(
                output / f"scaling-{name}{suffix}.png", f"{title} by {axis}", (axis, unit), known, is_log_x=True
            )
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


# --- a queue that is filled first ---


def out_of_a_queue(
    options: argparse.Namespace, dns: str, urls: int, domains: int, *, closes: bool
) -> tuple[Span, Span]:
    """A crawl out of a filled queue: the middle of the pages in which domains are first reached, and of later ones.

    The engine that was filled keeps running. Queues don't take turns strictly: while the last domains are reached, some
    have had their second page. So half as many pages as there are domains are crawled in addition, and then --pages, as
    far as there are URLs. `closes`: the server ends each connection.
    """
    web_options = ["--grow", "0", "--hosts", "0", *(["--close"] if closes else [])]
    with (
        scratch_folder() as scratch,
        generated_web(options.cores.servers, *web_options, log=scratch / "web.log") as web,
    ):
        pages = min(urls, domains + domains // 2 + options.pages)
        return asyncio.run(_filled_and_crawled(web, scratch, dns, urls, domains, pages, options.cores))


async def _filled_and_crawled(
    web: GeneratedWeb, scratch: Path, dns: str, urls: int, domains: int, pages: int, cores: Cores
) -> tuple[Span, Span]:
    folder = scratch / "crawl"
    settings = {"archive.dir": str(folder), "scope.mode": "any", "fetch.allow_private": True}
    async with open_crawl(load(environment={}, options=settings), create=True) as opened:
        await _fill(opened, web, urls, domains)
        await _rewrite_aof(opened.engine)
        run = await asyncio.to_thread(
            observed, web, ["--dir", str(folder), "--delay", "0", "--pages", str(pages)], dns=dns, scratch=scratch,
            cores=cores.client, engine_cores=cores.servers, engine_pid=EmbeddedEngine(folder / "engine").pid(),
        )  # fmt: skip
    reached = max(domains, run.first_contacts())  # of few domains, the last is reached before there is any page
    return run.middle(0.2, 0.85, last=reached), run.middle(0.2, 0.85, first=reached)


async def _fill(opened: OpenCrawl, web: GeneratedWeb, urls: int, domains: int) -> None:
    """Site by site, some pages of each at a time, so that a domain's URLs are queued as a crawl would find them.

    Pages link to some of these URLs, so all links are known, except on sites with fewer URLs than that.
    """
    fingerprints, partitions = opened.record.fingerprints, opened.record.partitions
    group: dict[int, list[Candidate]] = {}
    each = urls // domains
    for first in range(0, each, ADDED_AT_ONCE):
        for n in range(domains):
            domain = f"d{n}.test"
            partition = partition_of(domain, partitions)
            if partition in group or len(group) == CALLS_AT_ONCE:
                await _add(opened.frontier, group)
                group = {}
            pages = (web.url(n, f"/p/{k}") for k in range(first, min(first + ADDED_AT_ONCE, each)))
            group[partition] = [
                candidate(url, domain, partition, fingerprints=fingerprints, depth=1, score=-1) for url in pages
            ]
    await _add(opened.frontier, group)


async def _add(frontier: Frontier, group: dict[int, list[Candidate]]) -> None:
    """Retry while the engine waits for its disk, which is slower than the filling."""
    for _ in range(ADD_TRIES):
        with contextlib.suppress(EngineDown):
            await frontier.add(group)
            return
    raise SystemExit("bench: the engine did not accept the URLs")


async def _rewrite_aof(engine: Engine) -> None:
    """Have the append-only file of the filling rewritten now: later it would count as a cost of pages."""
    await engine.command("BGREWRITEAOF")
    is_running = True
    while is_running:
        await asyncio.sleep(0.2)
        found = await engine.command("INFO", "persistence")
        is_running = any(int(found[key]) for key in ("aof_rewrite_in_progress", "aof_rewrite_scheduled"))


async def frontier_alone(urls: int, domains: int, claimed: int) -> dict[str, float]:
    """Microseconds of CPU a URL: all are added; some of them are claimed and committed."""
    tune_process()
    with embedded_engine() as url:
        lives = Lives(url, TOGETHER)
        session = lives.session
        try:
            await lives.open(domains)
            began_s = await session.engine_cpu_s()
            await lives.add_all(urls // domains)
            await _rewrite_aof(session.engine)
            added_s, client_s = await session.engine_cpu_s(), lives.client_s
            done = await lives.crawl(claimed, 0)
            ended_s = await session.engine_cpu_s()
        finally:
            await session.close()
    added = urls // domains * domains
    return {
        "added_engine_us": 1e6 * (added_s - began_s) / added,
        "added_client_us": 1e6 * client_s / added,
        "claimed_engine_us": 1e6 * (ended_s - added_s) / done,
        "claimed_client_us": 1e6 * (lives.client_s - client_s) / done,
    }


@contextlib.contextmanager
def scratch_folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="bench-") as home:
        yield Path(home)
