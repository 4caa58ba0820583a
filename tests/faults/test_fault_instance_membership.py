"""Members that make trouble for the others: one that comes and goes, and two that compute different rings."""

from pathlib import Path

import pytest

from tests.crawl.harness import entries_of
from tests.crawl.lab import name_server
from tests.faults.instance_lab import (
    SETTINGS,
    EngineView,
    asked_twice,
    assert_exact,
    assert_polite,
    events,
    little_web,
    run_instance,
    seed,
    wait_until,
)
from tests.support.engine import Engine
from tests.support.processes import nursery

pytestmark = pytest.mark.processes

DELAY_S = 0.3
HELD_S = 6.0
FLAPS = 4
KILLED, STOPPED = -9, 10


@pytest.mark.slow
def test_a_node_that_flaps_moves_no_lease_of_those_that_are_well(tmp_path: Path, engine: Engine) -> None:
    """It may come back once for nothing; then it waits on the list, off the ring, before it gets a share again."""
    flapping = {
        "CRAWLER_INTERNALS_MEMBERSHIP_FLAP_FREE": "1",
        "CRAWLER_INTERNALS_MEMBERSHIP_FLAP_HOLD_S": str(HELD_S),
        "CRAWLER_INTERNALS_MEMBERSHIP_FLAP_HOLD_MAX_S": str(HELD_S),
    }
    place = ("--redis", engine.url, "--delay", str(DELAY_S))
    with name_server() as dns, little_web(domains=8, pages=12) as web, engine.client() as client:
        view = EngineView(client)
        with nursery(SETTINGS | flapping | {"CRAWLER_DNS_NAMESERVERS": dns}) as programs:
            well = [run_instance(programs, tmp_path, n, *place) for n in range(2)]
            wait_until(lambda: all(view.held_by(f"node-{n}") for n in range(2)), "both to own a share")
            ill = run_instance(programs, tmp_path, 2, *place)
            wait_until(lambda: view.held_by("node-2"), "the third to get a share")
            ill.kill()
            wait_until(lambda: not view.held_by("node-2") and all(node for node, _ in view.leases().values()), "two")
            leases = view.leases()
            seed(programs, tmp_path, [web.seed], *place)
            for _ in range(FLAPS):
                ill = run_instance(programs, tmp_path, 2, *place)
                wait_until(lambda: view.state_of("node-2") == "quarantined", "the third to be on the list")
                assert ill.kill() == KILLED
                wait_until(lambda: not view.state_of("node-2"), "the third to be removed")
            assert view.leases() == leases
            ill = run_instance(programs, tmp_path, 2, *place)
            joined_s = wait_until(lambda: view.state_of("node-2") == "quarantined", "the third to be on the list")
            waited_s = wait_until(lambda: view.held_by("node-2"), "the third to have waited long enough")
            wait_until(view.is_done, "the end of the crawl")
            for program in (*well, ill):
                program.terminate()
            assert [program.wait() for program in (*well, ill)] == [STOPPED] * 3
        requests = web.requests()
    assert waited_s + joined_s >= HELD_S - 1.0
    assert [line["seconds"] for line in events(tmp_path, 2) if line["event"] == "member.quarantined"] == [HELD_S] * 5
    assert_exact(web, [entry for n in range(3) for entry in entries_of(tmp_path / f"c{n}")])
    assert asked_twice(requests) == set()
    assert_polite(requests, DELAY_S)


@pytest.mark.slow
def test_two_instances_that_follow_different_rings_say_so_and_share_nothing(tmp_path: Path, engine: Engine) -> None:
    """One has other settings: each wants partitions that the other has, but the lease decides, and nothing moves."""
    place = ("--redis", engine.url, "--delay", str(DELAY_S))
    with name_server() as dns, little_web(domains=8, pages=8) as web, engine.client() as client:
        view = EngineView(client)
        with nursery(SETTINGS | {"CRAWLER_DNS_NAMESERVERS": dns}) as programs:
            usual = run_instance(programs, tmp_path, 0, *place)
            wait_until(lambda: view.held_by("node-0"), "the first to own a share")
            odd = run_instance(programs, tmp_path, 1, *place, CRAWLER_INTERNALS_MEMBERSHIP_VIRTUAL_NODES="7")
            wait_until(lambda: view.held_by("node-1"), "the second to own a share")
            seed(programs, tmp_path, web.homes, *place)
            said = [lambda n=n: any(e["event"] == "ring.disagreement" for e in events(tmp_path, n)) for n in range(2)]
            wait_until(lambda: all(s() for s in said), "both to say that they disagree", timeout_s=20)
            shown = programs.crawler("ring", "--redis", engine.url, "--dir", str(tmp_path / "seeder"))
            assert shown.wait() == 0, shown.err
            leases = view.leases()
            odd.terminate()
            assert odd.wait() == STOPPED
            wait_until(view.is_done, "the end of the crawl")
            usual.terminate()
            assert usual.wait() == STOPPED
        requests = web.requests()
    assert "node-1  alive, disagrees" in shown.out
    assert "2 different rings are followed" in shown.out
    free = sum(1 for node, _ in leases.values() if not node)
    assert f"{free} are free" in shown.out, "what each hands to the other is shown as free"
    assert_exact(web, [entry for n in range(2) for entry in entries_of(tmp_path / f"c{n}")])
    assert asked_twice(requests) == set()
    assert_polite(requests, DELAY_S)
