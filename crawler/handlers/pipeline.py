"""The way of an item from its handler to the results: through the functions of `@app.item`, one after another.

An item goes the whole way as soon as it is yielded. Where its handler runs, functions of the same kind run: plain ones
in its thread, asynchronous ones in its task of the event loop. One of the other kind is called over there, while the
handler waits. All of it counts against the handler's time.
"""

import asyncio
import inspect
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Sequence
from concurrent.futures import Future
from contextlib import aclosing, closing
from functools import partial
from itertools import islice
from typing import Any

import msgspec

from crawler.handlers.crawler import ItemFunction
from crawler.handlers.functions import items_of
from crawler.handlers.page import Page
from crawler.handlers.threads import AllHangError, Threads

BREATH = 64  # items after which an asynchronous function lets others run, should it not do so itself
LATE_S = 1.0  # a call in the other place is given up so much later than the handler: that one tells why


ALL_HANG = "too many functions hang: no more are started until some of them end"


class RefusedError(Exception):
    """Raised by who takes items: no more of them. Says why in one line that is ours."""


class Bounds(msgspec.Struct, frozen=True):
    """Of what one page may give, for the items on their way. `ends_s`: of the clock `time.monotonic`."""

    items_max: int
    ends_s: float
    handler: str
    timeout_s: float

    def check(self, count: int, name: str) -> None:
        """Raises RefusedError when it is too much, or too late. `name`: of the function that yielded so many."""
        if count > self.items_max:
            raise RefusedError(f"more than {self.items_max} items of one page, handlers.items_max ({name})")
        if time.monotonic() > self.ends_s:
            raise RefusedError(self.late)

    @property
    def late(self) -> str:
        return f"not done after {self.timeout_s:g} s (handler {self.handler})"


class Pipeline:
    """The functions of an app, for the items of one page. `take` gets what comes out of the last one."""

    def __init__(
        self, functions: Sequence[ItemFunction], page: Page, take: Callable[[Any], None], bounds: Bounds,
        threads: Threads,
    ) -> None:  # fmt: skip
        self._functions = functions
        self._page = page
        self._take = take
        self._bounds = bounds
        self._threads = threads
        self._loop = asyncio.get_running_loop()
        self._counts = [0] * len(functions)  # of items that each was called with
        self._in_loop: Future[list[Any] | BaseException] | None = None  # what a thread waits for
        self._is_over = False
        self.at = ""  # the function that is called
        self.dropped = 0

    def end(self) -> None:
        """The handler has ended, or its time has: a thread that was left behind begins nothing more here."""
        self._is_over = True
        if self._in_loop is not None:
            self._in_loop.cancel()

    def in_thread(self, item: Any, number: int = 0) -> None:
        """Send an item through the functions from this number on, in the thread of the handler."""
        if number == len(self._functions):
            self._take(item)
            return
        function, count = self._begin(number), 0
        with closing(self._called(function, item)) as outputs:
            for one in outputs:
                count += 1
                self.in_thread(one, number + 1)
                self.at = function.name
        self.dropped += not count
        self.at = ""

    async def in_loop(self, item: Any, number: int = 0) -> None:
        """The same in the event loop."""
        if number == len(self._functions):
            self._take(item)
            return
        function, count = self._begin(number), 0
        async with aclosing(self._stream(function, item)) as outputs:  # type: ignore[type-var]
            async for one in outputs:
                count += 1
                if count % BREATH == 0:
                    await asyncio.sleep(0)
                await self.in_loop(one, number + 1)
                self.at = function.name
        self.dropped += not count
        self.at = ""

    def _begin(self, number: int) -> ItemFunction:
        """Raises RefusedError when it would be called with too many items."""
        self._counts[number] += 1
        self._bounds.check(self._counts[number], self.at or self._bounds.handler)
        function = self._functions[number]
        self.at = function.name
        return function

    def _arguments(self, function: ItemFunction, item: Any) -> tuple[Any, ...]:
        return (item, self._page) if function.takes_page else (item,)

    def _called(self, function: ItemFunction, item: Any) -> Generator[Any, None, None]:
        """What a function makes of an item, in this thread."""
        arguments = self._arguments(function, item)
        if not function.is_plain:
            yield from self._from_loop(function.stream(*arguments))
            return
        result = function.function(*arguments)
        yield from self._from_loop(one_of(result)) if inspect.isawaitable(result) else items_of(result)

    def _from_loop(self, stream: AsyncIterator[Any]) -> list[Any]:
        """All that it yields in the event loop, while this thread waits. Raises RefusedError when it is not in time."""
        work = _all_of(stream, self._bounds.items_max)
        self._in_loop = future = asyncio.run_coroutine_threadsafe(work, self._loop)
        if self._is_over:  # asked after it can be cancelled: `end` does both the other way round
            future.cancel()
        try:
            found = future.result(self._left_s())
        except TimeoutError:
            raise RefusedError(self._bounds.late) from None
        finally:
            future.cancel()
        if isinstance(found, list):
            return found
        raise found

    def _stream(self, function: ItemFunction, item: Any) -> AsyncIterator[Any]:
        """The same in the event loop."""
        arguments = self._arguments(function, item)
        return self._from_thread(function.function, arguments) if function.is_plain else function.stream(*arguments)

    async def _from_thread(self, function: Callable[..., Any], arguments: tuple[Any, ...]) -> AsyncIterator[Any]:
        call = partial(_result_of, function, arguments, self._bounds.items_max)
        try:
            found = await self._threads.run(call, self._left_s())
        except AllHangError:
            raise RefusedError(ALL_HANG) from None
        if not isinstance(found, list):
            found = [one async for one in one_of(found)]
        for one in found:
            yield one

    def _left_s(self) -> float:
        return max(0.0, self._bounds.ends_s - time.monotonic()) + LATE_S


def _result_of(function: Callable[..., Any], arguments: tuple[Any, ...], items_max: int) -> Any:
    """A list of what it yields, one more than allowed at most; or what is to be awaited."""
    result = function(*arguments)
    if inspect.isawaitable(result):
        return result
    with closing(items_of(result)) as items:
        return list(islice(items, items_max + 1))


async def _all_of(stream: AsyncIterator[Any], items_max: int) -> list[Any] | BaseException:
    """A list of what it yields, one more than allowed at most; or what it raises, which would end the loop or not."""
    found = list[Any]()
    try:
        async with aclosing(stream) as items:  # type: ignore[type-var]
            async for one in items:
                found.append(one)
                if len(found) > items_max:
                    break
                if len(found) % BREATH == 0:
                    await asyncio.sleep(0)
    except BaseException as error:
        return error
    return found


async def one_of(result: Awaitable[Any]) -> AsyncIterator[Any]:
    """The item that is awaited, if it is one."""
    item = await result
    if item is not None:
        yield item
