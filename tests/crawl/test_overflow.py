"""A frontier far larger than the memory it may use: what has no room lies in files, whoever dies meanwhile."""

import contextlib
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.crawl.harness import entries_of
from tests.crawl.lab import QUICK, name_server
from tests.faults.instance_lab import EngineView, wait_until
from tests.support.engine import Engine
from tests.support.processes import Nursery, Program, nursery
from tests.support.serving import Site, serve_resources
from tests.support.web import Resource

pytestmark = pytest.mark.processes

LISTS, LINKS = 20, 300  # pages of links, all to one domain: one queue of 6,000 URLs
PATH_BYTES = 2000
FRONTIER_BYTES = LISTS * LINKS * PATH_BYTES
TENFOLD = 10
HOST = "d0.test"
KILLED = -9
SETTINGS = QUICK | {
    "CRAWLER_SCOPE_MODE": "any",
    "CRAWLER_POLITENESS_DELAY_S": "0",
    "CRAWLER_POLITENESS_CONCURRENCY_PER_QUEUE": "16",
    "CRAWLER_FRONTIER_CLAIM_URLS_MAX": "16",
    "CRAWLER_TRAPS_OFF": "long",
    "CRAWLER_ARCHIVE_WARC": "no",
    "CRAWLER_ARCHIVE_SYNC_PAGES": "32",
    "CRAWLER_FETCH_CONCURRENCY": "4",
    "CRAWLER_LOG_LEVEL": "warning",
}


def leaf(number: int) -> str:
    return f"/{number:06d}-".ljust(PATH_BYTES, "x")


def web() -> dict[tuple[str, str], Resource]:
    """A home page, pages of links, and what they lead to: nothing is there, which is a result."""
    pages = {(HOST, "/"): "".join(f'<a href="/list{n}">x</a>' for n in range(LISTS))}
    for n in range(LISTS):
        links = "".join(f'<a href="{leaf(n * LINKS + k)}">x</a>' for k in range(LINKS))
        pages[HOST, f"/list{n}"] = f"<title>{n}</title>{links}"
    return {where: Resource(body=body) for where, body in pages.items()}


@dataclass
class Lab:
    """The web, an engine, and instances with a crawl folder each."""

    programs: Nursery
    site: Site
    engine: Engine
    folder: Path
    started: list[Program] = field(default_factory=list)

    def start(self, budget: int, *, spill: bool = True, **environment: str) -> Program:
        n = len(self.started)
        options = ["--redis", self.engine.url, "--dir", str(self.folder / f"c{n}"), "--node", f"node-{n}"]
        mine = {"CRAWLER_FRONTIER_MEMORY": str(budget)} | environment
        if spill:
            mine["CRAWLER_FRONTIER_SPILL_FOLDER"] = str(self.folder / "spill")
        self.started.append(self.programs.crawler("run", *options, **mine))
        return self.started[-1]

    def seed(self) -> None:
        seeded = self.programs.crawler(
            "seed", "--redis", self.engine.url, "--dir", str(self.folder / "s"), self.site.url(HOST)
        )
        assert seeded.wait(30) == 0, seeded.err

    def used_bytes(self) -> int:
        with contextlib.closing(self.engine.client()) as client:
            return int(client.info("memory")["used_memory"])

    def idle_bytes(self) -> int:
        """What the engine uses while an instance waits for work."""
        program = self.start(0)
        program.wait_for("waits for work")
        time.sleep(1.0)
        used = self.used_bytes()
        program.terminate()
        program.wait(20)
        return used

    @contextlib.contextmanager
    def view(self) -> Iterator[EngineView]:
        with contextlib.closing(self.engine.client()) as client:
            yield EngineView(client, partitions=64)

    def statuses(self) -> dict[str, int]:
        """Of all commits, each made once."""
        entries = [e for n in range(len(self.started)) for e in entries_of(self.folder / f"c{n}")]
        commits = {(e.url, e.session, e.epoch, e.fetched_at) for e in entries}
        assert len(commits) == len({e.url for e in entries}), "committed twice"
        return {e.url: e.status for e in entries}

    def expected(self) -> dict[str, int]:
        lists = {self.site.url(HOST, f"/list{n}"): 200 for n in range(LISTS)}
        leaves = {self.site.url(HOST, leaf(n)): 404 for n in range(LISTS * LINKS)}
        return {self.site.url(HOST): 200} | lists | leaves


@pytest.fixture
def lab(tmp_path: Path, engine: Engine) -> Iterator[Lab]:
    with name_server() as dns, serve_resources(web()) as site, nursery(SETTINGS) as programs:
        programs.environment["CRAWLER_DNS_NAMESERVERS"] = dns
        yield Lab(programs, site, engine, tmp_path)


def spilled_share(view: EngineView) -> float:
    """Of all pending URLs."""
    added, done, spilled = view.totals("added", "done", "spilled")
    return spilled / max(1, added - done)


def test_a_frontier_ten_times_its_memory_is_crawled_to_the_end_whoever_dies(lab: Lab) -> None:
    """One owner dies with a file that nobody was told of, one having told, one with blocks just back, one somewhere."""
    idle = lab.idle_bytes()
    budget = idle + FRONTIER_BYTES // TENFOLD
    first = lab.start(budget, SHARDCRAWL_CRASH_POINT="spill.written=kill")
    first.wait_for("waits for work")
    lab.seed()
    assert first.wait(30) == KILLED
    assert lab.start(budget, SHARDCRAWL_CRASH_POINT="spill.told=kill").wait(30) == KILLED
    third = lab.start(budget, SHARDCRAWL_CRASH_POINT="unspill.answered#4=kill")
    with lab.view() as view:
        wait_until(lambda: spilled_share(view) > 0.8, "the frontier to lie on disk")
        wait_until(lambda: lab.used_bytes() < budget, "room in the engine", timeout_s=5)
        assert third.wait(40) == KILLED
        fourth = lab.start(budget)
        before = view.totals("done")[0]
        wait_until(lambda: view.totals("done")[0] > before + 500, "work of its own")
        fourth.kill()
        assert spilled_share(view) > 0
        used: list[int] = []
        last = lab.start(budget)
        wait_until(lambda: used.append(lab.used_bytes()) or view.is_done(), "the end", every_s=0.2)
        assert view.totals("spilled") == [0]
    assert max(used) < idle + 2 * FRONTIER_BYTES // TENFOLD  # beside the queue stand claims, and commits to be indexed
    last.terminate()
    last.wait(30)
    assert lab.statuses() == lab.expected()


def test_without_a_folder_claims_wait_for_room_and_nothing_is_lost(lab: Lab) -> None:
    budget = lab.idle_bytes() + FRONTIER_BYTES // 3
    first = lab.start(budget, spill=False)
    first.wait_for("waits for work")
    lab.seed()
    with lab.view() as view:
        wait_until(lambda: lab.used_bytes() > budget, "the budget to be used up")
        time.sleep(2.0)
        waiting, later = view.totals("added", "done"), 0.0
        time.sleep(2.0)
        assert view.totals("added", "done") == waiting, "it went on"
        assert view.claims_out() == 0
        assert view.totals("spilled") == [0]
        first.terminate()
        assert first.wait(30) == 10
        lab.start(0, spill=False)
        later = wait_until(view.is_done, "the end")
    assert later > 0
    lab.started[-1].terminate()
    lab.started[-1].wait(30)
    assert lab.statuses() == lab.expected()
