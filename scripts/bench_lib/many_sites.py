"""A crawl of thousands of sites: is each site fetched from as soon as its delay is over?

The crawler has one core; its engine, the web and the name server have the other; with --share all have both. The web
server's log is compared with what the delays allow; see docs/internals/benchmarks.md.
"""

import argparse
import asyncio
import os
import platform
import statistics
import tempfile
import threading
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from crawler.engine.client import Engine
from crawler.errors import EngineError
from crawler.frontier.keys import Keys
from crawler.frontier.members import Members
from crawler.frontier.scripts import library
from scripts.bench_lib import arguments, many_sites_web
from scripts.bench_lib.many_sites_web import LATENCY_S
from scripts.bench_lib.measure import Cores, Usage, take_cores
from scripts.bench_lib.observed_crawl import crawl, percentile
from scripts.bench_lib.servers import cpu_of
from tests.crawl.lab import name_server
from tests.support import pace
from tests.support.serving import Request, Site, serve_made

SAMPLE_S = 0.5
TIMEOUT_S = 1200
OVERDUE_S = 0.25  # a free slot counts as idle when some site has been due for longer than this
PERCENTILES = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "max": 1.0}


@dataclass
class Slots:
    """Samples of how many requests are open, from the instances' heartbeats: up to a second old."""

    folder: Path
    samples: list[tuple[float, int]] = field(default_factory=list)
    is_over: bool = False

    def watch(self) -> None:
        asyncio.run(self._watch())

    async def _watch(self) -> None:
        while not (self.folder / "engine" / "engine.sock").exists():
            if self.is_over:
                return
            await asyncio.sleep(0.1)
        engine = Engine(f"unix://{self.folder / 'engine' / 'engine.sock'}", library())
        members = Members(engine, Keys("main"))
        while not self.is_over:
            try:
                listed = (await members.read()).values()
                self.samples.append((time.monotonic(), sum(member.in_flight for member in listed)))
            except EngineError:
                pass  # it is starting, or has ended
            await asyncio.sleep(SAMPLE_S)
        await engine.close()


def main(words: Sequence[str]) -> int:
    options = parse_arguments(words)
    cores = take_cores(share=options.share)
    with tempfile.TemporaryDirectory(prefix="broad-") as home, serve_made(Path(many_sites_web.__file__)) as site:
        folder = (options.keep or Path(home)).resolve()
        folder.mkdir(parents=True, exist_ok=True)
        with name_server() as dns:
            usage, slots = observed(options, site, dns, folder, cores)
        return report(options, site.requests(), slots, usage, cpu_of(site.process.pid))


def parse_arguments(words: Sequence[str]) -> argparse.Namespace:
    p = arguments.parser("broad", __doc__)
    p.add_argument("--domains", type=arguments.positive_int, default=10_000, help="number of sites")
    p.add_argument("--delay", type=arguments.positive_float, default=1.0, metavar="S", help="between a site's requests")
    p.add_argument(
        "--alpha",
        type=arguments.positive_float,
        default=0.6,
        help="a site has k pages or more with probability k ** -ALPHA",
    )
    p.add_argument("--cap", type=int, default=0, help="pages of the largest site (default: what --seconds allow)")
    p.add_argument("--seconds", type=arguments.positive_float, default=200, help="how long the largest site takes")
    p.add_argument("--instances", type=arguments.positive_int, default=1, metavar="N", help="crawler processes")
    p.add_argument("--concurrency", type=arguments.positive_int, default=256, help="open requests of an instance")
    p.add_argument("--share", action="store_true", help="crawler and servers share all cores")
    p.add_argument("--keep", type=Path, metavar="DIR", help="keep the crawl folder in this folder")
    arguments.add_json(p)
    options = p.parse_args(words)
    options.cap = options.cap or max(1, int(options.seconds / (options.delay + LATENCY_S)) - 1)  # 1 for robots.txt
    return options


def observed(options: argparse.Namespace, site: Site, dns: str, folder: Path, cores: Cores) -> tuple[Usage, Slots]:
    seeds = folder / "seeds.txt"
    hosts = (many_sites_web.host_of(n, cap=options.cap, alpha=options.alpha) for n in range(options.domains))
    seeds.write_text("".join(site.url(host) + "\n" for host in hosts), encoding="utf-8")
    command = ["-i", str(seeds), "--scope", "any", "--delay", str(options.delay), "--dir", str(folder / "crawl")]
    command += ["-n", str(options.instances)] if options.instances > 1 else []
    slots = Slots(folder / "crawl")
    watching = threading.Thread(target=slots.watch)
    watching.start()
    try:
        usage, _ = crawl(
            command, dns=dns, scratch=folder, cores=cores.client, engine_cores=cores.servers,
            concurrency=options.concurrency, timeout_s=TIMEOUT_S,
        )  # fmt: skip
    finally:
        slots.is_over = True
        watching.join()
    return usage, slots


def report(
    options: argparse.Namespace, requests: list[Request], slots: Slots, usage: Usage, server_cpu_s: float
) -> int:
    by_site = pace.turns_of(requests, delay_s=options.delay)
    turns = [turn for mine in by_site.values() for turn in mine]
    begin, end = min(turn.start for turn in turns), max(turn.end for turn in turns)
    sizes = [many_sites_web.size_of(n, cap=options.cap, alpha=options.alpha) for n in range(options.domains)]
    distinct = len({(r.host, r.target) for r in requests})
    missing, early = options.domains + sum(sizes) - distinct, pace.too_early(turns)
    share = pace.share_of_bound(by_site.values())
    print(f"{platform.platform()}, Python {platform.python_version()}, web on {len(os.sched_getaffinity(0))} core(s)")
    print(
        f"{options.domains} sites of 1 to {max(sizes)} pages, {sum(sizes)} in all; delay {options.delay:g} s, "
        f"responses after {LATENCY_S:g} s, {options.instances} instance(s) with {options.concurrency} slots each"
    )
    print(
        f"\n{len(requests)} requests in {end - begin:.1f} s, {len(requests) / (end - begin):.0f}/s; {missing} missing, "
        f"{len(requests) - distinct} repeated, {early} too early"
    )
    print(f"share of what the delays allow, from each site's first request on: {100 * share:.1f} %")
    for name, late in lateness(by_site.values()).items():
        print(f"late by (ms), {name}: " + ", ".join(f"{k} {v:.0f}" for k, v in late.items()))
    print(
        "CPU: "
        + ", ".join(
            f"{name} {cpu_s:.1f} s ({1e3 * cpu_s / len(requests):.2f} ms a request, "
            f"{100 * cpu_s / (end - begin):.0f} % of a core)"
            for name, cpu_s in (
                ("crawler", usage.client_cpu_s), ("engine", usage.engine_cpu_s), ("web server", server_cpu_s)
            )
        )
    )  # fmt: skip
    periods = print_periods(options, by_site, slots, begin)
    figures = {"share": share, "periods": periods, "usage": asdict(usage), "late": early, "server_cpu_s": server_cpu_s}
    arguments.write_json(options.json, figures)
    return 1 if missing or early else 0


def print_periods(
    options: argparse.Namespace, by_site: dict[str, list[pace.Turn]], slots: Slots, begin: float
) -> list[dict[str, float]]:
    """A row for each part of the crawl."""
    length_s = max(10.0, options.delay + LATENCY_S)
    idle = idle_slots([t for mine in by_site.values() for t in mine], slots, options.instances * options.concurrency)
    print("\n| from s | sites left | bound/s | rate/s | overdue | slots free while sites are overdue | such sites |")
    print("|---|---|---|---|---|---|---|")
    periods = pace.periods_of(list(by_site.values()), delay_s=options.delay, length_s=length_s)
    for period in periods:
        mine = [(n, o) for at, n, o in idle if period.begin <= at - begin < period.begin + length_s]
        free, over = (statistics.mean(v) for v in zip(*(mine or [(0, 0)]), strict=True))
        print(
            f"| {period.begin:.0f} | {period.sites:.0f} | {period.bound:.1f} | {period.rate:.1f} "
            f"| {100 * period.overdue:.1f} % | {free:.0f} | {over:.0f} |"
        )
    return [asdict(period) for period in periods]


def lateness(by_site: Iterable[list[pace.Turn]]) -> dict[str, dict[str, float]]:
    """Percentiles in ms: of first requests, after the crawl's first one; of all others, after they were due."""
    sites = list(by_site)
    kinds = {"first requests": [m[0].late for m in sites], "all others": [t.late for m in sites for t in m[1:]]}
    return {
        name: {k: 1000 * percentile(sorted(late), share) for k, share in PERCENTILES.items()}
        for name, late in kinds.items()
        if late
    }


def idle_slots(turns: list[pace.Turn], slots: Slots, all_slots: int) -> list[tuple[float, int, int]]:
    """For each sample: when, slots free while some site was overdue (else 0), sites overdue."""
    overdue = pace.overdue_at(turns, [at for at, _ in slots.samples], by_s=OVERDUE_S)
    pairs = zip(slots.samples, overdue, strict=True)
    return [(at, max(0, all_slots - used) if n else 0, n) for (at, used), n in pairs]
