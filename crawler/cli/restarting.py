"""Runs the work of a command in a child process, and again when a page stalled or crashed it.

What stalls an event loop may hold the interpreter's lock for hours: the process can only end, and no signal handler of
Python runs in it. The parent does next to nothing, so Ctrl-C works whatever the child is at.
"""

import contextlib
import ctypes
import os
import signal
import sys
import time
from collections.abc import Callable

from crawler.errors import Killed, Stopped
from crawler.supervisor.child import Deaths
from crawler.terminal.text import warn

FORWARDED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
# A stalled event loop (runtime/process.py), or a library in C that a page broke. Whoever sends SIGKILL means to
# end it.
RESTARTED = frozenset({signal.SIGPROF, signal.SIGSEGV, signal.SIGBUS, signal.SIGABRT, signal.SIGFPE, signal.SIGILL})
FORCED_AFTER_S = 1.0  # a child that runs this long after a second Ctrl-C will not end
_PR_SET_PDEATHSIG = 1  # linux/prctl.h


def run_restarting(work: Callable[[], int]) -> int:
    """The exit code of the work, which is done in a child process; that one's end by a signal is this process's end."""
    deaths = Deaths(0.0)
    while True:
        sys.stdout.flush()
        sys.stderr.flush()
        began_s, parent = time.monotonic(), os.getpid()
        pid = os.fork()
        if pid == 0:
            _end_with(parent)
            return work()
        guard = _Guard(pid)
        code = guard.wait()
        if code >= 0:
            return code
        if guard.was_forced:
            raise Killed("forced; the same command resumes")
        if -code in RESTARTED and guard.is_stopped:
            raise Stopped("stopped; the same command resumes")
        if -code not in RESTARTED or deaths.pause_after(time.monotonic() - began_s, code) is None:
            return _end_as(-code)
        if -code == signal.SIGPROF:
            warn("the crawl stalled on a page; it continues without that page (details in the crawl folder's log)")
        else:  # a page that ends three processes is given up
            warn(f"the crawl was ended by {signal.Signals(-code).name}; it starts again")


class _Guard:
    """Waits for the child, and passes signals on to it."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self.is_stopped = False
        self.was_forced = False
        self._at_s = 0.0

    def wait(self) -> int:
        """Its exit code; negative: the signal that ended it."""
        before = {number: signal.signal(number, self._forward) for number in FORWARDED}
        before[signal.SIGALRM] = signal.signal(signal.SIGALRM, self._kill)
        try:
            _, status = os.waitpid(self._pid, 0)
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            for number, handler in before.items():
                signal.signal(number, handler)
        return os.waitstatus_to_exitcode(status)

    def _forward(self, number: int, _: object) -> None:
        """The child knows a signal that reached it twice, through the terminal and through us, from two of them."""
        from crawler.cli.signals import SAME_PRESS_S

        self._send(number)
        if not self.is_stopped:
            self.is_stopped, self._at_s = True, time.monotonic()
        elif time.monotonic() - self._at_s >= SAME_PRESS_S:
            signal.setitimer(signal.ITIMER_REAL, FORCED_AFTER_S)

    def _kill(self, *_: object) -> None:
        self.was_forced = True
        self._send(signal.SIGKILL)

    def _send(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._pid, number)


def _end_with(parent: int) -> None:
    """Whoever kills the parent means the crawl."""
    if sys.platform == "linux":
        with contextlib.suppress(AttributeError, OSError):
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(Killed.exit_code)


def _end_as(number: int) -> int:
    """End as the child did, so that whoever started us sees the same."""
    if number == signal.SIGPROF:
        warn("the crawl stalled repeatedly; run the same command to continue without the pages that caused it")
        return 1
    if number != signal.SIGKILL:
        signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)
    time.sleep(1)  # it ends before
    return 1
