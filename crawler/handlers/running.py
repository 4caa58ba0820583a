"""A handler and one page: its items, what it follows, or the failure that it was. Nothing that it does gets past this.

Bounded in time, items and bytes. A plain function that does not end is left behind in its thread. An asynchronous one
that neither awaits nor yields can't be stopped from within its process: that is what `processes=True` is for.
"""

import asyncio
import inspect
import logging
import time
import traceback
from collections.abc import AsyncIterator, Awaitable
from contextlib import aclosing
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from crawler.handlers.app import Handler
from crawler.handlers.calling import items_of
from crawler.handlers.items import InvalidItem, InvalidItemError
from crawler.handlers.page import Followed, Page
from crawler.handlers.threads import AllHangError, Threads

log = logging.getLogger(__name__)

INVALID_KEPT = 5  # reports of a page; all are counted
BREATH = 64  # items after which an asynchronous generator lets others run, should it not do so itself
GRACE_S = 1.0  # for a cancelled handler to clean up
HANGS_AFTER = 5  # cancellations that a handler has lived through
TRACE_CHARS_MAX = 4000
TRACE_FRAMES_MAX = 12
OURS = str(Path(__file__).parents[1])


class Limits(msgspec.Struct, frozen=True):
    """What one page may give."""

    items_max: int
    bytes_max: int


class Handled(msgspec.Struct):
    """What came of a page. `items` are JSON texts."""

    items: list[bytes] = []
    followed: list[Followed] = []
    invalid: list[InvalidItem] = []  # the first of them
    invalid_count: int = 0


NOTHING_HANDLED = Handled()


class HandlerError(Exception):
    """A handler failed on a page: why, in one line, and the traceback where there is one."""

    def __init__(self, detail: str, trace: str = "") -> None:
        super().__init__(detail)
        self.trace = trace


async def run_handler(handler: Handler, page: Page, limits: Limits, threads: Threads) -> Handled:
    """Call a handler with a page. Raises HandlerError."""
    taking = _Taking(handler, limits)
    try:
        if handler.is_plain:
            rest = await threads.run(partial(_drain, handler, page, taking), handler.timeout_s)
            if rest is not None:
                await _in_time(_listen(_one(rest), taking), handler)
        else:
            await _in_time(_listen(handler.stream(page), taking), handler)
    except TimeoutError:
        raise HandlerError(f"not done after {handler.timeout_s:g} s (handler {handler.name})") from None
    except AllHangError:
        raise HandlerError("too many handlers hang: none is begun until some of them end") from None
    taking.handled.followed = page.followed
    return taking.handled


class _Taking:
    """Takes in what a page yields."""

    def __init__(self, handler: Handler, limits: Limits) -> None:
        self.handled = Handled()
        self.count = 0
        self._bytes = 0
        self._handler = handler
        self._limits = limits
        self._ends_s = time.monotonic() + handler.timeout_s

    def take(self, item: Any) -> None:
        """Raises HandlerError when it is too much, or too late."""
        self.count += 1
        name = self._handler.name
        if self.count > self._limits.items_max:
            raise HandlerError(f"more than {self._limits.items_max} items of one page, handlers.items_max ({name})")
        if time.monotonic() > self._ends_s:
            raise HandlerError(f"not done after {self._handler.timeout_s:g} s (handler {name})")
        try:
            packed = self._handler.pack(item)
        except InvalidItemError as error:
            self.handled.invalid_count += 1
            if len(self.handled.invalid) < INVALID_KEPT:
                self.handled.invalid.append(error.report)
            return
        self._bytes += len(packed)
        if self._bytes > self._limits.bytes_max:
            raise HandlerError(f"items of more than {self._limits.bytes_max} bytes, handlers.bytes_max ({name})")
        self.handled.items.append(packed)


def _drain(handler: Handler, page: Page, taking: _Taking) -> Awaitable[Any] | None:
    """In a thread. Returns what is to be awaited, should a plain function have returned such a thing."""
    try:
        result = handler.function(page)
        if inspect.isawaitable(result):
            return result
        for item in items_of(result):
            taking.take(item)
    except HandlerError:
        raise
    except BaseException as error:
        raise failure_of(error) from None
    return None


async def _one(result: Awaitable[Any]) -> AsyncIterator[Any]:
    item = await result
    if item is not None:
        yield item


async def _listen(stream: AsyncIterator[Any], taking: _Taking) -> None:
    try:
        async with aclosing(stream) as items:  # type: ignore[type-var]
            async for item in items:
                taking.take(item)
                if taking.count % BREATH == 0:
                    await asyncio.sleep(0)
    except HandlerError:
        raise
    except asyncio.CancelledError as error:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise
        raise failure_of(error) from None  # its own
    except BaseException as error:
        raise failure_of(error) from None


async def _in_time(work: Awaitable[None], handler: Handler) -> None:
    """Await it in the caller's own task: most handlers await nothing, and let go of their tree before another page is
    parsed. At the end of its time it is cancelled, again and again: a bare `except:` would live through one.
    """
    task, loop, cancels = asyncio.current_task(), asyncio.get_running_loop(), 0
    assert task is not None
    timer: asyncio.TimerHandle

    def cancel() -> None:
        nonlocal cancels, timer
        cancels += 1
        task.cancel()
        if cancels == HANGS_AFTER:
            log.warning("handler.hangs", extra={"handler": handler.name})
        timer = loop.call_later(GRACE_S, cancel)

    timer = loop.call_later(handler.timeout_s, cancel)
    try:
        await work
    finally:
        timer.cancel()
        others = 0
        for _ in range(cancels):
            others = task.uncancel()
        if cancels and not others:
            raise TimeoutError


def failure_of(error: BaseException) -> HandlerError:
    """One line, like "KeyError: 'price' (shop.py:12 in product)", and the traceback without our own part of it."""
    told = traceback.TracebackException.from_exception(error, limit=-200)
    frames = [frame for frame in told.stack if not frame.filename.startswith(OURS)]
    place = f" ({Path(frames[-1].filename).name}:{frames[-1].lineno} in {frames[-1].name})" if frames else ""
    if frames:
        told.stack = traceback.StackSummary.from_list(frames[-TRACE_FRAMES_MAX:])
    said = " ".join(str(error).split())[:300]
    trace = "".join(told.format()).rstrip()
    return HandlerError(f"{type(error).__name__}{': ' if said else ''}{said}{place}", trace[-TRACE_CHARS_MAX:])
