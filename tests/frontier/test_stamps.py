"""Stamps say when and from which seed, in a few characters that can stand before any path."""

from hypothesis import given
from hypothesis import strategies as st

from crawler.frontier.codec import DIGITS, LABEL, ROUND_S, label_of, make_stamp, read_stamp, seed_number_of

moments = st.integers(1_600_000_000, 4_000_000_000)
labels = st.from_regex(r"\A[A-Za-z0-9_.-]{0,32}\Z")


@given(moments, st.integers(0, 10**9), labels, st.floats(-80_000, ROUND_S - 100_000))
def test_a_stamp_is_read_as_it_was_made_for_two_years(queued_at: int, seed: int, label: str, later_s: float) -> None:
    stamp = make_stamp(queued_at, seed, label)
    assert (seed_number_of(stamp), label_of(stamp)) == (seed, label)
    assert read_stamp(stamp, queued_at + later_s) == (queued_at, seed)


@given(moments, st.integers(0, 10**9), labels)
def test_a_stamp_never_holds_what_ends_it(queued_at: int, seed: int, label: str) -> None:
    assert set(make_stamp(queued_at, seed)) <= set(DIGITS)
    assert not {"/", " "} & {*DIGITS, *make_stamp(queued_at, seed, label)}
    assert LABEL not in DIGITS


def test_stamps_are_short() -> None:
    assert len(make_stamp(1_800_000_000, 0)) == 4
    assert len(make_stamp(1_800_000_000, 89)) == 5
    assert len(make_stamp(1_800_000_000, 700_000)) == 7
