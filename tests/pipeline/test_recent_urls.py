"""The recent-URL cache drops repeats and nothing else."""

from hypothesis import given
from hypothesis import strategies as st

from crawler.runtime.counters import Flow, RecentUrls


def test_a_url_found_again_deeper_is_known_and_on_a_shorter_path_is_not() -> None:
    recent = RecentUrls(100)
    recent.add("u", 3)
    assert recent.knows("u", 3)
    assert recent.knows("u", 7)
    assert not recent.knows("u", 2)


@given(st.lists(st.integers(0, 50), max_size=300), st.integers(2, 40))
def test_it_never_claims_to_know_what_was_not_added_and_stays_bounded(added: list[int], capacity: int) -> None:
    recent, truth = RecentUrls(capacity), set()
    for n in added:
        recent.add(f"u{n}", 0)
        truth.add(f"u{n}")
    known = {f"u{n}" for n in range(60) if recent.knows(f"u{n}", 0)}
    assert known <= truth
    assert len(known) <= capacity + 1


def test_a_cleared_cache_knows_nothing() -> None:
    recent = RecentUrls(10)
    recent.add("u", 0)
    recent.clear()
    assert not recent.knows("u", 0)


def test_claims_are_counted_per_partition_until_they_end() -> None:
    flow = Flow(recent=RecentUrls(10), pages_max=10)
    flow.claimed(3, 4)
    flow.ended(3, 3)
    assert (flow.outstanding, flow.outstanding_of[3], flow.pages_left()) == (1, 1, 9)
    flow.ended(3)
    assert 3 not in flow.outstanding_of
