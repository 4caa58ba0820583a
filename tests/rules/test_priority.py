"""Scores: who leaves first."""

from math import log2

from hypothesis import given
from hypothesis import strategies as st

from crawler.rules.priority import default_priority, score

DAY = 86400.0


def test_equal_priorities_leave_in_order_of_arrival_by_default() -> None:
    scores = [score(priority=-1.0, age_s=age, half_life_s=-DAY) for age in (0, 60, 3600, 7 * DAY)]
    assert scores == sorted(scores, reverse=True)
    assert len(set(scores)) == 4


def test_nothing_starves_old_depth_beats_new_surface() -> None:
    old = score(priority=default_priority(5), age_s=0, half_life_s=-DAY)
    assert old > score(priority=default_priority(0), age_s=5.1 * DAY, half_life_s=-DAY)
    assert old < score(priority=default_priority(0), age_s=4.9 * DAY, half_life_s=-DAY)


def test_without_half_life_time_does_not_count() -> None:
    assert score(priority=2.0, age_s=1e6, half_life_s=0) == 2.0


@given(
    values=st.lists(st.tuples(st.floats(0.01, 1e6), st.floats(0, 30 * DAY)), min_size=2, max_size=6),
    now=st.floats(0, 365 * DAY),
)
def test_one_static_score_keeps_the_order_of_decaying_values(values: list[tuple[float, float]], now: float) -> None:
    half_life = 6 * 3600.0
    decayed = [log2(v) - (30 * DAY + now - at) / half_life for v, at in values]  # log2 of v * 2 ** -(age / h)
    scores = [score(priority=log2(v), age_s=at, half_life_s=half_life) for v, at in values]
    for (a, x), (b, y) in zip(
        zip(decayed, scores, strict=True), zip(decayed[1:], scores[1:], strict=False), strict=False
    ):
        if abs(a - b) > 1e-3:
            assert (a > b) == (x > y)
