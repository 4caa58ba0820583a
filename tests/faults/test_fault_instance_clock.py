"""The wall clock of an instance is set by an hour, either way, again and again in mid-crawl: nothing depends on it."""

import itertools
import time
from pathlib import Path

import pytest

from tests.crawl.harness import entries_of
from tests.crawl.lab import name_server
from tests.faults.instance_lab import (
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
    run_instance,
    seed,
    wait_until,
)
from tests.support.engine import Engine
from tests.support.processes import nursery

pytestmark = pytest.mark.processes

LIBRARIES = [
    *Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1"),
    *Path("/usr/lib/faketime").glob("libfaketimeMT.*"),
]
DELAY_S = 0.3
HOUR_S = 3600
STEP_EVERY_S = 0.4
STOPPED = 10


@pytest.mark.slow
@pytest.mark.skipif(not LIBRARIES, reason="libfaketime is not installed (Debian: faketime)")
def test_an_instance_whose_wall_clock_jumps_by_hours_crawls_as_any_other(tmp_path: Path, engine: Engine) -> None:
    """Its monotonic clock goes on; the other instance's clocks are right. No lease moves, no request is early."""
    clock = tmp_path / "clock"
    clock.write_text("+0")
    fake = {
        "LD_PRELOAD": str(LIBRARIES[0]),
        "FAKETIME_TIMESTAMP_FILE": str(clock),
        "FAKETIME_NO_CACHE": "1",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
    }
    place = ("--redis", engine.url, "--delay", str(DELAY_S))
    steps = itertools.cycle((HOUR_S, 0, -HOUR_S, HOUR_S, -HOUR_S, 0))
    with name_server() as dns, little_web(domains=10, pages=5) as web, engine.client() as client:
        view = EngineView(client)
        with nursery(SETTINGS | {"CRAWLER_DNS_NAMESERVERS": dns}) as programs:
            running = [run_instance(programs, tmp_path, 0, *place, **fake), run_instance(programs, tmp_path, 1, *place)]
            wait_until(lambda: view.held_by("node-0") and view.held_by("node-1"), "both to own a share")
            leases = view.leases()
            assert {node for node, _ in leases.values()} == {"node-0", "node-1"}
            seed(programs, tmp_path, [web.seed], *place)
            while not view.is_done():
                clock.write_text(f"{next(steps):+d}")
                time.sleep(STEP_EVERY_S)
            assert view.leases() == leases
            for program in running:
                program.terminate()
            assert [program.wait() for program in running] == [STOPPED, STOPPED]
        requests = web.requests()
    entries = [entry for n in range(2) for entry in entries_of(tmp_path / f"c{n}")]
    off = {round((e.fetched_at - time.time()) / HOUR_S) for e in entries if e.node == "node-0"}
    assert {-1, 1} <= off, "the clock was never wrong: this test tests nothing"
    assert set(by_agent(requests)) == {agent_of("node-0"), agent_of("node-1")}
    assert_exact(web, entries)
    assert asked_twice(requests) == set()
    assert_attempts_bounded(requests, deaths=0)
    assert_polite(requests, DELAY_S)
    assert [line for n in range(2) for line in events(tmp_path, n)] == []
