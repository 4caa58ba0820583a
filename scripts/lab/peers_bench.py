"""The same web, the same core, one client after the other, round by round: what a page costs each of them, and whether
all got the same pages.

The client has one core for itself; the web server, the DNS server and a client's own server engine have another.
Results go to a JSON file and a Markdown table in --output.
"""

import argparse
import contextlib
import json
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

import given
import runs
import servers
from clients import Client, all_clients
from earlier import earlier
from environments import ROOT, UnavailableError
from figures import Run, differences, summary, table, too_busy
from webs import PAGES, Web, web_of


def main() -> int:
    options = parse_arguments()
    web = web_of(options.web, options.pages)
    if missing := servers.missing_packages(web):
        print(f"bench-peers: the web is not complete; as root: apt install {' '.join(missing)}", file=sys.stderr)
        return 2
    chosen, versions = available(options)
    if not chosen:
        return 2
    header = runs.header()
    with contextlib.ExitStack() as stack:
        if options.against:
            ours = all_clients(options.concurrency)["crawler"]
            try:
                chosen.append(stack.enter_context(earlier(ours, options.against)))
            except UnavailableError as error:
                print(f"bench-peers: {error}", file=sys.stderr)
                return 2
        results, failed = measured(options, web, chosen)
    if not results:
        return 1
    wrong = differences(results, pages_min=web.pages_min, pages_max=web.pages_max)
    report(options, web, header, {client.name: client.title for client in chosen}, results, versions, wrong)
    return 1 if wrong or failed else 0


def measured(options: argparse.Namespace, web: Web, clients: list[Client]) -> tuple[dict[str, list[Run]], set[str]]:
    """The runs of each client that did not fail, and the names of those that did."""
    results: dict[str, list[Run]] = defaultdict(list)
    failed: set[str] = set()
    place = runs.take_place(options.timeout, keep=options.keep, share=options.share)
    with servers.running(web) as lab:
        for number in range(options.rounds):
            for client in runs.in_order(clients, number):
                if client.name in failed:
                    continue
                try:
                    run = runs.run_once(client, lab, place)
                except runs.FailedError as error:
                    failed.add(client.name)
                    results.pop(client.name, None)
                    print(f"bench-peers: {error}", file=sys.stderr, flush=True)
                    continue
                results[client.name].append(run)
                progress(number, client, run)
    return results, failed


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="scripts/bench-peers", description=__doc__)
    parser.add_argument(
        "--web",
        choices=tuple(PAGES),
        default="real",
        help="real: some 5,600 pages of documentation (default); synthetic: --pages with 50 links each on 10,000 "
        "hosts; endless: the first --pages of 2,000,000 such pages; cold: --pages domains with one page each",
    )
    parser.add_argument("--pages", type=int, default=0, help="default: 20,000 synthetic, 10,000 endless or cold ones")
    parser.add_argument("--rounds", type=given.count, default=3, help="each client runs once in each (default: 3)")
    parser.add_argument(
        "--concurrency", type=given.count, default=64, help="open requests of each client (default: 64)"
    )
    parser.add_argument(
        "--only", type=given.some_of(all_clients(1)), help=f"comma-separated: {', '.join(all_clients(1))}"
    )
    parser.add_argument("--against", metavar="COMMIT", help="this crawler as it was then takes part, too")
    parser.add_argument(
        "--timeout", type=given.amount, default=900, metavar="S", help="end a run after this (default: 900 s)"
    )
    default = ROOT / ".cache" / "peers" / "results"
    parser.add_argument(
        "--output", type=Path, default=default, metavar="DIR", help="for the results (default: .cache/peers/results)"
    )
    parser.add_argument("--share", action="store_true", help="all cores for all: to try it, not to measure")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="keep outputs and crawl folders of the last run here")
    return parser.parse_args()


def available(options: argparse.Namespace) -> tuple[list[Client], dict[str, dict[str, str]]]:
    """The clients that take part and the versions of what each needs; says in a line which can't, and why."""
    known = all_clients(options.concurrency)
    names = options.only or [name for name, client in known.items() if options.web in client.usual]
    chosen, versions = [], {}
    for name in names:
        try:
            if options.web not in known[name].can:
                raise UnavailableError(f"its names come from a hosts file, and the web '{options.web}' has too many")
            versions[name] = known[name].versions()
            chosen.append(known[name])
        except UnavailableError as error:
            print(f"bench-peers: left out {name}: {error}", file=sys.stderr, flush=True)
    return chosen, versions


def progress(number: int, client: Client, run: Run) -> None:
    engine = f" + {run.engine_per_thousand:.2f}" if run.engine_mib else ""
    cpu = f"{run.cpu_per_thousand:.2f}{engine} CPU-s/1k"
    pages = f"{len(run.pages)} pages, {run.pages_per_s:.0f}/s"
    print(f"round {number + 1} {client.name}: {pages}, {cpu}, {run.requests} requests", file=sys.stderr, flush=True)


def report(
    options: argparse.Namespace,
    web: Web,
    header: dict[str, Any],
    titles: dict[str, str],
    results: dict[str, list[Run]],
    versions: dict[str, dict[str, str]],
    wrong: list[str],
) -> None:
    bases: dict[str, list[Run]] = {name: results[name] for name in ("crawler", "bare", "redis-hand") if name in results}
    summaries = {name: summary(found, bases) for name, found in results.items()}
    machine = "{kernel}, {cpu}, {cores} cores, Python {python}".format_map(header["machine"])
    how = f"{options.rounds} interleaved rounds, medians; {options.concurrency} requests open at a time"
    used = sorted({f"{name} {version}" for found in versions.values() for name, version in found.items()})
    text = [
        f"{machine}; commit {header['commit']}, {header['date']}",
        f"Web: {options.web}; {how}",
        "",
        table(summaries, titles),
        "",
        f"Versions: {', '.join(used)}.",
        "",
        *too_busy(summaries),
        *(wrong or [f"All runs got the same {len(next(iter(results.values()))[0].pages):,} pages, each once."]),
    ]
    if not wrong and web.pages_max:
        text[-1] = f"All runs got {web.pages_max:,} pages or more, each once."
    print("\n" + "\n".join(text))
    options.output.mkdir(parents=True, exist_ok=True)
    (options.output / f"{options.web}.md").write_text("\n".join(text) + "\n", encoding="utf-8")
    record: dict[str, Any] = header | {"web": web.name, "rounds": options.rounds, "concurrency": options.concurrency}
    record |= {"versions": versions, "clients": summaries, "wrong": wrong}
    (options.output / f"{options.web}.json").write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    print(f"\nWritten: {options.output}/{options.web}.md and .json", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
