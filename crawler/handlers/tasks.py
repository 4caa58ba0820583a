"""What users' functions are, run in and raise: tasks and threads that end none of ours, and errors as text."""

import asyncio
import contextlib
import contextvars
import inspect
import queue
import threading
import traceback
import weakref
from collections.abc import AsyncIterator, Callable, Coroutine, Generator
from pathlib import Path
from types import CoroutineType
from typing import Any, TypeVar

import msgspec

from crawler.errors import UsageError
from crawler.rules.text import one_line

# What users' code raised, as text: one line and a traceback. Nothing that an exception does gets past this.
#
# An exception is a user's object: its `__str__` may raise, call itself, or return text that can't be stored.

TRACE_CHARS_MAX = 4000
TRACE_FRAMES_MAX = 12
LINE_CHARS_MAX = 300
NAME_CHARS_MAX = 100
READ_CHARS_MAX = 100_000  # of an exception's text, which may quote a whole page
_NAME_OF_CLASS: Callable[[type], str] = type.__dict__["__name__"].__get__
OURS = str(Path(__file__).parents[1])


class CodeFailure(msgspec.Struct, frozen=True):
    """Why users' code failed. `is_late`: its time was over, or it was not begun for want of time."""

    detail: str  # one line
    trace: str = ""
    is_late: bool = False


def failure_of(error: BaseException) -> CodeFailure:
    """One line, like "KeyError: 'price' (shop.py:12 in product)", and the traceback without our own part of it."""
    said = one_line_of(text_of(lambda: str(error)))
    line = f"{kind_of(error)}: {said}" if said else kind_of(error)
    try:
        place, trace = _place_and_trace(error)
    except BaseException as unread:  # its text comes from users' code, too
        return CodeFailure(line, f"(its traceback can't be read: {kind_of(unread)})")
    return CodeFailure(line + place, trace)


def kind_of(error: BaseException) -> str:
    """The name of its class, read without its metaclass."""
    return storable(_NAME_OF_CLASS(type(error)), NAME_CHARS_MAX)


def _place_and_trace(error: BaseException) -> tuple[str, str]:
    told = traceback.TracebackException.from_exception(error, limit=-200)
    frames = [frame for frame in told.stack if not frame.filename.startswith(OURS)]
    place = f" ({Path(frames[-1].filename).name}:{frames[-1].lineno} in {frames[-1].name})" if frames else ""
    if frames:
        told.stack = traceback.StackSummary.from_list(frames[-TRACE_FRAMES_MAX:])
    trace = "".join(told.format()).rstrip()
    return storable(place), storable(trace[-TRACE_CHARS_MAX:])


def one_line_of(said: str) -> str:
    """Its words in one line, as many as fit."""
    return " ".join(said.split())[:LINE_CHARS_MAX]


def text_of(read: Callable[[], object], chars_max: int = READ_CHARS_MAX) -> str:
    """What a user's object says of itself; "" when it does not say anything, whatever it does instead."""
    try:
        said = read()
        return storable(said, chars_max) if isinstance(said, str) else ""
    except BaseException:
        return ""


def storable(said: str, chars_max: int = READ_CHARS_MAX) -> str:
    """A plain str of the same text: lone surrogates become question marks."""
    plain = str.__str__(said)[:chars_max]
    return plain if plain.isascii() else plain.encode("utf-8", "replace").decode()


# A user's function as the crawler calls it: what kind it is of, and what it yields as a stream.
#
# Asynchronous functions run in the event loop, where they must not block. Plain ones run in a thread, where they may.


Stream = Callable[..., AsyncIterator[Any]]


def check_callable(function: Callable[..., Any], *arguments: str) -> None:
    """Raises UsageError for what can't be called with these."""
    name = name_of(function)
    if not callable(function):
        raise UsageError(f"a handler is a function, not {function!r}")
    try:
        inspect.signature(function).bind(*arguments)
    except ValueError:
        return  # some built-in functions do not tell
    except TypeError as error:
        raise UsageError(f"{name}: can't be called with ({', '.join(arguments)}): {error}") from None


def name_of(function: Callable[..., Any]) -> str:
    """For messages: the name, or the repr of an object without one."""
    name = text_of(lambda: getattr(function, "__name__", ""), NAME_CHARS_MAX)
    return one_line(name or text_of(lambda: repr(function), NAME_CHARS_MAX) or type.__repr__(type(function)))


def is_plain(function: Callable[..., Any]) -> bool:
    """Is it called in a thread?"""
    return not (inspect.isasyncgenfunction(function) or inspect.iscoroutinefunction(function))


def stream_of(function: Callable[..., Any]) -> Stream:
    """Items of an asynchronous generator, or the one that an asynchronous function returns, if any."""
    if inspect.isasyncgenfunction(function):
        return function

    async def stream(*arguments: Any) -> AsyncIterator[Any]:
        item = await function(*arguments)
        if item is not None:
            yield item

    return stream


def items_of(result: Any) -> Generator[Any, None, None]:
    """Items that a plain function returned: those of a generator, one, or none."""
    if inspect.isgenerator(result):
        yield from result
    elif result is not None:
        yield result


# Tasks of an event loop in which users' code runs, too: it can cancel its own, and end none of ours.
#
# Where users' code is at work, the context says so; tasks and callbacks that it begins inherit that. So a cancellation
# that it asks for is known by where it comes from, however late.


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


# Threads for functions that may block, or never end: neither holds up the event loop, nor the end of the process.
#
# concurrent.futures waits for its threads when the interpreter ends, so a function that hangs would keep the process
# alive forever; these are daemons.


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
