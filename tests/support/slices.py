"""Which slow tests run: CI takes half of those marked so, and a slice of the others, all of about the same time."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import TypeVar

T = TypeVar("T")

SLICES = 256
PARTS_OF_CI = 2  # of the tests that are marked for CI: one with each commit
SECONDS = 5.0  # what a slow test takes that doesn't say how long


def slice_of(tests: Sequence[T], seconds: Callable[[T], float], text: str, parts: int = SLICES) -> list[T]:
    """The slice that the text chooses. Each test is in one of them."""
    slices: list[list[T]] = [[] for _ in range(parts)]
    totals = [0.0] * parts
    for test in sorted(tests, key=seconds, reverse=True):
        lightest = totals.index(min(totals))
        slices[lightest].append(test)
        totals[lightest] += seconds(test)
    return slices[blake2b(text.encode()).digest()[0] % parts]


@dataclass(frozen=True)
class Slow:
    """What the marks of a test say."""

    seconds: float = SECONDS  # about what it takes
    in_ci: bool = False


def left_out(slow: Mapping[T, Slow], *, slice_text: str | None, has_file: bool) -> set[T]:
    """Those of the slow tests that don't run: CI names a slice, people may name a file."""
    of_ci = [test for test, marked in slow.items() if marked.in_ci]
    others = [test for test, marked in slow.items() if not marked.in_ci]
    chosen = set(of_ci) if has_file else set[T]()
    if slice_text:
        for tests, parts in ((of_ci, PARTS_OF_CI), (others, SLICES)):
            chosen |= {*slice_of(tests, lambda test: slow[test].seconds, slice_text, parts)}
    return set(slow) - chosen
