"""kill -9 and the same command again: it resumes at once, nothing is lost, nothing is committed twice."""

import contextlib
import os
import signal
import time
from collections import Counter
from pathlib import Path

import pytest

from tests.crawl.harness import entries_of
from tests.crawl.lab import QUICK, closest_pairs, fetched_twice, name_server
from tests.support.patience import PATIENCE_S
from tests.support.processes import Nursery, Program, nursery
from tests.support.serving import GeneratedSite, serve_web

pytestmark = pytest.mark.processes

CONCURRENCY = 8
DELAY_S = 0.02
DOMAINS = 6
GROUP_S = 0.25  # what was fetched within a group commit is not acked yet: in flight, as its requests are


def lab(dns: str) -> contextlib.AbstractContextManager[Nursery]:
    return nursery(QUICK | {"CRAWLER_DNS_NAMESERVERS": dns})


def start(programs: Nursery, site: GeneratedSite, folder: Path, *, dead_s: float = 600.0) -> Program:
    """Who resumes does not wait until those that were killed count as dead: that takes `dead_s`."""
    options = ["--dir", str(folder), "--scope", "any", "--delay", str(DELAY_S), "--concurrency", str(CONCURRENCY)]
    return programs.crawler("crawl", *site.web.seeds, *options, "--quiet", "--set", f"membership.dead_s={dead_s}")


def wait_for_requests(site: GeneratedSite, n: int, program: Program) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while len(site.requests()) < n:
        assert program.process.poll() is None, program.err
        assert time.monotonic() < deadline, f"only {len(site.requests())} requests"
        time.sleep(0.01)


def assert_exact(site: GeneratedSite, folder: Path) -> None:
    entries = entries_of(folder)
    assert {e.url: e.status for e in entries} == site.web.expected(site.web.seeds, "any").committed
    assert [url for url, n in Counter(e.url for e in entries).items() if n > 1] == []


def test_kill_9_and_the_same_command_again_resumes_without_loss(tmp_path: Path) -> None:
    folder = tmp_path / "c"
    kills = (5, 60, 150, 230)
    with name_server() as dns, serve_web(seed=4, domains=DOMAINS, pages=6) as site:
        with lab(dns) as programs:
            for n in kills:
                program = start(programs, site, folder)
                wait_for_requests(site, n, program)
                program.kill()
            last = start(programs, site, folder)
            assert last.wait(90) == 0, last.err
            assert programs.left() == [], "the engine was left behind"
        requests = site.requests()
    assert_exact(site, folder)
    assert len(fetched_twice(requests)) <= len(kills) * (CONCURRENCY + DOMAINS * GROUP_S / DELAY_S)
    assert min(closest_pairs(requests).values()) >= DELAY_S


@pytest.mark.slow
def test_an_engine_killed_with_its_crawler_loses_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "c"
    with name_server() as dns, serve_web(seed=6, domains=4, pages=5) as site, lab(dns) as programs:
        program = start(programs, site, folder)
        wait_for_requests(site, 70, program)
        program.kill()
        kill_engine(folder)
        last = start(programs, site, folder)
        assert last.wait(90) == 0, last.err
    assert_exact(site, folder)


@pytest.mark.slow(ci=True)
def test_an_engine_that_dies_during_the_crawl_is_started_again(tmp_path: Path) -> None:
    folder = tmp_path / "c"
    with name_server() as dns, serve_web(seed=7, domains=5, pages=5) as site, lab(dns) as programs:
        program = start(programs, site, folder, dead_s=10.0)  # after which leases of a lost engine are taken again
        for n in (40, 110):
            wait_for_requests(site, n, program)
            kill_engine(folder)
            time.sleep(0.5)
        assert program.wait(90) == 0, program.err
        assert programs.left() == []
    assert_exact(site, folder)


def kill_engine(folder: Path) -> None:
    os.kill(int((folder / "engine" / "engine.pid").read_text()), signal.SIGKILL)
