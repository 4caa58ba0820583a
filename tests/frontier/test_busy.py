"""The busiest queues of a partition in the engine: which they are, and their slots against a model."""

import random
from collections import Counter

import pytest

from crawler.frontier.arguments import ActivityHead, ActivityItem
from crawler.frontier.busy import BusyQueue, BusyQueues, Slot
from crawler.frontier.codec import pack
from crawler.frontier.series import COARSE, FINE, Rates
from tests.frontier.door import Door, found

T = 360_000_000  # a fine slot, the first of a coarse one
MOST = 3
NOTHING = {"pages": 0, "bytes": 0, "client_errors": 0, "server_errors": 0, "failures": 0}


@pytest.fixture
def busy(door: Door) -> BusyQueues:
    return BusyQueues(door.engine, door.keys, 1)


async def note(door: Door, *items: ActivityItem, seconds: float = 2.0) -> None:
    head = ActivityHead(MOST, seconds, FINE.slot_s)
    packed = pack([*head, *(value for item in items for value in item)])
    await door.frontier.drain_log([(door.fence, [])], {0: packed})


def item(slot: int, queue: str, pages: int = 0, size: int = 0, failures: int = 0) -> ActivityItem:
    return ActivityItem(slot, queue, pages, size, 0, 0, failures)


async def test_counts_of_a_slot_add_up_and_rates_are_of_two_whole_ones(door: Door, busy: BusyQueues) -> None:
    await note(door, item(T, "a.test", 5, 100), item(T + 1, "a.test", 7, 10, 1))
    await note(door, item(T + 1, "a.test", 8, 90))
    await note(door, item(T + 2, "a.test", 100, 9))
    (queue,) = await busy.read()
    assert (queue.queue, queue.partition) == ("a.test", 0)
    assert queue.newest == [Slot(T + 2, 100, 9), Slot(T + 1, 15, 100, 0, 0, 1), Slot(T, 5, 100)]
    assert queue.rates((T + 3) * 5 + 1.0) == Rates(10, 11.5, 10.9, 0.0, 0.0, 0.1)
    assert queue.rates((T + 2) * 5 + 1.0) == Rates(5, 3.0, 20.0, 0.0, 0.0, 0.2), "the first slot is not whole"
    assert queue.rates((T + 2) * 5 + 0.9) is None, "not all owners have sent the last slot yet"
    assert queue.rates((T + 3) * 5 + 1.0, (T + 1) * 5 + 2.0) == Rates(5, 20.0, 1.8), (
        "instances began in the second slot"
    )
    assert queue.rates((T + 3) * 5 + 1.0, (T + 2) * 5 + 2.0) is None
    assert queue.rates((T + 20) * 5) == Rates(10)
    assert BusyQueue("b.test", 0, []).rates(T * 5.0) == Rates(10)


async def test_the_slots_of_a_queue_equal_a_model(door: Door, busy: BusyQueues) -> None:
    """Through both rings, with gaps, late counts and a clock that goes back."""
    rng = random.Random(7)
    model: Counter[tuple[int, int]] = Counter()
    slot = T + 3
    for _ in range(400):
        slot += rng.choice((0, 0, 1, 1, 2, 60, -1, 31))
        pages, failures = rng.randrange(5), rng.randrange(2)
        await note(door, ActivityItem(slot, "a.test", pages, pages * 1000, 1, 2, failures))
        model[slot, 0] += pages
        model[slot, 1] += failures
        model[slot, 2] += 1
    now_s = slot * 5.0 + 1
    fine, coarse = await busy.slots(0, "a.test", now_s)
    wanted = {n for n, what in model if what == 2 and slot - FINE.slots < n <= slot}
    assert fine == [
        Slot(n, model[n, 0], model[n, 0] * 1000, model[n, 2], 2 * model[n, 2], model[n, 1]) for n in sorted(wanted)
    ]
    sums: Counter[int] = Counter()
    for (n, what), count in model.items():
        sums[n // 60] += count if what == 0 else 0
    last = slot // 60
    assert [(one.number, one.pages) for one in coarse] == [
        (n, sums[n]) for n in sorted(sums) if last - COARSE.slots < n <= last
    ]
    assert await door.engine.command("STRLEN", door.keys.of(0, "v:a.test")) <= 17 * FINE.slots
    assert await door.engine.command("STRLEN", door.keys.of(0, "d:a.test")) <= 22 * COARSE.slots


async def test_what_is_too_much_for_a_number_stays_at_its_largest(door: Door, busy: BusyQueues) -> None:
    for _ in range(2):
        await note(door, ActivityItem(T, "a.test", 60_000, 2**39 + 1, 60_000, 60_000, 60_000))
    fine, coarse = await busy.slots(0, "a.test", T * 5.0)
    assert fine == [Slot(T, 65535, 2**40 - 1, 65535, 65535, 65535)]
    assert coarse == [Slot(T // 60, 120_000, 2**40 + 2, 120_000, 120_000, 120_000)]


async def test_a_busier_queue_takes_the_place_of_the_least_busy_one(door: Door, busy: BusyQueues) -> None:
    await note(door, item(T, "a.test", 20), item(T, "b.test", 2), item(T, "c.test", 20))
    await note(door, item(T, "d.test", failures=1), seconds=1000.0)
    assert {one.queue for one in await busy.read()} == {"a.test", "b.test", "c.test"}, "not twice as busy"
    await note(door, item(T, "d.test", failures=9))
    assert {one.queue for one in await busy.read()} == {"a.test", "d.test", "c.test"}
    assert await busy.slots(0, "b.test", T * 5.0) == ([], [])
    assert (await busy.slots(0, "d.test", T * 5.0))[0] == [Slot(T, failures=9)]


async def test_a_queue_that_was_busy_long_ago_gives_way(door: Door, busy: BusyQueues) -> None:
    """A queue with few requests is compared with the others in one slot of a minute."""
    await note(door, *(item(T, f"{name}.test", 9999) for name in "abc"))
    for slot, is_in in ((T, False), (T + 60 * 24 + 1, False), (T + 60 * 24 + 12, True)):
        await note(door, item(slot, "d.test", 1))
        assert ("d.test" in {one.queue for one in await busy.read()}) == is_in
        assert len(await busy.read()) == MOST


async def test_activity_and_entries_of_one_call_both_count(door: Door, busy: BusyQueues) -> None:
    await door.add(found(1))
    (claim,) = await door.claim()
    await door.ack(claim)
    packed = pack([*ActivityHead(MOST, 2.0, 5), *item(T, "a.test", 1)])
    await door.frontier.drain_log([(door.fence, await door.frontier.undrained(0))], {0: packed, 5: packed})
    assert await door.frontier.undrained(0) == []
    assert [one.newest for one in await busy.read()] == [[Slot(T, 1)]]


async def test_a_session_that_lost_the_lease_notes_nothing(door: Door, busy: BusyQueues) -> None:
    old = door.fence
    await door.acquire("bob")
    packed = pack([*ActivityHead(MOST, 2.0, 5), *item(T, "a.test", 1)])
    await door.frontier.drain_log([(old, [])], {0: packed})
    assert await busy.read() == []


async def test_open_requests_and_the_last_error_are_kept(door: Door, busy: BusyQueues) -> None:
    await note(door, ActivityItem(T, "a.test", 1, 1, 0, 0, 1, 2, "connection refused"))
    await note(door, ActivityItem(T + 1, "a.test", 1, 1, 0, 0, 0, 1))
    await note(door, ActivityItem(T + 2, "a.test", in_flight=3, **NOTHING))
    (queue,) = await busy.read()
    assert (queue.in_flight, queue.last_error, queue.last_error_at) == (3, "connection refused", T * 5)
    assert [slot.number for slot in queue.newest] == [T + 1, T], "nothing happened in the last slot"
    assert await busy.of([("b.test", 0), ("a.test", 0)]) == [None, queue]


async def test_a_queue_whose_first_request_lasts_gets_a_free_place(door: Door, busy: BusyQueues) -> None:
    for name in "abcd":
        await note(door, ActivityItem(T, f"{name}.test", in_flight=1, **NOTHING))
    assert {one.queue for one in await busy.read()} == {"a.test", "b.test", "c.test"}
    assert await busy.slots(0, "a.test", T * 5.0) == ([], [])
    await note(door, item(T, "d.test", 1))
    assert "d.test" in {one.queue for one in await busy.read()}
