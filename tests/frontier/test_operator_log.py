"""The operator log: entries in order, their bound, and that they are written while the engine is full."""

import pytest

from crawler.frontier.operator_log import ENTRIES_MAX, TEXT_MAX, Actor, LogEntry, OperatorLog, Via
from tests.frontier.door import Door

ANN = Actor(who="ann", via=Via.CLI)


@pytest.fixture
def log(door: Door) -> OperatorLog:
    return OperatorLog(door.engine, door.keys)


async def test_entries_come_back_in_order_with_growing_numbers(log: OperatorLog) -> None:
    assert await log.read() == await log.newest() == []
    assert await log.add(ANN, "pause") == 1
    assert await log.add(Actor(who="bob", via=Via.API), "delay", "docs.example", "5 s") == 2
    first, second = await log.read()
    assert second == LogEntry(
        id=2, at=second.at, who="bob", via=Via.API, action="delay", target="docs.example", detail="5 s"
    )
    assert (first.id, first.action, first.target, first.at <= second.at) == (1, "pause", "", True)
    assert await log.read(after_id=1) == await log.newest(1) == [second]
    assert await log.read(limit=1) == [first]
    assert await log.read(after_id=2) == await log.read(after_id=2**64) == []
    assert await log.read(after_id=-7) == [first, second]


async def test_only_the_newest_entries_stay_and_numbers_go_on(log: OperatorLog, door: Door) -> None:
    for n in range(ENTRIES_MAX + 5):
        await log.add(ANN, "boost", f"d{n}.example")
    found = await log.read()
    assert [one.id for one in found] == list(range(6, ENTRIES_MAX + 6))
    assert await log.newest() == found
    used = await door.engine.command("MEMORY", "USAGE", door.keys.operator_log, "SAMPLES", 0)
    assert int(used) < ENTRIES_MAX * 250


async def test_long_texts_are_cut(log: OperatorLog) -> None:
    await log.add(ANN, "dead retry", f"https://docs.example/{'a' * 9_000}")
    (found,) = await log.read()
    assert len(found.target) == TEXT_MAX
    assert found.target.endswith("...")


async def test_a_full_engine_takes_entries(log: OperatorLog, door: Door) -> None:
    for node in door.nodes():
        node.config_set("maxmemory", 1)
    try:
        assert await log.add(ANN, "purge", "docs.example") == 1
    finally:
        for node in door.nodes():
            node.config_set("maxmemory", 0)
            node.close()
