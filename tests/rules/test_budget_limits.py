"""What is left of a budget that was raised."""

from hypothesis import given
from hypothesis import strategies as st

from crawler.rules.remaining import is_left, is_within, room_of, share_of

COUNTS = st.integers(0, 10**6)


def test_no_limit_always_leaves_something() -> None:
    assert (is_left(10**9, 0), is_left(4, 5), is_left(5, 5)) == (True, True, False)


def test_what_is_as_deep_as_the_budget_is_near_enough() -> None:
    assert (is_within(3, 3), is_within(4, 3), is_within(255, 0)) == (True, False, True)


@given(taken=COUNTS, deferred=COUNTS, budget=COUNTS.filter(bool))
def test_never_more_is_admitted_than_the_budget_or_than_is_deferred(taken: int, deferred: int, budget: int) -> None:
    n = room_of(met=taken + deferred, deferred=deferred, budget=budget)
    assert 0 <= n <= deferred
    assert taken + n <= max(budget, taken)
    assert n == deferred or taken + n >= budget


@given(room=st.integers(0, 10_000), sharers=st.sets(st.text(min_size=1, max_size=3), min_size=1, max_size=9),
       counted_s=st.floats(0, 2e9), later_s=st.floats(0, 3))  # fmt: skip
def test_the_shares_of_a_room_add_up_to_it_and_no_more(
    room: int, sharers: set[str], counted_s: float, later_s: float
) -> None:
    def shares(now_s: float) -> list[int]:
        return [share_of(room, sharers, me, counted_s=counted_s, now_s=now_s) for me in sharers]

    assert sum(shares(counted_s)) == room
    assert room - len(sharers) < sum(shares(counted_s + later_s)) <= room


def test_the_rest_of_a_room_is_each_ones_in_turn() -> None:
    turns = [
        [name for name in "abc" if share_of(2, {"a", "b", "c"}, name, counted_s=second, now_s=second + 0.1)]
        for second in (0, 1, 2, 3)
    ]
    assert turns == [["a"], ["b"], ["c"], ["a"]]


def test_who_has_no_part_in_the_ring_claims_nothing_and_alone_all() -> None:
    assert share_of(7, {"a"}, "b", counted_s=0, now_s=0) == 0
    assert share_of(7, set(), "b", counted_s=0, now_s=0) == 0
    assert share_of(7, {"b"}, "b", counted_s=0, now_s=0) == 7
