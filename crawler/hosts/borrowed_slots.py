"""Request slots borrowed on queues of other owners: for a robots.txt that redirects to another domain, for commands.

A borrower leaves a mark that the owner sees. Only the owner writes the partition's clock.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable

from crawler.errors import EngineError
from crawler.frontier.leases import SlotQueue, SlotRequest
from crawler.frontier.owner import Frontier
from crawler.runtime.clocks import monotonic_ms

COMMAND_PATIENCE_MS = 30_000  # of commands, for a slot on the clock of a host
POLL_MS_MAX = 1_000  # an owner reserves a queue for 2.5 s for the waiter


class BorrowedSlot:
    """One request on a queue that others own: polled until granted, ended when the request is over.

    Each reply carries the owner's clock, a lower bound from then on for as long as the owner is the same.
    """

    def __init__(self, slot_queue: SlotQueue, partition: int, queue: str, waiter: str) -> None:
        self._slot_queue = slot_queue
        self._place = partition, queue
        self._waiter = waiter
        self._began_ms = monotonic_ms()
        self._epoch = -1
        self._clock_ms = 0  # lower bound of the owner's time when this slot was created
        self._mark = ""
        self._since_ms = 0  # when that mark was first seen

    async def ask(self) -> int:
        """How long to wait before asking again, ms; 0: the request may be made now. Raises EngineError."""
        elapsed_ms = monotonic_ms() - self._began_ms
        asked = SlotRequest(
            waiter=self._waiter, now_ms=self._clock_ms + elapsed_ms, epoch=self._epoch, mark=self._mark,
            seen_ms=elapsed_ms - self._since_ms,
        )  # fmt: skip
        reply = await self._slot_queue.borrow(*self._place, asked)
        answered_ms = monotonic_ms() - self._began_ms
        if reply.mark != self._mark:
            self._mark, self._since_ms = reply.mark, answered_ms
        known_ms = reply.clock_ms - answered_ms
        self._clock_ms = max(self._clock_ms, known_ms) if reply.epoch == self._epoch else known_ms
        self._epoch = reply.epoch
        return min(reply.wait_ms, POLL_MS_MAX)

    async def end(self) -> None:
        """The request is over, or will never be sent."""
        with contextlib.suppress(EngineError):  # the mark expires by itself
            await self._slot_queue.release(*self._place, self._waiter)


class SlotBorrower:
    """Borrows slots on the queues of URLs, whichever session owns them."""

    def __init__(self, frontier: Frontier, place: Callable[[str], tuple[str, str, int]]) -> None:
        """`place`: (domain, queue, partition) of a URL."""
        self._session = frontier.session
        self._slot_queue = SlotQueue(frontier.engine, frontier.keys, default_delay_ms=frontier.default_delay_ms)
        self._place = place
        self._serial = 0

    def place(self, url: str) -> tuple[str, int]:
        """(queue, partition) of a URL."""
        _, queue, partition = self._place(url)
        return queue, partition

    def slot(self, url: str) -> BorrowedSlot:
        """A slot on the queue of `url`, not requested yet."""
        self._serial += 1
        queue, partition = self.place(url)
        return BorrowedSlot(self._slot_queue, partition, queue, f"{self._session}-{self._serial}")

    @contextlib.asynccontextmanager
    async def borrow(self, url: str, *, patience_ms: int) -> AsyncIterator[bool]:
        """Hold a slot while in this context; yields False when none was granted in time."""
        slot, began_ms = self.slot(url), monotonic_ms()
        wait_ms = await slot.ask()
        while wait_ms and monotonic_ms() - began_ms < patience_ms:
            await asyncio.sleep(wait_ms / 1000)
            wait_ms = await slot.ask()
        if wait_ms:
            yield False
            return
        try:
            yield True
        finally:
            await slot.end()
