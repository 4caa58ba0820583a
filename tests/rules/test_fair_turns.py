"""Turns by weight: shares over any busy time, no credit for idle time, and no state for users that have had nothing."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crawler.errors import UsageError
from crawler.rules.job_names import check_user
from crawler.rules.shares import check_weight
from crawler.rules.turns import FairTurns

USERS = ("", "ann", "ben")
weights = st.fixed_dictionaries({user: st.sampled_from((0.25, 1.0, 1.5, 4.0)) for user in USERS})


def serve(turns: FairTurns, users: tuple[str, ...], n: int, size: int = 1) -> Counter[str]:
    got: Counter[str] = Counter()
    for _ in range(n):
        user = turns.next_of(users)
        turns.advance(user)
        turns.charge(user, size)
        got[user] += size
    return got


@given(weights, st.integers(1, 300), st.integers(1, 8))
def test_users_with_a_backlog_get_their_shares_to_a_batch(by_user: dict[str, float], n: int, size: int) -> None:
    got = serve(FairTurns(by_user.__getitem__), USERS, n, size)
    served = [got[user] / by_user[user] for user in USERS]
    assert max(served) - min(served) <= 2 * size / min(by_user.values())


@given(weights, st.lists(st.sets(st.sampled_from(USERS), min_size=1), max_size=60))
def test_a_user_that_comes_back_gets_no_more_than_its_share(by_user: dict[str, float], times: list[set[str]]) -> None:
    turns = FairTurns(by_user.__getitem__)
    for waiting in times:
        serve(turns, tuple(sorted(waiting)), 1)
    got = serve(turns, USERS, 60)
    served = [got[user] / by_user[user] for user in USERS]
    assert max(served) - min(served) <= 3 / min(by_user.values())


def test_nothing_is_kept_of_users_that_time_has_passed() -> None:
    turns = FairTurns(lambda _: 1.0)
    serve(turns, USERS, 30)
    serve(turns, ("ann",), 5)
    assert turns._tags.keys() == {"ann"}


def test_a_copy_is_tried_out_without_effect() -> None:
    turns = FairTurns(lambda _: 1.0)
    serve(turns.copy(), ("",), 5)
    assert turns.next_of(USERS) == ""


@pytest.mark.parametrize("name", ["a", "Ann_B-2.x", "ann@b.example", "1", "x" * 64])
def test_valid_names(name: str) -> None:
    assert check_user(name) == name


@pytest.mark.parametrize("name", ["", "-a", ".", "@a", "a b", "a|b", "a/b", "a,b", "ä", "x" * 65])
def test_names_that_would_not_be_safe_in_keys_are_refused(name: str) -> None:
    with pytest.raises(UsageError, match="not a valid name of a user"):
        check_user(name)


@pytest.mark.parametrize("weight", [0.0, -1.0, 1001.0, float("nan"), float("inf")])
def test_weights_out_of_range_are_refused(weight: float) -> None:
    with pytest.raises(UsageError, match="expected a number from"):
        check_weight(weight)
