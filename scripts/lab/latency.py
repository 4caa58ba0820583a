"""Is a queue fetched when it is due, at four fifths of what the machine can carry? Do heartbeats go out while 10 MB
pages are parsed?

Load: first many more sites than one crawler process can serve, which gives the rate that it can carry; then as many as
ask for that rate times --load. By the web's log each request's time is compared with when its site's delay was over.
Heartbeats: a crawl of sites whose pages are 10 MB of HTML; when beats reached the engine (its MONITOR), against a
beat every quarter of a second, and how late a timer of 10 ms was in the crawler's own event loop.
The crawler has one core, its engine, the web and the name server another. Exit code 1: --judge, and an aim is missed.
"""

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import given
import measure
import monitor
from watched import Watched, crawl, gaps, made_web, percentile, two_cores

from tests.crawl.lab import name_server
from tests.support import pace

PROBED = Path(__file__).with_name("probed.py")
AIM_LATE_MS, AIM_JITTER_MS = 50.0, 100.0
WARM_UP_S, COOL_DOWN_S = 8.0, 1.0
OVERLOAD_SITES = 3000
BEAT_S = 0.25  # four times as many to look at as with the default of a second; each is sent the same way


@dataclass(frozen=True)
class Spread:
    """Milliseconds."""

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
    """An event loop, as a timer in it saw it: how late it was, how long its thread computed between two ticks, waited
    for a core that others had, or was held up by anything else (a file, the interpreter's lock).
    """

    late: Spread
    computing: Spread
    no_core: Spread
    held_up: Spread

    def __str__(self) -> str:
        return (
            f"event loop late by: {self.late}\n  computing at a stretch: {self.computing}\n"
            f"  ready, and no core: {self.no_core}\n  held up otherwise: {self.held_up}"
        )

    @classmethod
    def read(cls, file: Path) -> "Loop":
        rows = [[float(one) for one in line.split()] for line in file.read_text(encoding="utf-8").splitlines()]
        late, computing, no_core = map(list, zip(*rows, strict=True))
        held_up = [max(0.0, all_of_it - mine - theirs) for all_of_it, mine, theirs in rows]
        return cls(*map(Spread.of, (late, computing, no_core, held_up)))


@dataclass(frozen=True)
class Under:
    """What a crawl of so many sites did once all were known."""

    sites: int
    rate: float  # requests/s
    offered: float  # requests/s if none were late
    crawler_cores: float
    engine_cores: float
    late: Spread
    within_aim: float
    loop: Loop


def main() -> int:
    options = parse_arguments()
    measure.adopt_orphans()
    client, servers = two_cores()
    os.sched_setaffinity(0, {servers})
    found: dict[str, object] = {}
    missed = []
    with name_server() as dns:
        if options.part in ("load", "all"):
            capacity = loaded(options, dns, client, servers, options.overload)
            print(f"carried with {capacity.sites} sites: {capacity.rate:.0f} requests/s", flush=True)
            sites = max(1, round(options.load * capacity.rate * options.delay))  # answers come at once
            under = loaded(options, dns, client, servers, sites)
            for line in lines_of_load(capacity, under):
                print(line, flush=True)
            found |= {"capacity": asdict(capacity), "load": asdict(under)}
            missed += ["late"] * (under.late.p99 > AIM_LATE_MS)
        if options.part in ("heartbeat", "all"):
            beats, loop, pages = with_big_pages(options, dns, client, servers)
            print(
                f"{pages} pages of {options.big_bytes / 1e6:g} MB; aimed at: p99 of the jitter < {AIM_JITTER_MS:g} ms"
            )
            print(f"beat later than {BEAT_S:g} s after the one before: {beats}")
            print(loop, flush=True)
            found |= {"beats": asdict(beats), "loop": asdict(loop), "big_pages": pages}
            missed += ["jitter"] * (beats.p99 > AIM_JITTER_MS)
    if options.json:
        options.json.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    return 1 if options.judge and missed else 0


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="scripts/bench-latency", description=__doc__)
    parser.add_argument("--part", choices=("load", "heartbeat", "all"), default="all")
    parser.add_argument("--seconds", type=given.amount, default=40, help="of each crawl (default: 40)")
    parser.add_argument(
        "--delay", type=given.amount, default=1.0, metavar="S", help="between requests to a site (default: 1)"
    )
    parser.add_argument(
        "--load", type=given.amount, default=0.8, help="share of the rate that can be carried (default: 0.8)"
    )
    parser.add_argument(
        "--overload", type=given.count, default=OVERLOAD_SITES, metavar="SITES", help="with which it is found"
    )
    parser.add_argument("--concurrency", type=given.count, default=256, help="requests open at once (default: 256)")
    parser.add_argument("--big-bytes", type=given.count, default=10_000_000, help="of a big page (default: 10,000,000)")
    parser.add_argument("--big-sites", type=given.count, default=4, help="that have them (default: 4)")
    parser.add_argument("--judge", action="store_true", help="exit with 1 when an aim is missed")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures")
    return parser.parse_args()


# --- load ---


def loaded(options: argparse.Namespace, dns: str, client: int, servers: int, sites: int) -> Under:
    with tempfile.TemporaryDirectory(prefix="latency-") as home:
        scratch = Path(home)
        late = scratch / "late.txt"
        with made_web(servers, "--grow", "3", "--hosts", str(sites), log=scratch / "web.log") as web:
            arguments = web.crawl_of(sites, scratch)
            arguments += ["--delay", f"{options.delay:g}", "--time", f"{options.seconds:g}"]
            run = crawl(
                web, arguments, dns=dns, scratch=scratch, cores={client}, engine_cores={servers},
                concurrency=options.concurrency, program=("-P", str(PROBED), str(late)),
            )  # fmt: skip
        return under(run, Loop.read(late), sites, options.delay)


def under(run: Watched, loop: Loop, sites: int, delay_s: float) -> Under:
    begin, end = run.requests[0].start, run.requests[-1].start
    warm_s = min(WARM_UP_S, (end - begin) / 3)
    since, until = begin + warm_s, end - min(COOL_DOWN_S, warm_s)
    span = run.span(since, until)
    turns = pace.turns_of(run.requests, delay_s=delay_s)
    late = [turn.late for mine in turns.values() for turn in mine[1:] if since <= turn.due < until]
    return Under(
        sites=sites,
        rate=(span.pages + span.robots) / span.wall_s,
        offered=sites / delay_s,
        crawler_cores=span.crawler_cpu_s / span.wall_s,
        engine_cores=span.engine_cpu_s / span.wall_s,
        late=Spread.of(late),
        within_aim=sum(1000 * one <= AIM_LATE_MS for one in late) / max(1, len(late)),
        loop=loop,
    )


def lines_of_load(capacity: Under, load: Under) -> Iterator[str]:
    yield (
        f"with {load.sites} sites: {load.rate:.0f} requests/s, {100 * load.rate / capacity.rate:.0f} % of that "
        f"({load.offered:.0f}/s if none were late); crawler {load.crawler_cores:.2f} cores, "
        f"engine {load.engine_cores:.2f}"
    )
    yield f"due queues fetched late by: {load.late}"
    yield str(load.loop)
    yield f"within {AIM_LATE_MS:g} ms: {100 * load.within_aim:.2f} % (aimed at: 99 %)"


# --- heartbeats ---


def with_big_pages(options: argparse.Namespace, dns: str, client: int, servers: int) -> tuple[Spread, Loop, int]:
    """How late each beat came after the one before; the event loop; how many pages."""
    with tempfile.TemporaryDirectory(prefix="latency-") as home:
        scratch = Path(home)
        late = scratch / "late.txt"
        words = ("--big-bytes", str(options.big_bytes), "--hosts", "0")
        environment = {"CRAWLER_MEMBERSHIP_BEAT_S": str(BEAT_S)}
        with made_web(servers, *words, log=scratch / "web.log") as web:
            seeds = [f"http://big{n}.test:{web.port}/p/0" for n in range(options.big_sites)]
            arguments = [*seeds, "--scope", "host", "--include", "big", "--delay", "0.1"]
            arguments += ["--time", f"{options.seconds:g}", "--dir", str(scratch / "crawl")]
            with monitor.of_engine(scratch / "crawl") as heard:
                run = crawl(
                    web, arguments, dns=dns, scratch=scratch, cores={client}, engine_cores={servers},
                    program=("-P", str(PROBED), str(late)), environment=environment,
                )  # fmt: skip
        loop = Loop.read(late)
    intervals = gaps(heard.beats[1:-1])  # the first and the last come by themselves: joined, leaving
    return Spread.of([max(0.0, gap - BEAT_S) for gap in intervals]), loop, len(run.requests)


if __name__ == "__main__":
    sys.exit(main())
