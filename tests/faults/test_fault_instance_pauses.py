"""An instance is paused for longer than its silence may last, and wakes: what it still does counts for nothing."""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from crawler.model import CommitEntry
from crawler.runtime.crash_points import VARIABLE
from tests.crawl.harness import entries_of
from tests.crawl.lab import name_server
from tests.faults.instance_lab import (
    SETTINGS,
    TAKEOVER_S,
    EngineView,
    LittleWeb,
    agent_of,
    assert_exact,
    assert_polite,
    events,
    is_stopped,
    little_web,
    run_instance,
    seed,
    speaking_as,
    wait_until,
)
from tests.support.engine import Engine, running_engine
from tests.support.processes import Nursery, nursery
from tests.support.serving import Request

pytestmark = [pytest.mark.processes, pytest.mark.waits]

DELAY_S = 0.1
STOP_S = 30.0
SLEEP_S = 14.0  # long enough for the other to take over and to finish the crawl
AT_ONCE_S = 1.0  # before a session that was taken for dead can have a partition again
STOPPED = 10
TOTALS = ("added", "done", "sequence", "s2", "s3", "dead", "retries", "bytes")

Lease = tuple[str, int]


@dataclass(kw_only=True)
class Pause:
    """What was seen of a pause of node-0 while node-1 went on."""

    takeover_s: float = 0.0
    taken_at: float = 0.0
    woken_at: float = 0.0
    leases_before: dict[int, Lease]
    leases_after: dict[int, Lease] | None = None
    totals_before: list[int] | None = None  # the crawl was done, node-0 still asleep
    totals_after: list[int] | None = None
    logs: list[list[dict[str, Any]]] | None = None
    entries: list[CommitEntry] | None = None
    requests: list[Request] | None = None
    members: dict[str, dict[str, Any]] | None = None

    def log_of(self, n: int, event: str) -> list[dict[str, Any]]:
        assert self.logs is not None
        return [line for line in self.logs[n] if line["event"] == event]


class Lab:
    """A crawl of its own name with two instances, of which the first pauses itself at a crash point."""

    def __init__(self, programs: Nursery, engine: Engine, web: LittleWeb, home: Path, name: str) -> None:
        self._programs, self._engine, self._web, self._home, self._name = programs, engine, web, home, name
        self._place = ("--redis", engine.url, "--name", name, "--delay", str(DELAY_S))

    def play(self, point: str) -> Pause:
        with self._engine.client() as client:
            view = EngineView(client, self._name)
            sleeper = self._start(0, **{VARIABLE: point})
            other = self._start(1)
            wait_until(lambda: view.held_by("node-0") and view.held_by("node-1"), "both to own a share")
            seen = Pause(leases_before=view.leases())
            seed(self._programs, self._home, [self._web.seed], *self._place)
            is_stop = point.endswith("=stop")
            if is_stop:
                wait_until(lambda: is_stopped(sleeper), "the pause")
            paused_at = time.monotonic()
            wait_until(lambda: len(view.held_by("node-1")) == view.partitions, "a takeover", timeout_s=20)
            seen.taken_at = time.monotonic()
            seen.takeover_s = seen.taken_at - paused_at
            wait_until(view.is_done, "the end of the crawl")
            seen.totals_before = view.totals(*TOTALS)
            if is_stop:
                time.sleep(max(0.0, STOP_S - (time.monotonic() - paused_at)))
                sleeper.resume()
                seen.woken_at = time.monotonic()
            wait_until(lambda: view.held_by("node-0"), "the return of the one that was paused")
            time.sleep(3.0)
            seen.totals_after, seen.leases_after, seen.members = view.totals(*TOTALS), view.leases(), view.members()
            seed(self._programs, self._home, self._web.late, *self._place)
            wait_until(view.is_done, "the end of what came later")
            for program in (sleeper, other):
                program.terminate()
            assert [program.wait() for program in (sleeper, other)] == [STOPPED, STOPPED]
        seen.logs = [events(self._home, n) for n in range(2)]
        seen.entries = [entry for n in range(2) for entry in entries_of(self._home / f"c{n}")]
        seen.requests = [r for r in self._web.requests() if r.agent in (self._agent(0), self._agent(1))]
        return seen

    def _start(self, n: int, **environment: str) -> Any:
        agent = speaking_as(f"{self._name}-{n}")
        return run_instance(self._programs, self._home, n, *self._place, *agent, **environment)

    def _agent(self, n: int) -> str:
        return agent_of(f"{self._name}-{n}")


@pytest.fixture(scope="module")
def web() -> Iterator[LittleWeb]:
    with little_web(domains=8, pages=3, delay_s=0.3) as web:  # a late answer comes when the waker knows what it lost
        yield web


@pytest.fixture(scope="module")
def lab_of(web: LittleWeb, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], Lab]]:
    home = tmp_path_factory.mktemp("pauses")
    with (
        name_server() as dns,
        running_engine() as engine,
        nursery(SETTINGS | {"CRAWLER_DNS_NAMESERVERS": dns}) as programs,
    ):
        yield lambda name: Lab(programs, engine, web, home / name, name)


@pytest.fixture(scope="module")
def stopped(lab_of: Callable[[str], Lab]) -> Pause:
    return lab_of("stopped").play("route.added#6=stop")


@pytest.fixture(scope="module")
def slept(lab_of: Callable[[str], Lab]) -> Pause:
    return lab_of("slept").play(f"fetch.checked@/p#3=sleep:{SLEEP_S}")


@pytest.mark.slow
def test_an_instance_paused_for_thirty_seconds_commits_nothing_late_and_rejoins(web: LittleWeb, stopped: Pause) -> None:
    """It was stopped between adding the children of pages and acking the pages, and sends these acks when it wakes."""
    assert stopped.takeover_s < TAKEOVER_S
    assert stopped.log_of(0, "ack.refused"), "no late ack was sent: this test tests nothing"
    assert {line["answer"] for line in stopped.log_of(0, "ack.refused")} <= {"FENCED", None}
    assert stopped.totals_after == stopped.totals_before
    assert stopped.log_of(0, "heartbeat.lease_loss")
    assert stopped.requests is not None
    later = [r for r in stopped.requests if r.target == "/late"]
    assert {r.agent for r in later} == {agent_of("stopped-0"), agent_of("stopped-1")}
    assert len(later) == web.domains
    assert stopped.entries is not None
    assert_exact(web, [e for e in stopped.entries if not e.url.endswith("/late")])
    assert_polite(stopped.requests, DELAY_S)


@pytest.mark.slow
def test_an_instance_that_slept_takes_over_nothing_when_it_wakes(stopped: Pause) -> None:
    """It has read no heartbeat for half a minute: it must not take that for the death of the other, which was alive."""
    assert stopped.leases_after is not None
    of_the_other = {p: lease for p, lease in stopped.leases_before.items() if lease[0] == "node-1"}
    assert of_the_other
    assert {p: stopped.leases_after[p] for p in of_the_other} == of_the_other
    assert stopped.log_of(0, "member.dead") == []
    assert stopped.log_of(1, "heartbeat.lease_loss") == stopped.log_of(1, "partition.fenced") == []
    assert {line["member"] for line in stopped.log_of(1, "member.dead")} == {"node-0"}


@pytest.mark.slow(ci=True)
def test_a_pause_after_the_last_check_costs_one_late_request(web: LittleWeb, slept: Pause) -> None:
    """No engine can fence a web server; but only what had passed the check goes out, one request for each slot."""
    assert slept.requests is not None
    assert slept.entries is not None
    woken = [
        r for r in slept.requests if r.agent == agent_of("slept-0") and r.start > slept.taken_at and r.target != "/late"
    ]
    # Where the crawl goes on for longer than the sleep, it takes part again after a while.
    late = [r for r in woken if r.start < min(r.start for r in woken) + AT_ONCE_S]
    assert len(late) == 1
    noted = [line["url"] for line in slept.log_of(0, "fetch.late")]
    before = [web.url(r.host, r.target) for r in slept.requests if r.start < slept.taken_at]
    # Answers that it had not read when it fell asleep are late, too; their requests were not.
    assert [url for url in noted if url not in before] == [web.url(late[0].host, late[0].target)]
    assert slept.members is not None
    assert [slept.members[f"node-{n}"]["late"] for n in range(2)] == [len(noted), 0]
    assert slept.totals_after == slept.totals_before, "the late request's page was committed, too"
    assert_exact(web, [e for e in slept.entries if not e.url.endswith("/late")])
    assert_polite([r for r in slept.requests if r != late[0]], DELAY_S)
