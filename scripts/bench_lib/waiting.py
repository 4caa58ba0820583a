"""What a crawl costs that waits: the CPU and wake-ups of an instance, the CPU and commands of its engine.

`at rest`: instances of `crawler run` whose crawl has nothing to do. `delays`: the same with many domains, each of which
was fetched once and waits for a delay of ten minutes. `page a second`: `crawler crawl` of one domain with a delay of
one second. `full speed`: the same domain without a delay; it has the CPU of a page alone. Figures are for one instance,
those of the engine for all together. Wake-ups are the voluntary context switches of all threads of an instance.
"""

import argparse
import contextlib
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from crawler.testing.generated_web import Resource
from crawler.testing.web_server import serve
from scripts.bench_lib import arguments
from scripts.bench_lib.measure import FailedError, below
from scripts.bench_lib.peer_environments import CRAWLER, clean_environment
from scripts.bench_lib.servers import raise_file_limit
from tests.support.engine import Engine, running_engine

SETTLED_S = 10.0  # from the start of the last instance: all have their partitions, and their imports are over
END_S = 30.0
PAGES = 5_000
DELAY_S = 600.0
SEEDED_PAGE = "<!doctype html><title>One page</title><p>It leads nowhere.</p>"


@dataclass(frozen=True, kw_only=True)
class Case:
    """What is crawled, and by how many instances."""

    name: str
    partitions: int = 1024
    instances: int = 1
    domains: int = 0
    delay_s: float = DELAY_S
    pages: int = 1  # of each domain
    is_crawl: bool = False  # `crawler crawl`, which looks for its end, instead of `crawler run`


@dataclass(frozen=True, kw_only=True)
class Figures:
    """Of one instance, but the engine's. CPU in % of a core; the others are for each second."""

    cpu: float
    engine_cpu: float
    wakeups: float
    commands: float
    pages: float
    by_command: dict[str, float] = field(default_factory=dict)

    @property
    def page_ms(self) -> float:
        """CPU of an instance for a page, ms."""
        return 10 * self.cpu / self.pages if self.pages else 0.0


CASES = (
    Case(name="engine alone", instances=0),
    *(Case(name="at rest", partitions=p, instances=n) for p in (1024, 4096) for n in (1, 8)),
    Case(name="delays", domains=1000),
    Case(name="delays, crawl", domains=1000, is_crawl=True),
    Case(name="page a second", domains=1, pages=PAGES, delay_s=1.0, is_crawl=True),
    Case(name="full speed", domains=40, pages=PAGES // 2, delay_s=0.0, is_crawl=True),
)


@contextlib.contextmanager
def crawling(case: Case, engine: Engine, home: Path) -> Iterator[list[int]]:
    """The instances of a case, until the context ends: ids of their processes, parents of `crawler crawl` included."""
    pages = {
        f"http://d{n}.example/{number or ''}": Resource(body=links_of(n, case.pages) if not number else SEEDED_PAGE)
        for n in range(case.domains)
        for number in range(case.pages)
    }
    with contextlib.ExitStack() as stack:
        environment = clean_environment()
        if pages:
            environment |= stack.enter_context(serve(pages)).environment
        environment |= {
            "CRAWLER_POLITENESS_DELAY_S": f"{case.delay_s:g}",
            "CRAWLER_POLITENESS_DELAY_MAX_S": f"{DELAY_S:g}",
        }
        environment["CRAWLER_CRAWL_PARTITIONS"] = str(case.partitions)
        where = ["--redis", engine.url]
        seeds = [f"http://d{n}.example/" for n in range(case.domains)]
        words = ["crawl", *seeds] if case.is_crawl else ["run"]
        if seeds and not case.is_crawl:
            command = [*CRAWLER, "seed", *seeds, "--dir", str(home / "crawl-0"), *where]
            subprocess.run(command, env=environment, check=True, stdin=subprocess.DEVNULL, capture_output=True)
        processes = []
        for n in range(case.instances):
            command = [*CRAWLER, *words, "--node", f"n{n}", "--dir", str(home / f"crawl-{n}"), "-q", *where]
            log = stack.enter_context((home / f"log-{n}").open("wb"))
            process = subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
            processes.append(process)
            stack.callback(end, process)
        time.sleep(SETTLED_S + 2 * case.instances + case.domains / 30)
        for n, process in enumerate(processes):
            if process.poll() is not None:
                raise FailedError(f"an instance has ended: {(home / f'log-{n}').read_text(errors='replace')[-500:]}")
        yield sorted(pid for process in processes for pid in {process.pid} | below(process.pid))


def links_of(n: int, pages: int) -> str:
    return "<!doctype html>" + "".join(f"<a href='/{number}'>{n}</a>" for number in range(1, pages))


def end(process: "subprocess.Popen[bytes]") -> None:
    process.terminate()
    try:
        process.wait(END_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def cpu_of(pid: int) -> float:
    """CPU seconds of all threads of a process so far, exactly: those of /proc/PID/stat are counted in hundredths."""
    return sum(int((task / "schedstat").read_text().split()[0]) for task in Path(f"/proc/{pid}/task").iterdir()) / 1e9


def wakeups_of(pid: int) -> int:
    """Voluntary context switches of all threads so far."""
    lines = [line for task in Path(f"/proc/{pid}/task").iterdir() for line in (task / "status").read_text().split("\n")]
    return sum(int(line.split()[1]) for line in lines if line.startswith("voluntary_ctxt_switches"))


@dataclass(frozen=True)
class Mark:
    """Sums until then."""

    at_s: float
    cpu_s: float
    engine_cpu_s: float
    wakeups: int
    commands: dict[str, int]

    @classmethod
    def of(cls, engine: Engine, pids: Sequence[int]) -> "Mark":
        with contextlib.closing(engine.client()) as client:
            stats = client.info("commandstats")
        calls = {name.removeprefix("cmdstat_"): int(one["calls"]) for name, one in stats.items()}
        return cls(time.monotonic(), sum(map(cpu_of, pids)), cpu_of(engine.pid), sum(map(wakeups_of, pids)), calls)


def pages_of(engine: Engine, case: Case) -> int:
    """Fetched pages so far."""
    with contextlib.closing(engine.client()) as client, client.pipeline(transaction=False) as pipeline:
        for partition in range(case.partitions if case.domains else 0):
            pipeline.hget(f"{{main:{partition}}}:m", "s2")
        return sum(int(n or 0) for n in pipeline.execute())


def measured(case: Case, seconds: float) -> Figures:
    """The case, in a new engine and folder."""
    with (
        running_engine() as engine, tempfile.TemporaryDirectory(prefix="bench-") as home,
        crawling(case, engine, Path(home)) as pids,
    ):  # fmt: skip
        before = pages_of(engine, case)
        a = Mark.of(engine, pids)
        time.sleep(seconds)
        b = Mark.of(engine, pids)
        pages = pages_of(engine, case) - before
    span, n = b.at_s - a.at_s, max(1, case.instances)
    # Scripts count their own commands, too; what this program asked is left out.
    calls = {name: (sum_ - a.commands.get(name, 0)) / span for name, sum_ in b.commands.items()}
    calls = {name: rate for name, rate in calls.items() if name != "info" and rate > 0}
    return Figures(
        cpu=100 * (b.cpu_s - a.cpu_s) / span / n,
        engine_cpu=100 * (b.engine_cpu_s - a.engine_cpu_s) / span,
        wakeups=(b.wakeups - a.wakeups) / span / n,
        commands=sum(calls.values()),
        pages=pages / span,
        by_command=dict(sorted(calls.items(), key=lambda one: -one[1])),
    )


def main(words: Sequence[str]) -> int:
    options = parse_arguments(words)
    raise_file_limit()
    figures = dict[str, object]()
    print("| | partitions | instances | CPU, % | wake-ups/s | engine, % | commands/s | pages/s | CPU of a page, ms |")
    print("|---|---|---|---|---|---|---|---|---|", flush=True)
    for case in CASES:
        if options.only in f"{case.name} {case.partitions} {case.instances}":
            found = measured(case, options.seconds)
            print(line_of(case, found), flush=True)
            if options.commands:
                print("\n".join(f"    {rate:9.1f} {name}" for name, rate in found.by_command.items()), flush=True)
            figures[f"{case.name}, {case.partitions}, {case.instances}"] = asdict(found)
    arguments.write_json(options.json, figures)
    return 0


def line_of(case: Case, found: Figures) -> str:
    page = f"{found.page_ms:.2f}" if case.pages > 1 else ""
    return (
        f"| {case.name} | {case.partitions:,} | {case.instances} | {found.cpu:.2f} | {found.wakeups:.1f} "
        f"| {found.engine_cpu:.2f} | {found.commands:.0f} | {found.pages:.1f} | {page} |"
    )


def parse_arguments(words: Sequence[str]) -> argparse.Namespace:
    parser = arguments.parser("waiting", __doc__)
    parser.add_argument("--seconds", type=arguments.positive_float, default=60.0, help="of each case")
    parser.add_argument("--only", default="", metavar="TEXT", help="cases with this in their names")
    parser.add_argument("--commands", action="store_true", help="also the engine's commands by name")
    arguments.add_json(parser)
    return parser.parse_args(words)
