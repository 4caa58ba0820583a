"""What computes runs a few at a time in each pass of the event loop."""

import asyncio

import pytest

from crawler.parsing.parse import ComputeLimiter


async def passes_of(limiter: ComputeLimiter, count: int, cancelled: frozenset[int] = frozenset()) -> dict[int, int]:
    """In which pass of the loop each of `count` simultaneous callers has its turn."""
    now, seen = 0, dict[int, int]()

    async def passing() -> None:
        nonlocal now
        while True:
            await asyncio.sleep(0)
            now += 1

    async def computing(number: int) -> None:
        await limiter.wait_turn()
        seen[number] = now

    clock = asyncio.create_task(passing())
    tasks = [asyncio.create_task(computing(number)) for number in range(count)]
    await asyncio.sleep(0)
    for number in cancelled:
        tasks[number].cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    clock.cancel()
    return seen


async def test_only_a_few_compute_in_each_pass_of_the_loop() -> None:
    seen = await passes_of(ComputeLimiter(pages_before_yield=3), 20)
    assert list(seen) == sorted(seen), "first come, first served"
    for start in set(seen.values()):
        assert list(seen.values()).count(start) <= 3
    assert max(seen.values()) - min(seen.values()) < 20, "a pass uses all its turns"


async def test_cancelled_callers_take_no_turn() -> None:
    seen = await passes_of(ComputeLimiter(pages_before_yield=2), 10, cancelled=frozenset({3, 4, 9}))
    assert set(seen) == {0, 1, 2, 5, 6, 7, 8}


async def test_sequential_callers_do_not_wait() -> None:
    limiter = ComputeLimiter(pages_before_yield=1)
    for _ in range(5):
        with pytest.raises(StopIteration):  # not suspended even once
            limiter.wait_turn().send(None)
        await asyncio.sleep(0.001)
    assert await passes_of(limiter, 1) == {0: 0}
