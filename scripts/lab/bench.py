"""The same web, the same core, one client after the other: medians, ratios, and whether all got the same pages.

The client has one core for itself; the web server, the DNS server and a client's own server engine have another.
"""

import argparse
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections import defaultdict
from dataclasses import asdict, dataclass
from pathlib import Path
from urllib.parse import unquote

import corpus
import measure
import servers
from clients import Client, all_clients, scrapy_environment
from measure import Usage


@dataclass(frozen=True)
class Run:
    """One client's one run: what it cost and the pages it got."""

    usage: Usage
    pages: frozenset[str]
    duplicates: int

    @property
    def pages_per_s(self) -> float:
        return len(self.pages) / self.usage.wall_s

    def per_thousand(self, seconds: float) -> float:
        return 1000 * seconds / max(1, len(self.pages))


def main() -> int:
    options = parse_arguments()
    if missing := corpus.missing_packages():
        print(f"bench: the web to crawl is not complete; as root: apt install {' '.join(missing)}", file=sys.stderr)
        return 2
    clients = all_clients(options.concurrency, scrapy_environment)
    chosen = (
        [clients[name] for name in options.only]
        if options.only
        else [c for c in clients.values() if not c.is_asked_for]
    )
    if any(client.name.startswith("scrapy") for client in chosen):
        scrapy_environment()
    client_core, server_core = cores()
    measure.adopt_orphans()
    os.sched_setaffinity(0, {server_core})
    results: dict[str, list[Run]] = defaultdict(list)
    with servers.running(server_core) as lab:
        for number in range(options.runs):
            for client in chosen:
                run = run_once(client, lab, options, client_core, server_core)
                results[client.name].append(run)
                progress(number, client, run)
    report(chosen, results, options)
    return 0 if check(chosen, results) else 1


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="scripts/bench", description=__doc__)
    parser.add_argument("--runs", type=int, default=3, help="runs of each client; figures are medians (default: 3)")
    parser.add_argument("--concurrency", type=int, default=64, help="open requests of each client (default: 64)")
    parser.add_argument(
        "--only",
        type=names_of_clients,
        help="comma-separated: crawler, bare, scrapy-tuned, scrapy, handler, handler-def",
    )
    parser.add_argument("--timeout", type=float, default=600, metavar="S", help="end a run after this (default: 600 s)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every run's figures")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="keep outputs and crawl folders of the last run here")
    return parser.parse_args()


def names_of_clients(text: str) -> list[str]:
    known = all_clients(1, scrapy_environment)
    if unknown := set(text.split(",")) - set(known):
        raise argparse.ArgumentTypeError(f"unknown: {', '.join(sorted(unknown))} (known: {', '.join(known)})")
    return text.split(",")


def cores() -> tuple[int, int]:
    """One core for the client, another for the servers; the last one, if there are several."""
    allowed = sorted(os.sched_getaffinity(0))
    if len(allowed) == 1:
        print("bench: only one core: client and servers share it, pages/s mean little", file=sys.stderr)
    return allowed[0], allowed[-1]


def run_once(client: Client, lab: servers.Lab, options: argparse.Namespace, client_core: int, server_core: int) -> Run:
    with tempfile.TemporaryDirectory(prefix="bench-") as scratch:
        folder = Path(scratch)
        log = folder / "output.log"
        usage = measure.run(
            client.command(lab, folder),
            client.full_environment(lab),
            log,
            cores={client_core},
            engine_cores={server_core},
            timeout_s=options.timeout,
        )
        try:
            pages = client.pages(folder) if usage.exit_code == 0 else None
        except (OSError, subprocess.CalledProcessError, KeyError, ValueError) as error:
            pages = None
            print(f"bench: {client.name}: no list of pages: {error!r}", file=sys.stderr)
        if options.keep:
            shutil.copytree(folder, options.keep / client.name, dirs_exist_ok=True)
        if pages is None:
            tail = log.read_text(errors="replace")[-2000:]
            raise SystemExit(f"bench: {client.name} ended with {usage.exit_code}:\n{tail}")
    distinct = frozenset(unquote(page) for page in pages)
    return Run(usage, distinct, len(pages) - len(distinct))


def progress(number: int, client: Client, run: Run) -> None:
    cpu = run.per_thousand(run.usage.client_cpu_s)
    print(
        f"run {number + 1} {client.name}: {len(run.pages)} pages, {run.pages_per_s:.0f}/s, {cpu:.2f} CPU-s/1k",
        file=sys.stderr,
        flush=True,
    )


def report(chosen: list[Client], results: dict[str, list[Run]], options: argparse.Namespace) -> None:
    ours = median_cpu(results["crawler"]) if results.get("crawler") else 0.0
    print(f"\n{platform.platform()}, Python {platform.python_version()}, {os.cpu_count()} cores; client on one of them")
    print(f"medians of {options.runs}; {options.concurrency} requests open at a time\n")
    print(f"| {'client':<44} | pages | pages/s | CPU-s/1k | engine CPU-s/1k | peak MiB | engine MiB | vs ours |")
    print(f"|{'-' * 46}|{'-' * 7}|{'-' * 9}|{'-' * 10}|{'-' * 17}|{'-' * 10}|{'-' * 12}|{'-' * 9}|")
    for client in chosen:
        runs = results[client.name]
        engine = statistics.median(run.per_thousand(run.usage.engine_cpu_s) for run in runs)
        cpu = median_cpu(runs)
        print(
            f"| {client.title:<44} | {statistics.median(len(run.pages) for run in runs):5.0f} "
            f"| {statistics.median(run.pages_per_s for run in runs):7.0f} | {cpu:8.2f} | {engine:15.2f} "
            f"| {statistics.median(run.usage.client_mib for run in runs):8.0f} "
            f"| {statistics.median(run.usage.engine_mib for run in runs):10.0f} "
            f"| {f'{cpu / ours:.1f}x' if ours else '':>7} |"
        )
    for client in chosen:
        if client.is_asked_for and ours:
            more = median_cpu(results[client.name]) - ours
            print(f"\n{client.title}: {more:+.2f} CPU-s per 1,000 pages on top of this crawler without")
    if options.json:
        rows = {
            name: [asdict(run.usage) | {"pages": len(run.pages), "duplicates": run.duplicates} for run in runs]
            for name, runs in results.items()
        }
        options.json.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")


def median_cpu(runs: list[Run]) -> float:
    return statistics.median(run.per_thousand(run.usage.client_cpu_s) for run in runs)


def check(chosen: list[Client], results: dict[str, list[Run]]) -> bool:
    """Every run of every client got the same pages, each once, and enough of them; says what differs."""
    fine = True
    reference = results[chosen[0].name][0].pages
    if len(reference) < corpus.PAGES_MIN:
        print(f"\nonly {len(reference)} pages: at least {corpus.PAGES_MIN} are expected")
        fine = False
    for client in chosen:
        for run in results[client.name]:
            for sign, pages in (("lacks", reference - run.pages), ("has more:", run.pages - reference)):
                if pages:
                    print(f"\n{client.name} {sign} {len(pages)} pages compared with {chosen[0].name}, such as")
                    print("\n".join(f"  {page}" for page in sorted(pages)[:5]))
                    fine = False
            if run.duplicates:
                print(f"\n{client.name} got {run.duplicates} pages twice")
                fine = False
    if fine:
        print(f"\nall runs got the same {len(reference)} pages, each once")
    return fine


if __name__ == "__main__":
    sys.exit(main())
