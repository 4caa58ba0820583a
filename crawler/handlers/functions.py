"""A user's function as the crawler calls it: what kind it is of, and what it yields as a stream.

Asynchronous functions run in the event loop, where they must not block. Plain ones run in a thread, where they may.
"""

import inspect
from collections.abc import AsyncIterator, Callable, Generator
from typing import Any

from crawler.errors import UsageError
from crawler.handlers.tasks import NAME_CHARS_MAX, text_of
from crawler.rules.text import one_line

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
