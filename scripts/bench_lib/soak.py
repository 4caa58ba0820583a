"""A long crawl of an endless web: does the memory of the instance stay flat once its caches are full?

The web's sites are trees without leaves, and every --host-every th page links to a new site. So URLs, sites,
connections and names are new as long as it runs. The instance's caches of names and URLs have a tenth of their default
size, so they are full after some minutes. What it keeps of sites (robots.txt of 50,000) is full after that many sites:
a short run can't reach it and needs fewer new sites (--host-every 500).

The verdict is about the samples after the first third: the slope of the resident memory (Theil-Sen, which a spike does
not move). The instance is flat when the slope is below --bound percent of its memory an hour, or when the run added
less than 4 MiB. The engine holds all URLs, so it grows; its slope is judged for each URL that was added.
Exit code 0: flat; 1: not. Crawler and engine have one core, the web and the name server another.
"""

import argparse
import json
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from scripts.bench_lib import arguments, plots
from scripts.bench_lib.measure import Sample, take_cores
from scripts.bench_lib.observed_crawl import SMALL_CACHES, generated_web, observed, slope
from scripts.bench_lib.peer_environments import CRAWLER, clean_environment
from tests.crawl.lab import name_server

LITTLE_MIB = 4.0  # noise of the allocator
URL_BYTES_MAX = 400.0  # of the engine, for a URL and its share of a site: docs/internals/frontier-layout.md, Memory
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


def main(words: Sequence[str]) -> int:
    options = parse_arguments(words)
    cores = take_cores()
    with tempfile.TemporaryDirectory(prefix="soak-", dir=options.scratch) as home, name_server() as dns:
        scratch = Path(home).resolve()
        grown = ("--grow", "2", "--hosts", str(options.sites), "--host-every", str(options.host_every))
        with generated_web(cores.servers, *grown) as web:
            crawl = [*web.crawl_of(options.sites, scratch), "--delay", f"{options.delay:g}"]
            run = observed(
                web, [*crawl, "--time", f"{60 * options.minutes:g}"], dns=dns, scratch=scratch, cores=cores.client,
                engine_cores=cores.client, concurrency=128, environment=SMALL_CACHES,
                timeout_s=60 * options.minutes + 300, every_s=options.every,
            )  # fmt: skip
        totals = stats(scratch / "crawl")
    # The first samples are of the start, the last ones of the stop.
    samples = [sample for sample in run.samples if sample.crawler_mib and sample.engine_mib][:-2]
    verdict = judge(samples, totals, options.bound)
    print(*lines(verdict, options.bound), sep="\n")
    figures = {"verdict": asdict(verdict), "samples": [asdict(sample) for sample in samples]}
    arguments.write_json(options.json, figures, indent=None)
    if options.png:
        plot(samples, options.png)
    return 0 if verdict.is_flat and verdict.is_engine_fair else 1


def parse_arguments(words: Sequence[str]) -> argparse.Namespace:
    parser, number = arguments.parser("soak", __doc__), arguments.positive_float
    parser.add_argument("--minutes", type=number, default=60, help="how long")
    parser.add_argument("--every", type=number, default=2, metavar="S", help="between two samples")
    parser.add_argument("--host-every", type=int, default=10, metavar="PAGES", help="until one links to a new site")
    parser.add_argument("--sites", type=arguments.positive_int, default=500, help="number of seed sites")
    parser.add_argument("--delay", type=float, default=0.5, metavar="S", help="between requests to a site")
    parser.add_argument("--bound", type=number, default=5, metavar="PERCENT", help="growth an hour that is still flat")
    parser.add_argument(
        "--scratch", type=Path, metavar="DIR", help="for the crawl folder: 3 MB a second (default: /tmp)"
    )
    parser.add_argument("--png", type=Path, metavar="FILE", help="plot the samples (needs matplotlib)")
    arguments.add_json(parser)
    return parser.parse_args(words)


def stats(folder: Path) -> dict[str, int]:
    """The totals of the crawl."""
    command = [*CRAWLER, "stats", "--json", "--top", "0", "--dir", str(folder)]
    ran = subprocess.run(command, env=clean_environment(), capture_output=True, check=True)
    totals: dict[str, int] = json.loads(ran.stdout)["totals"]
    return totals


def judge(samples: Sequence[Sample], totals: dict[str, int], bound_percent: float) -> Verdict:
    """Assumes that the URLs of the whole crawl were added evenly over its time."""
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
        yield "          includes a parser process for expensive pages, some 28 MiB once it is needed"
    yield (
        f"engine    {verdict.engine_mib:.0f} MiB, {verdict.engine_mib_an_hour:+.1f} MiB an hour, "
        f"{verdict.engine_bytes_a_url:.0f} bytes for each added URL (at most {URL_BYTES_MAX:.0f}): "
        f"{'fair' if verdict.is_engine_fair else 'TOO MUCH'}"
    )


def plot(samples: Sequence[Sample], file: Path) -> None:
    begin = samples[0].at_s
    minutes = [(sample.at_s - begin) / 60 for sample in samples]
    plots.lines(
        file,
        "Memory over time, an endless web",
        ("minutes", "MiB resident"),
        {
            "instance": (minutes, [sample.crawler_mib for sample in samples]),
            "engine (holds all URLs)": (minutes, [sample.engine_mib for sample in samples]),
        },
    )
