"""Does a function's time grow faster than its input? Inputs of repeated tokens, and the times of four lengths.

Times are CPU times of this thread. A function that stays below a floor at the full length passes at once; others are
measured at a quarter and the whole of it, in turn, the least of several tries each.
"""

import itertools
import math
from collections.abc import Iterator
from typing import NamedTuple

from tests.growth.target import Target
from tests.support.growth import cpu_s

FLOOR_S = 0.004  # at the full length: noise and start-up costs are below it
STEP_RATIO_MAX = 8.5  # of times at four times the length: 4 when linear, 16 when quadratic
TRIES, TRIES_MAX = 3, 12
SIZE_MIN = 1024


class Shape(NamedTuple):
    """One family of inputs: `before`, then `unit` again and again (or `first` and then `unit`), then `after`."""

    before: bytes
    first: bytes
    unit: bytes
    after: bytes

    def of(self, size: int) -> bytes:
        room = max(size - len(self.before) - len(self.after), 0)
        if not self.first:
            return self.before + self.unit * (room // len(self.unit)) + self.after
        half = room // 2
        return self.before + self.first * (half // len(self.first)) + self.unit * (half // len(self.unit)) + self.after

    def __str__(self) -> str:
        first = f"{self.first!r}* " if self.first else ""
        return f"{self.before[:60]!r} {first}{self.unit!r}* {self.after[:60]!r}"


class Growth(NamedTuple):
    """A finding: times (s) at a quarter and at the full length, and the ratio between them."""

    target: str
    shape: Shape
    quarter_s: float
    whole_s: float

    @property
    def ratio(self) -> float:
        return self.whole_s / max(self.quarter_s, 1e-9)

    def __str__(self) -> str:
        return f"{self.target}: {self.quarter_s * 1000:.1f} ms -> {self.whole_s * 1000:.1f} ms for {self.shape}"


def shapes_of(target: Target) -> Iterator[Shape]:
    """Each token, each ordered pair of them, and runs of one after runs of another; within all that stands around."""
    for before, after in target.around:
        for token in target.tokens:
            yield Shape(before, b"", token, after)
        for one, other in itertools.permutations(target.tokens, 2):
            yield Shape(before, b"", one + other, after)


def runs_of(target: Target) -> Iterator[Shape]:
    """Runs of one token after runs of another."""
    for before, after in target.around:
        for one, other in itertools.permutations(target.tokens, 2):
            yield Shape(before, one, other, after)


def growth_of(target: Target, shape: Shape, *, floor_s: float = FLOOR_S) -> Growth | None:
    """None for a function that grows no faster than its input."""
    size = target.bytes_max
    while size > SIZE_MIN and cpu_s(target.call, shape.of(size // 16)) > floor_s / 4:
        size //= 2  # what is already slow might take minutes at the full length
    whole = shape.of(size)
    if cpu_s(target.call, whole) <= floor_s:
        return None
    quarter = shape.of(size // 4)
    quarter_s = whole_s = math.inf
    for tries in range(1, TRIES_MAX + 1):  # in turn, and again when it looks bad: others use this core, too
        whole_s = min(whole_s, cpu_s(target.call, whole))
        quarter_s = min(quarter_s, cpu_s(target.call, quarter))
        found = Growth(target.name, shape, quarter_s, whole_s)
        if tries >= TRIES and (whole_s <= floor_s or found.ratio <= STEP_RATIO_MAX):
            return None
    return found
