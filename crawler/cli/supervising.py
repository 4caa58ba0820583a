"""How `-n` runs instances: as child processes of a supervisor that `crawler scale` can reach."""

import argparse
import asyncio
import contextlib
import ctypes
import os
import signal
import sys
import time
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import TYPE_CHECKING, Self

from crawler.cli.crawl_options import ALL_KEYS, KEYS, run_alongside
from crawler.cli.options import OPTIONS_VARIABLE, handed_to_children
from crawler.cli.run_async import heard
from crawler.crawl.opening import OpenCrawl
from crawler.errors import Killed, Stopped
from crawler.frontier.supervisors import SupervisorRecord
from crawler.membership.node_names import host_id
from crawler.supervisor.child import Deaths
from crawler.terminal import output
from crawler.terminal.output import warn
from crawler.views.live import Quiet, View

if TYPE_CHECKING:
    from crawler.supervisor.supervisor import Supervisor

# Runs the work of a command in a child process, and again when a page stalled or crashed it.
#
# What stalls an event loop may hold the interpreter's lock for hours: the process can only end, and no signal handler
# of Python runs in it. The parent does next to nothing, so Ctrl-C works whatever the child is at.

FORWARDED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
# A stalled event loop (runtime/watchdog.py), or a library in C that a page broke. Whoever sends SIGKILL means to
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
        before = {number: signal.signal(number, self._forward) for number in heard(FORWARDED)}
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
    with contextlib.suppress(AttributeError, OSError):  # Linux has this call
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


async def supervise(
    crawl: OpenCrawl,
    arguments: argparse.Namespace,
    signals: "StopSignals",
    view: View,
    *,
    until_finished: bool,
    watch: Callable[[], Awaitable[None]],
) -> str:
    """Children of this process, to their end; why they ended. Raises GaveUpError."""
    from crawler.supervisor.control import SupervisorControl

    supervisor = _supervisor(crawl, arguments, view, until_finished=until_finished)
    control = SupervisorControl(
        supervisor, crawl.supervisors, crawl.members, _described(crawl), crawl.settings.membership
    )

    def stop() -> None:
        view.say(STOPPING)
        supervisor.stop()

    forced = signals.on_force

    def force() -> None:
        view.close()
        supervisor.kill_and_wait()  # else the last one out would find them alive, and leave the engine running
        forced()

    signals.on_stop, signals.on_force = stop, force
    time_max_s = crawl.settings.crawl.time_max_s
    # Each child counts its own time, and may have been started late.
    timer = asyncio.get_running_loop().call_later(time_max_s, supervisor.stop, "time") if time_max_s else None
    try:
        await run_alongside(supervisor.run(arguments.instances), watch, control.run)
    finally:
        if timer is not None:
            timer.cancel()
        await control.close()
    return supervisor.stopped_because or await _why_ended(crawl)


def _supervisor(crawl: OpenCrawl, arguments: argparse.Namespace, view: View, *, until_finished: bool) -> "Supervisor":
    from crawler.supervisor.supervisor import Supervisor

    command = [sys.executable, "-P", "-m", "crawler", "run", "--child"]
    command += ["--until-finished"] * until_finished + ["--verbose"] * arguments.verbose
    keys = ALL_KEYS if hasattr(arguments, "scope") else KEYS

    def warn(line: str) -> None:
        if isinstance(view, Quiet):  # warnings are printed even then
            output.warn(line)
        else:
            view.say(line)

    return Supervisor(
        crawl.slots,
        lambda node: [*command, "--node", node],
        environment=os.environ | {OPTIONS_VARIABLE: handed_to_children(arguments, keys)},
        say=view.say,
        warn=warn,
    )


def _described(crawl: OpenCrawl) -> SupervisorRecord:
    """What stays the same of this process's record."""
    return SupervisorRecord(
        session=crawl.session,
        host=host_id(),
        pid=os.getpid(),
        folder=str(crawl.folder.root.resolve()),
        lock=str(crawl.lock.path.resolve()),
        wanted=0,
    )


async def _why_ended(crawl: OpenCrawl) -> str:
    """Children end by themselves when nothing is left, or at a limit."""
    progress, limits = await crawl.inspect.progress(), crawl.settings.crawl
    if progress.pending and await crawl.crawls.budget_reached():
        return "budget"
    if limits.pages_max and progress.fetched >= limits.pages_max:
        return "pages"
    return "time" if progress.pending and limits.time_max_s else "finished"


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
        self._before = {number: signal.signal(number, self._signalled) for number in heard(SIGNALS)}
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
