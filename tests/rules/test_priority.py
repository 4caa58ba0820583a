"""The order of the frontier: what each term is worth, and that one static score keeps its promise for ever."""

from decimal import Decimal
from math import inf
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from crawler.rules.order import NO_SIGNALS, QUANTA, Ordering, Signals, quantise
from crawler.settings import OrderSettings, PriorityRule

DAY = 86400.0
BEGUN = 1_700_000_000.0
URL = "http://a.test/news/2024/x.html"


def ordering(order: str = "priority", **options: Any) -> Ordering:
    return Ordering.of(OrderSettings(order=order, **options), BEGUN)  # type: ignore[arg-type]


def rules(**added: float) -> tuple[PriorityRule, ...]:
    return tuple(PriorityRule(match=match, add=add) for match, add in added.items())


# --- breadth ---


def test_breadth_looks_at_the_depth_and_then_at_the_age() -> None:
    order = ordering("breadth")
    found = [(depth, age) for depth in (0, 1, 2) for age in (0, 60, 3600)]
    scores = [order.score(URL, depth=depth, found_at=BEGUN + age) for depth, age in found]
    assert scores == sorted(scores, reverse=True)
    assert len(set(map(quantise, scores))) == len(found)


@pytest.mark.parametrize("order", ["breadth", "priority"])
def test_nothing_starves_old_depth_beats_new_surface(order: str) -> None:
    score = ordering(order).score
    old = score(URL, depth=5, found_at=BEGUN)
    assert old > score(URL, depth=0, found_at=BEGUN + 5.1 * DAY)
    assert old < score(URL, depth=0, found_at=BEGUN + 4.9 * DAY)


def test_breadth_does_not_look_at_sitemaps_and_numbers_of_links() -> None:
    known = Signals(links=500, sitemap_priority=1.0, changed_at=BEGUN)
    score = ordering("breadth").score
    assert score(URL, depth=1, found_at=BEGUN, signals=known) == score(URL, depth=1, found_at=BEGUN) == -1.0


# --- terms ---


@pytest.mark.parametrize(
    ("options", "depth", "signals", "expected"),
    [
        ({}, 3, NO_SIGNALS, -3.0),
        ({"depth_weight": 0.5}, 3, NO_SIGNALS, -1.5),
        ({"rules": rules(**{"/news/": 2.0})}, 0, NO_SIGNALS, 2.0),
        ({"rules": rules(**{"/news/": 2.0, r"/\d{4}/": -0.5, "/sport/": 9.0})}, 1, NO_SIGNALS, 0.5),
        ({"rules": rules(**{"^/news/": 2.0})}, 0, NO_SIGNALS, 0.0),
        ({}, 0, Signals(links=1), 0.0),
        ({}, 0, Signals(links=1024), -1.0),
        ({"links_weight": 0.0}, 0, Signals(links=1024), 0.0),
        ({}, 0, Signals(sitemap_priority=0.5), 0.0),
        ({}, 0, Signals(sitemap_priority=1.0), 1.0),
        ({"sitemap_weight": 3.0}, 0, Signals(sitemap_priority=0.0), -3.0),
        ({}, 0, Signals(changed_at=BEGUN), 1.0),
        ({}, 0, Signals(changed_at=BEGUN - 2 * DAY), 0.25),
        ({}, 0, Signals(changed_at=BEGUN + 9 * DAY), 1.0),
        ({}, 0, Signals(changed_at=-3e10), 0.0),
    ],
)
def test_every_term_has_its_weight(options: dict[str, Any], depth: int, signals: Signals, expected: float) -> None:
    order = ordering(**options)
    assert order.score(URL, depth=depth, found_at=BEGUN, signals=signals) == pytest.approx(expected)


@pytest.mark.parametrize("order", ["breadth", "priority", "freshness"])
def test_a_priority_that_was_given_stands_for_all_terms_and_a_boost_comes_on_top(order: str) -> None:
    options: dict[str, Any] = {} if order == "breadth" else {"rules": rules(**{"/news/": 2.0})}
    known = Signals(links=8, sitemap_priority=1.0)
    score = ordering(order, **options).score
    assert score(URL, depth=4, found_at=BEGUN, signals=known, given=7.5) == 7.5
    assert score(URL, depth=4, found_at=BEGUN, signals=known, given=7.5, boost=-3.0) == 4.5
    plain = score(URL, depth=4, found_at=BEGUN, signals=known)
    assert score(URL, depth=4, found_at=BEGUN, signals=known, boost=3.0) == pytest.approx(plain + 3.0)


# --- freshness ---


def test_a_page_has_the_age_of_its_sitemap_or_its_discovery() -> None:
    score = ordering("freshness", depth_weight=0.0).score
    now = BEGUN + DAY
    dated = [score(URL, depth=0, found_at=now, signals=Signals(changed_at=now - days * DAY)) for days in (0, 1, 7)]
    assert dated == [1.0, 0.0, -6.0]
    assert score(URL, depth=0, found_at=now) == dated[0]
    from_the_future = Signals(changed_at=now + 9 * DAY)
    assert score(URL, depth=0, found_at=now, signals=from_the_future) == dated[0]


def decayed(value: Decimal, age_s: float, half_life_s: float) -> Decimal:
    return value * Decimal(2) ** -(Decimal(age_s) / Decimal(half_life_s))


AGES = st.floats(0, 60 * DAY)


@given(
    pages=st.lists(st.tuples(st.floats(-50, 50), AGES), min_size=2, max_size=6),
    half_life_s=st.floats(3600, 365 * DAY),
    later_s=st.floats(0, 3 * 365 * DAY),
)
def test_one_static_score_keeps_the_order_of_decaying_values_at_any_time(
    pages: list[tuple[float, float]], half_life_s: float, later_s: float
) -> None:
    """Values 2 ** p of pages found at t, looked at whenever: further apart than a quantum, they leave by value."""
    score = ordering("freshness", half_life_s=half_life_s).score
    kept = [quantise(score(URL, depth=0, found_at=BEGUN + t, given=p)) for p, t in pages]
    now = 60 * DAY + later_s
    values = [decayed(Decimal(2) ** Decimal(p), now - t, half_life_s) for p, t in pages]
    quantum = Decimal(2) ** (Decimal("1.001") / QUANTA)
    for a, value_a in zip(kept, values, strict=True):
        for b, value_b in zip(kept, values, strict=True):
            if value_a > value_b * quantum:
                assert a > b


# --- as the engine keeps it ---


@given(a=st.floats(-600_000, 600_000), b=st.floats(-600_000, 600_000))
@example(a=-0.9 / QUANTA, b=0.9 / QUANTA)
def test_quantising_never_turns_an_order_around_and_keeps_what_is_a_quantum_apart(a: float, b: float) -> None:
    low, high = sorted((a, b))
    assert quantise(low) <= quantise(high)
    if high - low > 1.001 / QUANTA and low > -524_000 and high < 524_000:
        assert quantise(low) < quantise(high)


def test_a_quantised_score_is_a_signed_integer_of_32_bits() -> None:
    assert [quantise(score) for score in (0.0, -1.0, 0.5, 1 / QUANTA)] == [0, -4096, 2048, 1]
    assert [quantise(score) for score in (1e9, -1e9, inf, -inf)] == [2**31 - 1, -(2**31)] * 2


def test_at_the_default_half_life_a_quantum_is_21_seconds() -> None:
    score = ordering("breadth").score
    first, near, far = (quantise(score(URL, depth=1, found_at=BEGUN + s)) for s in (0.0, 10.0, 22.0))
    assert first == near == far + 1
