"""One alone, or many together."""

import asyncio

from crawler.pipeline.isolation import Gate


async def enter(gate: Gate, log: list[str], name: str, *, alone: bool = False) -> None:
    await gate.enter(alone=alone)
    log.append(f"+{name}")
    await asyncio.sleep(0.001)
    log.append(f"-{name}")
    gate.leave()


async def test_one_that_is_alone_overlaps_nobody_and_holds_up_those_who_come_later() -> None:
    gate, log = Gate(), []
    await asyncio.gather(
        enter(gate, log, "a"), enter(gate, log, "b"), enter(gate, log, "X", alone=True), enter(gate, log, "c")
    )
    assert log == ["+a", "+b", "-a", "-b", "+X", "-X", "+c", "-c"]


async def test_two_that_want_to_be_alone_follow_each_other() -> None:
    gate, log = Gate(), []
    await asyncio.gather(*(enter(gate, log, name, alone=True) for name in "XYZ"))
    assert sorted(log[::2]) == ["+X", "+Y", "+Z"]
    assert [entry[1:] for entry in log[::2]] == [entry[1:] for entry in log[1::2]]


async def test_one_that_gives_up_waiting_to_be_alone_lets_the_others_in() -> None:
    gate, log = Gate(), []
    long = asyncio.create_task(enter(gate, log, "a"))
    await asyncio.sleep(0)
    alone = asyncio.create_task(enter(gate, log, "X", alone=True))
    later = asyncio.create_task(enter(gate, log, "b"))
    await asyncio.sleep(0)
    alone.cancel()
    await asyncio.gather(long, later)
    assert log == ["+a", "+b", "-a", "-b"]
