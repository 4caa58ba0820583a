"""A large crawl: what its URLs and domains take of the engine, and how long commands take on it.

Fills an embedded engine with --domains domains, of which each has --queued URLs that wait and as many seen ones as
make --urls together. Then runs a command that starts the engine, and those that page over domains or partitions beside
a running one, each in a process of its own, with its time and its largest memory. A folder that is named stays, and is
not filled again. Exit code 0: all commands succeeded; 1: not.
"""

import argparse
import asyncio
import os
import random
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

from crawler.crawl.opening import OpenCrawl, open_crawl
from crawler.frontier.restore import Restoring, SeenUrl
from crawler.model import Candidate
from crawler.settings import load
from scripts.bench_lib import arguments
from scripts.bench_lib.memory import paths
from scripts.bench_lib.peer_environments import CRAWLER, clean_environment

DOMAINS_AT_ONCE = 4_000
TOLD_CHARACTERS = 500
COMMANDS: tuple[tuple[str, ...], ...] = (
    ("stats",), ("stats", "--by-name", "--top", "50"), ("stats", "--by-name", "--after", "site-3", "--top", "50"),
    ("stats", "site-77.example"), ("explain", "http://site-77.example/"), ("crawls",), ("ring",), ("seeds",),
    ("dead", "list"), ("users",), ("delay", "site-77.example", "2"), ("jobs", "list"),
    ("audit", "--sample", "1"), ("backup", "{folder}/large.backup"),
)  # fmt: skip


def main(words: Sequence[str]) -> int:
    options = parse_arguments(words)
    if options.dir:
        return measured(options, options.dir)
    with tempfile.TemporaryDirectory(prefix="bench-large-") as folder:
        return measured(options, Path(folder))


def measured(options: argparse.Namespace, folder: Path) -> int:
    if not (folder / "c" / "crawl.json").exists():
        asyncio.run(fill(options, folder))
    print(f"\n{'command':44} {'exit':>4} {'s':>8} {'MiB':>7}")
    is_fine = run(("crawls",), folder, note="starts the engine")
    return 0 if asyncio.run(run_all(folder)) and is_fine else 1


async def run_all(folder: Path) -> bool:
    """All commands beside a session that keeps the engine running, as an instance would. Did they all succeed?"""
    async with open_crawl(load(environment={}, options={"archive.dir": str(folder / "c")}), create=False):
        return all([await asyncio.to_thread(run, command, folder) for command in COMMANDS])


def run(command: Sequence[str], folder: Path, *, note: str = "") -> bool:
    """Print a line of the table, and what a command that failed said."""
    words = [word.format(folder=folder) for word in command]
    code, seconds, mib = timed([*CRAWLER, *words, "--dir", str(folder / "c")], folder)
    print(f"{' '.join(words)[:44]:44} {code:>4} {seconds:>8.2f} {mib:>7.0f}  {note}".rstrip(), flush=True)
    if code:
        print((folder / "out").read_text(errors="replace")[-TOLD_CHARACTERS:].strip(), flush=True)
    return not code


def timed(command: Sequence[str], folder: Path) -> tuple[int, float, float]:
    """Exit code, seconds, and the process's largest memory in MiB."""
    began = time.monotonic()
    with (folder / "out").open("wb") as out:
        process = subprocess.Popen(command, env=clean_environment(), stdin=subprocess.DEVNULL, stdout=out, stderr=out)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    return process.returncode, time.monotonic() - began, usage.ru_maxrss / 1024


async def fill(options: argparse.Namespace, folder: Path) -> None:
    """Add the URLs, and print what they take."""
    settings = load(environment={}, options={
        "archive.dir": str(folder / "c"), "scope.mode": "any", "crawl.partitions": options.partitions,
        "frontier.call_timeout_s": 60.0, "membership.dead_s": 120.0,
    })  # fmt: skip
    async with open_crawl(settings, create=True) as crawl:
        before, began = (await crawl.engine.memory()).used_bytes, time.monotonic()
        seen_each = max(0, options.urls // options.domains - options.queued)
        for first in range(0, options.domains, DOMAINS_AT_ONCE):
            numbers = range(first, min(first + DOMAINS_AT_ONCE, options.domains))
            await add(crawl, numbers, options.queued, seen_each)
            if first // DOMAINS_AT_ONCE % 25 == 24:
                print(
                    f"{numbers[-1] + 1:,} domains after {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True
                )
        queued = options.queued * options.domains
        urls = queued + seen_each * options.domains
        used = (await crawl.engine.memory()).used_bytes - before
        cpu_s, sets = (await crawl.engine.info()).cpu_s, await seen_bytes(crawl)
        took = f"filled in {time.monotonic() - began:.0f} s, engine CPU {cpu_s:.0f} s"
        print(f"{urls:,} URLs seen, {queued:,} of them waiting, on {options.domains:,} domains; {took}")
        print(f"used memory   {used / (1 << 30):8.2f} GiB")
        print(f"a seen URL    {sets / urls:8.1f} bytes")
        print(f"a domain      {(used - sets) / options.domains:8.1f} bytes, with {options.queued} waiting URLs")


async def seen_bytes(crawl: OpenCrawl) -> float:
    """Of all seen-sets, by a sample of partitions."""
    sample = random.Random(1).sample(range(crawl.record.partitions), min(8, crawl.record.partitions))
    total = 0
    for partition in sample:
        async for some in crawl.engine.scan(f"{{main:{partition}}}:s:*"):
            total += sum(await crawl.engine.commands([("MEMORY", "USAGE", key, "SAMPLES", 0) for key in some]))
    return total * crawl.record.partitions / len(sample)


async def add(crawl: OpenCrawl, numbers: range, queued: int, seen: int) -> None:
    waiting, known = defaultdict[int, list[Candidate]](list), list[SeenUrl]()
    fingerprints, restoring = crawl.record.fingerprints, Restoring(
        crawl.engine, crawl.keys, hash_key=crawl.record.hash_key
    )  # fmt: skip
    rng = random.Random(numbers[0])
    for number in numbers:
        host = f"site-{number}.example"
        domain, queue, partition = crawl.placement.of(f"http://{host}/")
        for n, path in enumerate(paths(rng, queued + seen)):
            url = f"http://{host}{path}"
            fingerprint = fingerprints.of(url)
            if n < queued:
                waiting[partition].append(
                    Candidate(url=url, fingerprint=fingerprint, partition=partition, domain=domain, queue=queue,
                              depth=3, score=-3.0)
                )  # fmt: skip
            else:
                known.append(SeenUrl(fingerprint, partition, domain, queue))
    if waiting:
        await crawl.frontier.add(waiting)
    if known:
        await restoring.mark_seen(known, "imported")


def parse_arguments(words: Sequence[str]) -> argparse.Namespace:
    parser, one = arguments.parser("large", __doc__), arguments.positive_int
    parser.add_argument("--urls", type=one, default=2_000_000, help="that are seen")
    parser.add_argument("--domains", type=one, default=100_000)
    parser.add_argument("--queued", type=one, default=6, help="URLs of a domain that wait")
    parser.add_argument("--partitions", type=one, default=4096)
    parser.add_argument("--dir", type=Path, metavar="DIR", help="fill this folder if it is empty, and leave it")
    return parser.parse_args(words)
