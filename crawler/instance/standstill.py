"""Stands still while a backup is made: claims nothing, ends what is open, and leaves nothing that the engine lacks.

What an instance does by the clock (samples, triggers of jobs, raised budgets, files of URLs) asks `Standstill.is_over`
first. Ownership moves nothing meanwhile. That nothing has changed is proven by the backup itself, which compares.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Sequence

from crawler.model import Claim
from crawler.runtime.ticks import tick
from crawler.worker.work import Work

LOOK_S = 0.1  # while it waits for what is open
NOTICE_S = 0.5  # how often it looks for a mark on the member list


class Standstill:
    """Follows the marks on the member list, and notes in `counters.still_for` those for which this instance stands."""

    def __init__(
        self,
        work: Work,
        *,
        pausing: Callable[[], Sequence[str]],
        owed: Sequence[Callable[[], Collection[object] | bool | int]],
        return_claims: Callable[[list[Claim]], Awaitable[None]],
        write: Callable[[], Awaitable[None]],
    ) -> None:
        """`pausing`: sessions of commands that pause the crawl. `owed`: each is false when nothing is open there.
        `write`: put what is in memory into the engine and the index.
        """
        self._work = work
        self._pausing = pausing
        self._owed = owed
        self._return_claims = return_claims
        self._write = write
        self._is_over = asyncio.Event()
        self._is_over.set()

    async def over(self) -> None:
        """Wait until nothing pauses the crawl."""
        await self._is_over.wait()

    async def run(self) -> None:
        """Follow until cancelled."""
        while True:
            await self.look()
            await tick(LOOK_S if self._work.counters.is_standing_still else NOTICE_S)

    async def look(self) -> None:
        """Stop for new marks, go on when there is none, and note when nothing is open any more."""
        counters, marks = self._work.counters, tuple(self._pausing())
        was_paused, counters.is_standing_still = counters.is_standing_still, bool(marks)
        if not marks:
            counters.still_for = ()
            self._is_over.set()
            if was_paused:
                self._work.due.wake.set()
            return
        self._is_over.clear()
        await self._return_claims(self._work.scheduler.remove_all())
        if not self._work.open_claims.total:
            await self._write()
        is_open = bool(self._work.open_claims.total) or any(bool(one()) for one in self._owed)
        counters.still_for = () if is_open else marks
