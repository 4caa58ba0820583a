"""Has a change made the crawler slower? A fixed workload and calibration loops, compared with the last record.

The workload is a crawl of 3,000 synthetic pages with 50 links each on 60 hosts, by one process with everything on. Two
calibration loops run in turn with it. One fetches and parses the same pages with the same libraries and does nothing
else, on the crawler's core; the other is a fixed load on a server with the engine's program, on the engine's core
(calibration.py). The results are ratios of CPU seconds: of the crawler's processes to the first loop, and of its engine
to the second, because a machine that is slower today need not be so for both alike.

It is a regression when a ratio's median is above that of the last record by more than the noise, and the code of that
record also takes less CPU when it runs in turn with this code: an hour that slows the crawler more than its loop is not
a regression. The noise is half the range of the rounds' ratios, without a quarter of the rounds at either end, added up
for both measurements.
Exit code 0: no regression, or no record to compare with; 1: a regression; 2: it could not be measured.
"""

import argparse
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from scripts.bench_lib import arguments, calibration, measure, record_file, servers
from scripts.bench_lib.measure import Cores, FailedError
from scripts.bench_lib.other_commit import at_commit
from scripts.bench_lib.peer_clients import Client, all_clients
from scripts.bench_lib.peer_environments import ROOT, UnavailableError, clean_environment
from scripts.bench_lib.summaries import Run, differences
from scripts.bench_lib.webs import SyntheticWeb

FILE = ROOT / "docs" / "internals" / "benchmarks.ndjson"
WORKLOAD = "synthetic: 60 hosts of 50 pages with 50 links; the engine beside a loop of its own"
WEB = SyntheticWeb(domains=60, pages_each=50)
CONCURRENCY = 64
TIMEOUT_S = 300.0


def main(words: Sequence[str]) -> int:
    options = parse_arguments(words)
    try:
        known = record_file.read(options.file.read_text("utf-8")) if options.file.exists() else []
    except ValueError as error:
        print(f"bench: {options.file}: {error}", file=sys.stderr)
        return 2
    if missing := servers.missing_packages(WEB):
        print(f"bench: as root: apt install {' '.join(missing)}", file=sys.stderr)
        return 2
    header = measure.header()
    cores = measure.take_cores()
    try:
        results, engine_loops = measured(options.rounds, cores)
    except FailedError as error:
        print(f"bench: {error}", file=sys.stderr)
        return 2
    record = record_file.record_of(header, WORKLOAD, results["crawler"], results["bare"], engine_loops)
    print(record_file.line_of(record), end="")
    before = record_file.last(known, WORKLOAD)
    if options.write:
        with options.file.open("a", encoding="utf-8") as file:
            file.write(record_file.line_of(record))
    if before is None:
        print("no earlier record of this workload to compare with")
        return 0
    found = record_file.verdicts(record, before)
    print(f"compared with the record of {before['date']}, commit {before['commit']}:", *found, sep="\n")
    flagged = {verdict.what for verdict in found if verdict.is_worse}
    return 1 if flagged and confirmed(flagged, before["commit"], options.rounds, cores) else 0


def parse_arguments(words: Sequence[str]) -> argparse.Namespace:
    parser = arguments.parser("record", __doc__)
    parser.add_argument(
        "--rounds", type=arguments.positive_int, default=7, help="rounds of crawl and calibration loops"
    )
    parser.add_argument("--write", action="store_true", help="append the record to the file, whatever the verdict")
    parser.add_argument("--file", type=Path, default=FILE, help="file of the records")
    return parser.parse_args(words)


def confirmed(flagged: set[str], commit: str, rounds: int, cores: Cores) -> bool:
    """Whether one of these is also worse in turn with the code of that commit; True when that can't be measured."""
    print(f"in turn with the code of {commit}:", flush=True)
    try:
        # A record with a "+" had uncommitted changes: its commit is the nearest code there is.
        with at_commit(all_clients(CONCURRENCY)["crawler"], commit.removesuffix("+")) as client:
            found = record_file.paired(*with_other_code(client, rounds, cores))
    except (UnavailableError, FailedError) as error:
        print(f"bench: not measured: {error}", file=sys.stderr)
        return True
    print(*found, sep="\n")
    return any(pair.is_worse for pair in found if pair.what in flagged)


def with_other_code(client: Client, rounds: int, cores: Cores) -> tuple[list[Run], list[Run]]:
    """Runs of this code and of that client, which fetched the same pages. Raises FailedError."""
    results = runs_of([all_clients(CONCURRENCY)["crawler"], client], rounds, cores)[0]
    now, before = results.values()
    return now, before


def measured(rounds: int, cores: Cores) -> tuple[dict[str, list[Run]], list[float]]:
    """Runs of the first loop and the crawler; by round, CPU seconds of the engine's loop for 1,000 of its pages.

    Raises FailedError.
    """
    known = all_clients(CONCURRENCY)
    return runs_of([known["bare"], known["crawler"]], rounds, cores, with_engine=True)


def runs_of(
    clients: Sequence[Client], rounds: int, cores: Cores, *, with_engine: bool = False
) -> tuple[dict[str, list[Run]], list[float]]:
    """Runs in turn, which fetched the same pages; with `with_engine`, also the engine's loop in each round."""
    results: dict[str, list[Run]] = {one.name: [] for one in clients}
    engine_loops = []
    with servers.serving(WEB) as running:
        for number in range(rounds):
            for one in measure.in_turn(clients, number):
                results[one.name].append(measure.run_once(one, running, cores, TIMEOUT_S))
            if with_engine:
                engine_loops.append(engine_per_thousand(cores))
    if wrong := differences(results, pages_min=WEB.pages_min, pages_max=0):
        raise FailedError("; ".join(wrong))
    return results, engine_loops


def engine_per_thousand(cores: Cores) -> float:
    """CPU seconds of a server under the fixed load, for 1,000 of its pages. Raises FailedError."""
    command = [sys.executable, "-P", calibration.__file__]
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        _, printed, _ = measure.run_program(
            "the engine's loop", command, clean_environment(), Path(folder), cores, TIMEOUT_S
        )  # fmt: skip
    return 1000 * float(printed) / calibration.PAGES
