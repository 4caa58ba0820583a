"""Turns of the event loop for what computes: a few in each pass, then sockets, timers and everybody else have theirs.

Fifty answers that arrive together would otherwise be parsed at a stretch, and what is due meanwhile would start late by
the sum. Counts turns instead of milliseconds: a simulation must come out the same each time.
"""

import asyncio
from collections import deque

PAGES_BEFORE_YIELD = 4  # pages: 2 to 5 ms


class ComputeLimiter:
    """Who wants to compute waits for a turn, first come first served."""

    def __init__(self, pages_before_yield: int = PAGES_BEFORE_YIELD) -> None:
        self._pages_before_yield = pages_before_yield
        self._taken = 0  # in this pass of the loop
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._is_watching = False

    async def wait_turn(self) -> None:
        """At once while this pass has any left."""
        if not self._is_watching:
            self._watch()
        if self._taken < self._pages_before_yield and not self._waiting:
            self._taken += 1
            return
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(waiter)
        await waiter

    def _watch(self) -> None:
        self._is_watching = True
        asyncio.get_running_loop().call_soon(self._next_pass)

    def _next_pass(self) -> None:
        """The loop has been round: as many go on as have a turn, the next ones with the pass after that."""
        self._taken, self._is_watching = 0, False
        while self._waiting and self._taken < self._pages_before_yield:
            waiter = self._waiting.popleft()
            if not waiter.done():  # cancelled
                waiter.set_result(None)
                self._taken += 1
        if self._waiting or self._taken:
            self._watch()
