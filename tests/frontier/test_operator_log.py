"""The operator log: entries in order, their bound, shares, repeated commands, and a full engine."""

import pytest

from crawler.engine.client import Engine
from crawler.frontier.keys import Keys
from crawler.frontier.operator_log import (
    DROPPED_AT_ONCE,
    ENTRIES_MAX,
    LOOKED_AT,
    TEXT_MAX,
    Actor,
    LogEntry,
    OperatorLog,
    Via,
)
from crawler.frontier.scripts import library
from tests.frontier.door import Door
from tests.support.engine import Engine as Server
from tests.support.proxy import tcp_proxy

ANN = Actor(who="ann", via=Via.CLI)
BOB = Actor(who="bob", via=Via.API)


@pytest.fixture
def log(door: Door) -> OperatorLog:
    return OperatorLog(door.engine, door.keys)


async def test_entries_come_back_in_order_with_growing_numbers(log: OperatorLog) -> None:
    assert await log.read() == await log.newest() == []
    assert await log.add(ANN, "pause") == 1
    assert await log.add(BOB, "delay", "docs.example", "5 s") == 2
    first, second = await log.read()
    assert second == LogEntry(
        id=2, at=second.at, who="bob", via=Via.API, action="delay", target="docs.example", detail="5 s",
        first_at=second.at,
    )  # fmt: skip
    assert (first.id, first.action, first.target, first.at <= second.at) == (1, "pause", "", True)
    assert await log.read(after_id=1) == await log.newest(1) == [second]
    assert await log.read(limit=1) == [first]
    assert await log.read(after_id=2) == await log.read(after_id=2**64) == []
    assert await log.read(after_id=-7) == [first, second]


async def test_only_the_newest_entries_stay_and_numbers_go_on(log: OperatorLog, door: Door) -> None:
    for n in range(ENTRIES_MAX + 5):
        await log.add(ANN, "boost", f"d{n}.example")
    found = await log.read()
    assert [one.id for one in found] == list(range(DROPPED_AT_ONCE + 2, ENTRIES_MAX + 6))
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


@pytest.mark.slow(ci=True)
async def test_a_user_who_gives_many_commands_drops_only_their_own(log: OperatorLog) -> None:
    for n in range(3):
        await log.add(BOB, "pause", f"bob{n}.example")
        await log.add(Actor(who="ann", via=Via.API), "pause", f"other-ann{n}.example")
    for n in range(3 * ENTRIES_MAX):
        await log.add(ANN, "boost", f"d{n}.example")
    found = await log.read()
    assert len(found) <= ENTRIES_MAX
    assert [one.target for one in found if one.who == "bob"] == [f"bob{n}.example" for n in range(3)]
    assert len([one for one in found if one.target.startswith("other-ann")]) == 3
    assert found[-1].target == f"d{3 * ENTRIES_MAX - 1}.example"


async def test_a_repeated_command_is_one_entry(log: OperatorLog) -> None:
    for _ in range(12):
        await log.add(ANN, "pause", "a.example")
        await log.add(BOB, "delay", "b.example", "5 s")
    one, two = await log.read()
    assert (one.id, one.target, one.times, one.told) == (23, "a.example", 12, "12 times")
    assert (two.id, two.target, two.times, two.told) == (24, "b.example", 12, "5 s, 12 times")
    assert two.first_at < two.at


@pytest.mark.parametrize(
    "between",
    [(BOB, "resume", "a.example", ""), (ANN, "resume", "a.example", ""), (BOB, "pause", "a.example", ""),
     (ANN, "pause", "a.example", "x"), (Actor(who="ann", via=Via.TOP), "pause", "a.example", "")],
)  # fmt: skip
async def test_commands_with_another_between_them_are_not_one(
    log: OperatorLog, between: tuple[Actor, str, str, str]
) -> None:
    await log.add(ANN, "pause", "a.example")
    await log.add(*between)
    await log.add(ANN, "pause", "a.example")
    assert [one.times for one in await log.read()] == [1, 1, 1]


async def test_a_command_that_was_given_long_before_is_another_entry(log: OperatorLog) -> None:
    await log.add(ANN, "pause", "a.example")
    for n in range(LOOKED_AT):
        await log.add(ANN, "pause", f"d{n}.example")
    await log.add(ANN, "pause", "a.example")
    assert len(await log.read()) == LOOKED_AT + 2


async def test_an_entry_whose_reply_is_lost_is_counted_once(engine: Server) -> None:
    with tcp_proxy(engine.url) as proxy:
        opened = Engine(proxy.url, library())
        log = OperatorLog(opened, Keys("t"))
        await log.add(ANN, "pause", "docs.example")
        proxy.drop_reply(of=b"_log_command")
        assert await log.add(ANN, "pause", "docs.example") == 2
        (found,) = await log.read()
        await opened.close()
    assert proxy.lost == 1
    assert (found.id, found.times) == (2, 2)
