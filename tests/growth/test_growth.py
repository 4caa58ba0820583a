"""No function that takes a site's bytes takes more than linear time, and none raises what its row does not list."""

import itertools
import re
from collections.abc import Iterator

import pytest

from tests.growth.growing import Growth, Shape, growth_of, runs_of, shapes_of
from tests.growth.reading import KIB
from tests.growth.target import Target
from tests.growth.targets import TARGETS

SHAPES_MAX = 60  # of each target, spread evenly over all: scripts/fuzz goes through the others


def sampled(target: Target) -> Iterator[Shape]:
    """Each token alone, and as many pairs as there is room for; the same ones in each run."""
    for before, after in target.around:
        yield from (Shape(before, b"", token, after) for token in target.tokens)
    pairs = list(itertools.chain(shapes_of(target), runs_of(target)))
    yield from pairs[:: max(1, len(pairs) // SHAPES_MAX)]


def grown(target: Target) -> Iterator[Growth]:
    return (found for shape in sampled(target) if (found := growth_of(target, shape)) is not None)


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name, target in TARGETS.items() if target.is_timed])
def test_time_grows_no_faster_than_the_input(name: str) -> None:
    assert [str(growth) for growth in grown(TARGETS[name])] == []


def target_of(function: object, *tokens: bytes, bytes_max: int = 16 * KIB) -> Target:
    return Target(name="tried", function=function, tokens=tokens, bytes_max=bytes_max)  # type: ignore[arg-type]


@pytest.mark.slow
def test_a_function_of_quadratic_time_is_reported() -> None:
    def quadratic(data: bytes) -> None:
        for at in range(len(data)):
            data[at:].count(b"~")

    assert len(list(itertools.islice(grown(target_of(quadratic, b"a", b"b")), 3))) == 3


@pytest.mark.slow
def test_an_expression_that_goes_back_over_its_input_is_reported() -> None:
    """It once read the charset of Content-Type: 60,000 blanks took half a minute."""
    old = re.compile(rb"""charset\s*=\s*["']?\s*([^\s"';,]+)""", re.IGNORECASE)
    tried = target_of(lambda data: old.search(b"text/html; charset=" + data), b" ", b"a", bytes_max=4 * KIB)
    assert any(grown(tried))


def test_a_function_of_linear_time_is_not_reported() -> None:
    def linear(data: bytes) -> None:
        for _ in range(20):
            sum(data)

    assert list(grown(target_of(linear, b"a", b"b"))) == []


def test_what_a_function_may_not_raise_passes_through() -> None:
    def failing(data: bytes) -> int:
        return int(data)

    with pytest.raises(ValueError, match="limit"):
        list(grown(target_of(failing, b"9")))
