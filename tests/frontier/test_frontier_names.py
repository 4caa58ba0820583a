"""The index of queues by name: complete, in order, compact, and paged over all partitions with few calls."""

import contextlib
import random
from collections.abc import Sequence
from typing import Any, cast

import pytest

from crawler.engine.client import Call, Engine
from crawler.frontier.owner import Settlement
from crawler.frontier.stats import NAMES_MAX, Stats
from crawler.model import Candidate
from crawler.rules.places import partition_of
from tests.frontier.door import Door, found
from tests.frontier.raw import RawPartition, dump
from tests.frontier.test_frontier_restore import done, restore

BLOCK = 128
ODD = [
    "a.test", "a.test.b", "aa.test", "a-b.test", "a_b.test", "a", "ab", "abc", "-a.test", "0.test", "9.9.9.9", "[::1]",
    "[2001:db8::1]", "[2001:db8::10]", "xn--mnchen-3ya.test", "xn--mnchen-3ya.test.b", "z", "z" * 60 + ".test",
    ".".join(["z" * 60] * 4), ".".join(["z" * 60] * 4) + "a", "été.test", "例え.test",
]  # fmt: skip


def some_names(count: int) -> list[str]:
    rng = random.Random(3)
    return sorted({f"{rng.choice('abcxyz') * rng.randrange(1, 4)}{rng.randrange(10**5)}.test" for _ in range(count)})


async def add(door: Door, names: Sequence[str], partitions: int = 1) -> None:
    shuffled = random.Random(7).sample(names, len(names))
    by_partition: dict[int, list[Candidate]] = {}
    for name in shuffled:
        partition = partition_of(name, partitions)
        by_partition.setdefault(partition, []).append(found("", host=name, partition=partition))
    await door.frontier.add(by_partition)


def in_order(names: Sequence[str]) -> list[str]:
    return sorted(names, key=str.encode)


async def paged(stats: Stats, limit: int) -> list[str]:
    """All names, page by page."""
    names: list[str] = []
    while page := await stats.domains_by_name(names[-1] if names else "", limit):
        assert len(page) <= limit
        names += [name for name, _ in page]
    return names


def index_of(door: Door) -> list[list[str]]:
    with contextlib.closing(door.node) as client:
        return RawPartition.of(dump(client, door.keys.of(0, "names*")), door.keys, 0).names()


class Counting:
    """The engine, with the calls that were made."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.calls: list[list[Call]] = []

    async def run_all(self, calls: Sequence[Call]) -> list[Any]:
        self.calls.append(list(calls))
        return await self._engine.run_all(calls)


def counted(door: Door, partitions: int) -> tuple[Stats, list[list[Call]]]:
    engine = Counting(door.engine)
    return Stats(cast("Engine", engine), door.keys, partitions), engine.calls


@pytest.mark.parametrize("limit", [1, 3, 50])
async def test_pages_have_every_odd_name_once_in_the_order_of_bytes(door: Door, limit: int) -> None:
    await add(door, ODD, partitions=5)
    assert await paged(Stats(door.engine, door.keys, 5), limit) == in_order(ODD)


async def test_a_page_names_the_partition_of_each_domain(door: Door) -> None:
    await add(door, ODD, partitions=5)
    page = await Stats(door.engine, door.keys, 5).domains_by_name("", 100)
    assert page == [(name, partition_of(name, 5)) for name in in_order(ODD)]


async def test_a_page_begins_after_a_name_that_is_not_there(door: Door) -> None:
    await add(door, ["a.test", "c.test"])
    stats = Stats(door.engine, door.keys, 1)
    assert await stats.domains_by_name("b.test", 9) == [("c.test", 0)]
    assert await stats.domains_by_name("c.test", 9) == await stats.domains_by_name("a.test", 0) == []


async def test_blocks_split_stay_small_and_hold_each_name_once(door: Door) -> None:
    names = some_names(1500)
    for _ in range(2):  # the second time, nothing is new
        await add(door, names)
    blocks = index_of(door)
    assert [name for block in blocks for name in block] == in_order(names)
    assert BLOCK / 2 <= min(map(len, blocks)) <= max(map(len, blocks)) <= BLOCK
    with contextlib.closing(door.node) as client:
        keys = list(client.scan_iter(door.keys.of(0, "names:*"), count=10_000))
        assert {client.object("ENCODING", key) for key in keys} == {b"listpack"}
    assert await paged(Stats(door.engine, door.keys, 1), 300) == in_order(names)


@pytest.mark.parametrize("step", [1, -1])
async def test_names_that_come_in_order_fill_blocks_too(door: Door, step: int) -> None:
    names = in_order(some_names(700))
    await door.add(*(found("", host=name) for name in names[::step]))
    assert [name for block in index_of(door) for name in block] == names


async def test_names_of_the_greatest_length_take_the_same_place(door: Door) -> None:
    names = in_order([f"{n:03}{'x' * 50}." + ".".join(["y" * 60] * 3) for n in range(300)])
    await add(door, names)
    assert await paged(Stats(door.engine, door.keys, 1), 7) == names


async def test_one_call_returns_a_bounded_number_of_names(door: Door) -> None:
    names = some_names(600)
    await add(door, names)
    got = await door.engine.run("names_after", (door.keys.meta(0),), names[3], 10**6)
    assert [name.decode() for name in got] == in_order(names)[4 : 4 + NAMES_MAX]


async def test_a_page_asks_each_partition_once_for_a_few_names(door: Door) -> None:
    names = some_names(2000)
    await add(door, names, partitions=64)
    stats, calls = counted(door, 64)
    assert [name for name, _ in await stats.domains_by_name("", 50)] == in_order(names)[:50]
    assert len(calls[0]) == 64
    assert len(calls) <= 2
    assert sum(len(some) for some in calls[1:]) <= 3


async def test_a_partition_that_has_the_whole_page_is_asked_again_alone(door: Door) -> None:
    late = [f"z{n}.test" for n in range(200)]
    early = [name for name in (f"a{n:03}.test" for n in range(2000)) if partition_of(name, 8) == 3][:40]
    await add(door, [*late, *early], partitions=8)
    stats, calls = counted(door, 8)
    assert await stats.domains_by_name("", 30) == [(name, 3) for name in early[:30]]
    assert {call.keys for some in calls[1:] for call in some} == {(door.keys.meta(3),)}


async def test_a_queue_is_listed_when_its_url_is_found_deferred_or_restored(door: Door) -> None:
    await door.add(found(1, host="found.test"), found(1, host="deferred.test", deferred="depth"))
    (claim,) = await door.claim()
    await door.ack(claim, found(2, host="linked.test"))
    await restore(door, done(found(1, host="restored.test")), done(found(3, host="found.test")))
    stats = Stats(door.engine, door.keys, 1)
    assert await paged(stats, 9) == ["deferred.test", "found.test", "linked.test", "restored.test"]
    assert await stats.domain_count() == 4


async def test_a_queue_without_urls_is_not_listed(door: Door) -> None:
    await door.frontier.book_request(door.fence, "robots.test", Settlement(next_fetch_ms=9, delay_ms=0))
    assert await Stats(door.engine, door.keys, 1).domains_by_name("", 9) == []
    await door.add(found(1, host="robots.test"))
    assert await Stats(door.engine, door.keys, 1).domains_by_name("", 9) == [("robots.test", 0)]
