"""Background work: loops that never end by themselves, errors of task groups, calls repeated until answered."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

from crawler.errors import CrawlerError, EngineError, InvariantError
from crawler.runtime.clock import ENGINE_PAUSE_S

log = logging.getLogger(__name__)

Answer = TypeVar("Answer")
Loop = Callable[[], Coroutine[Any, Any, None]]  # runs until it is cancelled


class StopSignal:
    """Why and when an instance is to stop: the first reason counts. `drain_timeout_s`: for what is in flight then."""

    def __init__(self, *, drain_timeout_s: float) -> None:
        self.drain_timeout_s = drain_timeout_s
        self.reason = ""
        self.event = asyncio.Event()

    @property
    def is_set(self) -> bool:
        return self.event.is_set()

    def set(self, reason: str) -> None:
        """Stop claiming, finish what is in flight, return the rest, release, leave."""
        self.reason = self.reason or reason
        self.event.set()


async def endless(name: str, loop: Loop) -> None:
    """Run a loop that must not end by itself: else a crawl with pages left would pass for one that is finished."""
    await loop()
    raise InvariantError(f"the loop '{name}' has ended, and nobody asked for that")


def first_error(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """The error of a task group that says most: one of ours, which has an exit code, before any other."""
    errors = list[BaseException]()
    for error in group.exceptions:
        errors.append(first_error(error) if isinstance(error, BaseExceptionGroup) else error)
    return next((error for error in errors if isinstance(error, CrawlerError)), errors[0])


async def retry_until_answered(call: Callable[[], Awaitable[Answer]], *, event: str) -> Answer:
    """Repeat an idempotent call until the engine answers. `event` is for the log."""
    while True:
        try:
            return await call()
        except EngineError as error:
            log.warning(event, extra={"error": str(error)})
            await asyncio.sleep(ENGINE_PAUSE_S)


async def retry_until_stopped(call: Callable[[], Awaitable[None]], stop: StopSignal, *, event: str) -> None:
    """The same, and give up when the instance is to stop."""

    async def unless_stopped() -> None:
        if not stop.is_set:
            await call()

    await retry_until_answered(unless_stopped, event=event)
