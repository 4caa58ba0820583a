"""One HTTP/1.1 connection: writes a request, waits for the response within its time, and can be reused.

One exchange is one future. Nothing is retried here, and a connection on which an unexpected byte arrived is never used
again.
"""

import asyncio
import ssl
from contextlib import AbstractContextManager, nullcontext
from typing import cast

from crawler.model import FailureKind
from crawler.web.bytes_in_flight import FREE_BYTES, BytesInFlight, Share
from crawler.web.response_head import BadHead, Head
from crawler.web.response_reader import ResponseReader

IDLE: AbstractContextManager[None] = nullcontext()


class Connection(asyncio.Protocol):
    """States: idle, or in an exchange from `begin` until the future it returned is done.

    After it is done: `failure` is (kind, detail), or `head` and `body()` are the response and `truncated` is how it was
    cut ("", "length", "time" or "disconnect"). `is_reused`: the connection carried an exchange before. `is_stale`: it
    was reused, and lost before the first byte of the response.
    """

    __slots__ = (
        "_bytes",
        "_deadline",
        "_done",
        "_idle_timeout_s",
        "_loop",
        "_pause_left_s",
        "_pause_max_s",
        "_paused_at",
        "_reader",
        "_received_at",
        "_share",
        "_spoiled",
        "_timer",
        "_transport",
        "_working",
        "failure",
        "idle_since",
        "is_reused",
        "is_stale",
        "remote_ip",
        "truncated",
    )

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        bytes_in_flight: BytesInFlight,
        *,
        headers_bytes_max: int,
        idle_timeout_s: float,
        pause_max_s: float,
    ) -> None:
        """`pause_max_s`: how long an exchange may be paused without losing time."""
        self._loop = loop
        self._bytes = bytes_in_flight
        self._idle_timeout_s = idle_timeout_s
        self._pause_max_s = pause_max_s
        self._paused_at: float | None = None
        self._share: Share | None = None
        self._transport: asyncio.Transport | None = None
        self._done: asyncio.Future[None] | None = None
        self._spoiled = False
        self._working = IDLE
        self._timer: asyncio.TimerHandle | None = None
        self._reader = ResponseReader(headers_bytes_max=headers_bytes_max)
        self.idle_since = 0.0
        self.is_reused = self.is_stale = False
        self.remote_ip = ""
        self.truncated = ""
        self.failure: tuple[FailureKind, str] | None = None

    def begin(
        self, head: bytes, *, body_bytes_max: int, deadline: float, working: AbstractContextManager[None] = IDLE
    ) -> asyncio.Future[None]:
        """Send a request; the future is done when the response is complete, cut or failed.

        `deadline` is loop time. `working` is entered while bytes of the response are processed.
        """
        assert self._done is None
        self._working = working
        self._reader.begin(body_bytes_max=body_bytes_max)
        self.truncated = ""
        self.failure = None
        self._deadline = deadline
        self._pause_left_s = self._pause_max_s
        self._done = self._loop.create_future()
        if self._transport is None or self._transport.is_closing():
            self.is_stale = self.is_reused
            self._fail(FailureKind.DISCONNECTED, "the server had closed the connection")
            return self._done
        self._received_at = self._loop.time()
        self._arm()
        self._transport.write(head)
        return self._done

    @property
    def head(self) -> Head | None:
        return self._reader.head

    def body(self) -> bytes:
        """The received body without transfer coding, still content-coded, cut at the limit."""
        return self._reader.body()

    def end(self) -> bool:
        """Finish the exchange; True when the connection may carry another one."""
        reusable = self.failure is None and not self.truncated and self._reader.allows_another() and self.is_usable()
        self._reader.clear()
        self._working = IDLE
        self._done = self._paused_at = None
        self.is_reused = True
        if not reusable:
            self.abort()
        return reusable

    def take_share(self) -> Share | None:
        """The exchange's share of the bytes in flight, which the caller has to end."""
        share, self._share = self._share, None
        return share

    def is_usable(self) -> bool:
        """Whether an idle connection is still open and no unexpected byte arrived on it."""
        return not self._spoiled and self._transport is not None and not self._transport.is_closing()

    def tls(self) -> ssl.SSLObject | None:
        """The client's side of TLS; None without it."""
        if self._transport is None:
            return None
        return cast("ssl.SSLObject | None", self._transport.get_extra_info("ssl_object"))

    def abort(self) -> None:
        """Close at once, also during an exchange."""
        self._disarm()
        if self._transport is not None:
            self._transport.abort()

    # --- events of the transport ---

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        peer = transport.get_extra_info("peername")
        self.remote_ip = peer[0] if peer else ""

    def data_received(self, data: bytes) -> None:
        done = self._done
        if done is None or done.done():
            # Unexpected bytes would be taken for the response to the next request.
            self._spoiled = True
            if done is None:
                self.abort()
            return
        self._received_at = self._loop.time()
        try:
            with self._working:
                ended = self._reader.feed(data)
        except BadHead as error:
            self._fail(error.kind, error.detail)
            return
        if ended is not None:
            self._finish(ended)
        elif self._reader.body_bytes > FREE_BYTES:
            self._share = self._bytes.received(self._share, self, self._reader.body_bytes)

    def connection_lost(self, exc: BaseException | None) -> None:
        self._transport = None
        self._reader.close()
        if self._done is None or self._done.done():
            return
        if self._reader.head is None:
            self.is_stale = self.is_reused and not self._reader.has_begun
            reason = "closed the connection without a response" if exc is None else f"connection lost: {exc}"
            self._fail(FailureKind.DISCONNECTED, reason)
        else:
            self._finish("" if exc is None and self._reader.is_whole_at_end() else "disconnect")

    # --- the exchange ---

    def _fail(self, kind: FailureKind, detail: str) -> None:
        if self._done is not None and not self._done.done():
            self.failure = (kind, detail)
            self._finish("")

    def _finish(self, truncated: str) -> None:
        if self._done is None or self._done.done():
            return
        self.truncated = truncated
        self._disarm()
        self._done.set_result(None)

    # --- when there is no room for more ---

    def pause(self) -> None:
        """Stop reading until `resume`."""
        if self._paused_at is None and self._transport is not None and not self._transport.is_closing():
            self._paused_at = self._loop.time()
            self._transport.pause_reading()

    def resume(self) -> None:
        """Continue reading. The pause was ours, so the server has as much time left as before."""
        if self._paused_at is None:
            return
        paused_s = min(self._loop.time() - self._paused_at, self._pause_left_s)
        self._paused_at = None
        self._pause_left_s -= paused_s
        self._deadline += paused_s
        self._received_at = self._loop.time()
        if self._done is not None and not self._done.done():
            self._disarm()
            self._arm()
        if self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()

    # --- time ---

    def _arm(self) -> None:
        when = min(self._deadline, self._received_at + self._idle_timeout_s)
        self._timer = self._loop.call_at(when, self._tick)

    def _disarm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _tick(self) -> None:
        """One timer per exchange, set again when it fires early: cheaper than one for each read."""
        now = self._loop.time()
        if self._paused_at is not None and now < self._deadline + self._pause_left_s:
            self._timer = self._loop.call_at(self._deadline + self._pause_left_s, self._tick)
        elif now < self._deadline and now < self._received_at + self._idle_timeout_s:
            self._arm()
        elif self._reader.head is None:
            self._fail(FailureKind.TIMEOUT, "no response in time")
        else:
            self._finish("time")
