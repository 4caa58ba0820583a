"""Instances come and go on purpose: nothing is asked for twice; a name that is taken is refused."""

import sys
import time
from pathlib import Path

import pytest

from tests.crawl.harness import entries_of
from tests.crawl.lab import name_server
from tests.faults.instance_lab import (
    ELSEWHERE,
    SETTINGS,
    EngineView,
    agent_of,
    asked_twice,
    assert_attempts_bounded,
    assert_exact,
    assert_polite,
    by_agent,
    events,
    little_web,
    may_be_elsewhere,
    run_instance,
    seed,
    wait_until,
)
from tests.support.engine import Engine
from tests.support.processes import nursery

pytestmark = pytest.mark.processes

DELAY_S = 0.5
RELEASE_S = 2.0  # I8: after a leaver's last fetch
STOPPED, TAKEN = 10, 4


@pytest.mark.slow
def test_scaling_from_one_to_four_to_two_fetches_nothing_twice(tmp_path: Path, engine: Engine) -> None:
    """SIGTERM: what is in flight ends and is acked, the rest is given back, the leases are released."""
    place = ("--redis", engine.url, "--delay", str(DELAY_S))
    agents = [agent_of(f"node-{n}") for n in range(4)]
    with name_server() as dns, little_web(domains=12, pages=6, delay_s=0.1) as web, engine.client() as client:
        view = EngineView(client)
        with nursery(SETTINGS | {"CRAWLER_DNS_NAMESERVERS": dns}) as programs:
            running = [run_instance(programs, tmp_path, 0, *place)]
            wait_until(lambda: len(view.held_by("node-0")) == view.partitions, "the first to own all")
            seed(programs, tmp_path, [web.seed], *place)
            wait_until(lambda: len(web.requests()) > 10, "the crawl to begin")
            running += [run_instance(programs, tmp_path, n, *place) for n in range(1, 4)]
            wait_until(lambda: set(by_agent(web.requests())) == set(agents), "all four to fetch")
            assert not view.is_done(), "the crawl was too short: this test tests nothing"
            leavers = (0, 2)
            asked_at = time.monotonic()
            for n in leavers:
                running[n].terminate()
            wait_until(lambda: view.held_by("node-1") | view.held_by("node-3") == set(range(view.partitions)), "two")
            released_at = time.monotonic()
            assert not view.is_done(), "the crawl was too short: this test tests nothing"
            assert [running[n].wait() for n in leavers] == [STOPPED, STOPPED]
            wait_until(view.is_done, "the end of the crawl")
            for n in (1, 3):
                running[n].terminate()
            assert [running[n].wait() for n in (1, 3)] == [STOPPED, STOPPED]
        requests = web.requests()
    last_fetch = max(by_agent(requests)[agents[n]][-1].end for n in leavers)
    assert released_at - max(asked_at, last_fetch) < RELEASE_S
    assert asked_twice(requests) == set()
    assert_attempts_bounded(requests, deaths=0)
    assert_exact(web, [entry for n in range(4) for entry in entries_of(tmp_path / f"c{n}")])
    assert_polite(requests, DELAY_S)
    assert [line for n in range(4) for line in events(tmp_path, n) if "fenced" in line["event"]] == []


@pytest.mark.slow
@pytest.mark.parametrize("elsewhere", [False, True], ids=["on this machine", "on another one"])
def test_a_node_name_in_use_is_refused_without_harm_to_its_holder(
    tmp_path: Path, engine: Engine, elsewhere: bool
) -> None:
    if elsewhere and not may_be_elsewhere():
        pytest.skip("a host name of one's own needs root (unshare --uts)")
    place = ["--redis", engine.url, "--delay", "0.1"]
    with name_server() as dns, little_web(domains=4) as web, engine.client() as client:
        view = EngineView(client)
        with nursery(SETTINGS | {"CRAWLER_DNS_NAMESERVERS": dns}) as programs:
            first = run_instance(programs, tmp_path, 0, *place)
            wait_until(lambda: len(view.held_by("node-0")) == view.partitions, "the first to own all")
            leases = view.leases()
            command = [sys.executable, "-m", "crawler", "run", "--dir", str(tmp_path / "twin"), "--node", "node-0"]
            twin = programs.start(*(ELSEWHERE if elsewhere else ()), *command, *place)
            seed(programs, tmp_path, [web.seed], *place)
            assert twin.wait() == TAKEN
            assert twin.err.splitlines()[-1].startswith("crawler: node 'node-0' is already running (session ")
            assert "Traceback" not in twin.err
            wait_until(view.is_done, "the end of the crawl")
            assert view.leases() == leases
            first.terminate()
            assert first.wait() == STOPPED, first.err
        requests = web.requests()
    assert_exact(web, entries_of(tmp_path / "c0"))
    assert asked_twice(requests) == set()
    assert events(tmp_path, 0) == []
