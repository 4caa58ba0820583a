"""A night: two instances that serve recurring jobs, with viewers, prunes and kills. Does anything grow?

Three jobs crawl a finite web again and again. One of the two instances is killed every --kill-every seconds, and its
supervisor starts it again; the other one is never killed, and its memory is what is judged, with its descriptors, those
of `crawler serve`, the files of the crawl folder (but for four of each killed session, which stay), and the engine's
keys and memory. Viewers ask for the overview, the metrics and the events. Old runs are pruned every five minutes. At
the end, everything stops, and `crawler audit` runs. Caches of names and URLs have a tenth of their default size, so
that they are full soon.

A slope is the median of those between samples half the time apart, over the last two thirds; its error is that of five
slopes, each without a fifth of the samples. A figure grows when its slope, less twice its error, is above --bound
percent of its median an hour. Exit code 0: nothing grows, and the audit is clean; 1: not.
"""

import argparse
import contextlib
import os
import signal
import statistics
import subprocess
import tempfile
import threading
import time
import urllib.request
from collections.abc import Sequence
from pathlib import Path

from scripts.bench_lib import arguments
from scripts.bench_lib.observed_crawl import SMALL_CACHES, generated_web, slope
from scripts.bench_lib.peer_environments import CRAWLER, clean_environment
from tests.crawl.lab import name_server
from tests.support.engine import Engine, free_port, running_engine

HOUR_S = 3600.0
SITES, JOBS, EVERY_S, PAGES = 60, 3, 60, 250
PRUNE_S, VIEW_S, RUNS_KEPT = 300.0, 2.0, 3
BLOCKS = 5
FILES_OF_A_SESSION = 4  # its lock, a segment of the index and of the history, and the number of the last one
LITTLE = {"MiB": 4.0, "": 16.0}  # over the whole night: noise

Sample = dict[str, float]


def main(words: Sequence[str]) -> int:
    options = parse_arguments(words)
    with contextlib.ExitStack() as stack:
        home = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="night-", dir=options.scratch))).resolve()
        dns = stack.enter_context(name_server())
        engine = stack.enter_context(running_engine("--appendonly", "yes"))
        cores = os.sched_getaffinity(0)
        web = stack.enter_context(generated_web(cores, "--grow", "0", "--hosts", str(SITES)))
        night = Night(home, engine, dns, options)
        samples = night.pass_by([web.url(n) for n in range(SITES)])
    return report(samples, night, options)


class Night:
    """The processes, and what is done to them."""

    def __init__(self, home: Path, engine: Engine, dns: str, options: argparse.Namespace) -> None:
        self.home, self.engine, self._options = home, engine, options
        self._where = ["--redis", engine.url, "--dir", str(home / "c")]
        self._network = ["--allow-private", "--nameserver", dns]
        self.kills = self.prunes = self.views = self.failed_views = 0
        self.audit_code, self.audit = 0, ""
        self._over = threading.Event()

    def pass_by(self, seeds: list[str]) -> list[Sample]:
        port = free_port()
        run = self._start("run", "-n", "2", "-q", "--delay", "0.02", *self._network)
        serve = self._start("serve", "--listen", f"127.0.0.1:{port}")
        time.sleep(5)
        for n in range(JOBS):
            some = seeds[n::JOBS]
            self._ask("jobs", "add", f"job{n}", "--every", str(EVERY_S), "--scope", "any", "--pages", str(PAGES), *some)
        viewer = threading.Thread(target=self._view, args=(port,), daemon=True)
        viewer.start()
        samples, began = list[Sample](), time.monotonic()
        due = {"kill": began + self._options.kill_every, "prune": began + PRUNE_S}
        try:
            while time.monotonic() - began < 60 * self._options.minutes:
                time.sleep(self._options.every)
                samples.append(self._sample(time.monotonic() - began, run.pid, serve.pid))
                if run.poll() is not None:
                    raise SystemExit(f"bench: the crawl ended: {(self.home / 'run.log').read_text()[-2000:]}")
                if time.monotonic() > due["kill"]:
                    due["kill"] += self._options.kill_every
                    self._kill(run.pid)
                if time.monotonic() > due["prune"]:
                    due["prune"] += PRUNE_S
                    self.prunes += self._ask("prune", "--keep-runs", str(RUNS_KEPT), may_fail=True)
        finally:
            self._over.set()
            for process in (serve, run):
                process.send_signal(signal.SIGINT)
            for process in (serve, run):
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(60)
                process.kill()
        ended = self._run("audit")
        self.audit_code, self.audit = ended.returncode, (ended.stdout or ended.stderr).split("\n", 1)[0]
        return samples

    def _start(self, command: str, *words: str) -> subprocess.Popen[bytes]:
        with (self.home / f"{command}.log").open("wb") as log:
            return subprocess.Popen(
                [*CRAWLER, command, *self._where, *words], env=clean_environment() | SMALL_CACHES,
                stdin=subprocess.DEVNULL, stdout=log, stderr=log,
            )  # fmt: skip

    def _ask(self, *words: str, may_fail: bool = False) -> bool:
        """Run a command; whether it went well."""
        ended = self._run(*words)
        if ended.returncode and not may_fail:
            raise SystemExit(f"bench: crawler {words[0]} failed: {ended.stderr}")
        return not ended.returncode

    def _run(self, *words: str) -> subprocess.CompletedProcess[str]:
        command = [*CRAWLER, *words, *self._where]
        return subprocess.run(command, env=clean_environment(), capture_output=True, text=True, check=False)

    def _kill(self, supervisor: int) -> None:
        """The younger instance."""
        if len(children := children_of(supervisor)) > 1:
            os.kill(children[-1], signal.SIGKILL)
            self.kills += 1

    def _view(self, port: int) -> None:
        while not self._over.wait(VIEW_S):
            for path in ("/v1/overview", "/metrics", "/v1/domains", "/v1/jobs"):
                try:
                    with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=10) as answer:
                        answer.read()
                    self.views += 1
                except OSError:
                    self.failed_views += 1

    def _sample(self, at_s: float, supervisor: int, serve: int) -> Sample:
        oldest = (children_of(supervisor) or [supervisor])[0]
        files = [entry for _, _, names in os.walk(self.home / "c") for entry in names]
        with contextlib.closing(self.engine.client()) as client:
            keys, memory = client.dbsize(), client.info("memory")["used_memory"]
        return {
            "at_s": at_s,
            "instance MiB": resident_mib(oldest), "instance descriptors": descriptors(oldest),
            "supervisor MiB": resident_mib(supervisor), "serve MiB": resident_mib(serve),
            "serve descriptors": descriptors(serve), "files": float(len(files) - FILES_OF_A_SESSION * self.kills),
            "engine keys": float(keys), "engine MiB": memory / 2**20,
        }  # fmt: skip


def children_of(pid: int) -> list[int]:
    """The oldest first."""
    with contextlib.suppress(OSError):
        return sorted(map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split()), key=_started)
    return []


def _started(pid: int) -> int:
    with contextlib.suppress(OSError):
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])
    return 0


def resident_mib(pid: int) -> float:
    with contextlib.suppress(OSError):
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20
    return 0.0


def descriptors(pid: int) -> float:
    with contextlib.suppress(OSError):
        return float(sum(1 for _ in Path(f"/proc/{pid}/fd").iterdir()))
    return 0.0


def slope_of(samples: Sequence[Sample], name: str) -> tuple[float, float, float]:
    """The median, the slope an hour, and its error."""
    points = [(sample["at_s"], sample[name]) for sample in samples]
    size = max(1, len(points) // BLOCKS)
    without = [points[: n * size] + points[(n + 1) * size :] for n in range(BLOCKS)]
    slopes = [slope(some) * HOUR_S for some in without]
    return statistics.median(value for _, value in points), slope(points) * HOUR_S, statistics.stdev(slopes)


def report(samples: list[Sample], night: Night, options: argparse.Namespace) -> int:
    late = samples[len(samples) // 3 :]
    hours = (samples[-1]["at_s"] - samples[0]["at_s"]) / HOUR_S
    print(f"{hours:.2f} hours, {night.kills} kills, {night.prunes} prunes, {night.views:,} views "
          f"({night.failed_views} without an answer)")  # fmt: skip
    grown, figures = [], {}
    print(f"\n{'':22} {'median':>10} {'an hour':>10} {'error':>8}")
    for name in samples[0].keys() - {"at_s"}:
        figures[name] = slope_of(late, name)
    for name in (name for name in samples[0] if name != "at_s"):
        median, rise, error = figures[name]
        little = LITTLE["MiB" if name.endswith("MiB") else ""]
        grows = rise - 2 * error > median * options.bound / 100 and rise * hours > little
        grown += [name] if grows else []
        print(f"{name:22} {median:>10.1f} {rise:>+10.2f} {error:>8.2f}  {'GROWS' if grows else 'flat'}")
    print(f"\naudit: exit code {night.audit_code}, {night.audit}")
    if options.json:
        arguments.write_json(options.json, {"figures": figures, "samples": samples, "audit": night.audit}, indent=None)
    return 1 if grown or night.audit_code else 0


def parse_arguments(words: Sequence[str]) -> argparse.Namespace:
    parser, number = arguments.parser("night", __doc__), arguments.positive_float
    parser.add_argument("--minutes", type=number, default=360, help="how long")
    parser.add_argument("--every", type=number, default=5, metavar="S", help="between two samples")
    parser.add_argument("--kill-every", type=number, default=120, metavar="S", help="one instance; 90 or more")
    parser.add_argument("--bound", type=number, default=5, metavar="PERCENT", help="growth an hour that is still flat")
    parser.add_argument("--scratch", type=Path, metavar="DIR", help="for the crawl folder (default: /tmp)")
    arguments.add_json(parser)
    return parser.parse_args(words)
