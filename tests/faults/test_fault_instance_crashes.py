"""kill -9 at every named point of the pipeline, twice, and the same command again: the crawl ends exact."""

import math
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import redis

from crawler.engine.embedded import EmbeddedEngine
from crawler.runtime.crash_points import POINTS, VARIABLE
from tests.crawl.harness import entries_of
from tests.crawl.lab import name_server
from tests.faults.instance_lab import (
    SETTINGS,
    EngineView,
    LittleWeb,
    asked_twice,
    assert_archive_whole,
    assert_attempts_bounded,
    assert_exported_once,
    assert_polite,
    fetched,
    little_web,
    without_port,
)
from tests.support.processes import Nursery, Program, nursery
from tests.support.serving import Request

pytestmark = pytest.mark.processes

DELAY_S = 0.03
KILLED = -9
DEEP = {  # the first kill comes when the point is reached for this time: the crawl is in full swing by then
    "claim.taken": 5,
    "robots.answered": 3,
    "fetch.checked": 12,
    "fetch.answered": 12,
    "page.parsed": 8,
    "archive.written": 4,
    "archive.synced": 4,
    "route.added": 4,
    "ack.answered": 4,
    "end.answered": 3,
    "index.synced": 2,
    "drain.answered": 2,
}
KILLS = 2  # the second one when the crawl that was resumed first reaches the point


AT_POINTS = tuple(
    point
    for point in POINTS
    if "spill" not in point and point not in ("prune.step", "rehandle.step", "request.noted", "login.done")
)  # those have a crawl of their own: test_overflow.py, test_posts_sent_once.py, test_sessions_taken_over.py


@dataclass(frozen=True)
class Death:
    """When a process began and died (monotonic seconds), and what was committed by then."""

    began: float
    record_crash: float
    committed: frozenset[str]
    archived: dict[str, bytes]  # the archive's files that it left open, by their final names


class Crawl:
    """One crawl folder, and the command that begins and resumes its crawl."""

    def __init__(self, programs: Nursery, web: LittleWeb, folder: Path, point: str) -> None:
        self._programs, self._web, self.point = programs, web, point
        self.folder = folder
        self.agent = f"test {point}"
        self.deaths: list[Death] = []

    def run(self, *, killed_at: int = 0) -> Program:
        """`killed_at`: when the point is reached for this time; 0: never."""
        options = ["--dir", str(self.folder), "--delay", str(DELAY_S), "--concurrency", "8", "--user-agent", self.agent]
        environment = {VARIABLE: f"{self.point}#{killed_at}=kill"} if killed_at else {}
        program = self._programs.crawler("crawl", self._web.seed, *options, "--quiet", **environment)
        program.wait(60)
        return program

    def die(self, killed_at: int) -> int:
        """Run into the crash point."""
        began = time.monotonic()
        code = self.run(killed_at=killed_at).process.returncode
        if code == KILLED:
            left = (self.folder / "warc").glob("*.open")
            archived = {path.name.removesuffix(".open"): path.read_bytes() for path in left}
            self.deaths.append(Death(began, time.monotonic(), self._committed(), archived))
        return code

    def _committed(self) -> frozenset[str]:
        """In the index, or in the log of the engine, which outlives its crawler."""
        with redis.Redis.from_url(EmbeddedEngine(self.folder / "engine").url, retry=None) as client:
            urls = {*(e.url for e in entries_of(self.folder)), *EngineView(client).log()}
        return frozenset(without_port(urls, self._web))

    @property
    def requests(self) -> list[Request]:
        return self._web.requests_of(self.agent)

    def in_flight(self) -> set[str]:
        """What was asked for by a process that died before it was committed."""
        return {
            url
            for d in self.deaths
            for url in set(fetched(self._between(d.began, d.record_crash)))
            if url not in d.committed
        }

    def repeated_commits(self) -> set[str]:
        """What was committed when a process died, and asked for again."""
        return {url for d in self.deaths for url in d.committed & set(fetched(self._between(d.record_crash, math.inf)))}

    def appended_to(self) -> list[str]:
        """Files of the archive that a dead process had left and that are more than what it had written."""
        left = [item for death in self.deaths for item in death.archived.items()]
        paths = [(self.folder / "warc" / name, data) for name, data in left]
        return [path.name for path, data in paths if path.exists() and not data.startswith(path.read_bytes())]

    def _between(self, first: float, last: float) -> list[Request]:
        return [r for r in self.requests if first <= r.start < last]


def crashed_and_finished(crawl: Crawl) -> Crawl:
    codes = [crawl.die(DEEP.get(crawl.point, 1)), *(crawl.die(1) for _ in range(KILLS - 1))]
    assert codes[0] == KILLED, f"{codes}: the point was never reached"
    assert set(codes) <= {KILLED, 0}  # where only the end of the crawl was left, there is nothing to die of
    last = crawl.run()
    assert last.process.returncode == 0, last.err
    return crawl


@pytest.fixture(scope="module")
def web() -> Iterator[LittleWeb]:
    with little_web(domains=4, pages=3, delay_s=0.05) as web:
        yield web


@pytest.fixture(scope="module")
def programs() -> Iterator[Nursery]:
    with name_server() as dns, nursery(SETTINGS | {"CRAWLER_DNS_NAMESERVERS": dns}) as programs:
        yield programs
        assert programs.left() == [], "an engine was left behind"


@pytest.mark.slow(ci=True)
@pytest.mark.parametrize(
    "point", [pytest.param(one, marks=pytest.mark.slow) if n % 12 else one for n, one in enumerate(AT_POINTS)]
)
def test_a_crawl_killed_at_this_point_and_started_again_ends_exact(
    point: str, web: LittleWeb, programs: Nursery, tmp_path: Path
) -> None:
    """Nothing lost, nothing twice, no early request; only uncommitted pages were fetched again."""
    crawl = crashed_and_finished(Crawl(programs, web, tmp_path, point))
    assert_exported_once(web, crawl.folder)
    assert_archive_whole(crawl.folder)
    assert crawl.appended_to() == []
    requests = crawl.requests
    assert crawl.repeated_commits() == set()
    assert asked_twice(requests) <= crawl.in_flight()
    assert_attempts_bounded(requests, KILLS)
    assert_polite(requests, DELAY_S)
