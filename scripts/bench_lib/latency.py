"""Is a queue fetched when it is due, at four fifths of the machine's capacity? Do heartbeats go out on time while 10 MB
pages are parsed?

Load: first many more sites than one crawler process can serve, which gives its capacity; then as many sites as need
that rate times --load. The web's log tells when each request came and when its site's delay was over.
Heartbeats: a crawl of sites whose pages are 10 MB of HTML. Measured are the times of heartbeats at the engine (its
MONITOR), one each quarter of a second, and how late a timer of 10 ms was in the crawler's own event loop.
The crawler has one core; its engine, the web and the name server another. Exit code 1: --judge, and a target is missed.
"""

import argparse
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from scripts.bench_lib import arguments, engine_monitor
from scripts.bench_lib.measure import Cores, take_cores
from scripts.bench_lib.observed_crawl import ObservedCrawl, gaps, generated_web, observed, percentile
from tests.crawl.lab import name_server
from tests.support import pace

PROBE = Path(__file__).with_name("loop_probe.py")
LATE_TARGET_MS, JITTER_TARGET_MS = 50.0, 100.0
WARM_UP_S, COOL_DOWN_S = 8.0, 1.0
OVERLOAD_SITES = 3000
BEAT_S = 0.25  # four times as many to look at as with the default of a second; each is sent the same way
BEATS = {"CRAWLER_INTERNALS_MEMBERSHIP_BEATS": str(7.0 / BEAT_S)}


@dataclass(frozen=True)
class Spread:
    """Percentiles, in milliseconds."""

    count: int
    p50: float
    p90: float
    p99: float
    p999: float
    max: float

    @classmethod
    def of(cls, seconds: list[float]) -> "Spread":
        found = sorted(1000 * one for one in seconds) or [0.0]
        return cls(len(seconds), *(percentile(found, share) for share in (0.5, 0.9, 0.99, 0.999, 1.0)))

    def __str__(self) -> str:
        return (
            f"{self.count} times, p50 {self.p50:.1f}, p90 {self.p90:.1f}, p99 {self.p99:.1f}, p99.9 {self.p999:.1f}, "
            f"max {self.max:.1f} ms"
        )


@dataclass(frozen=True)
class Loop:
    """An event loop as a timer in it saw it.

    How late a tick was; how long the thread computed between two ticks, waited for a core, or was held up by anything
    else (a file, the interpreter's lock).
    """

    late: Spread
    computing: Spread
    no_core: Spread
    held_up: Spread

    def __str__(self) -> str:
        return (
            f"event loop late by: {self.late}\n  computing without a break: {self.computing}\n"
            f"  waiting for a core: {self.no_core}\n  held up otherwise: {self.held_up}"
        )

    @classmethod
    def read(cls, file: Path) -> "Loop":
        rows = [[float(one) for one in line.split()] for line in file.read_text(encoding="utf-8").splitlines()]
        late, computing, no_core = map(list, zip(*rows, strict=True))
        held_up = [max(0.0, all_of_it - mine - theirs) for all_of_it, mine, theirs in rows]
        return cls(*map(Spread.of, (late, computing, no_core, held_up)))


@dataclass(frozen=True)
class Load:
    """A crawl of this many sites once all were known."""

    sites: int
    rate: float  # requests/s
    offered: float  # requests/s if none were late
    crawler_cores: float
    engine_cores: float
    late: Spread
    within_target: float
    loop: Loop


def main(words: Sequence[str]) -> int:
    options = parse_arguments(words)
    cores = take_cores()
    figures: dict[str, object] = {}
    is_missed = False
    with name_server() as dns:
        if options.part in ("load", "all"):
            capacity = loaded(options, dns, cores, options.overload)
            print(f"capacity with {capacity.sites} sites: {capacity.rate:.0f} requests/s", flush=True)
            sites = max(1, round(options.load * capacity.rate * options.delay))  # responses come at once
            load = loaded(options, dns, cores, sites)
            print(*lines_of_load(capacity, load), sep="\n", flush=True)
            figures |= {"capacity": asdict(capacity), "load": asdict(load)}
            is_missed |= load.late.p99 > LATE_TARGET_MS
        if options.part in ("heartbeat", "all"):
            beats, loop, pages = with_big_pages(options, dns, cores)
            print(
                f"{pages} pages of {options.big_bytes / 1e6:g} MB; target: p99 of the jitter < {JITTER_TARGET_MS:g} ms"
            )
            print(f"heartbeat later than {BEAT_S:g} s after the last one: {beats}\n{loop}", flush=True)
            figures |= {"beats": asdict(beats), "loop": asdict(loop), "big_pages": pages}
            is_missed |= beats.p99 > JITTER_TARGET_MS
    arguments.write_json(options.json, figures)
    return 1 if options.judge and is_missed else 0


def parse_arguments(words: Sequence[str]) -> argparse.Namespace:
    parser, one, number = arguments.parser("latency", __doc__), arguments.positive_int, arguments.positive_float
    parser.add_argument("--part", choices=("load", "heartbeat", "all"), default="all", help="what to measure")
    parser.add_argument("--seconds", type=number, default=40, help="time of each crawl")
    parser.add_argument("--delay", type=number, default=1.0, metavar="S", help="between requests to a site")
    parser.add_argument("--load", type=number, default=0.8, help="share of the capacity")
    parser.add_argument("--overload", type=one, default=OVERLOAD_SITES, metavar="SITES", help="to find the capacity")
    parser.add_argument("--concurrency", type=one, default=256, help="open requests")
    parser.add_argument("--big-bytes", type=one, default=10_000_000, help="of a big page")
    parser.add_argument("--big-sites", type=one, default=4, help="number of sites with big pages")
    parser.add_argument("--judge", action="store_true", help="exit with 1 when a target is missed")
    arguments.add_json(parser)
    return parser.parse_args(words)


# --- load ---


def loaded(options: argparse.Namespace, dns: str, cores: Cores, sites: int) -> Load:
    with tempfile.TemporaryDirectory(prefix="latency-") as home:
        scratch = Path(home)
        ticks = scratch / "ticks.txt"
        grown = ("--grow", "3", "--hosts", str(sites))
        with generated_web(cores.servers, *grown, log=scratch / "web.log") as web:
            words = [*web.crawl_of(sites, scratch), "--delay", f"{options.delay:g}", "--time", f"{options.seconds:g}"]
            run = observed(
                web, words, dns=dns, scratch=scratch, cores=cores.client, engine_cores=cores.servers,
                concurrency=options.concurrency, program=("-P", str(PROBE), str(ticks)),
            )  # fmt: skip
        return load_of(run, Loop.read(ticks), sites, options.delay)


def load_of(run: ObservedCrawl, loop: Loop, sites: int, delay_s: float) -> Load:
    begin, end = run.requests[0].start, run.requests[-1].start
    warm_s = min(WARM_UP_S, (end - begin) / 3)
    since, until = begin + warm_s, end - min(COOL_DOWN_S, warm_s)
    span = run.span(since, until)
    turns = pace.turns_of(run.requests, delay_s=delay_s)
    late = [turn.late for mine in turns.values() for turn in mine[1:] if since <= turn.due < until]
    return Load(
        sites=sites,
        rate=(span.pages + span.robots) / span.wall_s,
        offered=sites / delay_s,
        crawler_cores=span.crawler_cpu_s / span.wall_s,
        engine_cores=span.engine_cpu_s / span.wall_s,
        late=Spread.of(late),
        within_target=sum(1000 * one <= LATE_TARGET_MS for one in late) / max(1, len(late)),
        loop=loop,
    )


def lines_of_load(capacity: Load, load: Load) -> Iterator[str]:
    yield (
        f"with {load.sites} sites: {load.rate:.0f} requests/s, {100 * load.rate / capacity.rate:.0f} % of the capacity "
        f"({load.offered:.0f}/s if none were late); crawler {load.crawler_cores:.2f} cores, "
        f"engine {load.engine_cores:.2f}"
    )
    yield f"due queues fetched late by: {load.late}"
    yield str(load.loop)
    yield f"within {LATE_TARGET_MS:g} ms: {100 * load.within_target:.2f} % (target: 99 %)"


# --- heartbeats ---


def with_big_pages(options: argparse.Namespace, dns: str, cores: Cores) -> tuple[Spread, Loop, int]:
    """How late each heartbeat came after the last one; the event loop; the number of pages."""
    with tempfile.TemporaryDirectory(prefix="latency-") as home:
        scratch = Path(home)
        ticks = scratch / "ticks.txt"
        big = ("--big-bytes", str(options.big_bytes), "--hosts", "0")
        with generated_web(cores.servers, *big, log=scratch / "web.log") as web:
            seeds = [f"http://big{n}.test:{web.port}/p/0" for n in range(options.big_sites)]
            words = [*seeds, "--scope", "host", "--include", "big", "--delay", "0.1"]
            words += ["--time", f"{options.seconds:g}", "--dir", str(scratch / "crawl")]
            with engine_monitor.heartbeats(scratch / "crawl") as beats:
                run = observed(
                    web, words, dns=dns, scratch=scratch, cores=cores.client, engine_cores=cores.servers,
                    program=("-P", str(PROBE), str(ticks)), environment=BEATS,
                )  # fmt: skip
        loop = Loop.read(ticks)
    intervals = gaps(beats[1:-1])  # the first one joins and the last one leaves: they are not periodic
    return Spread.of([max(0.0, gap - BEAT_S) for gap in intervals]), loop, len(run.requests)
