"""Jobs with the real program: a little web, instances in processes, commands, and what must hold of runs afterwards.

The pages of a run are judged by `crawler export`, its end by the job's history, what it leaves by the engine's keys.
"""

import contextlib
import json
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from crawler.cli.main import main
from crawler.errors import EngineDown, Stopped
from tests.crawl.lab import QUICK, name_server
from tests.frontier.raw import dump
from tests.support.engine import Engine
from tests.support.processes import Nursery, Program, nursery
from tests.support.serving import Site, serve_resources
from tests.support.web import Resource

PARTITIONS = 16
SETTINGS = QUICK | {
    "CRAWLER_CRAWL_PARTITIONS": str(PARTITIONS),
    "CRAWLER_POLITENESS_DELAY_S": "0",
    "CRAWLER_JOBS_HISTORY_ROWS": "1000",
}
HOSTS = 3
KEPT = (b":closed", b":dead", b":l", b":jobs", b":failed")  # keys that may name a run that has ended

Json = dict[str, Any]


def pages_of(hosts: int, pages: int) -> dict[tuple[str, str], Resource]:
    """dN.test, each with a home page that leads to its other pages."""
    web: dict[tuple[str, str], Resource] = {}
    for n in range(hosts):
        names = [f"/p{k}" for k in range(pages)]
        web[f"d{n}.test", "/"] = Resource(body="".join(f'<a href="{name}">x</a>' for name in names))
        web |= {(f"d{n}.test", name): Resource(body='<a href="/">home</a>') for name in names}
    return web


@dataclass
class Lab:
    """One crawl, on an engine that runs."""

    folder: Path
    engine: Engine
    site: Site
    programs: Nursery
    capsys: pytest.CaptureFixture[str]
    hosts: int
    pages: int
    kept: dict[int, Program] = field(default_factory=dict)
    environments: dict[int, dict[str, str]] = field(default_factory=dict)

    @property
    def seeds(self) -> list[str]:
        return [self.site.url(f"d{n}.test") for n in range(self.hosts)]

    @property
    def expected(self) -> Counter[str]:
        """The pages of a complete run, each once."""
        paths = ["/", *(f"/p{k}" for k in range(self.pages))]
        return Counter(self.site.url(f"d{n}.test", path) for n in range(self.hosts) for path in paths)

    def instance(self, n: int = 0, *options: str, **environment: str) -> Program:
        """`crawler run` as node-N."""
        place = ["--dir", str(self.folder), "--node", f"node-{n}", "--redis", self.engine.url]
        return self.programs.crawler("run", *place, *options, **environment)

    def keep(self, n: int = 0, **environment: str) -> Program:
        """An instance that is to run: on a machine too busy for its engine it is started again, as people do."""
        self.environments[n] = environment
        program = self.kept[n] = self.instance(n, **environment)
        return program

    def stop(self) -> None:
        """Stop the instances that are kept, one after another."""
        for program in self.kept.values():
            program.wait_for("waits for work")  # before, the signal would just end it
            program.terminate()
            assert program.wait(60) in (Stopped.exit_code, 0), program.err

    def command(self, *words: str) -> tuple[int, str, str]:
        """A command in this process: exit code, output, errors. It is repeated when the machine is too busy for it."""
        for _ in range(10):
            self.capsys.readouterr()
            code = main([*words, "--redis", self.engine.url])
            out, err = self.capsys.readouterr()
            if code != EngineDown.exit_code:
                break
            time.sleep(0.5)
        return code, out, err

    def jobs(self, *words: str) -> Json:
        code, out, err = self.command("jobs", *words, "--json")
        assert code == 0, err
        return dict(json.loads(out))

    def add(self, name: str, *options: str) -> Json:
        """A job that crawls the whole web."""
        return self.jobs("add", name, *self.seeds, "--set", f"crawl.partitions={PARTITIONS}", *options)

    def add_soon(self, name: str, *, seeds: Sequence[str] = ()) -> None:
        """A job that runs once, in some seconds: more of them where a command takes as long."""
        for seconds in (3, 10, 30):
            at = (datetime.now(UTC) + timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%SZ")
            words = ("--at", at, "--catchup", "all", "--set", f"crawl.partitions={PARTITIONS}")
            code, _, err = self.command("jobs", "add", name, *(seeds or self.seeds), *words)
            if code == 0 or "has passed" not in err:
                break
        assert code == 0, err

    def history(self, name: str) -> list[Json]:
        """All rows, oldest first."""
        return list(reversed(self.jobs("history", name, "--limit", "0")["rows"]))

    def exported(self, run: str = "") -> dict[str, Counter[str]]:
        """The pages of one run, or of all, by run."""
        self.capsys.readouterr()
        code = main(["export", *(("--run", run) if run else ()), "--dir", str(self.folder)])
        out, err = self.capsys.readouterr()
        assert code == 0, err
        found: dict[str, Counter[str]] = {}
        for page in map(json.loads, out.splitlines()):
            found.setdefault(page.get("run", ""), Counter())[page["url"]] += 1
        return found

    def audit(self) -> None:
        """With the web server's log: nothing lost, doubled or impolite."""
        code, out, err = self.command("audit", "--dir", str(self.folder), "--web-log", str(self.site._log))
        assert code == 0, out + err

    def left(self) -> list[str]:
        """What is left in the engine of runs that have ended: keys of theirs, and fields that name them."""
        with contextlib.closing(self.engine.client()) as client:
            whole = dump(client, "{main:*")
        runs = {row["run"] for job in self.jobs("list")["jobs"] for row in self.history(job["name"]) if row.get("run")}
        named = [run.encode() for run in runs]
        return [
            f"{key!r}: {str(value)[:200]}"
            for key, value in whole.items()
            if not key.endswith(KEPT) and b":ledger:" not in key
            and any(run in key or run in repr(value).encode() for run in named)
        ]  # fmt: skip

    def until(self, condition: Callable[[], object], what: str, *, timeout_s: float = 60.0) -> None:
        """Wait, and keep running what is kept."""
        deadline = time.monotonic() + timeout_s
        while not condition():
            for n, program in self.kept.items():
                if program.process.poll() is not None:
                    assert program.wait() == EngineDown.exit_code, program.err
                    self.kept[n] = self.instance(n, **self.environments[n])
            if time.monotonic() > deadline:
                raise TimeoutError(f"waited {timeout_s:g} s for {what}")
            time.sleep(0.1)


@contextlib.contextmanager
def job_lab(
    folder: Path, engine: Engine, capsys: pytest.CaptureFixture[str], *, hosts: int = HOSTS, pages: int = 4
) -> Iterator[Lab]:
    with (
        name_server() as dns,
        serve_resources(pages_of(hosts, pages)) as site,
        nursery(SETTINGS | {"CRAWLER_DNS_NAMESERVERS": dns}) as programs,
    ):
        yield Lab(folder / "c", engine, site, programs, capsys, hosts, pages)


def nominal_of(row: Json) -> float:
    """The nominal time of a row, seconds."""
    return datetime.fromisoformat(row["nominal"]).timestamp()


def assert_no_gap_and_no_double(rows: list[Json], every_s: int) -> None:
    """Each nominal time is in one row."""
    following = None
    for row in rows:
        first = nominal_of(row) if "nominal" in row else nominal_of({"nominal": row["from"]})
        last = first if "nominal" in row else nominal_of({"nominal": row["to"]})
        assert last - first == every_s * (row.get("count", 1) - 1), row
        assert following in (None, first), row
        following = last + every_s
    assert following is not None
