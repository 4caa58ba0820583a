"""What tests of frontiers larger than their memory share: a domain of pages with very long names, and its crawlers."""

import contextlib
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from tests.crawl.harness import entries_of
from tests.crawl.lab import QUICK, name_server
from tests.faults.instance_lab import EngineView, wait_until
from tests.support.engine import Engine
from tests.support.processes import Nursery, Program, nursery
from tests.support.serving import Site, serve_resources
from tests.support.web import Resource

LISTS, LINKS = 20, 300  # pages of links, all to one domain: one queue of 6,000 URLs
PATH_BYTES = 2000
FRONTIER_BYTES = LISTS * LINKS * PATH_BYTES
HOST = "d0.test"
SETTINGS = QUICK | {
    "CRAWLER_SCOPE_MODE": "any",
    "CRAWLER_POLITENESS_DELAY_S": "0",
    "CRAWLER_POLITENESS_CONCURRENCY_PER_QUEUE": "16",
    "CRAWLER_FRONTIER_CLAIM_URLS_MAX": "16",
    "CRAWLER_TRAPS_OFF": "long",
    "CRAWLER_ARCHIVE_WARC": "no",
    "CRAWLER_INTERNALS_ARCHIVE_SYNC_PAGES": "32",
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
class OverflowLab:
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
        assert seeded.wait() == 0, seeded.err

    def used_bytes(self) -> int:
        with contextlib.closing(self.engine.client()) as client:
            return int(client.info("memory")["used_memory"])

    def idle_bytes(self) -> int:
        """What the engine uses while an instance waits for work."""
        program = self.start(0)
        program.wait_for("waits for work")
        with self.view() as view:
            wait_until(lambda: len(view.held_by("node-0")) == view.partitions, "all partitions")
        time.sleep(1.0)  # its own look at the memory, and a sweep
        used = self.used_bytes()
        program.terminate()
        program.wait()
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


@contextlib.contextmanager
def overflow_lab(folder: Path, engine: Engine) -> Iterator[OverflowLab]:
    with name_server() as dns, serve_resources(web()) as site, nursery(SETTINGS) as programs:
        programs.environment["CRAWLER_DNS_NAMESERVERS"] = dns
        yield OverflowLab(programs, site, engine, folder)
