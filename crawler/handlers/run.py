"""The one place where users' functions are called: handlers and hooks. Whatever they do comes back as a value.

Plain functions run in a thread, and are left behind there when their time is over. Asynchronous ones are taken from
step to step in the caller's own task: most await nothing, and let go of their tree before another page is parsed. One
that lives through cancellations is not taken any further. Nothing can interrupt code that neither awaits nor yields:
that is what `processes=True` is for.
"""

import asyncio
import inspect
import logging
import threading
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Generator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing
from functools import partial
from types import TracebackType
from typing import Any, Self, TypeVar

import msgspec

from crawler.errors import UsageError
from crawler.handlers.crawler import Crawler, Handler, ItemFunction
from crawler.handlers.item_encoding import InvalidItem, InvalidItemError
from crawler.handlers.page import Page
from crawler.handlers.pipeline import ALL_HANG, BREATH, Bounds, Pipeline, RefusedError, one_of
from crawler.handlers.tasks import (
    GRACE_S,
    AllHangError,
    CodeFailure,
    GuardedTask,
    Stream,
    Threads,
    end_users_tasks,
    failure_of,
    guard_tasks,
    is_plain,
    items_of,
    leave_behind,
    one_line_of,
    storable,
    stream_of,
    users_call,
)
from crawler.model import Followed, Request
from crawler.rules.requests import check_header

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


# The end of an event loop in which users' code ran: it waits for a moment for what that code has begun, then goes.

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


# A handler and one page: its items, what it follows, or the failure that it was; bounded in time, items and bytes.


INVALID_KEPT = 5  # reports of a page; all are counted


class Limits(msgspec.Struct, frozen=True):
    """What one page may give."""

    items_max: int
    bytes_max: int = 64 * 1024 * 1024  # of its items as JSON: they are in memory until the page is committed


class Handled(msgspec.Struct):
    """What came of a page. `items` are JSON texts."""

    items: list[bytes] = []
    followed: list[Followed] = []
    invalid: list[InvalidItem] = []  # the first of them
    invalid_count: int = 0
    retry_s: float | None = None  # the handler wants the page again, not before: nothing of the rest counts
    dropped_count: int = 0  # by functions of `@app.item`
    handler: str = ""  # its name


NOTHING_HANDLED = Handled()


class HandlerError(Exception):
    """A handler failed on a page: why, in one line, and the traceback where there is one."""

    def __init__(self, detail: str, trace: str = "") -> None:
        super().__init__(detail)
        self.trace = trace


async def run_handler(
    handler: Handler, page: Page, limits: Limits, threads: Threads, pipeline: Sequence[ItemFunction] = ()
) -> Handled:
    """Call a handler with a page, and the functions of a pipeline with its items. Raises HandlerError."""
    taking = _Taking(handler, limits)
    take: Take = taking.take
    take_here, passing = take, None
    if pipeline:
        passing = Pipeline(pipeline, page, taking.take, taking.bounds, threads)
        take, take_here = passing.in_thread, passing.in_loop
    try:
        if handler.is_plain:
            failure = await call_plain(handler.function, (page,), take, threads, handler.timeout_s, take_here)
        else:
            failure = await call_asynchronous(handler.stream, (page,), take_here, handler.timeout_s)
    finally:
        if passing is not None:
            passing.end()
    if failure is not None:
        where = f" (@app.item {passing.at})" if passing and passing.at and (failure.trace or failure.is_late) else ""
        detail = f"{failure.detail}{where}{f' (handler {handler.name})' if failure.is_late else ''}"
        raise HandlerError(detail, failure.trace)
    taking.handled.followed, taking.handled.retry_s = page.followed, page.retry_s
    taking.handled.dropped_count = passing.dropped if passing else 0
    return taking.handled


class _Taking:
    """Takes in what a page yields."""

    def __init__(self, handler: Handler, limits: Limits) -> None:
        self.handled = Handled(handler=handler.name)
        self.count = 0
        self._bytes = 0
        self._handler = handler
        self._limits = limits
        ends_s = time.monotonic() + handler.timeout_s
        self.bounds = Bounds(limits.items_max, ends_s, handler.name, handler.timeout_s)

    def take(self, item: Any) -> None:
        """Raises RefusedError when it is too much, or too late."""
        self.count += 1
        name = self._handler.name
        self.bounds.check(self.count, name)
        try:
            packed = self._handler.pack(item)
        except InvalidItemError as error:
            self.handled.invalid_count += 1
            if len(self.handled.invalid) < INVALID_KEPT:
                self.handled.invalid.append(_stored(error.report))
            return
        self._bytes += len(packed)
        if self._bytes > self._limits.bytes_max:
            raise RefusedError(f"items of more than {self._limits.bytes_max} bytes of one page ({name})")
        self.handled.items.append(packed)


def _stored(report: InvalidItem) -> InvalidItem:
    """A field's name may come from the page."""
    return InvalidItem(storable(report.field), storable(report.reason))


# What an app begins with.

START_MAX = 1_000_000  # requests: 300 MB
START_S = 3600.0


async def started(app: Crawler, threads: Threads) -> list[Followed]:
    """The first requests, as the app's start yields them. Raises UsageError when it fails."""
    found: list[Followed] = []

    def take(item: Any) -> None:
        if len(found) >= START_MAX:
            raise RefusedError(f"more than {START_MAX:,} requests: 'crawler seed -i FILE' takes any number")
        if isinstance(item, str):
            item = app.request(item)
        if not isinstance(item, Followed):
            raise TypeError(f"expected a URL or app.request(...), got {type(item).__name__}")
        found.append(item)

    for function in app.starts:
        if is_plain(function):
            failure = await call_plain(function, (), take, threads, START_S)
        else:
            failure = await call_asynchronous(stream_of(function), (), take, START_S)
        if failure is not None:
            raise UsageError(f"@app.start: {failure.detail}")
    return found


# A request as users' functions see it before it is sent.


class OutgoingRequest:
    """A request for a page. `headers` may be changed: what is added there is sent, and stands in no archive if it is
    Authorization or Cookie. `refuse` ends it.
    """

    def __init__(self, url: str, request: Request, *, label: str = "", depth: int = 0, run: str = "") -> None:
        self.url = url
        self.method = request.method
        self.body = request.body
        self.meta = request.meta
        self.session = request.session
        self.headers = dict(request.headers)
        self.label = label
        self.depth = depth
        self.run = run  # of a job; "": of none
        self.refusal = ""

    def refuse(self, why: str = "before_request") -> None:
        """Don't send it: its URL counts as refused, for this reason (a word or two)."""
        self.refusal = storable(one_line_of(why))[:REFUSAL_CHARS_MAX] or "before_request"


REFUSAL_CHARS_MAX = 40
BEFORE_REQUEST_S = 30.0


async def prepare(
    functions: Sequence[Callable[..., Any]], request: OutgoingRequest, threads: Threads
) -> CodeFailure | None:
    """Call the functions with a request, one after another, until one refuses it. Returns a failure of one, or of what
    it put into the headers.
    """
    for function in functions:
        if is_plain(function):
            failure = await call_plain(function, (request,), _ignored, threads, BEFORE_REQUEST_S)
        else:
            failure = await call_asynchronous(stream_of(function), (request,), _ignored, BEFORE_REQUEST_S)
        if failure is not None or request.refusal:
            return failure
    try:
        for name, value in request.headers.items():
            check_header(name, value)
    except (TypeError, ValueError) as error:
        return CodeFailure(f"@app.before_request: {error}")
    return None


def _ignored(_: Any) -> None:
    """What they return has no meaning."""
