"""Dead letters of many URLs are found by plain commands, as many at a time as a reply may hold.

fakeredis answers these in this process. The scripts need a real engine: it knows no FUNCTION.
"""

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import msgspec
from fakeredis import FakeAsyncRedis

from crawler.frontier.codec import DeadLetter
from crawler.frontier.dead_letters import SCAN_COUNT, DeadLetters
from crawler.frontier.keys import Keys


class Plain:
    """An engine for plain commands only; counts them."""

    def __init__(self) -> None:
        self.client = FakeAsyncRedis()
        self.asked: list[int] = []

    async def command(self, *words: Any) -> Any:
        return await self.client.execute_command(*words)

    async def commands(self, commands: Sequence[tuple[Any, ...]]) -> list[Any]:
        self.asked += [len(words) - 2 for words in commands]
        return [await self.command(*words) for words in commands]


def letters_in(engine: Plain, partitions: int) -> DeadLetters:
    return DeadLetters(SimpleNamespace(engine=engine, keys=Keys("main")), partitions)  # type: ignore[arg-type]


async def bury(engine: Plain, partition: int, *numbers: int) -> None:
    for n in numbers:
        letter = DeadLetter(
            url=f"http://a.test/{n}", queue="a.test", domain="a.test", depth=0, reason="connect", detail="refused",
            attempts=1, failed_at=9.0,
        )  # fmt: skip
        stored = msgspec.json.encode(letter) + b"\n"
        await engine.client.hset(Keys("main").of(partition, "dead"), f"fp{n}", stored)


async def test_urls_with_a_dead_letter_are_found_and_others_left_out() -> None:
    engine = Plain()
    await bury(engine, 0, 1, 2)
    await bury(engine, 3, 7)
    found = await letters_in(engine, 4).find_all({0: ["fp2", "fp9", "fp1"], 1: ["fp1"], 3: ["fp7"]})
    assert [(one.partition, one.fingerprint, one.letter.url) for one in found] == [
        (0, "fp2", "http://a.test/2"), (0, "fp1", "http://a.test/1"), (3, "fp7", "http://a.test/7"),
    ]  # fmt: skip
    assert await letters_in(engine, 4).find_all({}) == []


async def test_many_are_asked_for_in_pieces() -> None:
    engine = Plain()
    last = SCAN_COUNT * 2
    await bury(engine, 0, last)
    found = await letters_in(engine, 1).find_all({0: [f"fp{n}" for n in range(last + 1)]})
    assert [one.fingerprint for one in found] == [f"fp{last}"]
    assert engine.asked == [SCAN_COUNT, SCAN_COUNT, 1]


async def test_all_dead_letters_are_read_and_one_is_found_alone() -> None:
    engine = Plain()
    await bury(engine, 0, 1)
    await bury(engine, 1, *range(2, 50))
    read = [one.fingerprint async for some in letters_in(engine, 2).read() for one in some]
    assert sorted(read) == sorted(f"fp{n}" for n in range(1, 50))
    one = await letters_in(engine, 2).find(1, "fp7")
    assert one is not None
    assert one.letter.reason == "connect"
    assert await letters_in(engine, 2).find(0, "fp7") is None
