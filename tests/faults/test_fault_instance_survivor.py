"""One of two instances is killed at a point of the pipeline: the other one has its partitions within ten seconds."""

import sys
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest

from crawler.runtime.crash_points import VARIABLE
from tests.crawl.harness import entries_of
from tests.crawl.lab import name_server
from tests.faults.instance_lab import (
    ELSEWHERE,
    SETTINGS,
    TAKEOVER_S,
    EngineView,
    LittleWeb,
    agent_of,
    asked_twice,
    assert_exact,
    assert_polite,
    by_agent,
    fetched,
    little_web,
    may_be_elsewhere,
    run_instance,
    seed,
    speaking_as,
    wait_until,
    without_port,
)
from tests.support.engine import Engine, running_engine
from tests.support.processes import Nursery, Program, nursery

pytestmark = pytest.mark.processes

KILLED, STOPPED = -9, 10
# Where each dies, and whether a lock file proves it at once. `handover.dropped`: another joins and gets a share.
POINTS = {"claim.taken#6": False, "route.added#6": True, "ack.answered#6": False, "handover.dropped": True}
AT_ONCE_S = 5.0  # 0.2 to 0.4 on a quiet machine; a silence of seven seconds would not do
DELAY_S = {False: 0.1, True: 1.0}  # longer than the quick takeover takes: there only the hold keeps it


@dataclass(frozen=True)
class Taken:
    """What one death left."""

    code: int
    takeover_s: float
    committed: set[str]  # by the dead one, when it died
    died_at: float
    agents: tuple[str, str]  # the one that died, the one that took over
    folders: tuple[Path, Path]


class Pair:
    """Two instances of a crawl of their own; the first one dies at `point`."""

    def __init__(self, programs: Nursery, engine: Engine, web: LittleWeb, home: Path, point: str) -> None:
        self._programs, self._engine, self._web, self._home = programs, engine, web, home
        self._point, self._name = point, point.partition("#")[0]
        self._place = ("--redis", engine.url, "--name", self._name, "--delay", str(DELAY_S[POINTS[point]]))

    def _start(self, n: int, *, armed: bool) -> Program:
        """Each agent's name tells crawl and instance apart in the web server's log."""
        agent = speaking_as(self._label(n))
        environment = {VARIABLE: f"{self._point}=kill"} if armed else {}
        if armed and not POINTS[self._point]:
            return self._start_elsewhere(n, *agent, **environment)
        return run_instance(self._programs, self._home, n, *self._place, *agent, **environment)

    def _start_elsewhere(self, n: int, *options: str, **environment: str) -> Program:
        place = ["--dir", str(self._home / f"c{n}"), "--node", f"node-{n}", *self._place]
        command = [*ELSEWHERE, sys.executable, "-m", "crawler", "run", *place, *options]
        return self._programs.start(*command, **environment)

    def _label(self, n: int) -> str:
        return f"{self._name}-{n}"

    def play(self) -> Taken:
        with self._engine.client() as client:
            view = EngineView(client, self._name)
            mortal = self._start(0, armed=True)
            if self._name == "handover.dropped":
                wait_until(lambda: len(view.held_by("node-0")) == view.partitions, "the first to own all")
                seed(self._programs, self._home, [self._web.seed], *self._place)
                other = self._start(1, armed=False)
            else:
                other = self._start(1, armed=False)
                wait_until(lambda: view.held_by("node-0") and view.held_by("node-1"), "both to own a share")
                seed(self._programs, self._home, [self._web.seed], *self._place)
            code = mortal.wait(60)
            died_at = time.monotonic()
            committed = {e.url for e in entries_of(self._home / "c0")}
            committed |= {url for url, entry in view.log().items() if entry.node == "node-0"}
            wait_until(lambda: len(view.held_by("node-1")) == view.partitions, "the other to own all", timeout_s=30)
            taken_at = time.monotonic()
            wait_until(view.is_done, "the end of the crawl")
            other.terminate()
            assert other.wait() == STOPPED, other.err
        agents = agent_of(self._label(0)), agent_of(self._label(1))
        return Taken(
            code, taken_at - died_at, without_port(committed, self._web), died_at, agents,
            (self._home / "c0", self._home / "c1"),
        )  # fmt: skip


@pytest.fixture(scope="module")
def web() -> Iterator[LittleWeb]:
    with little_web(domains=8, pages=8, delay_s=0.05) as web:
        yield web


@pytest.fixture(scope="module")
def taken(web: LittleWeb, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Future[Taken]]]:
    """All at once, for most of the time is spent in waiting for a silence to last."""
    home = tmp_path_factory.mktemp("survivor")
    with (
        name_server() as dns,
        running_engine() as engine,
        ThreadPoolExecutor(len(POINTS)) as pool,
        nursery(SETTINGS | {"CRAWLER_DNS_NAMESERVERS": dns}) as programs,
    ):
        pairs = {point: Pair(programs, engine, web, home / point, point) for point in POINTS}
        yield {point: pool.submit(pair.play) for point, pair in pairs.items()}
        pool.shutdown()


@pytest.mark.slow
@pytest.mark.skipif(not may_be_elsewhere(), reason="a host name of one's own needs root (unshare --uts)")
@pytest.mark.parametrize("point", POINTS)
def test_the_other_instance_takes_over_within_ten_seconds_of_a_kill(
    point: str, web: LittleWeb, taken: dict[str, Future[Taken]]
) -> None:
    """Where the dead one's lock file can't be tried, as on another machine, only its silence proves its death."""
    found = taken[point].result()
    assert found.code == KILLED
    assert found.takeover_s < (AT_ONCE_S if POINTS[point] else TAKEOVER_S)
    assert_exact(web, [entry for folder in found.folders for entry in entries_of(folder)])
    spoken = by_agent(web.requests())
    dead, living = (spoken[agent] for agent in found.agents)
    assert living
    assert found.committed & set(fetched(r for r in living if r.start > found.died_at)) == set()
    assert asked_twice([*dead, *living]) <= set(fetched(dead)) - found.committed
    assert_polite(sorted([*dead, *living], key=lambda r: r.start), DELAY_S[POINTS[point]])
