"""Real processes whose engine falls silent: nothing is asked for past the deadline, nothing spins, all come back."""

import contextlib
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from crawler.settings import MembershipSettings
from tests.crawl.harness import entries_of
from tests.crawl.lab import QUICK, closest_pairs, name_server
from tests.faults.engine_lab import HASTY
from tests.support.engine import Engine
from tests.support.patience import PATIENCE_S
from tests.support.processes import Nursery, Program, nursery
from tests.support.proxy import Proxy, tcp_proxy
from tests.support.serving import GeneratedSite, serve_web

pytestmark = [pytest.mark.processes, pytest.mark.slow]

DELAY_S = 0.06
SELF_STOP_S = MembershipSettings(dead_s=HASTY["membership__dead_s"]).self_stop_s
LATE_S = 0.25  # from the check of the deadline to the line in the web server's log, on a busy machine
WATCHED_S = 2.0  # after the deadline: for its CPU time, and for requests that must not come
CPU_SHARE_MAX = 0.25

SILENCES: dict[str, Callable[[Proxy], None]] = {
    "requests are swallowed": lambda proxy: proxy.blackhole("requests"),
    "replies are swallowed": lambda proxy: proxy.blackhole("replies"),
    "one byte a second": lambda proxy: proxy.trickle(1),
}


@dataclass
class Patient:
    """One crawl and the way to its engine, broken since `cut_at`."""

    program: Program
    proxy: Proxy
    site: GeneratedSite
    folder: Path
    cut_at: float = 0.0
    healed_at: float = 0.0

    def requests_between(self, start: float, end: float) -> int:
        return sum(start < request.start < end for request in self.site.requests())


def test_a_crawl_cut_off_from_the_engine_stops_requests_and_resumes(tmp_path: Path, engine: Engine) -> None:
    """Three crawls at once, each cut off in its own way, and each with more claims than it may still fetch."""
    with contextlib.ExitStack() as stack:
        environment = QUICK | {f"CRAWLER_{key.replace('__', '_').upper()}": str(value) for key, value in HASTY.items()}
        environment |= {"CRAWLER_DNS_NAMESERVERS": stack.enter_context(name_server())}
        programs = stack.enter_context(nursery(environment | {"CRAWLER_INTERNALS_FRONTIER_CLAIM_AHEAD_S": "20"}))
        patients = {
            name: start(stack, programs, engine, tmp_path / f"c{n}", f"crawl-{n}") for n, name in enumerate(SILENCES)
        }
        for name, patient in patients.items():
            wait_for_requests(patient, 40)
            SILENCES[name](patient.proxy)
            patient.cut_at = time.monotonic()
        watch(patients)
        for patient in patients.values():
            patient.proxy.heal()
            patient.healed_at = time.monotonic()
        for name, patient in patients.items():
            assert patient.program.wait(60) == 0, (name, patient.program.err)
            judge(name, patient)
        last_second = [
            p.requests_between(p.cut_at + SELF_STOP_S - 1.0, p.cut_at + SELF_STOP_S) for p in patients.values()
        ]
        assert any(last_second), "all stopped for want of work"


def start(stack: contextlib.ExitStack, programs: Nursery, engine: Engine, folder: Path, name: str) -> Patient:
    site = stack.enter_context(serve_web(seed=41, domains=3, pages=6))
    proxy = stack.enter_context(tcp_proxy(engine.url))
    place = ["--redis", proxy.url, "--name", name, "--dir", str(folder)]
    program = programs.crawler("crawl", *site.web.seeds, *place, "--scope", "any", "--delay", str(DELAY_S), "--quiet")
    return Patient(program, proxy, site, folder)


def wait_for_requests(patient: Patient, n: int) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while len(patient.site.requests()) < n:
        assert patient.program.process.poll() is None, patient.program.err
        assert time.monotonic() < deadline
        time.sleep(0.02)


def watch(patients: dict[str, Patient]) -> None:
    """Sleep until all deadlines are over for a while; measure what the processes spend meanwhile."""
    time.sleep(max(p.cut_at for p in patients.values()) + SELF_STOP_S + LATE_S - time.monotonic())
    before = {name: patient.program.cpu_s() for name, patient in patients.items()}
    time.sleep(WATCHED_S)
    for name, patient in patients.items():
        assert patient.program.process.poll() is None, (name, patient.program.err)
        spent_s = patient.program.cpu_s() - before[name]
        assert spent_s < CPU_SHARE_MAX * WATCHED_S, f"{name}: {spent_s} s of CPU while there is nothing to do"


def judge(name: str, patient: Patient) -> None:
    requests, expected = patient.site.requests(), patient.site.web.expected(patient.site.web.seeds, "any").committed
    stopped_at = patient.cut_at + SELF_STOP_S
    assert patient.requests_between(stopped_at + LATE_S, patient.healed_at) == 0, name
    assert {e.url: e.status for e in entries_of(patient.folder)} == expected, name
    assert min(closest_pairs(requests).values()) >= DELAY_S, name
