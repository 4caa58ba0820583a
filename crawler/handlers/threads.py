"""Threads for functions that may block, or never end: neither holds up the event loop, nor the end of the process.

concurrent.futures waits for its threads when the interpreter ends, so a function that hangs would keep the process
alive forever; these are daemons.
"""

import asyncio
import contextlib
import queue
import threading
from collections.abc import Callable
from typing import Any, TypeVar

import msgspec

from crawler.handlers.guards import IN_A_THREAD, users_call

Result = TypeVar("Result")
LOST_MAX = 64  # functions that run on although nobody waits for them: each has a thread, and its stack


class AllHangError(Exception):
    """Too many functions exceeded their time; no more are started."""


class _Job(msgspec.Struct):
    function: Callable[[], Any]
    loop: asyncio.AbstractEventLoop
    future: "asyncio.Future[Any]"
    is_lost: bool = False
    is_over: bool = False


class Threads:
    """Up to a maximum number of threads, each started when no other is free. Belongs to one event loop."""

    def __init__(self, threads_max: int) -> None:
        self._slots = asyncio.Semaphore(threads_max)
        self._jobs: queue.SimpleQueue[_Job] = queue.SimpleQueue()
        self._idle = 0  # this and what follows is changed by the loop's thread only
        self._lost = 0

    async def run(self, function: Callable[[], Result], timeout_s: float) -> Result:
        """Its result, or what it raised. Raises TimeoutError when it has not ended in time, counted from its begin:
        it runs on then, and its result is dropped. Raises AllHangError when too many of these are about.
        """
        if self._lost >= LOST_MAX:
            raise AllHangError
        await self._slots.acquire()
        loop = asyncio.get_running_loop()
        job = _Job(function, loop, loop.create_future())
        try:
            self._begin(job)
            async with asyncio.timeout(timeout_s):
                return await job.future  # type: ignore[no-any-return]
        finally:
            if job.future.cancelled() and not job.is_over:
                job.is_lost = True
                self._lost += 1
            self._slots.release()

    def _begin(self, job: _Job) -> None:
        if self._idle:
            self._idle -= 1
        else:
            try:
                threading.Thread(target=self._serve, name="handler", daemon=True).start()
            except RuntimeError:  # the system has no more of them
                raise AllHangError from None
        self._jobs.put(job)

    def _serve(self) -> None:
        users_call.set(IN_A_THREAD)
        while True:
            job = self._jobs.get()
            result, error = None, None
            try:
                result = job.function()
            except BaseException as raised:  # passed on to the waiter, whatever it is
                error = raised
            with contextlib.suppress(RuntimeError):  # the loop may be closed by now
                job.loop.call_soon_threadsafe(self._ended, job, result, error)
            del job, result, error  # a page may hang on them while the thread waits for the next

    def _ended(self, job: _Job, result: Any, error: BaseException | None) -> None:
        self._idle += 1
        self._lost -= job.is_lost
        job.is_over = True
        if job.future.cancelled():
            return
        if error is None:
            job.future.set_result(result)
        elif isinstance(error, Exception) and not isinstance(error, StopIteration):
            job.future.set_exception(error)
        else:  # a future takes no StopIteration, and SystemExit would end the loop
            job.future.set_exception(RuntimeError(f"{type(error).__name__}: {error}"))
