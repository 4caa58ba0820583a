"""What every process of an instance has: clocks, tasks, a watchdog for its event loop, crash points of tests."""

import asyncio
import contextlib
import faulthandler
import logging
import math
import os
import signal
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine
from contextvars import ContextVar
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self, TypeVar

from crawler.archive.folder import open_private
from crawler.archive.inflight_log import loop_line
from crawler.errors import CrawlerError, EngineError, InvariantError

# Clocks of an instance. Safety rests on one that never steps and that includes the time a machine is suspended.

ENGINE_PAUSE_S = 0.2  # before a retry of a call that the engine did not answer

_CLOCK: int = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)  # macOS's monotonic one has that time, too


def monotonic_ms() -> int:
    """Milliseconds on the monotonic clock; only differences have a meaning."""
    return time.clock_gettime_ns(_CLOCK) // 1_000_000


def wall_s() -> float:
    """Wall clock, seconds since the epoch: for dates, never for safety."""
    return time.time()


def process_cpu_s() -> float:
    """CPU time of this process without its children, s."""
    return time.process_time()


def cpu_ms() -> int:
    """CPU time of this thread, ms."""
    return time.thread_time_ns() // 1_000_000


# Periodic work of an instance: what is done each second is done at the same moment, so that a process with nothing to
# do wakes once for all of it. A wake-up of its own for each loop would cost more than what the loops do.

_SOONEST = 0.25  # of an interval: a tick that is nearer is left out
PHASE: ContextVar[float] = ContextVar("phase", default=time.monotonic() % 1)  # processes are not to tick together


def until_tick(every_s: float) -> float:
    """Seconds until the next tick of this interval: ticks of all loops that have it are at the same times."""
    ticks = (asyncio.get_running_loop().time() - PHASE.get()) / every_s
    return (math.floor(ticks + _SOONEST) + 1 - ticks) * every_s


async def tick(every_s: float, wake: asyncio.Event | None = None) -> None:
    """Sleep until the next tick of this interval, or until the event is set."""
    if wake is None:
        await asyncio.sleep(until_tick(every_s))
    else:
        await until_set(wake, until_tick(every_s))


async def until_set(event: asyncio.Event, seconds: float | None) -> None:
    """Wait for the event, at most so long; None: however long it takes."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()


# Named points of the pipeline at which a test can end, stop or delay the process. No effect in production.
#
# The variable SHARDCRAWL_CRASH_POINT=POINT[@TEXT][#N]=ACTION is read once at the start. The action runs when POINT is
# reached for the Nth time (default: the first) with TEXT in its detail (a URL, where there is one): `kill` (SIGKILL),
# `stop` (SIGSTOP), `exit:CODE`, `sleep:SECONDS` (blocks the whole process). With `*` after the action it runs each time
# from then on.

VARIABLE = "SHARDCRAWL_CRASH_POINT"

POINTS = (
    "lease.acquired",  # the engine has the lease, this session does not know yet
    "claim.taken",  # claims are in memory, nothing is started
    "robots.answered",  # robots.txt is read, not shared
    "login.done",  # the session has begun, and is not stored
    "request.noted",  # that it is about to be sent: of those that must not be repeated
    "fetch.checked",  # the deadline is checked, the request is not written
    "fetch.answered",  # the response is here, not parsed
    "page.parsed",
    "page.handled",  # its handler has ended, nothing is on disk
    "archive.written",  # the record is in memory, not synced
    "archive.synced",
    "route.added",  # the links are in other partitions, the page is not acked
    "ack.answered",  # committed, not indexed
    "end.answered",  # a retry, dead letter or refusal is written
    "index.synced",  # indexed, the engine's log is not drained
    "drain.answered",
    "spill.written",  # blocks of queues are in a file, the engine does not know
    "spill.told",
    "unspill.answered",
    "handover.dropped",  # dropped in memory, not yet released
    "release.answered",
    "prune.step",  # any of its steps; the detail is which
    "rehandle.step",  # likewise
)


def _action_of(text: str) -> Callable[[], None]:
    name, _, value = text.partition(":")
    actions: dict[str, Callable[[], None]] = {
        "kill": lambda: os.kill(os.getpid(), signal.SIGKILL),
        "stop": lambda: os.kill(os.getpid(), signal.SIGSTOP),
        "exit": lambda: os._exit(int(value)),
        "sleep": lambda: time.sleep(float(value)),
    }
    return actions[name]


def _armed(setting: str) -> Callable[[str, str], None]:
    place, _, action = setting.partition("=")
    place, _, nth = place.partition("#")
    point, _, text = place.partition("@")
    if point not in POINTS:
        raise ValueError(f"{VARIABLE}: no point {point!r}; there are {', '.join(POINTS)}")
    again = action.endswith("*")
    act, count, wanted = _action_of(action.rstrip("*")), 0, int(nth or 1)

    def reached(name: str, detail: str = "") -> None:
        nonlocal count
        if name == point and text in detail:
            count += 1
            if count == wanted or (again and count > wanted):
                act()

    return reached


def _nothing(name: str, detail: str = "") -> None:
    """No crash point is set."""


reached: Callable[..., None] = _armed(os.environ[VARIABLE]) if os.environ.get(VARIABLE) else _nothing


# Ends the process when its event loop stalls on one step, so that the crawl loses one page and not its leases.
#
# The event loop keeps resetting a timer that counts the CPU time of the process. When the timer runs out, the loop has
# not run for that long although the process was computing. A signal handler in C, which needs neither the loop nor the
# interpreter's lock, then writes the stacks of all threads to a file, and the signal ends the process. A process that
# is stopped, starved or swapped out uses no CPU time and is left alone. The in-flight log tells whose content was
# processed.

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


# Background work: endless loops, errors of task groups, calls repeated until they are answered.


log = logging.getLogger(__name__)

Answer = TypeVar("Answer")
Loop = Callable[[], Coroutine[Any, Any, None]]  # runs until it is cancelled
Gate = Callable[[], Awaitable[None]]  # awaited before a step that may have to wait


async def open_gate() -> None:
    """Nothing has to wait."""


OUTAGE = "outage"  # a reason to stop: our own network, or a proxy, failed for `hosts.give_up_s`


class StopSignal:
    """Tells an instance to stop; the first reason counts. `drain_timeout_s`: limit for what is in flight then."""

    def __init__(self, *, drain_timeout_s: float) -> None:
        self.drain_timeout_s = drain_timeout_s
        self.reason = ""
        self.event = asyncio.Event()

    @property
    def is_set(self) -> bool:
        return self.event.is_set()

    def set(self, reason: str) -> None:
        """Stop claiming, finish what is in flight, return the rest, release, leave."""
        self.reason = self.reason or reason
        self.event.set()


async def endless(name: str, loop: Loop) -> None:
    """Run a loop that must not end by itself: otherwise a crawl with pages left could look finished."""
    await loop()
    raise InvariantError(f"the loop '{name}' ended unexpectedly")


def first_error(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """The most telling error of a task group: one of ours, which has an exit code, before any other."""
    errors = list[BaseException]()
    for error in group.exceptions:
        errors.append(first_error(error) if isinstance(error, BaseExceptionGroup) else error)
    return next((error for error in errors if isinstance(error, CrawlerError)), errors[0])


async def retry_until_answered(call: Callable[[], Awaitable[Answer]], *, event: str) -> Answer:
    """Repeat an idempotent call until the engine answers; `event` is logged for each failure."""
    while True:
        try:
            return await call()
        except EngineError as error:
            log.warning(event, extra={"error": str(error)})
            await asyncio.sleep(ENGINE_PAUSE_S)


async def retry_until_stopped(call: Callable[[], Awaitable[None]], stop: StopSignal, *, event: str) -> None:
    """As `retry_until_answered`, but give up once `stop` is set."""

    async def unless_stopped() -> None:
        if not stop.is_set:
            await call()

    await retry_until_answered(unless_stopped, event=event)
