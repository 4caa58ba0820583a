"""Bounds the memory for bodies in an instance: reading of large ones is paused while there is no room.

Counted are the received bytes of each body, and a response's bodies (as received and decoded) until the response is
dropped. Bodies up to FREE_BYTES are not counted and never wait, so pages of usual size always pass. A body may have
an eighth of what is free (dynamic thresholds: Choudhury and Hahne, 1998): so many that arrive slowly leave room for
smaller ones. Otherwise only the oldest large body continues: it ends, at the latest by its own limits of size and
time, and becomes a response. While responses hold more than a quarter of the limit, it waits too, until one is
dropped or none was dropped for PATIENCE_S. So the bound is five quarters of the limit, plus one body, plus FREE_BYTES
and one read for each open request.
"""

import asyncio
import contextlib
import weakref
from typing import Protocol

from crawler.model import Response

FREE_BYTES = 64 * 1024
READ_BYTES = 256 * 1024  # maximum of one read from a connection
PARTS = 8  # of what is free, one of which a body may have
PATIENCE_S = 1.0  # a handler that keeps responses for long slows large bodies down, but stops none


class BufferedRead(Protocol):
    """A connection that reads a body."""

    def pause(self) -> None: ...

    def resume(self) -> None: ...


class Share:
    """The memory of one body, and the reader or waiter that needs room to continue."""

    __slots__ = ("held", "reading", "waiter")

    def __init__(self, reading: BufferedRead | None) -> None:
        self.held = 0
        self.reading = reading
        self.waiter: asyncio.Future[None] | None = None


class BytesInFlight:
    """One per fetcher. Not thread-safe, except that a response may be dropped in any thread."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._loop = asyncio.get_running_loop()
        self._shares: dict[Share, None] = {}  # the oldest first
        self._stopped: dict[Share, None] = {}  # paused, or waiting to be decoded
        self._favoured: Share | None = None  # continues in any case
        self._patience: asyncio.TimerHandle | None = None
        self._kept = 0  # of the total: responses that are still referenced
        self.total = 0

    @property
    def is_full(self) -> bool:
        return self.total > self._bytes_max

    def received(self, share: Share | None, reading: BufferedRead, body_bytes: int) -> Share:
        """Note the number of received bytes of a body; pauses it when it has more than its part of what is free."""
        share = self._held(share or Share(reading), body_bytes)
        if not self._has_room(share) and not self._goes_on(share):
            self._stop(share)
            reading.pause()
        return share

    async def room(self, share: Share | None, body_bytes: int) -> Share:
        """Wait until another copy of a body may be made."""
        share = self._held(share or Share(None), body_bytes)
        share.reading = None
        if self.is_full and not self._goes_on(share):
            self._stop(share)
            share.waiter = self._loop.create_future()
            try:
                await share.waiter
            except BaseException:
                self.ended(share)
                raise
        return share

    def ended(self, share: Share | None) -> None:
        """A body was dropped, or is counted as a response's from now on."""
        if share is None or share not in self._shares:
            return
        del self._shares[share]
        self._stopped.pop(share, None)
        self.total -= share.held
        self._go_on()

    def keep(self, response: Response) -> None:
        """Count a response's bodies as long as the response is referenced."""
        kept = len(response.raw_body) + (len(response.body) if response.body is not response.raw_body else 0)
        if kept > FREE_BYTES:
            self.total += kept
            self._kept += kept
            weakref.finalize(response, self._dropped, kept).atexit = False

    def _dropped(self, kept: int) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: nothing waits any more
            self._loop.call_soon_threadsafe(self._release, kept)

    def _release(self, kept: int) -> None:
        self.total -= kept
        self._kept -= kept
        self._go_on()

    def _held(self, share: Share, held: int) -> Share:
        self.total += held - share.held
        share.held = held
        self._shares[share] = None
        return share

    def _has_room(self, share: Share, more: int = 0) -> bool:
        """May it get more, after others got `more` bytes?"""
        part = PARTS * share.held if share.reading is not None else 0  # who only waits to be decoded soon ends
        return self.total + more + part <= self._bytes_max

    def _goes_on(self, share: Share) -> bool:
        if self._kept * 4 > self._bytes_max:
            return share is self._favoured
        return next(iter(self._shares)) is share

    def _stop(self, share: Share) -> None:
        self._stopped[share] = None
        if self._patience is None:
            self._patience = self._loop.call_later(PATIENCE_S, self._favour_oldest)

    def _favour_oldest(self) -> None:
        """Let the oldest body continue: no memory was freed for too long."""
        self._patience = None
        oldest = next(iter(self._shares), None)
        if oldest in self._stopped:
            self._favoured = oldest
            self._let_go(oldest)

    def _go_on(self) -> None:
        """Memory was freed: resume the bodies that have room, for one read of each, the oldest first."""
        if self._patience is not None:
            self._patience.cancel()
            self._patience = None
        if not self._stopped:
            return
        oldest = next(iter(self._shares))
        if oldest in self._stopped and self._goes_on(oldest):
            self._let_go(oldest)
        more = 0
        for share in [share for share in self._shares if share in self._stopped]:
            if self._has_room(share, more):
                more += READ_BYTES
                self._let_go(share)
        if self._stopped:
            self._patience = self._loop.call_later(PATIENCE_S, self._favour_oldest)

    def _let_go(self, share: Share) -> None:
        del self._stopped[share]
        if share.reading is not None:
            share.reading.resume()
        elif share.waiter is not None and not share.waiter.done():
            share.waiter.set_result(None)
