"""Turns on the clocks of queues that this session does not own, or has no claim of: for robots.txt that redirect."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable

from crawler.errors import EngineError
from crawler.frontier.frontier import Frontier
from crawler.robots.borrowed_slot import Guests, TurnRequest
from crawler.runtime.clock import monotonic_ms

POLL_MS_MAX = 1_000  # an owner leaves a queue for 2.5 s to the guest who has asked for it


class GuestTurn:
    """One request on a queue that others own: asked for until it is granted, ended when it was made.

    What an answer says of the owner's clock was true before it came, and goes on as long as the owner is the same.
    """

    def __init__(self, guests: Guests, partition: int, queue: str, guest: str) -> None:
        self._guests = guests
        self._place = partition, queue
        self._guest = guest
        self._began_ms = monotonic_ms()
        self._epoch = -1
        self._clock_ms = 0  # lower bound of the owner's time when this began
        self._mark = ""
        self._since_ms = 0  # when that mark was first seen

    async def ask(self) -> int:
        """How long to wait before asking again, ms; 0: the request may be made now. Raises EngineError."""
        waited_ms = monotonic_ms() - self._began_ms
        asked = TurnRequest(
            guest=self._guest, now_ms=self._clock_ms + waited_ms, epoch=self._epoch, mark=self._mark,
            seen_ms=waited_ms - self._since_ms,
        )  # fmt: skip
        reply = await self._guests.reserve(*self._place, asked)
        answered_ms = monotonic_ms() - self._began_ms
        if reply.mark != self._mark:
            self._mark, self._since_ms = reply.mark, answered_ms
        known_ms = reply.clock_ms - answered_ms
        self._clock_ms = max(self._clock_ms, known_ms) if reply.epoch == self._epoch else known_ms
        self._epoch = reply.epoch
        return min(reply.wait_ms, POLL_MS_MAX)

    async def end(self) -> None:
        """The request was made, or never will be."""
        with contextlib.suppress(EngineError):  # the mark ends by itself
            await self._guests.visited(*self._place, self._guest)


class Reserver:
    """Asks the engine for requests on the queues of URLs, whoever owns them."""

    def __init__(self, frontier: Frontier, place: Callable[[str], tuple[str, str, int]]) -> None:
        """`place`: (domain, queue, partition) of a URL."""
        self._session = frontier.session
        self._guests = Guests(frontier.engine, frontier.keys, default_delay_ms=frontier.default_delay_ms)
        self._place = place
        self._serial = 0

    def place(self, url: str) -> tuple[str, int]:
        """(queue, partition) of a URL."""
        _, queue, partition = self._place(url)
        return queue, partition

    def turn(self, url: str) -> GuestTurn:
        """A turn on the queue of `url`, to be asked for."""
        self._serial += 1
        queue, partition = self.place(url)
        return GuestTurn(self._guests, partition, queue, f"{self._session}-{self._serial}")

    @contextlib.asynccontextmanager
    async def waited_turn(self, url: str, *, patience_ms: int) -> AsyncIterator[bool]:
        """A turn for as long as the request in it lasts; False when none is to be had in time."""
        turn, began_ms = self.turn(url), monotonic_ms()
        wait_ms = await turn.ask()
        while wait_ms and monotonic_ms() - began_ms < patience_ms:
            await asyncio.sleep(wait_ms / 1000)
            wait_ms = await turn.ask()
        if wait_ms:
            yield False
            return
        try:
            yield True
        finally:
            await turn.end()
