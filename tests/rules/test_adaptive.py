"""The delay that follows how a site copes."""

from hypothesis import given
from hypothesis import strategies as st

from crawler.rules.pace import UNMEASURED, AdaptiveDelay, adapt

latencies = st.none() | st.integers(0, 120_000)


def paced(*answers: int | None, floor_ms: int = 1000, ceiling_ms: int = 60_000) -> list[int]:
    """The delay after each of these answers."""
    pace, delays = UNMEASURED, []
    for latency_ms in answers:
        pace = adapt(pace, latency_ms=latency_ms, floor_ms=floor_ms, ceiling_ms=ceiling_ms)
        delays.append(pace.delay_ms)
    return delays


def test_overload_doubles_the_delay_and_each_normal_answer_takes_a_tenth_of_the_floor_off() -> None:
    assert paced(80, None, None, 80, 80, 80) == [1000, 2000, 4000, 3900, 3800, 3700]


def test_it_stops_at_the_ceiling_and_comes_back_to_the_floor() -> None:
    assert paced(*[None] * 9)[-3:] == [60_000] * 3
    assert paced(80, None, *[80] * 12)[-4:] == [1100, *[1000] * 3]


def test_overload_creates_a_delay_where_there_is_none() -> None:
    assert paced(80, None, None, 80, 80, 80, 80, floor_ms=0) == [0, 100, 200, 150, 100, 50, 0]


def test_an_answer_well_above_the_usual_counts_as_overload_until_it_is_the_usual() -> None:
    delays = paced(100, 100, 1000, *[1000] * 20)
    assert delays[:3] == [1000, 1000, 2000]
    assert delays[-1] < max(delays)


def test_small_times_are_never_slow() -> None:
    assert paced(5, 5, 200) == [1000] * 3


@given(st.lists(latencies), st.integers(0, 60_000), st.integers(0, 60_000))
def test_it_is_never_below_the_floor_and_never_above_the_ceiling(
    answers: list[int | None], floor_ms: int, above_ms: int
) -> None:
    delays = paced(*answers, floor_ms=floor_ms, ceiling_ms=floor_ms + above_ms)
    assert all(floor_ms <= delay <= floor_ms + above_ms for delay in delays)


@given(st.integers(0, 10**6), st.floats(1, 1e5), st.integers(0, 10**5), st.integers(0, 60_000))
def test_overload_never_shortens_it_and_a_normal_answer_never_lengthens_it(
    delay_ms: int, average_ms: float, latency_ms: int, floor_ms: int
) -> None:
    before = AdaptiveDelay(max(delay_ms, floor_ms), average_ms)
    ceiling_ms = max(60_000, before.delay_ms)
    overloaded = adapt(before, latency_ms=None, floor_ms=floor_ms, ceiling_ms=ceiling_ms)
    normal = adapt(before, latency_ms=min(latency_ms, int(average_ms)), floor_ms=floor_ms, ceiling_ms=ceiling_ms)
    assert normal.delay_ms <= before.delay_ms <= overloaded.delay_ms
    assert overloaded.latency_ms == average_ms


def test_the_average_moves_by_an_eighth_of_the_way_to_each_latency() -> None:
    for before, latency_ms, after in ((0.0, 80, 80.0), (800.0, 1600, 900.0), (800.0, 0, 700.0), (800.0, None, 800.0)):
        found = adapt(AdaptiveDelay(1000, before), latency_ms=latency_ms, floor_ms=1000, ceiling_ms=60_000)
        assert found.latency_ms == after
