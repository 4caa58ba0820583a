"""Ctrl-C and similar signals: the first one stops in order, the second one at once."""

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Callable
from types import TracebackType
from typing import Self

from crawler.errors import Killed

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
STOPPING = "Stopping: finishing open requests; press Ctrl-C again to quit now"
SAME_PRESS_S = 0.3  # terminals and `timeout` may send one request twice: to the process and to its group


class StopSignals:
    """While entered, signals call `on_stop`; until one is set, they cancel the task that entered.

    A second signal calls `on_force`, then the process ends at once with the exit code of Killed.
    """

    def __init__(self) -> None:
        self.on_stop: Callable[[], None] | None = None
        self.on_force: Callable[[], None] = lambda: None
        self.stopped = False
        self._at = 0.0

    def __enter__(self) -> Self:
        self._loop = asyncio.get_running_loop()
        self._task = asyncio.current_task()
        # Not the loop's own way: a signal that comes while users' code has stopped the loop would be lost.
        self._before = {number: signal.signal(number, self._signalled) for number in SIGNALS}
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            # Once stopped, all is done: there is nothing left to force.
            signal.signal(number, signal.SIG_IGN if self.stopped else handler)

    def _signalled(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._arrived)

    def _arrived(self) -> None:
        now = self._loop.time()
        if not self.stopped:
            self.stopped, self._at = True, now
            if self.on_stop is not None:
                self.on_stop()
            elif self._task is not None:
                self._task.cancel()
        elif now - self._at >= SAME_PRESS_S:
            self._force()

    def _force(self) -> None:
        try:
            self.on_force()
        finally:
            for flush in (sys.stdout.flush, sys.stderr.flush):
                with contextlib.suppress(OSError):  # nobody reads, or the disk is full: it ends all the same
                    flush()
            os._exit(Killed.exit_code)
