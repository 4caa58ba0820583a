"""Background work: endless loops, errors of task groups, calls repeated until they are answered."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

from crawler.errors import CrawlerError, EngineError, InvariantError
from crawler.runtime.clocks import ENGINE_PAUSE_S

log = logging.getLogger(__name__)


Answer = TypeVar("Answer")


Loop = Callable[[], Coroutine[Any, Any, None]]  # runs until it is cancelled


Gate = Callable[[], Awaitable[None]]  # awaited before a step that may have to wait


async def open_gate() -> None:
    """Nothing has to wait."""


OUTAGE = "outage"  # a reason to stop: our own network, or a proxy, failed for `hosts.give_up_s`


class StopSignal:
    """Tells an instance to stop; the first reason counts. `drain_timeout_s`: limit for what is in flight then."""

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
    """Run a loop that must not end by itself: otherwise a crawl with pages left could look finished."""
    await loop()
    raise InvariantError(f"the loop '{name}' ended unexpectedly")


def first_error(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """The most telling error of a task group: one of ours, which has an exit code, before any other."""
    errors = list[BaseException]()
    for error in group.exceptions:
        errors.append(first_error(error) if isinstance(error, BaseExceptionGroup) else error)
    return next((error for error in errors if isinstance(error, CrawlerError)), errors[0])


async def retry_until_answered(call: Callable[[], Awaitable[Answer]], *, event: str) -> Answer:
    """Repeat an idempotent call until the engine answers; `event` is logged for each failure."""
    while True:
        try:
            return await call()
        except EngineError as error:
            log.warning(event, extra={"error": str(error)})
            await asyncio.sleep(ENGINE_PAUSE_S)


async def retry_until_stopped(call: Callable[[], Awaitable[None]], stop: StopSignal, *, event: str) -> None:
    """As `retry_until_answered`, but give up once `stop` is set."""

    async def unless_stopped() -> None:
        if not stop.is_set:
            await call()

    await retry_until_answered(unless_stopped, event=event)
