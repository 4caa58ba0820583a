"""A budget that was raised gives back what the smaller one had stopped and parked, and no more than that."""

import pytest

from crawler.frontier.budgets import Budget, Intake
from crawler.frontier.bulk_lookup import States
from crawler.frontier.deferred import BLOCKED, Order, Parking, What
from crawler.frontier.frontier import Settlement
from crawler.quotas.raise_limits import Raising
from tests.frontier.door import Door, found

QUEUE = "a.test"


@pytest.fixture
def parking(door: Door) -> Parking:
    return Parking(door.frontier, 1)


async def raised(door: Door, parking: Parking, *, pages: int = 0, size: int = 0) -> int:
    return await Raising(door.frontier, parking, Budget(pages=pages, bytes=size)).look([0])


async def waiting(door: Door) -> tuple[int, int]:
    """URLs that are pending, and that are parked."""
    counted = await States(door.engine, door.keys, 1).tally(0, 0)
    return counted.added - counted.done, counted.parks


@pytest.mark.parametrize(("budget", "released"), [(3, 0), (8, 5), (300, 297), (1000, 297), (0, 297)])
async def test_so_many_urls_are_released_as_a_larger_budget_takes_in(
    door: Door, parking: Parking, budget: int, released: int
) -> None:
    door.frontier.intake = Intake(urls=3)
    await door.add(*(found(n) for n in range(300)))
    door.frontier.intake = Intake(urls=budget)
    assert await raised(door, parking) == released
    assert await raised(door, parking) == 0
    assert await waiting(door) == (3 + released, 297 - released)


async def test_what_was_released_by_hand_counts_as_taken_in(door: Door, parking: Parking) -> None:
    door.frontier.intake = Intake(urls=3)
    await door.add(*(found(n) for n in range(20)))
    await parking.release(0, QUEUE, "urls", 4)
    door.frontier.intake = Intake(urls=10)
    assert await raised(door, parking) == 3


async def test_a_queue_whose_pages_were_used_up_starts_with_a_larger_budget_only(door: Door, parking: Parking) -> None:
    await door.frontier.pace(door.fence, QUEUE, Settlement(next_fetch_ms=0, delay_ms=0))
    await door.add(*(found(n) for n in range(5)))
    for claim in await door.claim(budget=Budget(pages=2)):
        await door.ack(claim, body_bytes=100)
    assert await door.claim(budget=Budget(pages=2)) == []
    assert await parking.stops(0) == {QUEUE: "pages"}
    assert await raised(door, parking, pages=2) == 0
    assert await raised(door, parking, pages=3) == 3
    assert len(await door.claim(budget=Budget(pages=3))) == 1


async def test_a_queue_whose_bytes_were_used_up_starts_without_a_budget(door: Door, parking: Parking) -> None:
    await door.frontier.pace(door.fence, QUEUE, Settlement(next_fetch_ms=0, delay_ms=0))
    await door.add(found(1), found(2))
    (claim,) = await door.claim(urls_max=1)
    await door.ack(claim, body_bytes=100)
    assert await door.claim(budget=Budget(bytes=50)) == []
    assert await raised(door, parking, size=100) == 0
    assert await raised(door, parking) == 1


async def test_what_is_blocked_stays_parked(door: Door, parking: Parking) -> None:
    door.frontier.intake = Intake(urls=1)
    await door.add(found(1), found(2))
    await parking.steer(0, [Order(QUEUE, What.STOP, BLOCKED)])
    door.frontier.intake = Intake(urls=0)
    assert await raised(door, parking) == 0
    assert await waiting(door) == (0, 2)
