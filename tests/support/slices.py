"""Which slow tests run: CI takes those marked so, and of the others a slice; slices take about the same time."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import TypeVar

T = TypeVar("T")

SLICES = 256
SECONDS = 5.0  # what a slow test takes that doesn't say how long


def slice_of(tests: Sequence[T], seconds: Callable[[T], float], text: str) -> list[T]:
    """The slice that the text chooses. Each test is in one of them."""
    slices: list[list[T]] = [[] for _ in range(SLICES)]
    totals = [0.0] * SLICES
    for test in sorted(tests, key=seconds, reverse=True):
        lightest = totals.index(min(totals))
        slices[lightest].append(test)
        totals[lightest] += seconds(test)
    return slices[blake2b(text.encode()).digest()[0] % SLICES]


@dataclass(frozen=True)
class Slow:
    """What the marks of a test say."""

    seconds: float = SECONDS  # about what it takes
    in_ci: bool = False


def left_out(slow: Mapping[T, Slow], *, slice_text: str | None, has_file: bool) -> set[T]:
    """Those of the slow tests that don't run: CI names a slice, people may name a file."""
    others = [test for test, marked in slow.items() if not (marked.in_ci and (slice_text or has_file))]
    chosen = slice_of(others, lambda test: slow[test].seconds, slice_text) if slice_text else []
    return set(others) - set(chosen)
