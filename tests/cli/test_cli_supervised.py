"""`-n` with real processes: instances that crash, hang or are evicted, and the end of the supervisor itself."""

import os
import signal
import socket
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.cli_lab import HOST, crawler, in_process, small, small_site
from tests.cli.cli_lab import QUICK as AT_ONCE
from tests.cli.scale_lab import (
    DELAY_S,
    NODES,
    assert_exact,
    children,
    clean_nursery,
    crawl,
    nodes_of,
    pid_of,
    scale,
    status,
    wait_for_requests,
    web_for,
)
from tests.crawl.lab import closest_pairs
from tests.support.engine import Engine
from tests.support.patience import wait_until
from tests.support.processes import Nursery
from tests.support.serving import GeneratedSite, serve_resources

pytestmark = pytest.mark.processes

IMPATIENT = {
    "CRAWLER_FRONTIER_CALL_TIMEOUT_S": "1",  # the engine lives: on a busy machine, too, it has to meet that
    "CRAWLER_MEMBERSHIP_DEAD_S": "2",
}


@pytest.fixture
def programs() -> Iterator[Nursery]:
    with clean_nursery() as programs:
        yield programs


@pytest.fixture
def lab(programs: Nursery) -> Iterator[GeneratedSite]:
    with web_for(programs) as site:
        yield site


# --- crashes ---


@pytest.mark.slow
def test_a_crashed_instance_is_started_again_and_the_crawl_is_exact(
    programs: Nursery, lab: GeneratedSite, tmp_path: Path
) -> None:
    folder = tmp_path / "c"
    running = crawl(programs, lab, folder, 2)
    wait_for_requests(lab, 60)
    os.kill(pid_of(status(programs, "--dir", str(folder)), NODES[1]), signal.SIGKILL)
    running.wait_for(rf"instance {NODES[1]} was killed \(SIGKILL\); starting it again in 1 s")
    again = {}

    def runs_again() -> bool:  # what is shown may be a second old: of the first start, at first
        found = status(programs, "--dir", str(folder))["children"]
        again.update(next((child for child in found if child["node"] == NODES[1]), {}))
        return (again.get("restarts"), again.get("state")) == (1, "running")

    wait_until(runs_again)
    assert again["last_words"] == "was killed (SIGKILL)"
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


@pytest.mark.slow(ci=True)
def test_a_crash_loop_ends_in_one_line_and_exit_code_1(programs: Nursery, tmp_path: Path) -> None:
    with small() as site:
        command = (sys.executable, "-c", CRASH_LOOP, "crawl", site.url(HOST), *AT_ONCE, "--dir", str(tmp_path / "c"))
        running = programs.start(*command, "-n", "1", "-q", SHARDCRAWL_CRASH_POINT="claim.taken=exit:1")
        assert running.wait() == 1
    record_crash = f"crawler: instance {NODES[0]} ended with exit code 1"
    assert running.err.splitlines() == [
        f"{record_crash}; starting it again in 1 s",
        f"{record_crash}; starting it again in 2 s",
        f"{record_crash} 3 times: the others were stopped; nothing is lost",
    ]


@pytest.mark.slow(ci=True)
def test_a_child_whose_settings_or_disk_are_at_fault_is_not_tried_again(programs: Nursery, tmp_path: Path) -> None:
    with small() as site:
        where = ("--dir", str(tmp_path / "c"), "-n", "2", "-q")
        running = programs.crawler(
            "crawl", site.url(HOST), *AT_ONCE, *where, SHARDCRAWL_CRASH_POINT="claim.taken=exit:5"
        )
        assert running.wait() == 5
    said = running.err.splitlines()
    assert said[-1].endswith("ended with exit code 5: the others were stopped; nothing is lost")
    assert "starting it again" not in running.err
    assert len(said) <= 2  # the other one may have failed before it could be stopped


@pytest.mark.slow(ci=True)
def test_an_instance_that_hangs_is_killed_and_started_again(programs: Nursery, tmp_path: Path, engine: Engine) -> None:
    programs.environment |= IMPATIENT
    with small() as site:
        where = ("--dir", str(tmp_path / "c"), "--redis", engine.url)
        running = programs.crawler(
            "crawl", site.url(HOST), *AT_ONCE, *where, "-n", "1", SHARDCRAWL_CRASH_POINT="fetch.checked@/p3=sleep:60"
        )
        running.wait_for(r"instance \S+ hung \(no heartbeat for \d+ s\) and was killed; starting it again in 1 s")
        running.kill()


@pytest.mark.slow
def test_a_paused_instance_is_not_killed_somebody_wants_it_so(
    programs: Nursery, tmp_path: Path, engine: Engine
) -> None:
    programs.environment |= IMPATIENT
    where = ("--dir", str(tmp_path / "c"), "--redis", engine.url)
    running = programs.crawler("run", *AT_ONCE, *where, "-n", "1", "-vv")
    running.wait_for(rf"\[{NODES[0]}\] .*ring\.changed")  # what an instance says carries its name
    pid = pid_of(status(programs, *where), NODES[0])
    os.kill(pid, signal.SIGSTOP)
    time.sleep(10)
    os.kill(pid, signal.SIGCONT)
    assert pid_of(status(programs, *where), NODES[0]) == pid
    running.terminate()
    assert running.wait() == 10


@pytest.mark.slow
def test_an_evicted_instance_is_left_alone_and_the_others_finish_the_crawl(
    programs: Nursery, lab: GeneratedSite, tmp_path: Path
) -> None:
    folder = tmp_path / "c"
    running = crawl(programs, lab, folder, 2)
    wait_for_requests(lab, 60)
    assert in_process(programs, "ring", "evict", NODES[1], "--dir", str(folder)).code == 0
    running.wait_for(f"instance {NODES[1]} was evicted; it is not started again, 1 wanted from now on")
    wait_until(lambda: children(status(programs, "--dir", str(folder))) == {NODES[0]: "running"})
    assert running.wait(90) == 0, running.err
    assert "starting it again" not in running.err
    assert_exact(lab, folder)


# --- the end of the supervisor ---


@pytest.mark.skipif(signal.getsignal(signal.SIGHUP) is signal.SIG_IGN, reason="these tests run under nohup")
def test_a_terminal_that_goes_away_stops_all_in_order_and_the_same_command_resumes(
    programs: Nursery, tmp_path: Path
) -> None:
    with small(30) as site:
        command = ("crawl", site.url(HOST), *AT_ONCE, "--dir", str(tmp_path / "c"), "-n", "2")
        running = programs.crawler(*command, "--delay", "0.5")  # so that it can't be done before it is stopped
        wait_for_requests(site, 4)
        running.process.send_signal(signal.SIGHUP)
        assert running.wait() == 10
        assert programs.left() == []
        assert crawler(programs, *command).code == 0
        asked = [r.target for r in site.requests() if not r.is_robots]
        assert len(asked) == len(set(asked)) == 33


@pytest.mark.slow(ci=True)
def test_a_second_signal_kills_the_instances_and_stops_the_engine(programs: Nursery, tmp_path: Path) -> None:
    web = small_site(4)
    web[HOST, "/p0"].delay_s = 3600
    with serve_resources(web) as slow:
        running = programs.crawler("crawl", slow.url(HOST), *AT_ONCE, "--dir", str(tmp_path / "c"), "-n", "2")
        wait_until(slow.delayed)
        running.interrupt()
        running.wait_for("Stopping")
        time.sleep(0.35)  # less would count as the same press
        running.interrupt()
        assert running.wait() == 11
        assert "forced; the same command resumes" in running.err
        wait_until(lambda: not programs.left())


@pytest.mark.slow(ci=True)
def test_after_kill_9_of_the_supervisor_nothing_is_left_and_no_page_is_asked_for_twice(
    programs: Nursery, tmp_path: Path
) -> None:
    with small(30, delay_s=0.1) as site:
        command = ("crawl", site.url(HOST), *AT_ONCE, "--dir", str(tmp_path / "c"), "-n", "2")
        running = programs.crawler(*command)
        wait_for_requests(site, 4)
        running.kill()
        wait_until(lambda: not programs.left())
        assert in_process(programs, *command[:-2]).code == 0
        asked = [r.target for r in site.requests() if not r.is_robots]
        assert len(asked) == len(set(asked)) == 33


@pytest.mark.slow(ci=True)
def test_a_supervisor_that_was_killed_is_shown_as_gone_once(programs: Nursery, tmp_path: Path, engine: Engine) -> None:
    where = ("--dir", str(tmp_path / "c"), "--redis", engine.url)
    running = programs.crawler("run", *AT_ONCE, *where, "-n", "1")
    wait_until(lambda: nodes_of(scale(programs, where)) != [])
    running.kill()
    assert f"{socket.gethostname()}:{running.pid}: gone; it was killed" in scale(programs, where).out
    assert "No supervisor is running" in scale(programs, where).out
    wait_until(lambda: not programs.left())
