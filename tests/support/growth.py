"""How the CPU time of a function grows with its input: the only thing about time that a test may judge.

CPU time of this thread, the least of several calls: what else runs on the machine can slow a call, never speed it up.
"""

import math
import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

LINEAR_MAX = 40.0  # for ten times the input: 10 when linear, 100 when quadratic; what leaves the caches takes 20
TRIES = 12  # few are needed; a neighbour that takes all of the memory's bandwidth doubles them for a second
SMALL_TRIES = 3  # of a small input, for each of a large one: what is too long there makes the growth look small


def cpu_s(function: Callable[[T], object], given: T) -> float:
    """CPU seconds of one call."""
    began = time.thread_time()
    function(given)
    return time.thread_time() - began


def growth(function: Callable[[T], object], small: T, large: T, *, enough: float = LINEAR_MAX) -> float:
    """How many times as much CPU time the large input takes as the small one. No more tries when it is below `enough`:
    a moment in which the machine is slow makes the large input look worse, not better.
    """
    small_s = large_s = math.inf
    for _ in range(TRIES):  # in turn: a slow moment of the machine meets both
        small_s = min(small_s, *(cpu_s(function, small) for _ in range(SMALL_TRIES)))
        large_s = min(large_s, cpu_s(function, large))
        ratio = large_s / max(small_s, 1e-6)
        if ratio < enough:
            break
    return ratio
