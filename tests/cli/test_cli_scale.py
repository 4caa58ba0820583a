"""`crawler scale` with real processes: more and fewer instances during a crawl, on the machine that is meant."""

import json
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.cli_lab import HOST, in_process, small_site
from tests.cli.cli_lab import QUICK as AT_ONCE
from tests.cli.scale_lab import (
    DELAY_S,
    NODES,
    assert_exact,
    children,
    clean_nursery,
    crawl,
    nodes_of,
    scale,
    status,
    wait_for_requests,
    web_for,
)
from tests.crawl.lab import closest_pairs, fetched_twice
from tests.support.engine import Engine
from tests.support.patience import wait_until
from tests.support.processes import Nursery
from tests.support.serving import GeneratedSite, serve_resources

pytestmark = pytest.mark.processes


@pytest.fixture
def programs() -> Iterator[Nursery]:
    with clean_nursery() as programs:
        yield programs


@pytest.fixture
def lab(programs: Nursery) -> Iterator[GeneratedSite]:
    with web_for(programs) as site:
        yield site


@pytest.mark.slow
def test_scaling_from_1_to_4_to_2_during_a_crawl_asks_for_no_page_twice(
    programs: Nursery, lab: GeneratedSite, tmp_path: Path
) -> None:
    folder = tmp_path / "c"
    where = ("--dir", str(folder))
    running = crawl(programs, lab, folder, 1)
    wait_for_requests(lab, 40)
    more = scale(programs, where, "4")
    assert more.code == 0, more.err
    assert nodes_of(more) == NODES
    wait_for_requests(lab, len(lab.requests()) + 150)
    fewer = scale(programs, where, "2")
    assert fewer.code == 0, fewer.err
    assert nodes_of(fewer) == NODES[:2]
    assert running.wait(90) == 0, running.err
    requests = lab.requests()
    assert fetched_twice(requests) == []
    assert min(closest_pairs(requests).values()) >= DELAY_S
    assert_exact(lab, folder)


@pytest.mark.slow(ci=True)
def test_scaled_to_none_a_supervisor_waits_and_starts_again_what_is_asked_for(
    programs: Nursery, tmp_path: Path, engine: Engine
) -> None:
    where = ("--dir", str(tmp_path / "c"), "--redis", engine.url)
    running = programs.crawler("run", *AT_ONCE, *where, "-n", "1")
    wait_until(lambda: nodes_of(scale(programs, where)) != [])
    assert "no instance is wanted" in scale(programs, where, "0").out
    running.wait_for("no instance is left")
    assert children(json.loads(scale(programs, where, "1", "--json").out)["supervisors"][0]) == {NODES[0]: "running"}
    noted = map(json.loads, in_process(programs, "oplog", *where, "--json").out.splitlines())
    assert [(one["action"], one["detail"]) for one in noted] == [("scale", "0 instances"), ("scale", "1 instance")]
    running.terminate()
    assert running.wait() == 10


@pytest.mark.slow
def test_of_two_supervisors_on_one_machine_the_one_that_is_meant_is_scaled(
    programs: Nursery, tmp_path: Path, engine: Engine
) -> None:
    engine_only = ("--redis", engine.url)  # from a folder that knows nothing of the crawl, and need not
    first, second = (("--dir", str(tmp_path / name), *engine_only) for name in ("a", "b"))
    begun = in_process(programs, "seed", "http://a.test/", *first, "--set", "crawl.partitions=16")
    assert begun.code == 0, begun.err
    nobody = scale(programs, first, "3")
    assert (nobody.code, nobody.err) == (2, "crawler: no supervisor runs on this host: start one: crawler run -n 4\n")
    running = [programs.crawler("run", *AT_ONCE, *where, "-n", "1") for where in (first, second)]
    wait_until(lambda: scale(programs, first).out.count(" running ") == 2)
    one, other = (f"{socket.gethostname()}:{program.pid}" for program in running)
    ambiguous = scale(programs, engine_only, "2")
    assert ambiguous.code == 2
    assert f"--host {one} ({tmp_path / 'a'})" in ambiguous.err
    assert f"--host {other} ({tmp_path / 'b'})" in ambiguous.err
    assert scale(programs, second, "2").out.startswith(f"{other}: 2 of 2 instances run")
    assert scale(programs, engine_only, "2", "--host", one).out.startswith(f"{one}: 2 of 2 instances run")
    assert sorted(nodes_of(scale(programs, first))) == NODES
    for program in running:
        program.terminate()
    assert [program.wait() for program in running] == [10, 10]


@pytest.mark.slow
def test_scaling_says_when_it_is_not_done_in_time_and_it_is_done_later(
    programs: Nursery, tmp_path: Path, engine: Engine
) -> None:
    where = ("--dir", str(tmp_path / "c"), "--redis", engine.url)
    running = programs.crawler("run", *AT_ONCE, *where, "-n", "1")
    wait_until(lambda: nodes_of(scale(programs, where)) != [])
    ran = scale(programs, where, "3", "--timeout", "300ms")
    assert ran.code == 9
    assert "see 'crawler scale --status'" in ran.err or "it continues as soon as it can" in ran.err
    wait_until(lambda: status(programs, *where)["running"] == 3)
    running.terminate()
    assert running.wait() == 10
    assert "ended meanwhile" in ran.err or scale(programs, where, "3").code == 2


@pytest.mark.slow
def test_an_instance_that_is_scaled_away_is_shown_as_stopping_until_its_last_page_is_done(
    programs: Nursery, tmp_path: Path
) -> None:
    web = small_site(4)
    web[HOST, "/p0"].delay_s = 12
    where = ("--dir", str(tmp_path / "c"))
    with serve_resources(web) as slow:
        running = programs.crawler("crawl", slow.url(HOST), *AT_ONCE, *where, "-n", "1")
        wait_for_requests(slow, 2)
        time.sleep(0.3)  # what is next in the queue is slow, and logged when it is answered
        scaling = programs.crawler("scale", "0", *where)
        wait_until(lambda: children(status(programs, *where)) == {NODES[0]: "stopping"})
        assert scaling.wait() == 0, scaling.err
        assert "no instance is wanted" in scaling.out
        assert scale(programs, where, "1").code in (0, 9)  # 9: the crawl may be finished before it is seen to run
        assert running.wait() == 0
        asked = [r.target for r in slow.requests() if not r.is_robots]
        assert len(asked) == len(set(asked))
