"""Hosts that hold a request for long leave room at their address for those that answer."""

import heapq
import itertools
from collections import Counter, defaultdict, deque
from typing import Any

import pytest

from crawler.worker import address_limit
from crawler.worker.address_limit import LINE_PER_REQUEST, MAKE_WAY_MS, AddressLimiter, Kind, line_of
from crawler.worker.slow_hosts import PROMPT_MS, SlowHosts
from crawler.worker.turn import AwaitAddress, Requeue

ADDRESS = "192.0.2.1"
TOTAL_MS, SLOW_MS, QUICK_MS, DELAY_MS, WATCH_MS = 60_000, 4_000, 50, 1_000, 200
RUN_MS = 60_000


class Lines:
    """The part of the scheduler that limiters use."""

    def __init__(self) -> None:
        self.lines = defaultdict[str, deque[str]](deque)
        self.woken = list[str]()

    @property
    def awaits_room(self) -> bool:
        return any(self.lines.values())

    def waiting_at(self, line: str) -> int:
        return len(self.lines[line])

    def wake_one(self, line: str) -> None:
        if self.lines[line]:
            self.woken.append(self.lines[line].popleft())


class Hosting:
    """Hosts at one address and one instance, in virtual time: tarpits hold each request as long as they may."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, limit: int, workers: int = 64) -> None:
        self.now_ms = 1_000_000
        monkeypatch.setattr(address_limit, "monotonic_ms", lambda: self.now_ms)
        self.scheduler: Any = Lines()
        self.addresses = AddressLimiter(self.scheduler, limit=limit)
        self.slow = SlowHosts(self.scheduler, workers=workers)
        self.served = Counter[str]()
        self.open: dict[str, tuple[int, Kind]] = {}  # since when
        self.open_max = self.cut_off = 0
        self._numbers = itertools.count()
        self._due: list[tuple[int, int, str]] = []
        self._ends: dict[str, int] = {}

    def add(self, host: str, in_ms: int = 0) -> None:
        heapq.heappush(self._due, (self.now_ms + in_ms, next(self._numbers), host))

    def run(self, for_ms: int) -> None:
        until_ms, watch_ms = self.now_ms + for_ms, self.now_ms
        while self.now_ms < until_ms:
            if self.now_ms >= watch_ms:
                self._watch()
                watch_ms += WATCH_MS
            while self._due and self._due[0][0] <= self.now_ms:
                at_ms, _, host = heapq.heappop(self._due)
                if host not in self.open:
                    self._enter(host)
                elif self._ends.get(host) == at_ms:
                    self._leave(host, answered=not host.startswith("tarpit"))
                for woken in self.scheduler.woken:
                    self.add(woken)
                self.scheduler.woken.clear()
            self.now_ms = min([watch_ms, *(at_ms for at_ms, _, _ in self._due[:1])])

    def _enter(self, host: str) -> None:
        kind = self.slow.kind_of(host)
        end = self.addresses.enter(ADDRESS, kind)
        if isinstance(end, AwaitAddress):
            self.scheduler.lines[end.address].append(host)
        elif isinstance(end, Requeue):
            self.add(host, end.wait_ms)
        else:
            self.open[host] = self.now_ms, kind
            self.open_max = max(self.open_max, len(self.open))
            took_ms = TOTAL_MS if host.startswith("tarpit") else SLOW_MS if host.startswith("slow") else QUICK_MS
            self._ends[host] = self.now_ms + took_ms
            self.add(host, took_ms)

    def _leave(self, host: str, *, answered: bool) -> None:
        since_ms, kind = self.open.pop(host)
        took_ms = self.now_ms - since_ms
        self.slow.note(host, answered=answered, took_ms=took_ms)
        self.served[host] += answered
        del self._ends[host]
        self.addresses.left(ADDRESS, kind, took_ms=took_ms, answered=answered)
        self.add(host, max(1, DELAY_MS - took_ms))

    def _watch(self) -> None:
        late = [host for host, (since_ms, kind) in self.open.items()
                if kind is not Kind.SLOW and self.now_ms - since_ms >= self.addresses.patience_ms(ADDRESS)]  # fmt: skip
        for host in late[: self.addresses.make_way(ADDRESS, len(late))]:
            self._leave(host, answered=False)
            self.cut_off += 1
        self.addresses.wake(ADDRESS)


def hosting(monkeypatch: pytest.MonkeyPatch, limit: int, **hosts: int) -> Hosting:
    """One minute of these hosts, which come in turn: their names tell how they answer."""
    web = Hosting(monkeypatch, limit=limit)
    for n in range(max(hosts.values())):
        for name, count in hosts.items():
            if n < count:
                web.add(f"{name}{n}")
    web.run(RUN_MS)
    assert web.open_max <= limit
    return web


def of_good(web: Hosting) -> int:
    return sum(count for host, count in web.served.items() if host.startswith("good"))


# With one slot, each tarpit has it once for a moment, and those that answer have it as long in between.
@pytest.mark.parametrize(
    ("limit", "tarpits", "innocent", "share"),
    [
        (8, 40, 1, 0.9), (8, 40, 20, 0.8), (8, 400, 20, 0.85), (8, 40, 200, 0.7),
        (32, 40, 20, 0.9), (32, 40, 200, 0.8), (4, 40, 20, 0.7), (3, 40, 1, 0.9), (2, 400, 1, 0.9), (1, 40, 1, 0.25),
    ],
)  # fmt: skip
def test_neighbours_of_tarpits_get_most_of_what_they_have_alone(
    limit: int, tarpits: int, innocent: int, share: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    alone = of_good(hosting(monkeypatch, limit, good=innocent))
    assert of_good(hosting(monkeypatch, limit, tarpit=tarpits, good=innocent)) >= share * alone


@pytest.mark.parametrize(("limit", "share"), [(1, 0.9), (8, 0.7), (32, 0.7)])
def test_hosts_that_are_all_slow_lose_little(limit: int, share: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody else is there: what is kept free for others is a quarter, and the cutting off ends."""
    web = hosting(monkeypatch, limit, slow=200)
    web.run(RUN_MS)
    before = sum(web.served.values())
    web.run(RUN_MS)
    assert sum(web.served.values()) - before >= share * limit * RUN_MS / SLOW_MS
    assert web.cut_off <= 200


@pytest.mark.slow(ci=True)
def test_hosts_that_come_after_all_tarpits_get_most_of_what_they_have_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Four hundred that never answer were there first: each holds a request for a second, once."""
    found = list[list[int]]()
    for tarpits in (0, 400):
        web, done = Hosting(monkeypatch, limit=8), list[int]()
        for n in range(tarpits):
            web.add(f"tarpit{n}")
        for n in range(40):
            web.add(f"good{n}", 5_000)
        for _ in range(5):
            web.run(RUN_MS)
            done.append(of_good(web))
        found.append(done)
    alone, beside = found
    shares = [now / before for before, now in zip(alone, beside, strict=True)]
    assert all(share >= wanted for share, wanted in zip(shares, (0.5, 0.7, 0.8, 0.8, 0.85), strict=True)), shares


def test_slow_hosts_are_served_while_quick_ones_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    web = hosting(monkeypatch, 8, slow=5, good=400)
    assert sum(host.startswith("slow") for host in web.served) == 5


def test_lines_are_bounded_for_each_kind(monkeypatch: pytest.MonkeyPatch) -> None:
    web = Hosting(monkeypatch, limit=2)
    for kind in Kind:
        ends = list[object]()
        for _ in range(100):
            ends.append(web.addresses.enter(ADDRESS, kind))
            if isinstance(ends[-1], AwaitAddress):
                web.scheduler.lines[line_of(ADDRESS, kind)].append("x")
        assert web.scheduler.waiting_at(line_of(ADDRESS, kind)) == 2 * LINE_PER_REQUEST
        assert isinstance(ends[-1], Requeue)
    assert web.addresses.open_at(ADDRESS) == 2


def test_an_origin_is_slow_that_held_a_request_for_long_and_untried_when_it_failed_at_once() -> None:
    hosts, one = SlowHosts(Lines(), workers=8), "http://a.test"  # type: ignore[arg-type]
    kinds = [hosts.kind_of(one)]
    for answered, took_ms in (
        (False, 10),
        (False, MAKE_WAY_MS),
        (True, 10),
        (False, 10),
        (True, PROMPT_MS),
        (True, 10),
    ):
        hosts.note(one, answered=answered, took_ms=took_ms)
        kinds.append(hosts.kind_of(one))
    assert kinds == [Kind.UNTRIED, Kind.UNTRIED, Kind.SLOW, Kind.QUICK, Kind.UNTRIED, Kind.SLOW, Kind.QUICK]
