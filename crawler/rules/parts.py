"""Some of a crawl's partitions, for work that is done by parts: a range, or a random sample."""

import math
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from crawler.errors import UsageError

CONFIDENCE = 0.95


class Part(NamedTuple):
    """`chosen` of the partitions 0 to `of` - 1."""

    chosen: frozenset[int]
    of: int
    name: str  # "0-511", or "a sample of 52"
    is_sample: bool = False

    def has(self, partition: int) -> bool:
        return partition in self.chosen

    @property
    def text(self) -> str:
        """For people."""
        return f"{len(self.chosen):,} of {self.of:,} partitions ({self.name})"

    @property
    def hidden_share(self) -> float:
        """Of a sample in which nothing was found: at most this share of all partitions has something, by CONFIDENCE."""
        if len(self.chosen) == self.of:
            return 0.0
        return 1 - math.pow(1 - CONFIDENCE, 1 / len(self.chosen))


def range_of(text: str, partitions: int) -> Part:
    """Of "A-B" or "N", as --partitions has it. Raises UsageError."""
    first, dash, last = text.partition("-")
    try:
        low, high = int(first), int(last if dash else first)
    except ValueError:
        raise UsageError(f"--partitions {text!r} is not a range of partitions (like 0-255)") from None
    if not 0 <= low <= high < partitions:
        raise UsageError(f"--partitions {text!r}: the partitions of this crawl are 0 to {partitions - 1}")
    return Part(frozenset(range(low, high + 1)), partitions, text)


def sample_of(percent: float, partitions: int, draw: Callable[[Sequence[int], int], Iterable[int]]) -> Part:
    """One partition at least; `draw` is `random.sample`."""
    n = min(partitions, max(1, math.ceil(partitions * percent / 100)))
    return Part(frozenset(draw(range(partitions), n)), partitions, f"a sample of {n:,}", is_sample=True)
