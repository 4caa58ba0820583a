"""The delay of a domain that answers 429: it doubles, within bounds, and answers bring it down again."""

import math

from hypothesis import given
from hypothesis import strategies as st

from crawler.rules.pace import RECOVERED_SHARE, STEP_MS, UNMEASURED, AdaptiveDelay, recovered, slowed

CEILING_MS = 32_000
floors = st.integers(0, 20_000)
delays = st.builds(AdaptiveDelay, st.integers(0, CEILING_MS), st.floats(0, 1e4))


def test_it_doubles_up_to_the_ceiling_and_comes_back_after_some_answers() -> None:
    slow, seen = UNMEASURED, []
    for _ in range(6):
        slow = slowed(slow, floor_ms=1000, ceiling_ms=10_000)
        seen.append(slow.delay_ms)
    assert seen == [2000, 4000, 8000, 10_000, 10_000, 10_000]
    answers = 0
    while slow is not UNMEASURED:
        slow, answers = recovered(slow, floor_ms=1000), answers + 1
    assert answers == 18


def test_a_domain_without_a_delay_gets_one() -> None:
    assert slowed(UNMEASURED, floor_ms=0, ceiling_ms=CEILING_MS).delay_ms == 2 * STEP_MS


@given(delays, floors, st.integers(1, CEILING_MS))
def test_it_is_never_below_the_floor_nor_above_the_ceiling(before: AdaptiveDelay, floor: int, ceiling: int) -> None:
    after = slowed(before, floor_ms=floor, ceiling_ms=ceiling)
    assert floor <= after.delay_ms <= max(floor, ceiling)
    assert after.delay_ms == max(floor, min(ceiling, 2 * max(before.delay_ms, floor, STEP_MS)))
    assert after.latency_ms == before.latency_ms


@given(delays, floors)
def test_answers_bring_it_down_to_the_floor_in_a_bounded_number(before: AdaptiveDelay, floor: int) -> None:
    bound = 1 + math.ceil(math.log(CEILING_MS / STEP_MS) / -math.log(1 - RECOVERED_SHARE))
    delay, answers = before, 0
    while delay is not UNMEASURED:
        after = recovered(delay, floor_ms=floor)
        assert after is UNMEASURED or floor < after.delay_ms < delay.delay_ms
        delay, answers = after, answers + 1
        assert answers <= bound
    assert bound == 24


@given(delays, floors)
def test_the_latency_is_kept_until_the_floor_is_reached(before: AdaptiveDelay, floor: int) -> None:
    after = recovered(before, floor_ms=floor)
    assert after is UNMEASURED or after.latency_ms == before.latency_ms
