"""The one place where users' functions are called: handlers and hooks. Whatever they do comes back as a value.

Plain functions run in a thread, and are left behind there when their time is over. Asynchronous ones are taken from
step to step in the caller's own task: most await nothing, and let go of their tree before another page is parsed. One
that lives through cancellations is not taken any further. Nothing can interrupt code that neither awaits nor yields:
that is what `processes=True` is for.
"""

import asyncio
import inspect
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Generator, Iterator
from contextlib import aclosing
from functools import partial
from typing import Any

from crawler.handlers.functions import Stream, items_of
from crawler.handlers.guards import GuardedTask, users_call
from crawler.handlers.pipeline import ALL_HANG, BREATH, RefusedError, one_of
from crawler.handlers.tasks import CodeFailure, failure_of
from crawler.handlers.threads import AllHangError, Threads

CANCEL_GRACE_S = 1.0  # for cancelled code to clean up; then it is cancelled again
CANCELS_MAX = 5  # after these it is left behind
LEFT_BEHIND_KEPT = 64

Take = Callable[[Any], Awaitable[None] | None]  # what it returns in an event loop is awaited there
# Closing them fails as cancelling them did, and so would the garbage collector, with a message on the terminal.
_left_behind: deque[object] = deque(maxlen=LEFT_BEHIND_KEPT)


async def call_plain(
    function: Callable[..., Any], arguments: tuple[Any, ...], take: Take, threads: Threads, timeout_s: float,
    take_here: Take | None = None,
) -> CodeFailure | None:  # fmt: skip
    """Call it in a thread; None when it is done. What it returns is awaited here, if that is how it is made, and goes
    to `take_here`, if that is another.
    """
    try:
        found = await threads.run(partial(_in_thread, function, arguments, take), timeout_s)
    except TimeoutError:
        return _late(timeout_s)
    except AllHangError:
        return CodeFailure(ALL_HANG, is_late=True)
    if isinstance(found, CodeFailure | None):
        return found
    return await call_stream(one_of(found), take_here or take, timeout_s)


async def call_asynchronous(
    stream: Stream, arguments: tuple[Any, ...], take: Take, timeout_s: float
) -> CodeFailure | None:
    """Await it here; None when it is done. A cancellation of the caller goes on once the code has ended, or was given
    its time for that.
    """
    try:
        begun = stream(*arguments)
    except BaseException as error:
        return failure_of(error)
    return await call_stream(begun, take, timeout_s)


async def call_stream(stream: AsyncIterator[Any], take: Take, timeout_s: float) -> CodeFailure | None:
    """The same for what is begun."""
    task = asyncio.current_task()
    call = _Call(_taken(stream, take), timeout_s)
    users_call.set(call)
    if isinstance(task, GuardedTask):
        task.at = call
    try:
        failure = await call
    finally:
        users_call.set(None)
        if isinstance(task, GuardedTask):
            task.at = None
            if task.forget_users_cancels() and not call.is_cut_off:
                await _let_arrive(task)
    if call.is_cut_off:
        raise asyncio.CancelledError
    return failure


async def _let_arrive(task: GuardedTask) -> None:
    """Users' code may have cancelled itself in its last step: that arrives now, and is nobody else's."""
    cancels = task.cancelling()
    try:
        await asyncio.sleep(0)
    except asyncio.CancelledError:
        if task.cancelling() > cancels:
            raise


def _in_thread(function: Callable[..., Any], arguments: tuple[Any, ...], take: Take) -> Any:
    """None, a failure, or what is to be awaited, should a plain function have returned such a thing."""
    try:
        result = function(*arguments)
        if inspect.isawaitable(result):
            return result
        items = items_of(result)
        try:
            for item in items:
                take(item)
        finally:
            _close(items, result)
    except RefusedError as error:
        return CodeFailure(str(error))
    except BaseException as error:
        return failure_of(error)
    return None


def _close(items: Iterator[Any], result: object) -> None:
    try:
        items.close()  # type: ignore[attr-defined]
    except BaseException:
        _left_behind.append(result)


async def _taken(stream: AsyncIterator[Any], take: Take) -> CodeFailure | None:
    count = 0
    try:
        async with aclosing(stream) as items:  # type: ignore[type-var]
            async for item in items:
                taken = take(item)
                if taken is not None:
                    await taken
                count += 1
                if count % BREATH == 0:
                    await asyncio.sleep(0)
    except RefusedError as error:
        return CodeFailure(str(error))
    except BaseException as error:
        return failure_of(error)
    return None


def _late(timeout_s: float) -> CodeFailure:
    return CodeFailure(f"not done after {timeout_s:g} s", is_late=True)


class _Call:
    """Takes a coroutine from step to step, as its task would, and goes on without it where a task would wait forever.

    It waits for a future of its own, never for one of users' code: a task that lives through its cancellation would
    keep ours from arriving.
    """

    def __init__(self, work: Coroutine[Any, Any, CodeFailure | None], timeout_s: float) -> None:
        self._work = work
        self._timeout_s = timeout_s
        self._wake: asyncio.Future[None] | None = None
        self._is_late = False
        self._is_due = False  # a cancellation
        self._cancels = 0
        self._timer: asyncio.TimerHandle | None = None
        self.is_cut_off = False  # its caller was cancelled

    def __await__(self) -> Generator[Any, Any, CodeFailure | None]:
        self._loop = asyncio.get_running_loop()
        self._task = asyncio.current_task()
        self._cancelled_before = self._cancelling()
        self._timer = self._loop.call_later(self._timeout_s, self._time_is_over)
        try:
            return (yield from self._steps())
        finally:
            self._timer.cancel()

    def _steps(self) -> Generator[Any, Any, CodeFailure | None]:
        error: BaseException | None = None
        while True:
            try:
                waited = self._work.send(None) if error is None else self._work.throw(error)
            except StopIteration as end:
                failure: CodeFailure | None = end.value
                return _late(self._timeout_s) if self._is_late else failure
            except BaseException as raised:
                return _late(self._timeout_s) if self._is_late else failure_of(raised)
            if self._cancels >= CANCELS_MAX:
                return self._leave_behind()
            try:
                error = yield from self._until_done(waited)
            except GeneratorExit:
                self._leave_behind()
                raise
            except BaseException as raised:
                error = raised

    def _until_done(self, waited: Any) -> Generator[Any, Any, BaseException | None]:
        """Wait for what the coroutine waits for. Returns what is to be raised in it instead, if anything."""
        if waited is None:  # asyncio.sleep(0)
            try:
                yield
            except asyncio.CancelledError as error:
                self._note_cancel()
                return error
            return self._due()
        if getattr(waited, "_asyncio_future_blocking", None) is not True or waited is self._task:
            return RuntimeError(f"a handler can't await {type(waited).__name__} of this kind")
        if waited.get_loop() is not self._loop:
            return RuntimeError("this future belongs to another event loop")
        waited._asyncio_future_blocking = False  # noqa: SLF001 - as every task does, asyncio's own and others
        waited.add_done_callback(self._is_done)
        is_asked = False
        try:
            while not waited.done():
                cancelled = self._due() or (yield from self._woken())
                if cancelled is None:
                    continue
                if is_asked or self._cancels >= CANCELS_MAX or not waited.cancel():
                    return cancelled
                is_asked = True
        finally:
            waited.remove_done_callback(self._is_done)
        return None

    def _woken(self) -> Generator[Any, Any, asyncio.CancelledError | None]:
        self._wake = self._loop.create_future()
        try:
            yield from self._wake
        except asyncio.CancelledError as error:
            self._note_cancel()
            return error
        finally:
            self._wake = None
        return self._due()

    def _is_done(self, _: object) -> None:
        if self._wake is not None and not self._wake.done():
            self._wake.set_result(None)

    # --- cancelling ---

    def _cancelling(self) -> int:
        """By others than the code itself."""
        task = self._task
        assert task is not None
        return task.cancelling() - (task.users_cancels if isinstance(task, GuardedTask) else 0)

    def _note_cancel(self) -> None:
        """A cancellation has arrived. From whoever runs us, it is the end, soon, with the code or without it."""
        if not self.is_cut_off and self._cancelling() > self._cancelled_before:
            self.is_cut_off = True
            self._cancels += 1
            self._again_later()

    def _time_is_over(self) -> None:
        self._is_late = True
        self._cancel()

    def _cancel(self) -> None:
        self._cancels += 1
        self._is_due = True
        self._again_later()
        self._is_done(None)

    def _again_later(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_later(CANCEL_GRACE_S, self._cancel)

    def _due(self) -> asyncio.CancelledError | None:
        if not self._is_due:
            return None
        self._is_due = False
        return asyncio.CancelledError()

    def _leave_behind(self) -> CodeFailure:
        """Not one step more. Closing it runs what it has to clean up, once."""
        try:
            self._work.close()
        except BaseException:
            _left_behind.append(self._work)
        return CodeFailure(f"not done after {self._timeout_s:g} s, and ignores its cancellation", is_late=True)
