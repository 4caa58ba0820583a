"""The recent-URL cache drops repeats and nothing else."""

from hypothesis import given
from hypothesis import strategies as st

from crawler.routing.recent_urls import RecentUrls


def test_a_recent_url_is_known_at_its_depth_or_deeper_only() -> None:
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


@given(
    st.lists(st.tuples(st.integers(0, 20), st.integers(0, 4)), max_size=60),
    st.lists(st.integers(0, 25), unique=True),
    st.integers(0, 4),
)
def test_many_urls_are_answered_as_one_after_the_other(
    added: list[tuple[int, int]], asked: list[int], depth: int
) -> None:
    together, singly = RecentUrls(12), RecentUrls(12)
    for number, at_depth in added:
        together.add(f"u{number}", at_depth)
        singly.add(f"u{number}", at_depth)
    urls = [f"u{number}" for number in asked]
    assert together.unknown(urls, depth) == [url for url in urls if not singly.knows(url, depth)]
