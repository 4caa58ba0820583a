"""What is left of a budget that was raised."""

from hypothesis import given
from hypothesis import strategies as st

from crawler.rules.quota_limits import LINK_PLACES, grown, is_left, is_within, link_place, room_of

COUNTS = st.integers(0, 10**6)


def test_no_limit_always_leaves_something() -> None:
    assert (is_left(10**9, 0), is_left(4, 5), is_left(5, 5)) == (True, True, False)


def test_what_is_as_deep_as_the_budget_is_near_enough() -> None:
    assert (is_within(3, 3), is_within(4, 3), is_within(255, 0)) == (True, False, True)


def test_each_linking_domain_adds_to_a_quota_of_urls_only() -> None:
    assert grown(10, 3, "") == 10
    assert grown(10, 3, "\x05" + "\x7f" * (LINK_PLACES // 7 - 1)) == 10 + 3 * (2 + LINK_PLACES - 7)
    assert grown(0, 3, "\x01") == 0
    places = [link_place(f"d{n}.test", bytes(16)) for n in range(10_000)]
    assert set(places) == set(range(LINK_PLACES))


@given(taken=COUNTS, deferred=COUNTS, budget=COUNTS.filter(bool))
def test_never_more_is_admitted_than_the_quota_or_than_is_deferred(taken: int, deferred: int, budget: int) -> None:
    n = room_of(met=taken + deferred, deferred=deferred, budget=budget)
    assert 0 <= n <= deferred
    assert taken + n <= max(budget, taken)
    assert n == deferred or taken + n >= budget
