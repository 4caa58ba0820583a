"""A crawl of many sites at once: is each asked as soon as its delay is over?

The crawler has one core; its engine, the web and the name server have the other; --share lets all have both. What
the web server's log says is compared with what the delays allow; see docs/benchmarks.md.
"""

import argparse
import asyncio
import json
import os
import platform
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path

import broad_web
import given
import measure
from environments import clean_environment
from servers import cpu_of

from crawler.engine.client import Engine
from crawler.errors import EngineError
from crawler.frontier.keys import Keys
from crawler.frontier.members import Members
from crawler.frontier.script_library import library
from tests.crawl.lab import name_server
from tests.support import pace
from tests.support.serving import Request, Site, serve_made

SAMPLE_S = 0.5
OVERDUE_S = 0.25  # a free slot counts as idle when some site has been due for longer than this


@dataclass
class Slots:
    """How many requests the instances say are open, sampled; from their heartbeats, so up to a second old."""

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
                pass  # it starts, or has ended
            await asyncio.sleep(SAMPLE_S)
        await engine.close()


def main() -> int:
    options = parse_arguments()
    measure.adopt_orphans()
    cores = sorted(os.sched_getaffinity(0))
    if not options.share:
        os.sched_setaffinity(0, {cores[-1]})
    with tempfile.TemporaryDirectory(prefix="broad-") as home, serve_made(Path(broad_web.__file__)) as site:
        folder = options.keep or Path(home)
        folder.mkdir(parents=True, exist_ok=True)
        with name_server() as dns:
            usage, slots = crawl(options, site, dns, folder, cores)
        server_cpu_s = cpu_of(site.process.pid)
        requests = site.requests()
    if usage.exit_code:
        print((folder / "output.log").read_text(errors="replace")[-2000:], file=sys.stderr)
        return 1
    return report(options, requests, slots, usage, server_cpu_s)


def parse_arguments() -> argparse.Namespace:
    p = argparse.ArgumentParser(prog="scripts/bench-broad", description=__doc__)
    p.add_argument("--domains", type=given.count, default=10_000, help="how many sites (default: 10,000)")
    p.add_argument("--delay", type=float, default=1.0, metavar="S", help="between requests to one (default: 1 s)")
    p.add_argument(
        "--alpha", type=given.amount, default=0.6, help="sizes: k or more pages with probability k ** -ALPHA"
    )
    p.add_argument("--cap", type=int, default=0, help="pages of the largest site (default: what --seconds allow)")
    p.add_argument("--seconds", type=given.amount, default=200, help="that the largest site takes (default: 200)")
    p.add_argument("--instances", type=given.count, default=1, metavar="N")
    p.add_argument("--concurrency", type=given.count, default=256, help="requests open in an instance (default: 256)")
    p.add_argument("--share", action="store_true", help="crawler and servers have all cores")
    p.add_argument("--json", type=Path, metavar="FILE", help="write the figures")
    p.add_argument("--keep", type=Path, metavar="DIR", help="keep the crawl folder here")
    options = p.parse_args()
    cycle_s = options.delay + broad_web.LATENCY_S
    options.cap = options.cap or max(1, int(options.seconds / cycle_s) - 1)  # robots.txt takes a turn
    return options


def crawl(
    options: argparse.Namespace, site: Site, dns: str, folder: Path, cores: list[int]
) -> tuple[measure.Usage, Slots]:
    seeds = folder / "seeds.txt"
    hosts = (broad_web.host_of(n, cap=options.cap, alpha=options.alpha) for n in range(options.domains))
    seeds.write_text("".join(site.url(host) + "\n" for host in hosts), encoding="utf-8")
    command = [sys.executable, "-m", "crawler", "crawl", "-i", str(seeds), "--scope", "any", "--allow-private", "-q"]
    command += ["--delay", str(options.delay), "-c", str(options.concurrency), "--nameserver", dns]
    command += ["--dir", str(folder / "crawl")]
    if options.instances > 1:
        command += ["-n", str(options.instances)]
    # All names have one address, and its limit would be the only one that counts.
    clean = clean_environment() | {"CRAWLER_POLITENESS_CONCURRENCY_PER_ADDRESS": str(options.concurrency)}
    slots = Slots(folder / "crawl")
    watching = threading.Thread(target=slots.watch)
    watching.start()
    mine = set(cores) if options.share else {cores[0]}
    try:
        usage = measure.run(
            command,
            clean,
            folder / "output.log",
            cores=mine,
            engine_cores=os.sched_getaffinity(0),
            timeout_s=1200,
        )
    finally:
        slots.is_over = True
        watching.join()
    return usage, slots


def report(
    options: argparse.Namespace, requests: list[Request], slots: Slots, usage: measure.Usage, server_cpu_s: float
) -> int:
    by_site = pace.turns_of(requests, delay_s=options.delay)
    turns = [turn for mine in by_site.values() for turn in mine]
    begin, end = min(turn.start for turn in turns), max(turn.end for turn in turns)
    sizes = [broad_web.size_of(n, cap=options.cap, alpha=options.alpha) for n in range(options.domains)]
    missing = options.domains + sum(sizes) - len({(r.host, r.target) for r in requests})
    early = pace.too_early(turns)
    length_s = max(10.0, options.delay + broad_web.LATENCY_S)
    periods = pace.periods_of(list(by_site.values()), delay_s=options.delay, length_s=length_s)
    print(
        f"{platform.platform()}, Python {platform.python_version()}, {len(os.sched_getaffinity(0))} core(s) for the web"
    )
    print(
        f"{options.domains} sites of 1 to {max(sizes)} pages, {sum(sizes)} in all; delay {options.delay:g} s, ", end=""
    )
    print(
        f"answers after {broad_web.LATENCY_S:g} s, {options.instances} instance(s), {options.concurrency} slots in each"
    )
    print(f"\n{len(requests)} requests in {end - begin:.1f} s, {len(requests) / (end - begin):.0f}/s; ", end="")
    print(f"{missing} missing, {len(requests) - len({(r.host, r.target) for r in requests})} twice, {early} too early")
    share = pace.share_of_bound(by_site.values())
    print(f"share of what the delays allow, from each site's first request on: {100 * share:.1f} %")
    for name, late in lateness(by_site.values()).items():
        print(f"late by (ms), {name}: " + ", ".join(f"{k} {v:.0f}" for k, v in late.items()))
    tell_cpu(usage, server_cpu_s, len(requests), end - begin)
    print("\n| from s | sites left | bound/s | rate/s | overdue | slots free while some are | those |")
    print("|---|---|---|---|---|---|---|")
    all_slots = options.instances * options.concurrency
    idle = idle_slots(turns, slots, all_slots)
    for period in periods:
        mine = [(n, o) for at, n, o in idle if period.begin <= at - begin < period.begin + length_s]
        free, over = (statistics.mean(v) if mine else 0 for v in (zip(*mine, strict=True) if mine else ((), ())))
        print(
            f"| {period.begin:.0f} | {period.sites:.0f} | {period.bound:.1f} | {period.rate:.1f} "
            f"| {100 * period.overdue:.1f} % | {free:.0f} | {over:.0f} |"
        )
    if options.json:
        figures = {"share": share, "periods": [asdict(p) for p in periods], "usage": asdict(usage), "late": early}
        options.json.write_text(json.dumps(figures | {"server_cpu_s": server_cpu_s}, indent=1) + "\n")
    return 1 if missing or early else 0


def lateness(by_site: Iterable[list[pace.Turn]]) -> dict[str, dict[str, float]]:
    """Percentiles in ms: of first requests (after the crawl's first), and of all others after they were due."""
    sites = list(by_site)
    kinds = {"first requests": [m[0].late for m in sites], "all others": [t.late for m in sites for t in m[1:]]}
    found = {}
    for name, late in kinds.items():
        if late:
            late.sort()
            at = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "max": 1.0}
            found[name] = {k: 1000 * late[min(len(late) - 1, int(q * len(late)))] for k, q in at.items()}
    return found


def idle_slots(turns: list[pace.Turn], slots: Slots, all_slots: int) -> list[tuple[float, int, int]]:
    """(when, slots free while some site was overdue or 0, sites overdue) at each sample."""
    moments = [at for at, _ in slots.samples]
    overdue = pace.overdue_at(turns, moments, by_s=OVERDUE_S)
    pairs = zip(slots.samples, overdue, strict=True)
    return [(at, max(0, all_slots - used) if n else 0, n) for (at, used), n in pairs]


def tell_cpu(usage: measure.Usage, server_cpu_s: float, requests: int, seconds: float) -> None:
    print(
        f"CPU: crawler {usage.client_cpu_s:.1f} s ({1e3 * usage.client_cpu_s / requests:.2f} ms a request, "
        f"{100 * usage.client_cpu_s / seconds:.0f} % of a core), its engine {usage.engine_cpu_s:.1f} s "
        f"({1e3 * usage.engine_cpu_s / requests:.2f} ms), web server {server_cpu_s:.1f} s "
        f"({1e3 * server_cpu_s / requests:.2f} ms, {100 * server_cpu_s / seconds:.0f} %)"
    )


if __name__ == "__main__":
    sys.exit(main())
