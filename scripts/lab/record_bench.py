"""Has a change made the crawler slower? A fixed workload beside calibration loops, compared with the last record.

The workload is a crawl of 3,000 synthetic pages with 50 links each on 60 hosts, by one process with everything on.
Two calibration loops run in turn with it. One fetches and parses the same pages with the same libraries and does
nothing else, on the crawler's core; the other is a fixed load on a server of the engine's kind, on the engine's core
(engine_loop.py). What counts are ratios of CPU seconds: of the crawler's processes to those of the first loop, and of
its engine to that of the second, for a machine that is slower today need not be so for both alike. It is a regression
when a ratio's median is above the last record's of this workload by more than the noise: half of what the ratios of
the rounds lie apart, without a quarter of them at either end, added up for both measurements, and when the code of
that record takes less in turn with this one's, too: an hour that slows the one more than its loop is no regression.
Exit code 0: none, or nothing to compare with; 1: a regression; 2: it could not be measured.
"""

import argparse
import sys
import tempfile
from pathlib import Path

import engine_loop
import given
import records
import runs
import servers
from clients import Client, all_clients
from earlier import earlier
from environments import ROOT, UnavailableError, clean_environment
from figures import Run, differences
from synthetic import SyntheticWeb

FILE = ROOT / "docs" / "benchmarks.ndjson"
WORKLOAD = "synthetic: 60 hosts of 50 pages with 50 links; the engine beside a loop of its own"
WEB = SyntheticWeb(domains=60, pages_each=50)
CONCURRENCY = 64
TIMEOUT_S = 300.0


def main() -> int:
    options = parse_arguments()
    try:
        known = records.read(options.file.read_text("utf-8")) if options.file.exists() else []
    except ValueError as error:
        print(f"bench-record: {options.file}: {error}", file=sys.stderr)
        return 2
    if missing := servers.missing_packages(WEB):
        print(f"bench-record: as root: apt install {' '.join(missing)}", file=sys.stderr)
        return 2
    header = runs.header()
    place = runs.take_place(TIMEOUT_S)
    try:
        results, engine_loops = measured(options.rounds, place)
    except runs.FailedError as error:
        print(f"bench-record: {error}", file=sys.stderr)
        return 2
    if wrong := differences(results, pages_min=WEB.pages_min, pages_max=0):
        print("\n".join(f"bench-record: {line}" for line in wrong), file=sys.stderr)
        return 2
    record = records.record_of(header, WORKLOAD, results["crawler"], results["bare"], engine_loops)
    print(records.line_of(record), end="")
    before = records.last(known, WORKLOAD)
    if options.write:
        with options.file.open("a", encoding="utf-8") as file:
            file.write(records.line_of(record))
    if before is None:
        print("no earlier record of this workload to compare with")
        return 0
    found = records.verdicts(record, before)
    print(f"beside the record of {before['date']}, commit {before['commit']}:", *found, sep="\n")
    flagged = {verdict.what for verdict in found if verdict.is_worse}
    return 1 if flagged and confirmed(flagged, before["commit"], options.rounds, place) else 0


def confirmed(flagged: set[str], commit: str, rounds: int, place: runs.Place) -> bool:
    """Whether one of these is worse beside the code of that commit, too; True when that can't be told."""
    print(f"in turn with the code of {commit}:", flush=True)
    try:
        # A record with a "+" had changes that were not committed: its commit is the nearest that can be had.
        with earlier(all_clients(CONCURRENCY)["crawler"], commit.removesuffix("+")) as client:
            found = records.paired(*in_turn(client, rounds, place))
    except (UnavailableError, runs.FailedError) as error:
        print(f"bench-record: not measured: {error}", file=sys.stderr)
        return True
    print(*found, sep="\n")
    return any(pair.is_worse for pair in found if pair.what in flagged)


def in_turn(client: Client, rounds: int, place: runs.Place) -> tuple[list[Run], list[Run]]:
    """Runs of this code, and of that client, which got the same pages. Raises FailedError."""
    clients = [all_clients(CONCURRENCY)["crawler"], client]
    results: dict[str, list[Run]] = {one.name: [] for one in clients}
    with servers.running(WEB) as lab:
        for number in range(rounds):
            for one in runs.in_order(clients, number):
                results[one.name].append(runs.run_once(one, lab, place))
    if wrong := differences(results, pages_min=WEB.pages_min, pages_max=0):
        raise runs.FailedError("; ".join(wrong))
    now, before = results.values()
    return now, before


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="scripts/bench-record", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--rounds", type=given.count, default=7, help="of crawl and calibration loop in turn (default: 7)"
    )
    parser.add_argument("--write", action="store_true", help="append the record to the file, whatever the verdict")
    parser.add_argument("--file", type=Path, default=FILE, help="of the records (default: docs/benchmarks.ndjson)")
    return parser.parse_args()


def measured(rounds: int, place: runs.Place) -> tuple[dict[str, list[Run]], list[float]]:
    """The runs of the first loop and the crawler; CPU seconds of the engine's loop for 1,000 of its pages, by rounds.

    Raises FailedError.
    """
    known = all_clients(CONCURRENCY)
    clients = [known["bare"], known["crawler"]]
    results: dict[str, list[Run]] = {one.name: [] for one in clients}
    engine_loops = []
    with servers.running(WEB) as lab:
        for number in range(rounds):
            for one in runs.in_order(clients, number):
                results[one.name].append(runs.run_once(one, lab, place))
            engine_loops.append(engine_per_thousand(place))
    return results, engine_loops


def engine_per_thousand(place: runs.Place) -> float:
    """CPU seconds of a server under the fixed load, for 1,000 of its pages. Raises FailedError."""
    command = [sys.executable, engine_loop.__file__]
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        _, printed = runs.run_program("the engine's loop", command, clean_environment(), Path(folder), place)
    return 1000 * float(printed) / engine_loop.PAGES


if __name__ == "__main__":
    sys.exit(main())
