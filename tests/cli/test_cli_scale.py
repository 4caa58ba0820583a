"""`-n` and `crawler scale` with real processes: crashes, hangs, signals, more and fewer instances during a crawl."""

import json
import os
import signal
import socket
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.cli_lab import HOST, Ran, crawler, small, small_site
from tests.cli.cli_lab import QUICK as AT_ONCE
from tests.crawl.harness import entries_of
from tests.crawl.lab import QUICK, closest_pairs, fetched_twice, name_server
from tests.support.engine import Engine
from tests.support.processes import Nursery, Program, nursery
from tests.support.serving import GeneratedSite, Site, serve_resources, serve_web

pytestmark = pytest.mark.processes

DELAY_S = 0.15
NODES = [f"{socket.gethostname()}-{slot}" for slot in range(4)]


IMPATIENT = {
    "CRAWLER_FRONTIER_CALL_TIMEOUT_S": "0.4",
    "CRAWLER_MEMBERSHIP_READ_S": "0.2",
    "CRAWLER_MEMBERSHIP_GAP_S": "0.4",
    "CRAWLER_MEMBERSHIP_BEAT_S": "0.25",
    "CRAWLER_MEMBERSHIP_SUSPECT_S": "0.5",
    "CRAWLER_MEMBERSHIP_SELF_STOP_S": "0.8",
    "CRAWLER_MEMBERSHIP_DEAD_S": "1",
}


@pytest.fixture
def programs() -> Iterator[Nursery]:
    with nursery() as programs:
        yield programs
        assert programs.left() == []


@pytest.fixture
def lab(programs: Nursery) -> Iterator[GeneratedSite]:
    """A web of 16 domains, and programs that can find it."""
    with name_server() as dns, serve_web(seed=21, domains=16, pages=6) as site:
        programs.environment |= QUICK | {"CRAWLER_DNS_NAMESERVERS": dns, "CRAWLER_POLITENESS_DELAY_S": str(DELAY_S)}
        yield site


def crawl(programs: Nursery, site: GeneratedSite, folder: Path, n: int, **environment: str) -> Program:
    options = ("--scope", "any", "--dir", str(folder), "-n", str(n))
    return programs.crawler("crawl", *site.web.seeds, *options, **environment)


def scale(programs: Nursery, where: tuple[str, ...], *arguments: str) -> Ran:
    return crawler(programs, "scale", *arguments, *where)


def status(programs: Nursery, *where: str) -> dict[str, Any]:
    """The one supervisor there is."""
    ran = scale(programs, where, "--status", "--json")
    assert ran.code == 0, ran.err
    (found,) = json.loads(ran.out)["supervisors"]
    return dict(found)


def nodes_of(ran: Ran) -> list[str]:
    """Nodes that a command printed as running."""
    return [line.split()[0] for line in ran.out.splitlines() if " running " in line]


def children(found: dict[str, Any]) -> dict[str, str]:
    return {child["node"]: child["state"] for child in found["children"]}


def pid_of(found: dict[str, Any], node: str) -> int:
    return next(int(child["pid"]) for child in found["children"] if child["node"] == node)


def wait_until(holds: Callable[[], bool], timeout_s: float = 30.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def wait_for_requests(site: Site, n: int) -> None:
    wait_until(lambda: len(site.requests()) >= n)


def assert_exact(site: GeneratedSite, folder: Path) -> None:
    entries = entries_of(folder)
    assert {e.url: e.status for e in entries} == site.web.expected(site.web.seeds, "any").committed
    assert [url for url, n in Counter(e.url for e in entries).items() if n > 1] == []


# --- more and fewer ---


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


def test_scaled_to_none_a_supervisor_waits_and_starts_again_what_is_asked_for(
    programs: Nursery, tmp_path: Path, engine: Engine
) -> None:
    where = ("--dir", str(tmp_path / "c"), "--redis", engine.url)
    running = programs.crawler("run", *AT_ONCE, *where, "-n", "1")
    wait_until(lambda: "running" in crawler(programs, "scale", *where).out)
    assert "no instance is wanted" in scale(programs, where, "0").out
    running.wait_for("no instance is left")
    assert children(json.loads(scale(programs, where, "1", "--json").out)["supervisors"][0]) == {NODES[0]: "running"}
    running.terminate()
    assert running.wait() == 10


def test_of_two_supervisors_on_one_machine_the_one_that_is_meant_is_scaled(
    programs: Nursery, tmp_path: Path, engine: Engine
) -> None:
    engine_only = ("--redis", engine.url)
    first, second = (("--dir", str(tmp_path / name), *engine_only) for name in ("a", "b"))
    begun = crawler(programs, "seed", "http://a.test/", *first, "--set", "crawl.partitions=16")
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


def test_scaling_says_when_it_is_not_done_in_time_and_it_is_done_later(
    programs: Nursery, tmp_path: Path, engine: Engine
) -> None:
    where = ("--dir", str(tmp_path / "c"), "--redis", engine.url)
    running = programs.crawler("run", *AT_ONCE, *where, "-n", "1")
    wait_until(lambda: "running" in crawler(programs, "scale", *where).out)
    ran = scale(programs, where, "3", "--timeout", "300ms")
    assert ran.code == 9
    assert "see 'crawler scale --status'" in ran.err or "it goes on as soon as it can" in ran.err
    wait_until(lambda: status(programs, *where)["running"] == 3)
    running.terminate()
    assert running.wait() == 10
    assert "ended meanwhile" in ran.err or scale(programs, where, "3").code == 2


# --- crashes ---


def test_a_crashed_instance_is_started_again_and_the_crawl_is_exact(
    programs: Nursery, lab: GeneratedSite, tmp_path: Path
) -> None:
    folder = tmp_path / "c"
    running = crawl(programs, lab, folder, 2)
    wait_for_requests(lab, 60)
    os.kill(pid_of(status(programs, "--dir", str(folder)), NODES[1]), signal.SIGKILL)
    killed_at = time.monotonic()
    running.wait_for(rf"instance {NODES[1]} was killed \(SIGKILL\); starting it again in 1 s")
    wait_until(lambda: children(status(programs, "--dir", str(folder))).get(NODES[1]) == "running")
    assert time.monotonic() - killed_at < 15  # a second of pause, a start, two looks on a machine that may be busy
    found = status(programs, "--dir", str(folder))
    (again,) = (child for child in found["children"] if child["node"] == NODES[1])
    assert (again["restarts"], again["last_words"]) == (1, "was killed (SIGKILL)")
    assert running.wait(90) == 0, running.err
    assert_exact(lab, folder)
    assert min(closest_pairs(lab.requests()).values()) >= DELAY_S


CRASH_LOOP = """\
import sys
from crawler.supervisor import child
child.RESTARTS_MAX = 2
from crawler.cli.main import main
sys.exit(main(sys.argv[1:]))
"""


def test_a_crash_loop_ends_in_one_line_and_exit_code_1(programs: Nursery, tmp_path: Path) -> None:
    with small() as site:
        command = (sys.executable, "-c", CRASH_LOOP, "crawl", site.url(HOST), *AT_ONCE, "--dir", str(tmp_path / "c"))
        running = programs.start(*command, "-n", "1", "-q", SHARDCRAWL_CRASH_POINT="claim.taken=exit:1")
        assert running.wait() == 1
    died = f"crawler: instance {NODES[0]} ended with exit code 1"
    assert running.err.splitlines() == [
        f"{died}; starting it again in 1 s",
        f"{died}; starting it again in 2 s",
        f"{died} 3 times: the others were stopped; nothing is lost",
    ]


def test_a_child_whose_settings_or_disk_are_at_fault_is_not_tried_again(programs: Nursery, tmp_path: Path) -> None:
    with small() as site:
        where = ("--dir", str(tmp_path / "c"), "-n", "2", "-q")
        running = programs.crawler(
            "crawl", site.url(HOST), *AT_ONCE, *where, SHARDCRAWL_CRASH_POINT="claim.taken=exit:5"
        )
        assert running.wait() == 5
    assert running.err.count("\n") == 0
    assert "ended with exit code 5: the others were stopped" in running.err


def test_an_instance_that_hangs_is_killed_and_started_again(programs: Nursery, tmp_path: Path, engine: Engine) -> None:
    programs.environment |= IMPATIENT
    with small() as site:
        where = ("--dir", str(tmp_path / "c"), "--redis", engine.url)
        running = programs.crawler(
            "crawl", site.url(HOST), *AT_ONCE, *where, "-n", "1", SHARDCRAWL_CRASH_POINT="fetch.checked@/p3=sleep:60"
        )
        running.wait_for(r"instance \S+ hung \(no heartbeat for [3-5] s\) and was killed; starting it again in 1 s")
        running.kill()


def test_a_paused_instance_is_not_killed_somebody_wants_it_so(
    programs: Nursery, tmp_path: Path, engine: Engine
) -> None:
    programs.environment |= IMPATIENT
    where = ("--dir", str(tmp_path / "c"), "--redis", engine.url)
    running = programs.crawler("run", *AT_ONCE, *where, "-n", "1")
    wait_until(lambda: "running" in crawler(programs, "scale", *where).out)
    pid = pid_of(status(programs, *where), NODES[0])
    os.kill(pid, signal.SIGSTOP)
    time.sleep(5)
    os.kill(pid, signal.SIGCONT)
    assert pid_of(status(programs, *where), NODES[0]) == pid
    running.terminate()
    assert running.wait() == 10


def test_an_evicted_instance_is_left_alone_and_the_others_finish_the_crawl(
    programs: Nursery, lab: GeneratedSite, tmp_path: Path
) -> None:
    folder = tmp_path / "c"
    running = crawl(programs, lab, folder, 2)
    wait_for_requests(lab, 60)
    assert crawler(programs, "ring", "evict", NODES[1], "--dir", str(folder)).code == 0
    running.wait_for(f"instance {NODES[1]} was evicted; it is not started again, 1 wanted from now on")
    assert children(status(programs, "--dir", str(folder))) == {NODES[0]: "running"}
    assert running.wait(90) == 0, running.err
    assert "starting it again" not in running.err
    assert_exact(lab, folder)


# --- the end of the supervisor ---


def test_a_terminal_that_goes_away_stops_all_in_order_and_the_same_command_resumes(
    programs: Nursery, tmp_path: Path
) -> None:
    with small(30, delay_s=0.1) as site:
        command = ("crawl", site.url(HOST), *AT_ONCE, "--dir", str(tmp_path / "c"), "-n", "2")
        running = programs.crawler(*command)
        wait_for_requests(site, 4)
        running.process.send_signal(signal.SIGHUP)
        assert running.wait() == 10
        assert programs.left() == []
        assert crawler(programs, *command).code == 0
        asked = [r.target for r in site.requests() if not r.is_robots]
        assert len(asked) == len(set(asked)) == 33


def test_a_second_signal_kills_the_instances_and_stops_the_engine(programs: Nursery, tmp_path: Path) -> None:
    web = small_site(4)
    web[HOST, "/p0"].delay_s = 4
    with serve_resources(web) as slow:
        running = programs.crawler("crawl", slow.url(HOST), *AT_ONCE, "--dir", str(tmp_path / "c"), "-n", "2")
        wait_for_requests(slow, 2)
        time.sleep(0.3)
        running.interrupt()
        running.wait_for("Stopping")
        time.sleep(0.35)  # less would count as the same press
        running.interrupt()
        assert running.wait(2) == 11
        assert "forced; the same command resumes" in running.err
        wait_until(lambda: not programs.left(), 2)


def test_after_kill_9_of_the_supervisor_nothing_is_left_and_no_page_is_asked_for_twice(
    programs: Nursery, tmp_path: Path
) -> None:
    with small(30, delay_s=0.1) as site:
        command = ("crawl", site.url(HOST), *AT_ONCE, "--dir", str(tmp_path / "c"), "-n", "2")
        running = programs.crawler(*command)
        wait_for_requests(site, 4)
        running.kill()
        wait_until(lambda: not programs.left())
        assert crawler(programs, *command).code == 0
        asked = [r.target for r in site.requests() if not r.is_robots]
        assert len(asked) == len(set(asked)) == 33


def test_a_supervisor_that_was_killed_is_shown_as_gone_once(programs: Nursery, tmp_path: Path, engine: Engine) -> None:
    where = ("--dir", str(tmp_path / "c"), "--redis", engine.url)
    running = programs.crawler("run", *AT_ONCE, *where, "-n", "1")
    wait_until(lambda: "running" in crawler(programs, "scale", *where).out)
    running.kill()
    assert f"{socket.gethostname()}:{running.pid}: gone; it was killed" in scale(programs, where).out
    assert "No supervisor is running" in scale(programs, where).out
    wait_until(lambda: not programs.left())


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
