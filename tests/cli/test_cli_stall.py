"""A page that stalls the event loop costs that page: the process ends, starts again, and crawls the rest."""

import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.cli_lab import HOST, QUICK, crawler, in_process, small_site
from tests.support.patience import wait_until
from tests.support.processes import ROOT, Nursery, is_running
from tests.support.serving import Site, serve_resources

pytestmark = pytest.mark.processes

LIMIT = ("--set", "crawl.stall_cpu_s=0.4")
BAD = "/p3"
WAYS = {
    "in Python": "while True: pass",
    "in C": "re.match('(a+)+$', 64 * 'a' + 'b')",
    "in C in a thread": "await asyncio.to_thread(re.match, '(a+)+$', 64 * 'a' + 'b')",
}
APP = """
import asyncio, re
from crawler import Crawler

app = Crawler()


@app.page("*")
async def look(page):
    if page.url.endswith("/p3"):
        {way}
    yield {{"url": page.url}}
"""


@pytest.fixture
def site() -> Iterator[Site]:
    with serve_resources(small_site(24, delay_s=0.02)) as site:
        yield site


def begin(programs: Nursery, site: Site, folder: Path, way: str, *options: str) -> tuple[str, ...]:
    (folder / "app.py").write_text(APP.format(way=WAYS[way]))
    return ("crawl", site.url(HOST), *QUICK, "--app", str(folder / "app.py"), "--dir", str(folder / "c"), *options)


def paths(programs: Nursery, folder: Path) -> set[str]:
    exported = in_process(programs, "export", "--items", "--dir", str(folder / "c"))
    return {json.loads(line)["url"].partition(HOST)[2].partition("/")[2] for line in exported.out.splitlines()}


def everything_but_bad() -> set[str]:
    return {"", *(f"p{n}" for n in range(24) if f"/p{n}" != BAD)}


@pytest.mark.slow(ci=True)
@pytest.mark.parametrize("way", ["in C", *(pytest.param(one, marks=pytest.mark.slow) for one in WAYS if one != "in C")])
def test_a_stalled_crawl_starts_again_and_goes_on_without_the_page(
    way: str, programs: Nursery, site: Site, tmp_path: Path
) -> None:
    ran = crawler(programs, *begin(programs, site, tmp_path, way, *LIMIT))
    assert ran.code == 0, ran.err
    assert "stalled on a page; it continues without that page" in ran.err
    assert paths(programs, tmp_path) == everything_but_bad()
    listed = in_process(programs, "dead", "list", "--json", "--dir", str(tmp_path / "c"))
    assert "poison_url" in listed.out
    assert BAD in listed.out
    log = (tmp_path / "c" / "log" / "crawl.log").read_text()
    (stalled,) = (json.loads(line) for line in log.splitlines() if "session.stalled" in line)
    assert [url.endswith(BAD) for url in stalled["urls"]] == [True]
    assert "most recent call first" in stalled["stacks"]
    assert in_process(programs, "audit", "--dir", str(tmp_path / "c")).code == 0


@pytest.mark.slow
def test_with_several_instances_the_stalled_one_is_started_again(programs: Nursery, site: Site, tmp_path: Path) -> None:
    ran = crawler(programs, *begin(programs, site, tmp_path, "in C", *LIMIT, "-n", "2"))
    assert ran.code == 0, ran.err
    assert "stalled on a page and ended itself" in ran.err
    assert paths(programs, tmp_path) == everything_but_bad()


@pytest.mark.slow(ci=True)
@pytest.mark.leaves_engines
def test_ctrl_c_works_while_the_interpreter_is_stuck(programs: Nursery, site: Site, tmp_path: Path) -> None:
    command = begin(programs, site, tmp_path, "in C", "--set", "crawl.stall_cpu_s=0")
    program = programs.crawler(*command)
    wait_until(lambda: any(request.target == BAD for request in site.requests()))
    time.sleep(0.5)
    program.interrupt()
    time.sleep(0.4)
    program.interrupt()
    assert program.wait() == 11
    assert "forced" in program.err


@pytest.mark.leaves_engines
def test_a_kill_of_the_command_ends_the_crawl(programs: Nursery, site: Site, tmp_path: Path) -> None:
    program = programs.crawler(*begin(programs, site, tmp_path, "in C", "--set", "crawl.stall_cpu_s=0"))
    wait_until(site.requests)
    worker = program.pid
    assert worker != program.process.pid
    program.process.kill()
    assert program.wait() == -signal.SIGKILL
    wait_until(lambda: not is_running(worker))


SLEEPS = """
import asyncio, sys, time
from pathlib import Path
from crawler.runtime.watchdog import StallWatchdog

async def main():
    with StallWatchdog(Path(sys.argv[1]), 0.4):
        time.sleep(1.0)
        await asyncio.sleep(0.05)
        for _ in range(8):
            until = time.thread_time() + 0.1
            while time.thread_time() < until: pass
            await asyncio.sleep(0)
        print("alive")

asyncio.run(main())
"""


@pytest.mark.slow(ci=True)
def test_a_process_that_waits_or_works_in_small_steps_is_left_alone(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", SLEEPS, str(tmp_path / "stall")], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (0, "alive\n"), done.stderr
    assert not (tmp_path / "stall").exists()
