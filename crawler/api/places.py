"""Places that clients share: of those who listen, of those who add seeds, of requests that are carried out."""

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from http import HTTPStatus
from weakref import WeakValueDictionary

from crawler.api.problem import ProblemError


class Places:
    """Places for what lasts. One more is given to whoever has fewer than are free, so that nobody has all."""

    def __init__(self, total: int, what: str, again_s: int) -> None:
        """`what` they are, like "streams of events"; `again_s`: after which time to try again."""
        self._total = total
        self._what = what
        self._again_s = again_s
        self._taken: Counter[str] = Counter()

    @contextlib.contextmanager
    def taken(self, owner: str) -> Iterator[None]:
        """Have a place. Raises ProblemError when there is none."""
        own, free = self._taken[owner], self._total - self._taken.total()
        if own >= free:
            raise ProblemError(
                HTTPStatus.SERVICE_UNAVAILABLE,
                f"too many {self._what}: you have {own}, and {free} of {self._total:,} are free; end one, or wait",
                {"Retry-After": str(self._again_s)},
            )
        self._taken[owner] += 1
        try:
            yield
        finally:
            self._taken[owner] -= 1
            if not self._taken[owner]:
                del self._taken[owner]


class Turns:
    """At most so many requests are carried out at once, and half as many of one client; others wait."""

    def __init__(self, total: int) -> None:
        self._all = asyncio.Semaphore(total)
        self._each = max(1, total // 2)
        self._own: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()

    @contextlib.asynccontextmanager
    async def taken(self, owner: str, *, is_slow: bool = False) -> AsyncIterator[None]:
        """Have a turn, among those of the same client first. Slow requests have an order of their own."""
        own = self._own.setdefault(owner, asyncio.Semaphore(self._each))
        async with own, contextlib.nullcontext() if is_slow else self._all:
            yield
