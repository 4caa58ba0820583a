"""A user's function as the crawler calls it: whatever kind it is of, what it yields comes as an asynchronous stream."""

import inspect
from collections.abc import AsyncIterator, Callable, Iterable
from typing import Any

from crawler.errors import UsageError

Streaming = Callable[[Any], AsyncIterator[Any]]


def streaming(function: Callable[..., Any]) -> Streaming:
    """Items of a function of one argument: an (async) generator's, or the one that an (async) function returns, if any.

    Raises UsageError for what can't be called with one argument.
    """
    if not callable(function):
        raise UsageError(f"a handler is a function, not {function!r}")
    _check_signature(function)
    if inspect.isasyncgenfunction(function):
        return function
    if inspect.iscoroutinefunction(function):
        return _of_coroutine(function)
    if inspect.isgeneratorfunction(function):
        return _of_generator(function)
    return _of_function(function)


def _check_signature(function: Callable[..., Any]) -> None:
    try:
        inspect.signature(function).bind(None)
    except TypeError as error:
        name = getattr(function, "__qualname__", repr(function))
        raise UsageError(f"handler {name}: it must take one argument, the page ({error})") from None


def _of_coroutine(function: Callable[..., Any]) -> Streaming:
    async def stream(page: Any) -> AsyncIterator[Any]:
        item = await function(page)
        if item is not None:
            yield item

    return stream


def _of_generator(function: Callable[..., Iterable[Any]]) -> Streaming:
    async def stream(page: Any) -> AsyncIterator[Any]:
        for item in function(page):
            yield item

    return stream


def _of_function(function: Callable[..., Any]) -> Streaming:
    async def stream(page: Any) -> AsyncIterator[Any]:
        item = function(page)
        if inspect.isawaitable(item):
            item = await item
        if item is not None:
            yield item

    return stream
