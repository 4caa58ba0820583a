"""Who has to give way where users share room."""

import random

import pytest

from crawler.rules.shares import beyond_shares


@pytest.mark.parametrize(
    ("owners", "kept", "gone"),
    [
        ("", 0, []),
        ("aab", 3, []),
        ("aab", 9, []),
        ("aaaaab", 3, [0, 1, 2]),
        ("baaaaa", 3, [1, 2, 3]),
        ("aabbcc", 3, [0, 2, 4]),
        ("abcd", 2, [0, 1]),
        ("aabbb", 4, [2]),
        ("ab", 0, [0, 1]),
    ],
)
def test_the_oldest_of_whoever_has_most_go(owners: str, kept: int, gone: list[int]) -> None:
    assert beyond_shares(owners, kept) == gone


def test_nobody_loses_to_somebody_who_keeps_more() -> None:
    chance = random.Random(1)
    for _ in range(300):
        owners = chance.choices("abcdef", weights=[50, 20, 5, 2, 1, 1], k=chance.randrange(60))
        kept = chance.randrange(60)
        gone = beyond_shares(owners, kept)
        assert len(owners) - len(gone) == min(kept, len(owners))
        stay = [owner for place, owner in enumerate(owners) if place not in gone]
        most = max(map(stay.count, stay), default=0)
        for owner in {owners[place] for place in gone}:
            assert stay.count(owner) >= most - 1
            assert [owners[place] for place in range(max(gone) + 1) if place not in gone].count(owner) <= stay.count(
                owner
            )
