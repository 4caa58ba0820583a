"""The end of an event loop in which users' code ran: it waits for a moment for what that code has begun, then goes."""

import asyncio
import logging
import threading
import time
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import Any, Self, TypeVar

from crawler.handlers.guards import GRACE_S, end_users_tasks, guard_tasks, leave_behind
from crawler.handlers.tasks import failure_of

log = logging.getLogger(__name__)

Result = TypeVar("Result")


class UsersLoop:
    """A loop whose tasks users' code can't end, and whose end it can't hold up. Enter it before anything runs."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    def __enter__(self) -> Self:
        guard_tasks(self._loop)
        # The loop would make the same, and wait for its threads without end.
        self._executor = ThreadPoolExecutor(thread_name_prefix="asyncio")
        self._loop.set_default_executor(self._executor)
        return self

    def run(self, runner: asyncio.Runner, work: Coroutine[Any, Any, Result]) -> Result:
        """To its end, also where a callback of users' code stops the loop, or exits: that is taken up where it was."""
        begun: list[asyncio.Task[Result]] = []
        try:
            return runner.run(_noted(work, begun))
        except (SystemExit, RuntimeError) as error:
            if not begun or begun[0].done():
                raise
            stopped: BaseException = error
        while not begun[0].done():
            log.warning("users_code.stopped_the_loop", extra={"error": failure_of(stopped).detail})
            try:
                return self._loop.run_until_complete(begun[0])
            except (SystemExit, RuntimeError) as error:
                stopped = error
        return begun[0].result()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._loop.run_until_complete(_end())
        self._executor.shutdown(wait=False, cancel_futures=True)
        ends_s = time.monotonic() + GRACE_S
        for thread in _threads():
            thread.join(max(0.0, ends_s - time.monotonic()))
        self._loop.set_default_executor(ThreadPoolExecutor())


def has_threads() -> bool:
    """Are there any left that Python waits for when it ends?"""
    return bool(_threads())


def _threads() -> list[threading.Thread]:
    living = threading.enumerate()
    return [one for one in living if not one.daemon and one is not threading.main_thread()]


async def _noted(work: Coroutine[Any, Any, Result], begun: "list[asyncio.Task[Result]]") -> Result:
    task = asyncio.current_task()
    assert task is not None
    begun.append(task)
    return await work


async def _end() -> None:
    await end_users_tasks()
    await _for_a_moment(asyncio.get_running_loop().shutdown_asyncgens())


async def _for_a_moment(work: Coroutine[Any, Any, Any]) -> None:
    task = asyncio.ensure_future(work)
    _, left = await asyncio.wait({task}, timeout=GRACE_S)
    for one in left:
        leave_behind(one)
