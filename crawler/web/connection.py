"""One HTTP/1.1 connection: writes a request, waits for the response within its time, and can be reused.

One exchange is one future. Nothing is retried here. HTTP/1.1 has no number that ties a response to its request: the
order alone does (RFC 9112 9.3). So whatever arrived before a request was sent is the answer to another URL or to
none, wherever it lies by then, and ends the connection:

- what the loop has delivered while no exchange was open;
- what waits in the kernel, which is asked just before the request is written;
- what comes before the server has acknowledged a byte of the request: the segment that brings an answer acknowledges
  what is answered (RFC 9293 3.4).

Nobody can know that of a response that was on its way to be sent when the server's kernel took the request. So a
server that was seen to send too much gets a connection for each request from then on (`connection_pool`).
"""

import asyncio
import fcntl
import select
import ssl
import sys
import termios
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext, suppress
from typing import cast

from crawler.model import FailureKind
from crawler.web.in_flight import FREE_BYTES, BytesInFlight, Share
from crawler.web.response import HEADERS_BYTES_MAX, BadHead, Head, ResponseReader
from crawler.web.tls import names_of

IDLE: AbstractContextManager[None] = nullcontext()


class Connection(asyncio.Protocol):
    """States: idle, or in an exchange from `begin` until the future it returned is done.

    After it is done: `failure` is (kind, detail), or `head` and `body()` are the response and `truncated` is how it was
    cut ("", "length", "time" or "disconnect"). `is_reused`: the connection carried an exchange before. `is_stale`: it
    was reused, and lost before the first byte of the response. `is_spoiled`: bytes arrived that answer no request.
    """

    __slots__ = (
        "_bytes",
        "_deadline",
        "_done",
        "_fd",
        "_has_notice",
        "_idle_timeout_s",
        "_is_tls",
        "_loop",
        "_on_lost",
        "_pause_left_s",
        "_pause_max_s",
        "_paused_at",
        "_readable",
        "_reader",
        "_received_at",
        "_request_bytes",
        "_share",
        "_timer",
        "_transport",
        "_working",
        "failure",
        "idle_since",
        "is_reused",
        "is_spoiled",
        "is_stale",
        "remote_ip",
        "tls_names",
        "truncated",
    )

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        bytes_in_flight: BytesInFlight,
        *,
        idle_timeout_s: float,
        pause_max_s: float,
        on_lost: Callable[[], None] = lambda: None,
    ) -> None:
        """`pause_max_s`: how long an exchange may be paused without losing time. `on_lost`: called once closed."""
        self._on_lost = on_lost
        self._loop = loop
        self._bytes = bytes_in_flight
        self._idle_timeout_s = idle_timeout_s
        self._pause_max_s = pause_max_s
        self._paused_at: float | None = None
        self._share: Share | None = None
        self._transport: asyncio.Transport | None = None
        self._done: asyncio.Future[None] | None = None
        self._readable = select.poll()
        self._fd = -1
        self._is_tls = self._has_notice = False
        self._request_bytes = 0
        self._working = IDLE
        self._timer: asyncio.TimerHandle | None = None
        self._reader = ResponseReader(headers_bytes_max=HEADERS_BYTES_MAX)
        self.idle_since = 0.0
        self.is_reused = self.is_stale = self.is_spoiled = False
        self.remote_ip = ""
        self.tls_names = "", ""
        self.truncated = ""
        self.failure: tuple[FailureKind, str] | None = None

    def begin(
        self,
        message: bytes,
        *,
        body_bytes_max: int,
        deadline: float,
        working: AbstractContextManager[None] = IDLE,
        is_head: bool = False,
    ) -> asyncio.Future[None]:
        """Send a request; the future is done when the response is complete, cut or failed.

        `deadline` is loop time. `working` is entered while bytes of the response are processed. `is_head`: its method
        is HEAD.
        """
        assert self._done is None
        self._working = working
        self._reader.begin(body_bytes_max=body_bytes_max, is_of_head=is_head)
        self.truncated = ""
        self.failure = None
        self._deadline = deadline
        self._pause_left_s = self._pause_max_s
        self._done = self._loop.create_future()
        # After a handshake session tickets may wait, and can't be told from a response.
        is_fit = self._is_open() if self._is_tls and not self.is_reused else self.is_usable()
        if not is_fit or self._transport is None:
            if self.is_spoiled:
                self._refuse_unasked()
            else:
                self.is_stale = self.is_reused
                self._fail(FailureKind.DISCONNECTED, "the server had closed the connection")
            return self._done
        self._received_at = self._loop.time()
        self._arm()
        self._request_bytes = len(message)
        self._transport.write(message)
        return self._done

    @property
    def head(self) -> Head | None:
        return self._reader.head

    def body(self) -> bytes:
        """The received body without transfer coding, still content-coded, cut at the limit."""
        return self._reader.body()

    def end(self) -> bool:
        """Finish the exchange; True when the connection may carry another one."""
        self.is_spoiled = self.is_spoiled or self._reader.has_excess
        reusable = self.failure is None and not self.truncated and self._reader.allows_another() and self._is_open()
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
        """Whether an idle connection is still open and nothing arrived on it, not even in the kernel."""
        if not self._is_open():
            return False
        if not self._readable.poll(0):
            return True
        self.is_spoiled = _bytes_in(self._fd, termios.FIONREAD) > 0  # else the server closed it
        return False

    def _is_open(self) -> bool:
        return not self.is_spoiled and self._transport is not None and not self._transport.is_closing()

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
        tls = self.tls()
        self._is_tls, self.tls_names = tls is not None, names_of(tls)
        self._fd = transport.get_extra_info("socket").fileno()
        self._readable.register(self._fd, select.POLLIN)

    def data_received(self, data: bytes) -> None:
        done = self._done
        if done is None or done.done():
            # Unexpected bytes would be taken for the response to the next request.
            self.is_spoiled = True
            if done is None:
                self.abort()
            return
        if not self._reader.has_begun and _bytes_in(self._fd, termios.TIOCOUTQ) >= self._request_bytes:
            self.is_spoiled = True
            self._refuse_unasked()
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
        self._on_lost()
        self._reader.close()
        if self._done is None or self._done.done():
            return
        if self._reader.head is None:
            self.is_stale = self.is_reused and not self._reader.has_begun
            reason = "closed the connection without a response" if exc is None else f"connection lost: {exc}"
            self._fail(FailureKind.DISCONNECTED, reason)
        else:
            # RFC 9112 9.8: over TLS a body that the end of its connection ends is whole only after a close_notify.
            is_announced = exc is None and (self._has_notice or not self._is_tls)
            self._finish("" if is_announced and self._reader.is_whole_at_end() else "disconnect")

    def eof_received(self) -> None:
        """The server sends nothing more. asyncio calls this for a FIN alone, too; TLS knows of a close_notify."""
        if (tls := self.tls()) is not None:
            with suppress(ssl.SSLError):
                self._has_notice = tls.read(1) == b""

    # --- the exchange ---

    def _refuse_unasked(self) -> None:
        self.is_stale = self.is_reused
        self._fail(FailureKind.PROTOCOL, "the server sent something before it had the request")

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


def _bytes_in(fd: int, queue: int) -> int:
    """Bytes in a socket's queue. FIONREAD: received and not read, TIOCOUTQ: written and not acknowledged."""
    try:
        return int.from_bytes(fcntl.ioctl(fd, queue, b"\0\0\0\0"), sys.byteorder)
    except OSError:  # outside Linux, sockets have no TIOCOUTQ
        return 0
