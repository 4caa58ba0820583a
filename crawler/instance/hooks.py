"""What users listen to beside pages: each hook is called with what happened, after it has. Notices, no guarantees.

A hook that fails, or takes too long, is logged in short and changes nothing. Those that nobody waits for are called
one after another, by a task of its own.
"""

import asyncio
import logging
from collections import deque
from functools import partial
from typing import Any

from crawler.handlers.app import Crawler, Event
from crawler.handlers.calling import is_plain, name_of
from crawler.handlers.running import HandlerError, failure_of
from crawler.handlers.threads import AllHangError, Threads
from crawler.instance.outcome import Committable, Failed, Outcome, Refused
from crawler.model import Failure

log = logging.getLogger(__name__)

TIMEOUT_S = 30.0
WAITING_MAX = 10_000  # notices that hooks have not kept up with: the oldest go
LAST_S = 10.0  # for what still waits when the instance ends


class Hooks:
    """The listeners of an app; without one, nobody listens."""

    def __init__(self, app: Crawler | None, threads: Threads) -> None:
        self._listeners = app.listeners if app is not None else {}
        self._threads = threads
        self._waiting: deque[tuple[Event, tuple[Any, ...]]] = deque(maxlen=WAITING_MAX)
        self._arrived = asyncio.Event()
        self.ended: dict[str, dict[str, int]] = {}  # domain -> queue -> partition, where claims have ended

    def is_heard(self, event: Event) -> bool:
        return bool(self._listeners.get(event))

    async def call(self, event: Event, *arguments: Any) -> None:
        """Call those that listen, and wait for them."""
        for function in self._listeners.get(event, ()):
            try:
                await self._called(function, arguments)
            except (TimeoutError, AllHangError):
                log.warning("hook.hangs", extra={"hook": name_of(function), "event": event})
            except HandlerError as error:
                log.warning("hook.failed", extra={"hook": name_of(function), "event": event, "error": str(error)})

    async def _called(self, function: Any, arguments: tuple[Any, ...]) -> None:
        if is_plain(function):
            await self._threads.run(partial(_guarded, function, arguments), TIMEOUT_S)
            return
        try:
            async with asyncio.timeout(TIMEOUT_S) as limit:
                await function(*arguments)
        except TimeoutError as error:
            if limit.expired():
                raise
            raise failure_of(error) from None
        except Exception as error:  # noqa: BLE001 - a user's code raises anything
            raise failure_of(error) from None

    def tell(self, event: Event, *arguments: Any) -> None:
        """Have those called that listen, some time."""
        if self.is_heard(event):
            self._waiting.append((event, arguments))
            self._arrived.set()

    def took(self, outcome: Outcome) -> None:
        """The engine took this outcome."""
        if self.is_heard("domain_done"):
            self.ended.setdefault(outcome.claim.domain, {})[outcome.claim.queue] = outcome.claim.partition
        if isinstance(outcome, Committable):
            return
        if isinstance(outcome, Failed):
            self.tell("error", outcome.claim.url, Failure(kind=outcome.kind, detail=outcome.detail))
        elif isinstance(outcome, Refused):
            self.tell("skip", outcome.claim.url, str(outcome.reason))
        else:
            self.tell("skip", outcome.claim.url, f"parked: {outcome.reason}")

    async def run(self) -> None:
        """Call them, one after another, until cancelled."""
        while True:
            await self._arrived.wait()
            self._arrived.clear()
            await self._call_all()

    async def _call_all(self) -> None:
        while self._waiting:
            event, arguments = self._waiting.popleft()
            await self.call(event, *arguments)

    async def finish(self, why: str) -> None:
        """What still waits, and the end of this instance."""
        try:
            async with asyncio.timeout(LAST_S):
                await self._call_all()
        except TimeoutError:
            log.warning("hook.left_out", extra={"notices": len(self._waiting)})
        await self.call("finish", why)


def _guarded(function: Any, arguments: tuple[Any, ...]) -> None:
    try:
        function(*arguments)
    except BaseException as error:  # noqa: BLE001 - a user's code raises anything
        raise failure_of(error) from None
