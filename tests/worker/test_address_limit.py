"""Requests to an address are limited; a few claims wait in memory, all others get a time to come again."""

import asyncio

import pytest

from crawler.worker.address_limit import GUESS_MS, LINE_PER_REQUEST, AddressLimiter
from crawler.worker.open_claims import OpenClaims
from crawler.worker.schedule import Scheduler
from crawler.worker.turn import Turn, TurnEnd
from tests.support.patience import PATIENCE_S
from tests.worker.test_schedule import batch
from tests.worker.turn_lab import StoppedClock, runner_of, turn_of

LIMIT = 2
LINE = LIMIT * LINE_PER_REQUEST
ADDRESS = "192.0.2.1"


@pytest.fixture
def scheduler(monkeypatch: pytest.MonkeyPatch) -> Scheduler:
    StoppedClock(monkeypatch)
    return Scheduler(OpenClaims(1000), concurrency_per_queue=1)


async def arrive(scheduler: Scheduler, addresses: AddressLimiter, queues: int, *, first: int = 0) -> list[bool]:
    """Take a claim of each of `queues` queues: which of them may go now."""
    for n in range(first, first + queues):
        scheduler.put(batch(n, queue=f"q{n}.test", delay_ms=1000))
    return [await enter(scheduler, addresses) for _ in range(queues)]


async def enter(scheduler: Scheduler, addresses: AddressLimiter) -> bool:
    """The next claim's turn: may it go? Then the turn goes on."""
    slot, claim = await asyncio.wait_for(scheduler.next(), PATIENCE_S)
    full = addresses.enter(ADDRESS)
    if full is None:
        return True

    async def end(_: Turn) -> TurnEnd:
        return full

    await runner_of(scheduler).run(turn_of(scheduler, slot, claim), end)
    return False


async def test_requests_to_an_address_are_limited_and_waiting_claims_go_next(scheduler: Scheduler) -> None:
    addresses = AddressLimiter(scheduler, limit=LIMIT)
    assert await arrive(scheduler, addresses, LIMIT + 3) == [True, True, False, False, False]
    for n in range(LIMIT, LIMIT + 3):
        addresses.left(ADDRESS, took_ms=50)
        _, claim = await asyncio.wait_for(scheduler.next(), PATIENCE_S)
        assert claim.queue == f"q{n}.test", "first come, first served, and at once"
        assert addresses.enter(ADDRESS) is None


async def test_claims_are_woken_though_those_before_them_sent_no_request(scheduler: Scheduler) -> None:
    addresses = AddressLimiter(scheduler, limit=LIMIT)
    assert sum(await arrive(scheduler, addresses, LIMIT + 4)) == LIMIT
    addresses.wake(ADDRESS)
    assert scheduler.waiting_at(ADDRESS) == 4, "there is no room"
    for left in (3, 2):
        addresses.left(ADDRESS, took_ms=50)
        slot, _ = await asyncio.wait_for(scheduler.next(), PATIENCE_S)
        scheduler.finished(slot, wait_ms=0, started=False)
        assert scheduler.waiting_at(ADDRESS) == left
    addresses.wake(ADDRESS)
    assert scheduler.waiting_at(ADDRESS) == 0


async def test_claims_at_a_full_address_get_successive_times(scheduler: Scheduler) -> None:
    addresses, late = AddressLimiter(scheduler, limit=LIMIT), 20
    assert sum(await arrive(scheduler, addresses, LIMIT + LINE + late)) == LIMIT
    assert scheduler.waiting_at(ADDRESS) == LINE
    waits = [scheduler.wait_of(f"q{n}.test") for n in range(LIMIT + LINE, LIMIT + LINE + late)]
    each_ms = GUESS_MS / LIMIT
    assert waits == sorted(waits)
    assert waits[0] == pytest.approx((LINE + 1) * each_ms, abs=1)
    assert waits[-1] - waits[0] == pytest.approx((late - 1) * each_ms, abs=1)
    assert scheduler.waiting == LINE + late, "their claims are in memory, so that they can be returned"


async def test_times_are_given_by_how_long_requests_to_the_address_take(scheduler: Scheduler) -> None:
    addresses = AddressLimiter(scheduler, limit=LIMIT)
    await arrive(scheduler, addresses, LIMIT + LINE)
    for n in range(LIMIT + LINE - 1):
        addresses.left(ADDRESS, took_ms=1000)
        await enter(scheduler, addresses) if n < LINE else None
    assert scheduler.waiting_at(ADDRESS) == 0
    await arrive(scheduler, addresses, 1 + LINE + 1, first=100)
    assert scheduler.wait_of(f"q{100 + 1 + LINE}.test") == pytest.approx((LINE + 1) * 1000 / LIMIT, rel=0.2)


async def test_an_address_is_forgotten_when_nothing_is_open_or_promised(scheduler: Scheduler) -> None:
    addresses = AddressLimiter(scheduler, limit=LIMIT)
    await arrive(scheduler, addresses, 1)
    addresses.left(ADDRESS, took_ms=50)
    assert not addresses._known
