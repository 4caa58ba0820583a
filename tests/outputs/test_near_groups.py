"""Groups of fingerprints, compared with all pairs of small sets; and what large and hostile sets cost."""

import random
from array import array
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crawler.content.fingerprint import DISTANCE
from crawler.outputs import near_groups
from crawler.outputs.near_groups import GROUP_MAX, NEIGHBOURS, Groups, join_equal, join_near
from tests.support.growth import LINEAR_MAX, growth


def grouped(prints: Sequence[int]) -> tuple[list[int], int]:
    """The first row of the group of each, and how many were in a crowd."""
    values = array("Q", prints)
    groups = Groups(len(values))
    crowded = join_near(groups, values, join_equal(groups, values))
    return [groups.root(row) for row in range(len(values))], crowded


def by_all_pairs(prints: Sequence[int]) -> list[int]:
    found = list(range(len(prints)))
    for row, one in enumerate(prints):
        for before in range(row):
            if one and prints[before] and (one ^ prints[before]).bit_count() <= DISTANCE:
                low, high = sorted((found[row], found[before]))
                found = [low if group == high else group for group in found]
    return found


BITS = st.integers(0, 63)


@pytest.mark.slow(ci=True)
@settings(max_examples=150, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 3), st.lists(BITS, max_size=9)), max_size=40), st.integers(0, 2**32))
def test_groups_are_those_of_all_pairs(rows: list[tuple[int, list[int]]], seed: int) -> None:
    rng = random.Random(seed)
    near = [0, *(rng.getrandbits(64) for _ in range(3))]
    prints = []
    for which, flipped in rows:
        value = near[which]
        for bit in flipped:
            value ^= 1 << bit
        prints.append(value)
    assert grouped(prints) == (by_all_pairs(prints), 0)


@pytest.mark.parametrize("part_rows", [1, 7, 1 << 19])
def test_parts_of_any_size_find_the_same(monkeypatch: pytest.MonkeyPatch, part_rows: int) -> None:
    monkeypatch.setattr(near_groups, "PART_ROWS", part_rows)
    rng = random.Random(part_rows)
    prints = [rng.getrandbits(64) for _ in range(40)]
    for _ in range(160):
        value = rng.choice(prints)
        for _ in range(rng.randrange(DISTANCE + 3)):
            value ^= 1 << rng.randrange(64)
        prints.append(value)
    assert grouped(prints) == (by_all_pairs(prints), 0)


@pytest.mark.parametrize("bits", range(DISTANCE + 2))
def test_the_distance_is_the_border(bits: int) -> None:
    rng = random.Random(bits)
    for _ in range(100):
        one = rng.getrandbits(64)
        other = one ^ sum(1 << bit for bit in rng.sample(range(64), bits))
        assert (len(set(grouped([one, other])[0])) == 1) is (bits <= DISTANCE)


def test_a_chain_is_one_group() -> None:
    value, prints = 1 << 63, []
    for bit in range(60):
        value ^= 1 << bit
        prints.append(value)
    random.Random(1).shuffle(prints)
    assert set(grouped(prints)[0]) == {0}
    assert grouped([0] * 50) == (list(range(50)), 0), "without a fingerprint nothing is near"


def test_the_first_of_a_group_is_the_lowest_whatever_the_order_of_rows() -> None:
    rng = random.Random(3)
    prints = [rng.choice((5, 1 << 40, 77 << 20)) for _ in range(60)]
    ranks = list(range(60))
    rng.shuffle(ranks)
    lowest = {value: min(rank for rank, one in zip(ranks, prints, strict=True) if one == value) for value in prints}
    for _ in range(20):
        order = list(range(60))
        rng.shuffle(order)
        groups = Groups(60)
        join_equal(groups, array("Q", [prints[at] for at in order]))
        rank = [ranks[at] for at in order]
        first = groups.firsts(lambda one, other, rank=rank: rank[one] < rank[other])  # type: ignore[misc]
        assert [rank[row] for row in first] == [lowest[prints[at]] for at in order]


def test_values_of_two_halves_are_equal_only_if_both_are() -> None:
    groups = Groups(5)
    firsts = join_equal(groups, array("Q", [1, 1, 1, 0, 0]), array("Q", [2, 3, 2, 2, 2]))
    assert [groups.root(row) for row in range(5)] == [0, 1, 0, 3, 4]
    assert list(firsts) == [0, 1], "those that take part"


def in_blocks(count: int, fixed: int, rng: random.Random) -> list[int]:
    """Different fingerprints that have their upper blocks in common."""
    return [value | 1 << 63 for value in rng.sample(range(1 << 64 - fixed), count)]


HOSTILE = {
    "one block": lambda count, rng: in_blocks(count, 11, rng),
    "two blocks": lambda count, rng: in_blocks(count, 22, rng),
    "four blocks": lambda count, rng: in_blocks(count, 43, rng),
    "all equal": lambda count, rng: [rng.getrandbits(64) | 1] * count,
    "none": lambda count, rng: [0] * count,
    "one after the other": lambda count, rng: list(range(1, count + 1)),
}


@pytest.mark.slow(ci=True, seconds=30)
@pytest.mark.parametrize("name", HOSTILE)
def test_time_grows_no_faster_than_what_a_site_has_chosen(name: str) -> None:
    rng = random.Random(7)
    small, large = (HOSTILE[name](count, rng) for count in (2_000, 20_000))
    assert growth(lambda prints: grouped(prints), small, large) < LINEAR_MAX


@pytest.mark.slow(ci=True, seconds=60)
@pytest.mark.timeout(0)
@pytest.mark.parametrize("name", ["two blocks", "four blocks", "one after the other"])
def test_a_hundred_thousand_that_a_site_has_chosen_end_and_are_counted(name: str) -> None:
    rng = random.Random(9)
    hostile = HOSTILE[name](100_000, rng)
    innocent = [rng.getrandbits(64) for _ in range(500)]
    prints = hostile + innocent + [value ^ 0b1001 << rng.randrange(60) for value in innocent]
    found, crowded = grouped(prints)
    assert found[-500:] == found[-1000:-500], "those of others are found"
    assert 0 < crowded <= 100_000


def test_a_crowd_is_counted_and_next_ones_are_found() -> None:
    rng = random.Random(11)
    crowd = in_blocks(GROUP_MAX * 8, 43, rng)
    found, crowded = grouped(crowd)
    assert 0 < crowded <= len(crowd)
    assert NEIGHBOURS < GROUP_MAX
    wanted = by_all_pairs(crowd)
    assert all(wanted[row] == wanted[first] for row, first in enumerate(found)), "nothing is joined that is not near"
