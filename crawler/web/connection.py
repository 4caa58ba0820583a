"""One HTTP/1.1 connection: writes a request, gathers the response within its bounds, says whether it may be reused.

The parsing is aiohttp's (llhttp). Its client session is not used: one exchange here is one future, nothing is ever
sent again by itself, and a connection on which a byte came unasked is never used again. Knows nothing of URLs, names
or addresses.
"""

import asyncio

from aiohttp.base_protocol import BaseProtocol
from aiohttp.http import HttpResponseParser, RawResponseMessage
from aiohttp.http_exceptions import LineTooLong
from aiohttp.streams import StreamReader

from crawler.model import FailureKind
from crawler.web.heads import complaint, repaired, split_head

HEADERS_MAX = 256
INTERIM_MAX = 20  # 1xx responses before the final one
CHUNK_OVERHEAD_BYTES_MAX = 2 * 1024 * 1024  # sizes, extensions, trailers: each tiny chunk costs memory and time
_NO_PAUSE_BYTES = 2**30  # the reader would pause the transport at twice this; our own limits stop earlier
_STATUS_WITHOUT_BODY = frozenset((204, 205, 304))


class Connection(BaseProtocol):
    """States: idle, or in an exchange from `begin` until the future it returned is done.

    After it is done: `failure` is (kind, detail), or `message` and `body()` hold the response and `truncated` says
    how it was cut ("", "length", "time" or "disconnect").
    """

    __slots__ = (
        "_body_bytes_max",
        "_deadline",
        "_done",
        "_headers_bytes_max",
        "_idle_timeout_s",
        "_interims",
        "_payload",
        "_received_at",
        "_response_parser",
        "_seen",
        "_spoiled",
        "_timer",
        "_wire_bytes",
        "failure",
        "idle_since",
        "message",
        "remote_ip",
        "truncated",
    )

    def __init__(self, loop: asyncio.AbstractEventLoop, *, headers_bytes_max: int, idle_timeout_s: float) -> None:
        super().__init__(loop)
        self._headers_bytes_max = headers_bytes_max
        self._idle_timeout_s = idle_timeout_s
        self._done: asyncio.Future[None] | None = None
        self._spoiled = False
        self._timer: asyncio.TimerHandle | None = None
        self._response_parser: HttpResponseParser | None = self._new_parser()
        self.idle_since = 0.0
        self.remote_ip = ""
        self._clear()

    def begin(self, head: bytes, *, body_bytes_max: int, deadline: float) -> asyncio.Future[None]:
        """Send a request; the future is done when the response is whole, cut or failed. `deadline`: loop time."""
        assert self._done is None
        self._clear()
        self._body_bytes_max = body_bytes_max
        self._deadline = deadline
        self._done = self._loop.create_future()
        if self.transport is None or self.transport.is_closing():
            self._fail(FailureKind.DISCONNECTED, "the server had closed the connection")
            return self._done
        self._received_at = self._loop.time()
        self._arm()
        self.transport.write(head)
        return self._done

    def body(self) -> bytes:
        """What came of the body, without transfer coding, still content-coded, cut at the limit."""
        if self._payload is None or (self.message is not None and self.message.code in _STATUS_WITHOUT_BODY):
            return b""
        data = self._payload.read_nowait(-1)
        return data if len(data) <= self._body_bytes_max else data[: self._body_bytes_max]

    def end(self) -> bool:
        """Close the books on the exchange; True when the connection may carry another one."""
        reusable = (
            self.failure is None
            and not self.truncated
            and not self._spoiled
            and self.message is not None
            and not self.message.should_close
            and self.message.code not in _STATUS_WITHOUT_BODY
            and self.is_usable()
        )
        self._clear()
        self._done = None
        if not reusable:
            self.abort()
        return reusable

    def is_usable(self) -> bool:
        """Whether an idle connection is still open and nothing came on it unasked."""
        return not self._spoiled and self.transport is not None and not self.transport.is_closing()

    def abort(self) -> None:
        """Close at once, whatever is going on."""
        self._disarm()
        if self.transport is not None:
            self.transport.abort()

    # --- events of the transport ---

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        peer = transport.get_extra_info("peername")
        self.remote_ip = peer[0] if peer else ""

    def data_received(self, data: bytes) -> None:
        done, parser = self._done, self._response_parser
        if done is None or done.done() or parser is None:
            # Bytes that nobody asked for would be taken for the answer to the next request.
            self._spoiled = True
            if done is None:
                self.abort()
            return
        self._received_at = self._loop.time()
        self._wire_bytes += len(data)
        try:
            messages = parser.feed_data(data)[0]
        except Exception as error:  # noqa: BLE001 - the parser raises what it likes; all of it is the host's fault
            self._spoiled = True
            if self.message is None and self._recover(self._seen + data):
                return
            self._fail_parsing(error)
            return
        if messages:
            self._take(messages)
        if self.message is None:
            if self._wire_bytes > self._headers_bytes_max:
                self._fail(FailureKind.HEADERS_TOO_LARGE, f"headers of more than {self._headers_bytes_max} bytes")
            else:
                self._seen += data
        else:
            self._check_body()

    def connection_lost(self, exc: BaseException | None) -> None:
        super().connection_lost(exc)
        # It knows us too: in a cycle, both would stay until garbage is looked for, seldom (garbage.py).
        parser, self._response_parser = self._response_parser, None
        if self._done is None or self._done.done():
            return
        if self.message is None:
            reason = "closed the connection without a response" if exc is None else f"connection lost: {exc}"
            self._fail(FailureKind.DISCONNECTED, reason)
            return
        if exc is None and parser is not None:
            try:
                parser.feed_eof()
            except Exception:  # noqa: BLE001 - short of its length or its last chunk
                self._finish("disconnect")
                return
        whole = exc is None and self._payload is not None and self._payload.is_eof()
        self._finish("" if whole else "disconnect")

    def pause_reading(self) -> None:
        """Called by the body's reader when it holds too much: the end of this body."""
        self._finish("length")

    def resume_reading(self, resume_parser: bool = True) -> None:
        """Never paused, so nothing to do."""

    # --- the exchange ---

    def _clear(self) -> None:
        self.message: RawResponseMessage | None = None
        self.truncated = ""
        self.failure: tuple[FailureKind, str] | None = None
        self._payload: StreamReader | None = None
        self._wire_bytes = 0
        self._interims = 0
        self._seen = b""  # of a head that is not complete yet

    def _new_parser(self) -> HttpResponseParser:
        return HttpResponseParser(
            self,
            self._loop,
            _NO_PAUSE_BYTES,
            max_line_size=self._headers_bytes_max,
            max_field_size=self._headers_bytes_max,
            max_headers=HEADERS_MAX,
            read_until_eof=True,
            auto_decompress=False,
        )

    def _take(self, messages: list[tuple[RawResponseMessage, StreamReader]]) -> None:
        for message, payload in messages:
            if self.message is not None:
                self._spoiled = True  # a second response: not ours
            elif 100 <= message.code < 200 and message.code != 101:
                self._interims += 1
                if self._interims > INTERIM_MAX:
                    self._fail(FailureKind.PROTOCOL, f"more than {INTERIM_MAX} interim responses")
                    return
            else:
                wrong = complaint(message, self._wire_bytes, self._headers_bytes_max)
                if wrong is not None:
                    self._fail(*wrong)
                    return
                self.message, self._payload = message, payload
                self._seen = b""

    def _check_body(self) -> None:
        payload = self._payload
        if payload is None:
            return
        if payload.is_eof() or (self.message is not None and self.message.code in _STATUS_WITHOUT_BODY):
            self._finish("length" if payload.total_bytes > self._body_bytes_max else "")
            return
        overhead_bytes = self._wire_bytes - payload.total_bytes - self._headers_bytes_max
        if payload.total_bytes > self._body_bytes_max or overhead_bytes > CHUNK_OVERHEAD_BYTES_MAX:
            self._finish("length")

    def _recover(self, received: bytes) -> bool:
        """Make a response of bytes that the parser refused as a whole; the connection is not reused.

        It drops a whole response when more bytes follow than its length says (common: the length counts
        characters), and is stricter about Content-Length than RFC 9112 6.3 asks.
        """
        parts = split_head(received)
        if parts is None:
            return False
        head, rest = parts
        for candidate in (head, repaired(head)):
            if candidate is None:
                continue
            parser = self._new_parser()
            try:
                messages = parser.feed_data(candidate)[0]
            except Exception:  # noqa: BLE001, S112 - the next candidate, or the first error stands
                continue
            self._response_parser = parser
            self._take(messages)
            if self.message is None:
                return self.failure is not None
            try:
                parser.feed_data(rest)
            except Exception:  # noqa: BLE001 - what follows the body is what was refused
                if self._payload is None or not self._payload.is_eof():
                    self.message = None
                    return False
            self._check_body()
            return True
        return False

    def _fail_parsing(self, error: Exception) -> None:
        if self.message is not None and self._payload is not None and self._payload.is_eof():
            self._finish("")  # whole, and then bytes that are no response
        elif isinstance(error, LineTooLong) or "Too many headers" in str(error):
            self._fail(FailureKind.HEADERS_TOO_LARGE, f"headers beyond {HEADERS_MAX} or too long")
        else:
            self._fail(FailureKind.PROTOCOL, _one_line(error))

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

    # --- time ---

    def _arm(self) -> None:
        when = min(self._deadline, self._received_at + self._idle_timeout_s)
        self._timer = self._loop.call_at(when, self._tick)

    def _disarm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _tick(self) -> None:
        """One timer per exchange, set anew when it fires early: cheaper than one per piece of data."""
        now = self._loop.time()
        if now < self._deadline and now < self._received_at + self._idle_timeout_s:
            self._arm()
        elif self.message is None:
            self._fail(FailureKind.TIMEOUT, "no response in time")
        else:
            self._finish("time")


def _one_line(error: Exception) -> str:
    return str(error).partition("\n")[0].strip().rstrip(":")[:200] or type(error).__name__
