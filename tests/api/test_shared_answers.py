"""Answers that several ask for at the same time are made once."""

import asyncio

import pytest

from crawler.api.shared_answers import KEPT_MAX, SharedAnswers


async def test_all_who_ask_meanwhile_share_one_answer() -> None:
    made: list[str] = []
    answers = SharedAnswers[int](60.0)

    async def make() -> int:
        made.append("a")
        await asyncio.sleep(0)
        return len(made)

    assert await asyncio.gather(*(answers.get("ring", make) for _ in range(5))) == [1] * 5
    assert await answers.get("other", make) == 2
    answers.forget()
    assert await answers.get("ring", make) == 3


async def test_an_old_answer_is_made_again_and_an_error_is_not_kept() -> None:
    answers = SharedAnswers[int](0.0)
    numbers = iter(range(10))

    async def make() -> int:
        return next(numbers)

    async def fail() -> int:
        raise ValueError

    assert [await answers.get("ring", make) for _ in range(3)] == [0, 1, 2]
    kept = SharedAnswers[int](60.0)
    with pytest.raises(ValueError):
        await kept.get("ring", fail)
    assert await kept.get("ring", make) == 3
    for n in range(2 * KEPT_MAX):
        await kept.get(n, lambda: asyncio.sleep(0, 1))
    assert len(kept._kept) == KEPT_MAX
