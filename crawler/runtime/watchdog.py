"""Ends the process when its event loop stalls on one step, so that the crawl loses one page and not its leases.

The event loop keeps resetting a timer that counts the CPU time of the process. When the timer runs out, the loop has
not run for that long although the process was computing. A signal handler in C, which needs neither the loop nor the
interpreter's lock, then writes the stacks of all threads to a file, and the signal ends the process. A process that
is stopped, starved or swapped out uses no CPU time and is left alone. The in-flight log tells whose content was
processed.
"""

import asyncio
import faulthandler
import signal
import threading
from pathlib import Path
from types import TracebackType
from typing import IO, Self

from crawler.archive.folder import open_private
from crawler.archive.inflight_log import loop_line
from crawler.runtime.ticks import _SOONEST, until_tick

SIGNAL = signal.SIGPROF  # sent by the CPU timer; its default action ends the process


SETS_PER_LIMIT = 5


SET_EVERY_S_MAX = 1.0


class StallWatchdog:
    """While entered, a step of the event loop may take `limit_s` seconds of CPU time. One per process at a time."""

    def __init__(self, path: Path, limit_s: float) -> None:
        """`path`: file for the stacks. `limit_s` 0: no limit."""
        self._path = path
        self._limit_s = limit_s
        self._every_s = min(SET_EVERY_S_MAX, limit_s / SETS_PER_LIMIT)
        self._file: IO[str] | None = None
        self._timer: asyncio.TimerHandle | None = None

    def __enter__(self) -> Self:
        if self._limit_s:
            self._file = open(self._path, "w", encoding="utf-8", opener=open_private)
            self._file.write(loop_line(threading.get_ident()))
            self._file.flush()
            faulthandler.register(SIGNAL, file=self._file, all_threads=True, chain=True)
            self._set()
        return self

    def _set(self) -> None:
        signal.setitimer(signal.ITIMER_PROF, self._limit_s + (1 + _SOONEST) * self._every_s)
        self._timer = asyncio.get_running_loop().call_later(until_tick(self._every_s), self._set)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._file is None or self._timer is None:
            return
        self._timer.cancel()
        signal.setitimer(signal.ITIMER_PROF, 0)
        faulthandler.unregister(SIGNAL)
        self._file.close()
        self._path.unlink(missing_ok=True)
