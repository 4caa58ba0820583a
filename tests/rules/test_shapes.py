"""URLs of one shape: what counts as one, and when it is said."""

import pytest

from crawler.rules.shapes import DOMAINS_MAX, HINT_MS, PAGES_MIN, PAUSE_MS, ShapeWatch, shape_of

TOKEN = "9f86d081884c7d659a2feaa0c55ad015"
STEP_MS = 1_000


@pytest.mark.parametrize(
    ("target", "shape"),
    [
        ("/", "/"),
        (f"/s?sid={TOKEN}", "/s?sid=*"),
        (f"/s/{TOKEN}/x?a=b&n=7", "/s/*/x?a=b&n=*"),
        ("/item/12345", "/item/*"),
        ("/on/2026-11/7", "/on/*/*"),
        ("/wiki/Title", "/wiki/Title"),
        ("/?q", "/?q="),
        ("/" + "x" * 999, "/" + "x" * 193),
    ],
)
def test_a_shape_has_no_part_that_counts_up_or_is_drawn(target: str, shape: str) -> None:
    assert shape_of(f"http://a.test{target}") == f"a.test{shape}"


def fetched(watch: ShapeWatch, domain: str, targets: list[str], start_ms: int = 0) -> int:
    """The time of the last page."""
    for n, target in enumerate(targets):
        watch.note(domain, f"http://{domain}{target}", start_ms + n * STEP_MS)
    return start_ms + (len(targets) - 1) * STEP_MS


CHAIN = [f"/s?sid={n}" for n in range(HINT_MS // STEP_MS + 1)]


@pytest.mark.parametrize(
    ("targets", "hint"),
    [
        (CHAIN, "a.test/s?sid=*"),
        (CHAIN[:-1], ""),
        ([*CHAIN, "/other"], ""),
        (["/other", *CHAIN], "a.test/s?sid=*"),
        ([f"/wiki/{'x' * n}" for n in range(len(CHAIN))], ""),
        (["/same"] * len(CHAIN), ""),
    ],
)
def test_what_had_one_shape_for_ten_minutes_is_told(targets: list[str], hint: str) -> None:
    watch = ShapeWatch()
    assert watch.hint(fetched(watch, "a.test", targets)) == hint


def test_few_pages_and_domains_that_have_ended_are_not_told() -> None:
    watch = ShapeWatch()
    for n in range(PAGES_MIN - 1):
        watch.note("a.test", f"http://a.test/{n}", n * HINT_MS)
    assert watch.hint((PAGES_MIN - 2) * HINT_MS) == ""
    watch = ShapeWatch()
    last_ms = fetched(watch, "a.test", CHAIN)
    assert watch.hint(last_ms + PAUSE_MS)
    assert watch.hint(last_ms + PAUSE_MS + 1) == ""


def test_of_many_domains_some_are_told_and_a_bounded_number_remembered() -> None:
    watch = ShapeWatch()
    for k in range(5):
        fetched(watch, f"d{k}.test", CHAIN)
    fetched(watch, "other.test", ["/a"], len(CHAIN) * STEP_MS)
    shapes = "d4.test/s?sid=*, d3.test/s?sid=*, d2.test/s?sid=* and 2 more"
    assert watch.hint(len(CHAIN) * STEP_MS) == shapes
    for n in range(DOMAINS_MAX + 9):
        watch.note(f"x{n}.test", f"http://x{n}.test/", 0)
    assert len(watch._runs) == DOMAINS_MAX
