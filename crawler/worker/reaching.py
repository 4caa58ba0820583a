"""What a claim waits for before its request: the address of its host, and maybe a connection.

A name may take seconds to look up, and so may a connection to an address that is dead: neither a worker nor the other
claims of the queue wait for it, and then the claim is back at the head of its queue.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from functools import partial

import msgspec

from crawler.model import OURS, Claim, Failure
from crawler.rules.urls import host_of, origin_of
from crawler.runtime.clocks import monotonic_ms
from crawler.web.fetcher import Fetcher
from crawler.worker.turn import AwaitReach

ATTEMPTS_MAX = 10_000  # look-ups that have begun: claims wait for a part of their time only
RESULTS_MAX = 4_096  # kept for claims that have not had their turn since
LATE_S = 0.5  # how long a claim waits for a name or a connection
LATE_KEPT_MS = 60_000  # how long what came later counts


class Reached(msgspec.Struct, frozen=True):
    """What is known before a request: its address, or why there can be none. `is_connected`: a connection was opened;
    `is_late`: nothing is known yet, and the claim should not wait for it here.
    """

    address: str = ""
    failure: Failure | None = None
    is_connected: bool = False
    is_late: bool = False


LATE = Reached(is_late=True)
Key = tuple[str, str]  # queue, and the host or the origin: others wait for the same
Work = Callable[[], Awaitable[Reached]]
Requeued = Callable[[], None]


class _Attempt(msgspec.Struct):
    """A look-up, or an attempt to connect, and the claims that wait for it."""

    task: asyncio.Future[Reached]
    waiting: list[tuple[Claim, Requeued]] = []
    timer: asyncio.TimerHandle | None = None


class Reaching:
    """Look-ups of names, and attempts to connect to origins that may not answer. Neither holds a worker or a queue.

    A claim waits for it here only for a while (LATE_S): a queue gets no others before its claims have ended.
    """

    def __init__(self, fetcher: Fetcher, *, claims_max: int, connects_max: int) -> None:
        """`claims_max`: how many claims may wait; `connects_max`: attempts to connect at a time."""
        self._fetcher = fetcher
        self._claims_max = claims_max
        self._connects_max = connects_max
        self._connects = 0
        self._attempts: dict[Key, _Attempt] = {}
        self._count = 0
        # What the claims that were requeued have waited for, by token: an answer that may not be cached counts, too.
        self._results: OrderedDict[str, Reached | BaseException] = OrderedDict()
        # What came late, and until when it counts (ms).
        self._late: OrderedDict[Key, tuple[Reached, int]] = OrderedDict()

    def of(self, claim: Claim) -> Reached | AwaitReach:
        """The address for a claim, or how its turn ends: the claim is requeued when its name was looked up. Raises what
        a look-up raised.
        """
        result = self._results.pop(claim.token, None) if self._results else None
        if isinstance(result, BaseException):
            raise result
        if result is not None:
            return result
        name, origin = (claim.queue, host_of(claim.url)), (claim.queue, origin_of(claim.url))
        if self._late and (late := self._came_late(origin) or self._came_late(name)) is not None:
            return late
        known = self._fetcher.known_address_of(claim.url)
        if known is not None:
            return _reached(known)
        return AwaitReach(partial(self._begin, name, claim, self._look_up(claim.url)))

    def _came_late(self, key: Key) -> Reached | None:
        reached, until_ms = self._late.get(key, (None, 0))
        return reached if until_ms > monotonic_ms() else None

    @property
    def is_full(self) -> bool:
        """Do so many claims wait that others can't be claimed, or has so much begun that nothing else may?"""
        return self._count >= self._claims_max or len(self._attempts) >= ATTEMPTS_MAX

    @property
    def may_connect(self) -> bool:
        """May one more connection be tried?"""
        return self._connects < self._connects_max

    def connect(self, claim: Claim, reached: Reached) -> AwaitReach:
        """Connect to the claim's origin, while its queue goes on."""
        key = claim.queue, origin_of(claim.url)
        return AwaitReach(partial(self._begin, key, claim, self._connect(claim.url, reached)))

    def _look_up(self, url: str) -> Work:
        async def work() -> Reached:
            return _reached(await self._fetcher.address_of(url))

        return work

    def _connect(self, url: str, before: Reached) -> Work:
        async def work() -> Reached:
            self._connects += 1
            try:
                failure = await self._fetcher.reach(url)
            finally:
                self._connects -= 1
            return Reached(before.address, failure, is_connected=failure is None)

        return work

    def _begin(self, key: Key, claim: Claim, work: Work, requeue: Requeued) -> None:
        attempt = self._attempts.get(key)
        if attempt is None:
            attempt = self._attempts[key] = _Attempt(asyncio.ensure_future(work()))
            attempt.task.add_done_callback(partial(self._ended, key))
        if attempt.timer is None:
            attempt.timer = asyncio.get_running_loop().call_later(LATE_S, self._is_late, key)
        attempt.waiting.append((claim, requeue))
        self._count += 1

    def _is_late(self, key: Key) -> None:
        self._release(self._attempts[key], LATE)

    def _ended(self, key: Key, task: asyncio.Future[Reached]) -> None:
        attempt = self._attempts.pop(key)
        if task.cancelled():
            self._count -= len(attempt.waiting)
        elif attempt.waiting:
            self._release(attempt, task.exception() or task.result())
        elif task.exception() is None and not _is_ours(task.result()):
            self._late[key] = task.result(), monotonic_ms() + LATE_KEPT_MS
            self._late.move_to_end(key)
            if len(self._late) > RESULTS_MAX:
                self._late.popitem(last=False)

    def _release(self, attempt: _Attempt, result: Reached | BaseException) -> None:
        waited, attempt.waiting = attempt.waiting, []
        if attempt.timer is not None:
            attempt.timer.cancel()
            attempt.timer = None
        self._count -= len(waited)
        for claim, requeue in reversed(waited):  # each goes to the head of its queue
            self._results[claim.token] = result
            if len(self._results) > RESULTS_MAX:
                self._results.popitem(last=False)
            requeue()

    async def close(self) -> list[Claim]:
        """Cancel all; the claims that waited, without those that have just been requeued."""
        running = list(self._attempts.values())
        waited = {attempt.task: attempt.waiting for attempt in running}
        for attempt in running:
            if attempt.timer is not None:
                attempt.timer.cancel()
            attempt.task.cancel()
        await asyncio.gather(*waited, return_exceptions=True)
        # Of tasks that had ended before, gather does not await the callbacks from Python 3.12 on. They are next.
        while self._attempts:  # noqa: ASYNC110
            await asyncio.sleep(0)
        return [claim for task, some in waited.items() if task.cancelled() for claim, _ in some]


def _is_ours(reached: Reached) -> bool:
    return reached.failure is not None and reached.failure.kind in OURS


def _reached(found: str | Failure) -> Reached:
    return Reached(failure=found) if isinstance(found, Failure) else Reached(found)
