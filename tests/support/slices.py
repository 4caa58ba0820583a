"""Slices of the slow tests that take about the same time: a commit is tested with one of them."""

from collections.abc import Callable, Sequence
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
