"""The clocks that simulated processes read: the module `time` as every module of the crawler sees it.

Monotonic time differs from process to process by where it began and goes on during a pause, as CLOCK_BOOTTIME does.
Wall time may jump.
"""

import contextlib
import sys
import time
from collections.abc import Iterator
from typing import Any

from tests.simulation.loop import NS, PROCESS, VirtualLoop

EPOCH_NS = 1_750_000_000 * NS  # wall time at the beginning of the simulation


class VirtualTime:
    """Replaces the module `time`; any other use of it is an error, so that no real clock is read."""

    CLOCK_BOOTTIME = 7
    strftime, gmtime = staticmethod(time.strftime), staticmethod(time.gmtime)

    def __init__(self, loop: VirtualLoop) -> None:
        self._loop = loop

    def clock_gettime_ns(self, clock: int) -> int:
        assert clock == self.CLOCK_BOOTTIME
        return self.monotonic_ns()

    def monotonic_ns(self) -> int:
        process = PROCESS.get()
        return self._loop.now_ns + (process.boot_ns if process else 0)

    def monotonic(self) -> float:
        return self.monotonic_ns() / NS

    perf_counter = monotonic

    def thread_time_ns(self) -> int:
        return 0  # nothing here takes CPU time

    def time_ns(self) -> int:
        process = PROCESS.get()
        return EPOCH_NS + self._loop.now_ns + (process.wall_ns if process else 0)

    def time(self) -> float:
        return self.time_ns() / NS


@contextlib.contextmanager
def virtual_time(loop: VirtualLoop) -> Iterator[None]:
    """Every module of the crawler that has imported `time` reads the simulation's clocks."""
    simulated: Any = VirtualTime(loop)
    changed = [
        module
        for name, module in list(sys.modules.items())
        if name.startswith("crawler.") and getattr(module, "time", None) is time
    ]
    for module in changed:
        module.time = simulated  # type: ignore[attr-defined]
    try:
        yield
    finally:
        for module in changed:
            module.time = time  # type: ignore[attr-defined]
