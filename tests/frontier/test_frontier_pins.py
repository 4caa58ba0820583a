"""Pins on a real engine: stored, replaced, refused, taken away."""

from collections.abc import AsyncIterator
from itertools import islice

import pytest

from crawler.engine.client import Engine
from crawler.errors import ConflictError
from crawler.frontier.keys import Keys
from crawler.frontier.members import Pins, by_partition
from crawler.frontier.scripts import library
from crawler.rules.places import partition_of

PARTITIONS = 16


def domains_of(partition: int, count: int) -> list[str]:
    """The first names that fall into a partition."""
    names = (f"d{i}.test" for i in range(100_000))
    return list(islice((name for name in names if partition_of(name, PARTITIONS) == partition), count))


A, B = domains_of(3, 2)
(ELSEWHERE,) = domains_of(4, 1)


@pytest.fixture
async def pins(engine) -> AsyncIterator[Pins]:
    door = Engine(engine.url, library())
    await door.connect()
    yield Pins(door, Keys("t"))
    await door.close()


async def test_a_pin_is_there_until_it_is_taken_away(pins: Pins) -> None:
    await pins.pin(A, "n1", partitions=PARTITIONS)
    await pins.pin(ELSEWHERE, "n2", partitions=PARTITIONS)
    assert await pins.read() == {A: "n1", ELSEWHERE: "n2"}
    assert by_partition(await pins.read(), PARTITIONS) == {3: "n1", 4: "n2"}
    assert await pins.unpin(A)
    assert not await pins.unpin(A)
    assert await pins.read() == {ELSEWHERE: "n2"}


async def test_a_domain_may_be_pinned_elsewhere(pins: Pins) -> None:
    await pins.pin(A, "n1", partitions=PARTITIONS)
    await pins.pin(A, "n2", partitions=PARTITIONS)
    assert await pins.read() == {A: "n2"}


async def test_two_domains_of_a_partition_go_to_one_node_or_not_at_all(pins: Pins) -> None:
    await pins.pin(A, "n1", partitions=PARTITIONS)
    await pins.pin(B, "n1", partitions=PARTITIONS)
    with pytest.raises(ConflictError, match=rf"{A} shares partition 3 with {B}, which is pinned to n1"):
        await pins.pin(A, "n2", partitions=PARTITIONS)
    assert await pins.read() == {A: "n1", B: "n1"}


def test_pins_that_raced_are_read_the_same_everywhere() -> None:
    assert by_partition({B: "n2", A: "n1"}, PARTITIONS) == by_partition({A: "n1", B: "n2"}, PARTITIONS)
