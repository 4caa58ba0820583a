"""Tasks of an event loop in which users' code runs, too: it can cancel its own, and end none of ours.

Where users' code is at work, the context says so; tasks and callbacks that it begins inherit that. So a cancellation
that it asks for is known by where it comes from, however late.
"""

import asyncio
import contextlib
import contextvars
import weakref
from collections.abc import Coroutine, Generator
from types import CoroutineType
from typing import Any

from crawler.handlers.tasks import failure_of

GRACE_S = 1.0  # for each kind of what users' code may leave behind: tasks, generators, threads
# None: our own code runs. Else the call of users' code that runs, or that began what runs.
users_call: contextvars.ContextVar[object | None] = contextvars.ContextVar("users_call", default=None)
IN_A_THREAD = object()
_begun: "weakref.WeakSet[GuardedTask]" = weakref.WeakSet()  # by users' code, in all loops of the process
_left_behind: "list[asyncio.Task[Any]]" = []


class GuardedTask(asyncio.Task[Any]):
    """`users_cancels`: cancellations that the call of users' code which it is at, `at`, asked for itself."""

    at: object | None = None
    users_cancels = 0
    is_theirs = False

    def cancel(self, msg: Any | None = None) -> bool:
        """Users' code cancels its own tasks, and the call that it is itself (`asyncio.timeout` does)."""
        by = users_call.get()
        if by is not None and not self.is_theirs:
            if by is not self.at:
                return False
            self.users_cancels += 1
        return super().cancel(msg)

    def uncancel(self) -> int:
        """What we cancelled stays cancelled."""
        if users_call.get() is not None and not self.is_theirs:
            if not self.users_cancels:
                return self.cancelling()
            self.users_cancels -= 1
        return super().uncancel()

    def forget_users_cancels(self) -> bool:
        """Users' code is done here. Were there any that it left behind?"""
        left = self.users_cancels
        while self.users_cancels:
            self.users_cancels -= 1
            super().uncancel()
        return bool(left)


def guard_tasks(loop: asyncio.AbstractEventLoop) -> None:
    """Guard all tasks that this loop makes from now on, if it is one that lets others make them."""
    with contextlib.suppress(NotImplementedError):
        if loop.get_task_factory() is None:
            loop.set_task_factory(_made)


def _made(loop: asyncio.AbstractEventLoop, work: Any, **named: Any) -> "asyncio.Future[Any]":
    # What closes an asynchronous generator that was left alone is not a coroutine: it may be users' code.
    if users_call.get() is None and isinstance(work, CoroutineType):
        return GuardedTask(work, loop=loop, **named)
    task = GuardedTask(_WithoutExit(work), loop=loop, **named)
    task.is_theirs = True
    _begun.add(task)
    return task


class _WithoutExit(Coroutine[Any, Any, Any]):
    """Passes everything on to a coroutine; in a task, what it turns into an error would end the event loop."""

    __slots__ = ("_work",)

    def __init__(self, work: Coroutine[Any, Any, Any]) -> None:
        self._work = work

    def send(self, value: Any) -> Any:
        try:
            return self._work.send(value)
        except (SystemExit, KeyboardInterrupt) as error:
            raise RuntimeError(failure_of(error).detail) from None

    def throw(self, *error: Any) -> Any:
        try:
            return self._work.throw(*error)
        except (SystemExit, KeyboardInterrupt) as raised:
            raise RuntimeError(failure_of(raised).detail) from None

    def close(self) -> None:
        self._work.close()

    def __await__(self) -> Generator[Any, Any, Any]:
        return (yield from self)

    def __iter__(self) -> "_WithoutExit":
        return self

    def __next__(self) -> Any:
        return self.send(None)


async def end_users_tasks(grace_s: float = GRACE_S) -> None:
    """Cancel what users' code began in this loop and has not ended.

    What lives through it for so long is left behind: the loop does not wait for it at its own end.
    """
    loop = asyncio.get_running_loop()
    tasks = [task for task in _begun if task.get_loop() is loop and not task.done()]
    if not tasks:
        return
    for task in tasks:
        task.cancel()
    _, left = await asyncio.wait(tasks, timeout=grace_s)
    for task in left:
        leave_behind(task)


def leave_behind(task: "asyncio.Task[Any]") -> None:
    """The end of its loop does not wait for it."""
    asyncio._unregister_task(task)  # noqa: SLF001 - the documentation of asyncio offers it to who extends it
    _left_behind.append(task)  # what is collected as garbage is asked to end once more
