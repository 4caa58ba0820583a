"""However many origins never answer, or answer slowly, a part of the workers is left for the others."""

import asyncio
import itertools

import pytest

from crawler.worker import address_limit, slow_hosts
from crawler.worker import page_requests as page_request
from crawler.worker.address_limit import SLOW_SHARE, WARY_MS
from crawler.worker.open_claims import OpenClaims
from crawler.worker.page_requests import OpenRequests
from crawler.worker.schedule import Scheduler
from crawler.worker.slow_hosts import ANSWERED_MAX, PROMPT_MS, SlowHosts
from crawler.worker.turn import AwaitAddress, Requeue, Turn, TurnEnd
from tests.support.patience import others_run
from tests.worker.test_schedule import batch, claim
from tests.worker.turn_lab import runner_of, turn_of

WORKERS = 8


def hosts_for(workers: int = WORKERS) -> SlowHosts:
    return SlowHosts(Scheduler(OpenClaims(1000), concurrency_per_queue=1), workers=workers)


def test_an_origin_is_quick_while_its_last_answer_came_quickly() -> None:
    hosts, one = hosts_for(), "http://a.test"
    states = []
    for answered, took_ms in ((True, 80), (True, PROMPT_MS), (True, PROMPT_MS - 1), (False, 10), (True, 10)):
        states.append((hosts.is_quick(one), hosts.has_answered(one)))
        hosts.note(one, answered=answered, took_ms=took_ms)
    states.append((hosts.is_quick(one), hosts.has_answered(one)))
    assert states == [(False, False), (True, True), (False, True), (True, True), (False, False), (True, True)]


@pytest.mark.parametrize("workers", [1, 2, 4, 64])
def test_slow_origins_get_their_share_of_the_workers_and_no_more(workers: int) -> None:
    hosts = hosts_for(workers)
    entered = sum(hosts.enter() is None for _ in range(10 * workers))
    assert entered == hosts.open == max(1, int(SLOW_SHARE * workers))
    hosts.left(took_ms=5)
    assert hosts.enter() is None


def test_unknown_origins_are_limited_only_after_slow_ones_held_more_than_their_share(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = 0
    for module in (address_limit, slow_hosts):
        monkeypatch.setattr(module, "monotonic_ms", lambda: now)
    hosts, new, quick, slow = hosts_for(), "http://new.test", "http://quick.test", "http://slow.test"
    hosts.note(quick, answered=True, took_ms=20)
    hosts.note(slow, answered=True, took_ms=PROMPT_MS)
    states = [[hosts.is_limited(one) for one in (new, quick, slow)]]
    for _ in range(hosts.most + 1):
        hosts.enter()
    states.append([hosts.is_limited(one) for one in (new, quick, slow)])
    now += WARY_MS
    states.append([hosts.is_limited(one) for one in (new, quick, slow)])
    hosts.beware()
    states.append([hosts.is_limited(one) for one in (new, quick, slow)])
    assert states == [[False, False, True], [True, False, True], [False, False, True], [True, False, True]]


def test_those_beyond_wait_in_memory_and_then_in_the_engine() -> None:
    hosts = hosts_for()
    ends = [hosts.enter() for _ in range(WORKERS)]
    assert [type(end) for end in ends] == [type(None)] * 6 + [AwaitAddress] * 2


async def test_a_quick_origin_always_finds_a_worker_among_ten_times_as_many_attackers() -> None:
    """Attackers hold their worker for ever; the quick one is served each time within a moment."""
    scheduler = Scheduler(OpenClaims(1000), concurrency_per_queue=1)
    hosts = SlowHosts(scheduler, workers=WORKERS)
    runner, served, held = runner_of(scheduler), list[str](), set[str]()
    good = [f"good{n}.test" for n in range(3)]
    for n in range(10 * WORKERS):
        scheduler.put(batch(n, queue=f"bad{n}.test"))

    async def work(turn: Turn) -> TurnEnd:
        origin = f"http://{turn.claim.queue}"
        is_quick = hosts.is_quick(origin)
        if not is_quick and (full := hosts.enter()) is not None:
            return full
        if is_quick:
            served.append(turn.claim.queue)
            return Requeue(wait_ms=60_000)
        held.add(turn.claim.queue)
        await asyncio.Event().wait()
        raise AssertionError

    async def worker() -> None:
        while True:
            slot, claim = await scheduler.next()
            await runner.run(turn_of(scheduler, slot, claim), work)

    workers = [asyncio.create_task(worker()) for _ in range(WORKERS)]
    try:
        await others_run()
        assert len(held) == hosts.most < WORKERS
        for queue in good:
            hosts.note(f"http://{queue}", answered=True, took_ms=20)
            scheduler.put(batch(1, queue=queue))
            await others_run()
        assert served == good
    finally:
        for one in workers:
            one.cancel()
        await asyncio.gather(*workers, return_exceptions=True)


def test_what_is_remembered_of_origins_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slow_hosts, "ANSWERED_MAX", 3)
    assert ANSWERED_MAX > 3
    hosts = hosts_for()
    for n in (0, 1, 2, 0, 3):
        hosts.note(f"http://{n}.test", answered=True, took_ms=1)
    assert [hosts.is_quick(f"http://{n}.test") for n in range(4)] == [True, False, True, True]


# --- requests that were expected to be quick, and are cut off when they are not ---


class Waiting:
    """Workers that wait for answers, and what became of them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.requests = OpenRequests()
        self.now = 0
        self.ends: dict[int, str] = {}
        self.numbers = itertools.count()
        self.tasks: list[asyncio.Task[None]] = []
        monkeypatch.setattr(page_request, "monotonic_ms", lambda: self.now)

    async def request(self, *, is_quick: bool) -> None:
        self.tasks.append(asyncio.create_task(self._request(next(self.numbers), is_quick=is_quick)))
        await asyncio.sleep(0)

    async def _request(self, n: int, *, is_quick: bool) -> None:
        worker = self.requests.add(claim(n), is_quick=is_quick)
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            if not self.requests.is_only_cut_off(worker):
                self.ends[n] = "cancelled"
                raise
            self.ends[n] = "made way" if self.requests.has_made_way(worker) else "cut off"
            assert not self.requests.has_made_way(worker), "asked once"
        finally:
            self.requests.remove(worker)

    def slow(self, age_ms: int = 3000) -> list[int]:
        return [self.tasks.index(worker) for worker in self.requests.slow(age_ms)]


@pytest.fixture
async def waiting(monkeypatch: pytest.MonkeyPatch) -> Waiting:
    return Waiting(monkeypatch)


async def test_slow_are_those_that_were_expected_to_be_quick_the_oldest_first(waiting: Waiting) -> None:
    for is_quick in (True, False, True, True):
        await waiting.request(is_quick=is_quick)
        waiting.now += 1000
    assert [waiting.slow(age_ms) for age_ms in (4001, 4000, 2000, 1000)] == [[], [0], [0, 2], [0, 2, 3]]
    waiting.requests.cut_off_all()
    await asyncio.gather(*waiting.tasks)
    assert waiting.slow(0) == []


async def test_a_request_that_makes_way_frees_its_worker_and_is_not_late(waiting: Waiting) -> None:
    for _ in range(3):
        await waiting.request(is_quick=True)
    waiting.now += 5000
    waiting.requests.make_way(waiting.requests.slow(3000)[:2])
    assert waiting.slow() == [2], "those that are told already are not told again"
    waiting.requests.cut_off_all()
    await asyncio.gather(*waiting.tasks)
    assert waiting.ends == {0: "made way", 1: "made way", 2: "cut off"}
    assert waiting.requests.claims == []


async def test_a_worker_that_is_to_end_ends_though_its_request_made_way(waiting: Waiting) -> None:
    await waiting.request(is_quick=True)
    waiting.requests.make_way(waiting.requests.slow(0))
    waiting.tasks[0].cancel()
    await asyncio.gather(*waiting.tasks, return_exceptions=True)
    assert waiting.ends == {0: "cancelled"}
