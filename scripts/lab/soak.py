"""A crawl of a web without end: does the memory of the instance stay where it is once its caches are full?

The web's sites are trees without leaves, and every --host-every th page leads to a site that was never heard of; so
URLs, sites, connections and names are new for as long as it runs. The instance's caches of names and URLs are set to a
tenth of their usual size, so that they are full after some minutes. What it keeps of sites (robots.txt of 50,000) is
full after so many sites: a short run can't see that, and takes fewer new sites (--host-every 500).

Verdict: of the samples after the first third, the slope of the resident memory (Theil and Sen's, which a spike does not
move). The instance is flat when the slope is below --bound percent of its memory an hour, or so small that it made
less than 4 MiB of the run's. The engine holds all URLs, so it grows; its slope is judged per URL that was added.
Exit code 0: flat; 1: not. Crawler and engine have one core, the web and the name server another.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import given
import measure
import plots
from environments import clean_environment
from watched import Sample, crawl, made_web, slope, two_cores

from tests.crawl.lab import name_server

CACHES = {"CRAWLER_DNS_CACHE_SIZE": "10000", "CRAWLER_FRONTIER_RECENT_URLS": "20000"}
LITTLE_MIB = 4.0  # what the allocator makes of nothing
URL_BYTES_MAX = 400.0  # of the engine, for a URL and its share of a site: docs/frontier.md, Memory
HOUR_S = 3600.0


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """Slopes of the last two thirds."""

    seconds: float
    pages: int
    added: int
    processes: int
    instance_mib: float  # median
    instance_mib_an_hour: float
    engine_mib: float  # at the end
    engine_mib_an_hour: float
    engine_bytes_a_url: float
    is_flat: bool
    is_engine_fair: bool


def main() -> int:
    options = parse_arguments()
    measure.adopt_orphans()
    core, servers = two_cores()
    os.sched_setaffinity(0, {servers})
    with tempfile.TemporaryDirectory(prefix="soak-", dir=options.scratch) as home, name_server() as dns:
        scratch = Path(home)
        with made_web(
            servers, "--grow", "2", "--hosts", str(options.sites), "--host-every", str(options.host_every)
        ) as web:
            arguments = web.crawl_of(options.sites, scratch)
            arguments += ["--delay", f"{options.delay:g}", "--time", f"{60 * options.minutes:g}"]
            run = crawl(
                web, arguments, dns=dns, scratch=scratch, cores={core}, engine_cores={core}, concurrency=128,
                environment=CACHES, timeout_s=60 * options.minutes + 300, every_s=options.every,
            )  # fmt: skip
        totals = stats(scratch / "crawl")
    # The last samples are of the stop, the first of the start.
    samples = [sample for sample in run.samples if sample.crawler_mib and sample.engine_mib][:-2]
    verdict = judge(samples, totals, options.bound)
    for line in lines(verdict, options.bound):
        print(line)
    if options.json:
        rows = [asdict(sample) for sample in samples]
        options.json.write_text(json.dumps({"verdict": asdict(verdict), "samples": rows}) + "\n", encoding="utf-8")
    if options.png:
        plot(samples, options.png)
    return 0 if verdict.is_flat and verdict.is_engine_fair else 1


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="scripts/soak", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=given.amount, default=60, help="how long (default: 60)")
    parser.add_argument("--every", type=given.amount, default=2, metavar="S", help="between two samples (default: 2 s)")
    parser.add_argument("--host-every", type=int, default=10, metavar="PAGES", help="until a new site (default: 10)")
    parser.add_argument("--sites", type=given.count, default=500, help="that it begins with (default: 500)")
    parser.add_argument(
        "--delay", type=float, default=0.5, metavar="S", help="between requests to a site (default: 0.5)"
    )
    parser.add_argument(
        "--bound", type=given.amount, default=5, metavar="PERCENT", help="an hour, that is still flat (default: 5)"
    )
    parser.add_argument(
        "--scratch", type=Path, metavar="DIR", help="where the crawl folder goes: 3 MB a second (default: /tmp)"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write samples and verdict")
    parser.add_argument("--png", type=Path, metavar="FILE", help="plot them (needs matplotlib)")
    return parser.parse_args()


def stats(folder: Path) -> dict[str, int]:
    """What the crawl counted."""
    command = [sys.executable, "-m", "crawler", "stats", "--json", "--top", "0", "--dir", str(folder)]
    ran = subprocess.run(command, env=clean_environment(), capture_output=True, check=True)
    totals: dict[str, int] = json.loads(ran.stdout)["totals"]
    return totals


def judge(samples: Sequence[Sample], totals: dict[str, int], bound_percent: float) -> Verdict:
    """Pure. The URLs of the whole crawl are taken as spread evenly over its time."""
    begin, end = samples[0].at_s, samples[-1].at_s
    late = [sample for sample in samples if sample.at_s >= begin + (end - begin) / 3]
    instance = slope([(sample.at_s, sample.crawler_mib) for sample in late])
    engine = slope([(sample.at_s, sample.engine_mib) for sample in late])
    middle = sorted(sample.crawler_mib for sample in late)[len(late) // 2]
    bytes_a_url = engine * 2**20 * (end - begin) / max(1, totals["added"])
    is_little = instance * (late[-1].at_s - late[0].at_s) < LITTLE_MIB
    return Verdict(
        seconds=end - begin,
        pages=totals["fetched"],
        added=totals["added"],
        processes=max(sample.crawler_processes for sample in samples),
        instance_mib=middle,
        instance_mib_an_hour=instance * HOUR_S,
        engine_mib=samples[-1].engine_mib,
        engine_mib_an_hour=engine * HOUR_S,
        engine_bytes_a_url=bytes_a_url,
        is_flat=is_little or instance * HOUR_S < middle * bound_percent / 100,
        is_engine_fair=bytes_a_url < URL_BYTES_MAX,
    )


def lines(verdict: Verdict, bound_percent: float) -> Iterator[str]:
    yield f"{verdict.seconds / 60:.1f} minutes, {verdict.pages:,} pages, {verdict.added:,} URLs added"
    yield (
        f"instance  {verdict.instance_mib:.0f} MiB, {verdict.instance_mib_an_hour:+.1f} MiB an hour "
        f"({100 * verdict.instance_mib_an_hour / verdict.instance_mib:+.1f} %; flat is below {bound_percent:g} %): "
        f"{'flat' if verdict.is_flat else 'NOT flat'}"
    )
    if verdict.processes > 1:
        yield "          a process that parses what looks expensive is in it, some 28 MiB from when it was needed first"
    yield (
        f"engine    {verdict.engine_mib:.0f} MiB, {verdict.engine_mib_an_hour:+.1f} MiB an hour, "
        f"{verdict.engine_bytes_a_url:.0f} bytes for each URL that was added (at most {URL_BYTES_MAX:.0f}): "
        f"{'fair' if verdict.is_engine_fair else 'TOO MUCH'}"
    )


def plot(samples: Sequence[Sample], file: Path) -> None:
    begin = samples[0].at_s
    minutes = [(sample.at_s - begin) / 60 for sample in samples]
    plots.lines(
        file,
        "Memory over time, a web without end",
        ("minutes", "MiB resident"),
        {
            "instance": (minutes, [sample.crawler_mib for sample in samples]),
            "engine (holds all URLs)": (minutes, [sample.engine_mib for sample in samples]),
        },
    )


if __name__ == "__main__":
    sys.exit(main())
