"""One alone, or many together."""

import asyncio

from crawler.worker.isolation import Isolation


async def enter(gate: Isolation, log: list[str], name: str, *, alone: bool = False) -> None:
    await gate.enter(alone=alone)
    log.append(f"+{name}")
    await asyncio.sleep(0.001)
    log.append(f"-{name}")
    gate.leave()


async def test_an_exclusive_turn_overlaps_no_other_and_blocks_later_ones() -> None:
    gate, log = Isolation(), []
    await asyncio.gather(
        enter(gate, log, "a"), enter(gate, log, "b"), enter(gate, log, "X", alone=True), enter(gate, log, "c")
    )
    assert log == ["+a", "+b", "-a", "-b", "+X", "-X", "+c", "-c"]


async def test_two_exclusive_turns_follow_each_other() -> None:
    gate, log = Isolation(), []
    await asyncio.gather(*(enter(gate, log, name, alone=True) for name in "XYZ"))
    assert sorted(log[::2]) == ["+X", "+Y", "+Z"]
    assert [entry[1:] for entry in log[::2]] == [entry[1:] for entry in log[1::2]]


async def test_a_cancelled_exclusive_turn_lets_the_others_in() -> None:
    gate, log = Isolation(), []
    long = asyncio.create_task(enter(gate, log, "a"))
    await asyncio.sleep(0)
    alone = asyncio.create_task(enter(gate, log, "X", alone=True))
    later = asyncio.create_task(enter(gate, log, "b"))
    await asyncio.sleep(0)
    alone.cancel()
    await asyncio.gather(long, later)
    assert log == ["+a", "+b", "-a", "-b"]
