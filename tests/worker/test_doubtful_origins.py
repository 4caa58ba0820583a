"""Of the turns of a queue, origins that have not answered get one in four; each of them has its turn."""

import heapq
import random

import pytest

from crawler.rules.pace import AdaptiveDelay
from crawler.worker.schedule import DOUBT_MS, DOUBT_TURNS, QueueSlot

NOW = 1_000_000


def slot_with(delay_ms: int = 1000) -> QueueSlot:
    return QueueSlot("a.test", delay_ms=delay_ms)


def test_the_first_doubtful_origin_is_tried_at_once_and_the_next_ones_in_line() -> None:
    slot = slot_with()
    assert [slot.try_doubtful(NOW) - NOW for _ in range(4)] == [0, 4000, 8000, 12_000]


def test_a_queues_doubled_delay_counts_too() -> None:
    slot = slot_with()
    slot.adaptive_delay = AdaptiveDelay(delay_ms=3000)
    assert [slot.try_doubtful(NOW) - NOW for _ in range(2)] == [0, 12_000]


def test_none_is_tried_while_a_request_to_another_one_is_open() -> None:
    slot = slot_with(0)
    slot.is_apart = True
    promised_ms = slot.try_doubtful(NOW)
    assert [promised_ms, slot.try_doubtful(NOW)] == [NOW + DOUBT_MS, NOW + 2 * DOUBT_MS]
    slot.is_apart = False
    assert slot.try_doubtful(NOW + DOUBT_MS, promised_ms) == NOW + DOUBT_MS


def test_without_a_delay_doubtful_origins_do_not_wait() -> None:
    slot = slot_with(0)
    assert {slot.try_doubtful(NOW) for _ in range(9)} == {NOW}


@pytest.mark.parametrize("delay_ms", [100, 1000, 30_000])
@pytest.mark.parametrize("seed", range(5))
def test_they_get_no_more_than_one_turn_in_four(delay_ms: int, seed: int) -> None:
    """Whenever and however often they come: over any time, one for each four delays, and one that was left over."""
    rng, slot, now, tried, told = random.Random(seed), slot_with(delay_ms), NOW, list[int](), list[int]()
    for _ in range(4000):
        now += rng.randrange(max(delay_ms, 1000))
        is_due = told and told[0] <= now
        if not is_due and len(told) > 9:
            continue
        at_ms = slot.try_doubtful(now, heapq.heappop(told) if is_due else 0)
        if at_ms > now:
            heapq.heappush(told, at_ms)
        else:
            tried.append(now)
    gap_ms = DOUBT_TURNS * delay_ms
    assert len(tried) > 100
    for first in range(0, len(tried), 7):
        for n in (2, 5, 50):
            some = tried[first : first + n]
            assert len(some) - 2 <= (some[-1] - some[0]) / gap_ms


@pytest.mark.parametrize("late_ms", [0, 5, 300])
@pytest.mark.parametrize("seed", range(5))
def test_each_of_many_has_its_turn_about_when_it_was_told(late_ms: int, seed: int) -> None:
    """They come back through the engine, which takes a while."""
    rng, slot, n = random.Random(seed), slot_with(), 200
    line, times_told, last_ms = [(NOW, one, 0) for one in range(n)], [0] * n, 0
    while line:
        due_ms, one, promised_ms = heapq.heappop(line)
        now = max(last_ms, due_ms + rng.randint(0, late_ms))
        at_ms = slot.try_doubtful(now, promised_ms)
        if at_ms > now:
            times_told[one] += 1
            heapq.heappush(line, (at_ms, one, at_ms))
        last_ms = now
    assert max(times_told) == 1
    assert last_ms - NOW <= n * DOUBT_TURNS * 1000 + late_ms


def test_newcomers_do_not_go_before_those_that_were_told_when_to_come() -> None:
    """Somebody may invent a new name for each turn of the queue."""
    slot, now = slot_with(), NOW
    slot.try_doubtful(now)
    promised_ms = slot.try_doubtful(now)
    while now < promised_ms:
        assert slot.try_doubtful(now) > promised_ms
        now += 100
    assert slot.try_doubtful(now) > now
    assert slot.try_doubtful(now, promised_ms) == now


def test_further_urls_of_an_origin_leave_its_place_in_the_line_as_it_is() -> None:
    slot = slot_with()
    slot.try_doubtful(NOW)
    promised_ms, doubt_ms = slot.try_doubtful(NOW), slot.doubt_ms
    assert {slot.try_doubtful(NOW + n, promised_ms) for n in range(1000)} == {promised_ms}
    assert slot.doubt_ms == doubt_ms
