"""Stamps say when and from which seed, in a few characters that can stand before any path."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crawler.frontier.codec import DIGITS, LABEL, ROUND_S, RUN, Stamp, make_stamp, read_stamp
from crawler.rules.job_runs import run_id

moments = st.integers(1_600_000_000, 4_000_000_000)
runs = st.builds(
    run_id,
    st.from_regex(r"\A[0-9a-z]{8}\Z"),
    st.integers(0, 99),
    st.integers(0, 4_000_000_000),
    attempt=st.integers(1, 9),
    is_manual=st.booleans(),
)
labels = st.from_regex(r"\A[A-Za-z0-9_.-]{0,32}\Z")


@given(moments, st.integers(0, 10**9), labels, st.floats(-80_000, ROUND_S - 100_000))
def test_a_stamp_is_read_as_it_was_made_for_two_years(queued_at: int, seed: int, label: str, later_s: float) -> None:
    stamp = make_stamp(queued_at, seed, label)
    assert read_stamp(stamp, queued_at + later_s) == Stamp(queued_at, seed, label=label)


@pytest.mark.slow(ci=True)
@given(moments, runs, labels, st.floats(-80_000, ROUND_S - 100_000))
def test_a_stamp_of_a_run_has_its_id_and_no_seed(queued_at: int, run: str, label: str, later_s: float) -> None:
    stamp = make_stamp(queued_at, run, label)
    assert read_stamp(stamp, queued_at + later_s) == Stamp(queued_at, run=run, label=label)
    assert not {"/", " "} & {*stamp}


@given(moments, st.integers(0, 10**9), labels)
def test_a_stamp_never_holds_what_ends_it(queued_at: int, seed: int, label: str) -> None:
    assert set(make_stamp(queued_at, seed)) <= set(DIGITS)
    assert not {"/", " "} & {*DIGITS, *make_stamp(queued_at, seed, label)}
    assert not {LABEL, RUN} & {*DIGITS}


def test_stamps_are_short() -> None:
    assert len(make_stamp(1_800_000_000, 0)) == 4
    assert len(make_stamp(1_800_000_000, 89)) == 5
    assert len(make_stamp(1_800_000_000, 700_000)) == 7
