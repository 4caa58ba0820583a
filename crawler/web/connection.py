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
import contextlib
import fcntl
import select
import ssl
import sys
import termios
import time
import weakref
from collections import OrderedDict
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext, suppress
from typing import Protocol, cast
from weakref import WeakSet

from crawler.model import FailureKind, Response
from crawler.web.response import HEADERS_BYTES_MAX, BadHead, Head, ResponseReader

# The client's side of TLS: certificates are checked, and a session is resumed where the server allows it.
#
# A resumed handshake sends and checks no certificate. It costs 0.24 instead of 0.35 ms of CPU where an authority signed
# the server's certificate, and saves more where others are between. What it resumes was checked for the same host.

REFUSED_S = 60.0  # an older session may have expired: servers keep them for minutes or hours
SESSIONS_MAX = 1_000  # hosts; a session has the server's certificates, some 10 KB


class ResumingContext(ssl.SSLContext):
    """One for all connections of an instance. Keeps a session of each host that it met last.

    Event loops give no session to a handshake, but all of them get its object from `wrap_bio`.
    """

    _sessions: OrderedDict[str, ssl.SSLSession | None]  # None: not with this host
    _offering: WeakSet[ssl.SSLObject]  # connections that asked to resume one

    @classmethod
    def create(cls, *, insecure: bool) -> "ResumingContext":
        """`insecure`: certificates are not judged. Reads the system's authorities, which takes 20 ms."""
        context = cls(ssl.PROTOCOL_TLS_CLIENT)
        context._sessions, context._offering = OrderedDict(), WeakSet()
        context.set_alpn_protocols(["http/1.1"])
        context.hostname_checks_common_name = False  # RFC 9525 6.3: only subjectAltName counts
        context.options |= ssl.OP_NO_RENEGOTIATION  # only hostile servers request it
        if insecure:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        else:
            context.load_default_certs()
        return context

    def wrap_bio(
        self,
        incoming: ssl.MemoryBIO,
        outgoing: ssl.MemoryBIO,
        server_side: bool = False,
        server_hostname: str | bytes | None = None,
        session: ssl.SSLSession | None = None,
    ) -> ssl.SSLObject:
        known = session or self._sessions.get(str(server_hostname))
        made = super().wrap_bio(incoming, outgoing, server_side, server_hostname, known)
        if known is not None:
            self._offering.add(made)
        return made

    def learn_session(self, host: str, connected: ssl.SSLObject) -> None:
        """After the first response, with which TLS 1.3 sends it: resume its session with the next handshake.

        To read a session costs as much as to resume it saves. So one is not read again when it was resumed, and none is
        read of a host that gives none, or did not resume a new one.
        """
        known = self._sessions.get(host)
        if connected.session_reused or (known is None and host in self._sessions):
            return
        if known is not None and connected in self._offering and time.time() - known.time < REFUSED_S:
            self._sessions[host] = None
            return
        session = connected.session
        if session is not None and connected.version() == "TLSv1.3" and not session.has_ticket:
            session = None
        self._sessions[host] = session
        self._sessions.move_to_end(host)
        if len(self._sessions) > SESSIONS_MAX:
            self._sessions.popitem(last=False)

    def forget_session(self, host: str) -> None:
        """A handshake with the host failed: the next one is a whole one."""
        self._sessions.pop(host, None)


# Bounds the memory for bodies in an instance: reading of large ones is paused while there is no room.
#
# Counted are the received bytes of each body, and a response's bodies (as received and decoded) until the response is
# dropped. Bodies up to FREE_BYTES are not counted and never wait, so pages of usual size always pass. A body may have
# an eighth of what is free (dynamic thresholds: Choudhury and Hahne, 1998): so many that arrive slowly leave room for
# smaller ones. Otherwise only the oldest large body continues: it ends, at the latest by its own limits of size and
# time, and becomes a response. While responses hold more than a quarter of the limit, it waits too, until one is
# dropped or none was dropped for PATIENCE_S. So the bound is five quarters of the limit, plus one body, plus FREE_BYTES
# and one read for each open request.

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
        self._is_tls = self.tls() is not None
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
