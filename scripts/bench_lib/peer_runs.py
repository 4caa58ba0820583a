"""What does a page cost this crawler and other clients? One web, one core, one client after the other, round by round.

The client has one core; the web server, the name server and a client's own engine have another. All clients must fetch
the same pages. The results go to a JSON file and a Markdown table in --output. `--rounds 1 --only crawler,bare` is the
quickest comparison; --web synthetic, endless and cold need no documentation packages.
"""

import argparse
import contextlib
import sys
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from scripts.bench_lib import arguments, measure, servers
from scripts.bench_lib.other_commit import at_commit
from scripts.bench_lib.peer_clients import REAL, Client, all_clients
from scripts.bench_lib.peer_environments import ROOT, UnavailableError
from scripts.bench_lib.summaries import Run, differences, summary, table, too_busy
from scripts.bench_lib.transport import ENCODINGS, REQUESTS_PER_CONNECTION, TLS, Transport
from scripts.bench_lib.webs import PAGES, Web, web_of

OUTPUT = ROOT / ".cache" / "peers" / "results"
BASES = ("crawler", "bare", "redis-hand")  # ratios are to these


def main(words: Sequence[str]) -> int:
    options = parse_arguments(words)
    web = web_of(options.web, options.pages, Transport(tls=options.tls, encoding=options.encoding))
    if options.encoding and options.web not in REAL:
        print(f"bench: --encoding needs a real web (use --web {', '.join(sorted(REAL))})", file=sys.stderr)
        return 2
    if missing := servers.missing_packages(web):
        print(f"bench: the web is incomplete; as root: apt install {' '.join(missing)}", file=sys.stderr)
        return 2
    chosen, versions = available(options)
    if not chosen:
        return 2
    header = measure.header()
    with contextlib.ExitStack() as stack:
        if options.against:
            ours = all_clients(options.concurrency, sync_ms=options.sync_ms)["crawler"]
            try:
                chosen.append(stack.enter_context(at_commit(ours, options.against)))
            except UnavailableError as error:
                print(f"bench: {error}", file=sys.stderr)
                return 2
        results, failed = measured(options, web, chosen)
    if not results:
        return 1
    wrong = differences(results, pages_min=web.pages_min, pages_max=web.pages_max)
    report(options, web, header, {client.name: client.title for client in chosen}, results, versions, wrong)
    return 1 if wrong or failed else 0


def parse_arguments(words: Sequence[str]) -> argparse.Namespace:
    parser, one = arguments.parser("peers", __doc__), arguments.positive_int
    parser.add_argument(
        "--web",
        choices=tuple(PAGES),
        default="real",
        metavar="WEB",
        help="real: some 5,600 pages of documentation on eight hosts; three: 9,000 on three hosts; one: 4,400 with "
        "many links on one host; synthetic: --pages with 50 links each on 10,000 hosts; "
        "endless: the first --pages of 2,000,000 such pages; cold: --pages domains with one page each",
    )
    parser.add_argument("--pages", type=int, default=0, help="(default: 20,000 synthetic, 10,000 endless or cold ones)")
    parser.add_argument(
        "--tls", nargs="?", choices=TLS, const="kept", default="",
        help="serve it over TLS. kept: connections stay open; new, resumed: the server closes each after "
        f"{REQUESTS_PER_CONNECTION} requests, and the next handshake can't or can resume the session",
    )  # fmt: skip
    parser.add_argument(
        "--encoding", choices=ENCODINGS, default="", help="compress the pages of a real web (real, three, one)"
    )
    parser.add_argument(
        "--sync-ms",
        type=float,
        default=0,
        metavar="MS",
        help="as on a disk where each sync of this crawler takes longer",
    )
    parser.add_argument("--rounds", type=one, default=3, help="each client runs once in a round")
    parser.add_argument("--concurrency", type=one, default=64, help="open requests of each client")
    names = all_clients(1)
    parser.add_argument("--only", type=arguments.names_of(names), help=f"comma-separated: {', '.join(names)}")
    parser.add_argument("--against", metavar="COMMIT", help="add this crawler at that commit")
    parser.add_argument("--timeout", type=arguments.positive_float, default=900, metavar="S", help="of a run")
    parser.add_argument("--output", type=Path, default=OUTPUT, metavar="DIR", help="folder for the results")
    parser.add_argument("--share", action="store_true", help="all clients and servers share all cores: not to measure")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="keep output and crawl folders of the last round here")
    return parser.parse_args(words)


def available(options: argparse.Namespace) -> tuple[list[Client], dict[str, dict[str, str]]]:
    """The clients that take part, and the versions of what each needs. Prints a line for each one that can't run."""
    known = all_clients(options.concurrency, sync_ms=options.sync_ms)
    names = options.only or [name for name, client in known.items() if options.web in client.usual]
    chosen, versions = [], {}
    for name in names:
        try:
            if options.web not in known[name].can:
                raise UnavailableError(f"it needs a hosts file, and the web '{options.web}' has too many names")
            if options.encoding not in known[name].encodings:
                raise UnavailableError(f"it can't read {options.encoding}")
            versions[name] = known[name].versions()
            chosen.append(known[name])
        except UnavailableError as error:
            print(f"bench: left out {name}: {error}", file=sys.stderr, flush=True)
    return chosen, versions


def print_progress(number: int, client: Client, run: Run) -> None:
    engine = f" + {run.engine_per_thousand:.2f}" if run.engine_mib else ""
    cpu = f"{run.cpu_per_thousand:.2f}{engine} CPU-s/1k"
    pages = f"{len(run.pages)} pages, {run.pages_per_s:.0f}/s"
    print(f"round {number + 1} {client.name}: {pages}, {cpu}, {run.requests} requests", file=sys.stderr, flush=True)


def measured(options: argparse.Namespace, web: Web, clients: list[Client]) -> tuple[dict[str, list[Run]], set[str]]:
    """The runs of each client that did not fail, and the names of those that did."""
    results: dict[str, list[Run]] = defaultdict(list)
    failed: set[str] = set()
    cores = measure.take_cores(share=options.share)
    with servers.serving(web) as running:
        for number in range(options.rounds):
            for client in measure.in_turn(clients, number):
                if client.name in failed:
                    continue
                try:
                    run = measure.run_once(client, running, cores, options.timeout, keep=options.keep)
                except measure.FailedError as error:
                    failed.add(client.name)
                    results.pop(client.name, None)
                    print(f"bench: {error}", file=sys.stderr, flush=True)
                    continue
                results[client.name].append(run)
                print_progress(number, client, run)
    return results, failed


def report(
    options: argparse.Namespace,
    web: Web,
    header: dict[str, Any],
    titles: dict[str, str],
    results: dict[str, list[Run]],
    versions: dict[str, dict[str, str]],
    wrong: list[str],
) -> None:
    bases = {name: results[name] for name in BASES if name in results}
    summaries = {name: summary(found, bases) for name, found in results.items()}
    machine = "{kernel}, {cpu}, {cores} cores, Python {python}".format_map(header["machine"])
    how = f"{options.rounds} interleaved rounds, medians; {options.concurrency} open requests"
    slow = f"sync-{options.sync_ms:g}ms" if options.sync_ms else ""
    name = "-".join(filter(None, (options.web, web.transport.name, slow)))
    used = sorted({f"{name} {version}" for found in versions.values() for name, version in found.items()})
    text = [
        f"{machine}; commit {header['commit']}, {header['date']}",
        f"Web: {name}; {how}",
        "",
        table(summaries, titles),
        "",
        f"Versions: {', '.join(used)}.",
        "",
        *too_busy(summaries),
        *(wrong or [f"All runs fetched the same {len(next(iter(results.values()))[0].pages):,} pages, each once."]),
    ]
    if not wrong and web.pages_max:
        text[-1] = f"All runs fetched {web.pages_max:,} pages or more, each once."
    print("\n" + "\n".join(text))
    options.output.mkdir(parents=True, exist_ok=True)
    (options.output / f"{name}.md").write_text("\n".join(text) + "\n", encoding="utf-8")
    record: dict[str, Any] = header | {"web": name, "rounds": options.rounds, "concurrency": options.concurrency}
    record |= {"versions": versions, "clients": summaries, "wrong": wrong}
    arguments.write_json(options.output / f"{name}.json", record)
    print(f"\nWritten: {options.output}/{name}.md and .json", file=sys.stderr)
