"""Hooks: the user's listeners for events other than pages, called after the event, without a guarantee.

A hook that fails or takes too long is logged in short and changes nothing. Hooks that no stage waits for are called one
after another, in a task of their own.
"""

import asyncio
import logging
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from crawler.errors import EngineError
from crawler.frontier.stats import Stats
from crawler.handlers.crawler import Crawler, Event
from crawler.handlers.functions import Stream, is_plain, name_of, stream_of
from crawler.handlers.run import call_asynchronous, call_plain
from crawler.handlers.tasks import CodeFailure
from crawler.handlers.threads import Threads
from crawler.model import Failure
from crawler.runtime.clocks import ENGINE_PAUSE_S
from crawler.runtime.ticks import tick
from crawler.worker.outcomes import Committable, Failed, Outcome, Refused

log = logging.getLogger(__name__)
TIMEOUT_S = 30.0
WAITING_MAX = 10_000  # events that wait for slow hooks; the oldest are dropped
ENDED_MAX = 100_000  # queues in which claims have ended; beyond it, the domain that was met first is not reported
LAST_S = 10.0  # for events that still wait when the instance ends


class Hooks:
    """The listeners of an app; none without an app."""

    def __init__(self, app: Crawler | None, threads: Threads) -> None:
        listeners = app.listeners if app is not None else {}
        self._hooks = {event: [_Hook.of(function) for function in functions] for event, functions in listeners.items()}
        self._threads = threads
        self._waiting: deque[tuple[Event, tuple[Any, ...]]] = deque(maxlen=WAITING_MAX)
        self._arrived = asyncio.Event()
        self._calls: asyncio.Task[None] | None = None
        self.failures: Counter[tuple[Event, str]] = Counter()
        self.ended = EndedQueues()

    def has_listeners(self, event: Event) -> bool:
        return bool(self._hooks.get(event))

    async def call(self, event: Event, *arguments: Any) -> None:
        """Call the listeners and wait for them."""
        for hook in self._hooks.get(event, ()):
            failure = await self._called(hook, arguments)
            if failure is not None:
                self._failed(event, hook, failure)

    async def _called(self, hook: "_Hook", arguments: tuple[Any, ...]) -> CodeFailure | None:
        if hook.is_plain:
            return await call_plain(hook.function, arguments, _dropped, self._threads, TIMEOUT_S)
        return await call_asynchronous(hook.stream, arguments, _dropped, TIMEOUT_S)

    def _failed(self, event: Event, hook: "_Hook", failure: CodeFailure) -> None:
        self.failures[event, hook.name] += 1
        extra = {
            "hook": hook.name,
            "event": event,
            "error": failure.detail,
            "failures": self.failures[event, hook.name],
        }
        log.warning("hook.hangs" if failure.is_late else "hook.failed", extra=extra)

    def has_plain_listeners(self, event: Event) -> bool:
        """Do any of the listeners run in a thread?"""
        return any(hook.is_plain for hook in self._hooks.get(event, ()))

    def notify(self, event: Event, *arguments: Any) -> None:
        """Queue a call of the listeners."""
        if self.has_listeners(event):
            self._waiting.append((event, arguments))
            self._arrived.set()

    def accepted(self, outcome: Outcome) -> None:
        """The engine accepted this outcome."""
        if self.has_listeners("domain_done"):
            self.ended.add(outcome.claim.domain, {outcome.claim.queue: outcome.claim.partition})
        if isinstance(outcome, Committable):
            return
        if isinstance(outcome, Failed):
            self.notify("error", outcome.claim.url, Failure(kind=outcome.kind, detail=outcome.detail))
        elif isinstance(outcome, Refused):
            self.notify("skip", outcome.claim.url, str(outcome.reason))
        else:
            self.notify("skip", outcome.claim.url, f"deferred: {outcome.reason}")

    async def run(self) -> None:
        """Call queued listeners, one after another, until cancelled."""
        while True:
            await self._arrived.wait()
            self._arrived.clear()
            self._calls = asyncio.create_task(self._call_all())
            await asyncio.shield(self._calls)  # when the instance ends, `finish` waits for the call that is under way

    async def _call_all(self) -> None:
        while self._waiting:
            event, arguments = self._waiting.popleft()
            await self.call(event, *arguments)

    async def finish(self, why: str) -> None:
        """Deliver the events that still wait, then the end of this instance."""
        try:
            async with asyncio.timeout(LAST_S):
                if self._calls is not None:
                    await self._calls
                await self._call_all()
        except TimeoutError:
            log.warning("hook.left_out", extra={"events": len(self._waiting)})
        await self.call("finish", why)


class _Hook(msgspec.Struct, frozen=True):
    """A listener and how it is called."""

    name: str
    function: Callable[..., Any]
    is_plain: bool
    stream: Stream

    @classmethod
    def of(cls, function: Callable[..., Any]) -> "_Hook":
        return cls(name_of(function), function, is_plain(function), stream_of(function))


def _dropped(_: Any) -> None:
    """Ignore what a hook returns or yields."""


EVERY_S = 1.0
ASKED_MAX = 100  # domains at a time


class EndedQueues:
    """Domains in which claims have ended, the longest known first, with their queues and partitions."""

    def __init__(self) -> None:
        self._domains: OrderedDict[str, dict[str, int]] = OrderedDict()
        self.count = 0  # of queues

    def add(self, domain: str, partitions: Mapping[str, int]) -> None:
        """Add queues of a domain with their partitions."""
        known = self._domains.setdefault(domain, {})
        self.count -= len(known)
        known.update(partitions)
        self.count += len(known)
        while self.count > ENDED_MAX:
            self.take(1)

    def take(self, most: int) -> dict[str, dict[str, int]]:
        """Remove and return this number of domains."""
        taken = dict(self._domains.popitem(last=False) for _ in range(min(most, len(self._domains))))
        self.count -= sum(map(len, taken.values()))
        return taken


class DomainsDone:
    """Reports domains with nothing left, of those in which claims have ended here.

    A domain may be reported again, because links to it may be found later.
    """

    def __init__(self, stats: Stats, hooks: Hooks) -> None:
        self._stats = stats
        self._hooks = hooks

    async def run(self) -> None:
        """Check some domains, the longest known first, until cancelled."""
        while True:
            await tick(EVERY_S)
            try:
                await self._check(self._hooks.ended.take(ASKED_MAX))
            except EngineError:
                await asyncio.sleep(ENGINE_PAUSE_S)

    async def check_all(self) -> None:
        """Check all domains at the end; none if the engine does not answer."""
        try:
            while places := self._hooks.ended.take(ASKED_MAX):
                await self._check(places, is_last=True)
        except EngineError:
            return

    async def _check(self, places: Mapping[str, Mapping[str, int]], *, is_last: bool = False) -> None:
        """Report those with nothing left; the others are checked again, after all other domains."""
        asked = [(queue, partition) for queues in places.values() for queue, partition in queues.items()]
        try:
            found = await self._stats.domains(asked)
        except (EngineError, asyncio.CancelledError):  # when the crawl ends: the last check looks at them
            for domain, queues in places.items():
                self._hooks.ended.add(domain, queues)
            raise
        pending = {one.domain for one in found if one.pending}
        for domain, queues in places.items():
            if pending.isdisjoint(queues):
                self._hooks.notify("domain_done", domain)
            elif not is_last:
                self._hooks.ended.add(domain, queues)
