"""Reads responses from a connection's bytes, within limits; httptools (llhttp) is the parser.

Pure: bytes in, a response or a BadHead out.
"""

from httptools import HttpParserError, HttpResponseParser

from crawler.model import FailureKind
from crawler.web.response_head import (
    HEADERS_MAX,
    INTERIM,
    BadHead,
    Head,
    check_begun,
    end_of,
    judge,
    said_by,
    status_of,
    unfolded,
    with_one_length,
    with_plain_coding,
)

INTERIM_MAX = 20  # 1xx responses before the final one
TRAILER_BYTES_MAX = 16 * 1024  # the parser copies a trailer at each read: long ones would take quadratic time
CHUNK_OVERHEAD_BYTES_MAX = 2 * 1024 * 1024  # sizes, extensions, trailers: each tiny chunk costs time


_NOTHING = bytearray()


class ResponseReader:
    """After `begin`, call `feed` with received bytes until it returns how the response ended, or raises; then `clear`.

    `head` is set as soon as it is complete; `body` and `body_bytes` (received so far) are available at any time.
    `is_spoiled`: bytes arrived that belong to no request of ours, or that the parser refused; the connection must not
    be reused. `has_excess`: they came behind a complete response.
    """

    __slots__ = (
        "_body",
        "_body_bytes_max",
        "_fields",
        "_headers_bytes_max",
        "_interims",
        "_is_chunked",
        "_is_complete",
        "_is_in_trailers",
        "_met_chunk",
        "_parser",
        "_reason",
        "_refusal",
        "_seen",
        "_skipped_bytes",
        "_trailer_bytes",
        "_wire_bytes",
        "body_bytes",
        "has_excess",
        "head",
        "is_spoiled",
    )

    def __init__(self, *, headers_bytes_max: int) -> None:
        self._headers_bytes_max = headers_bytes_max
        self.is_spoiled = self.has_excess = False
        self._parser: HttpResponseParser | None = self._new_parser()
        self._body_bytes_max = 0
        self.clear()

    def begin(self, *, body_bytes_max: int) -> None:
        """The next bytes start a response. `body_bytes_max` is before content decoding."""
        assert self._wire_bytes == 0, "not cleared since the last response"
        self._body_bytes_max = body_bytes_max

    def clear(self) -> None:
        """Drop the response: an idle connection holds no body."""
        self.head: Head | None = None
        self._fields: list[tuple[bytes, bytes]] = []
        self._reason = b""
        self._body: list[bytes] = []
        self.body_bytes = 0
        self._wire_bytes = 0
        self._interims = 0
        self._is_chunked = self._met_chunk = False
        self._is_complete = False
        self._is_in_trailers = False  # or at the start of a chunk, before its first byte
        self._trailer_bytes = 0
        self._refusal: BadHead | None = None
        self._seen: bytearray = _NOTHING  # of a head that is still incomplete
        self._skipped_bytes = 0  # of interim responses and empty lines before the head

    def feed(self, data: bytes | bytearray) -> str | None:
        """None while more is expected, "" when the response is complete, "length" when it is cut at a limit.

        Raises BadHead.
        """
        if self._parser is None:
            return None
        self._wire_bytes += len(data)
        if self.head is None:
            rest = self._take_head(data)
            if rest is None:
                return None
            data = rest
        if data:
            was_in_trailers = self._is_in_trailers
            self._parse(data)
            if was_in_trailers and self._is_in_trailers:
                self._count_trailers(len(data))
        head = self.head
        assert head is not None
        if self.body_bytes > self._body_bytes_max:
            return "length"
        if self._is_complete or not head.has_body:
            return ""
        overhead_bytes = self._wire_bytes - self.body_bytes - self._headers_bytes_max
        return "length" if overhead_bytes > CHUNK_OVERHEAD_BYTES_MAX else None

    @property
    def has_begun(self) -> bool:
        """Whether a byte of the response was received."""
        return self._wire_bytes > 0

    def is_whole_at_end(self) -> bool:
        """Whether the response is complete if the connection ends here."""
        return self._is_complete or (self.head is not None and not self.head.says_length)

    def body(self) -> bytes:
        """The received body without transfer coding, still content-coded, cut at the limit."""
        if self.head is None or not self.head.has_body:
            return b""
        data = self._body[0] if len(self._body) == 1 else b"".join(self._body)
        return data if len(data) <= self._body_bytes_max else data[: self._body_bytes_max]

    def allows_another(self) -> bool:
        """Whether the connection may carry another exchange after this one.

        Not after a response without a body that declares a length: some hosts send the body later.
        """
        head = self.head
        if head is None or self.is_spoiled or not self._is_complete:
            return False
        return head.keeps_alive and (head.has_body or not head.says_length)

    def close(self) -> None:
        """No more bytes: breaks the cycle of parser and reader, which else waits for the garbage collector."""
        self._parser = None

    # --- called by the parser; what they raise stops it ---

    def on_message_begin(self) -> None:
        if self.head is not None:
            raise self._refused(FailureKind.PROTOCOL, "a second response")
        self._fields = []
        self._reason = b""

    def on_status(self, part: bytes) -> None:
        self._reason += part

    def on_header(self, name: bytes, value: bytes) -> None:
        """Called for trailers, too: they are counted and ignored."""
        fields = self._fields
        if len(fields) >= HEADERS_MAX:
            raise self._refused(FailureKind.HEADERS_TOO_LARGE, f"more than {HEADERS_MAX} headers")
        fields.append((name, value))
        if self.head is not None and len(value) > TRAILER_BYTES_MAX:
            self._count_trailers(len(value))

    def on_headers_complete(self) -> None:
        parser = self._parser
        assert parser is not None
        head = Head.of(
            self._fields,
            status=parser.get_status_code(),
            reason=self._reason,
            http_version=parser.get_http_version(),
            keeps_alive=parser.should_keep_alive(),
        )
        try:
            judge(head, self._fields)
        except BadHead as error:
            self._refusal = error
            raise
        self.head = head
        self._is_chunked = b"transfer-encoding" in head.by_name

    def on_chunk_header(self) -> None:
        self._met_chunk = self._is_in_trailers = True
        self._trailer_bytes = 0

    def on_body(self, part: bytes) -> None:
        # The parser and `judge` might read an odd Transfer-Encoding differently: chunk sizes must not become the body.
        if self._is_chunked and not self._met_chunk:
            raise self._refused(FailureKind.PROTOCOL, "a transfer coding that is not chunked")
        self._is_in_trailers = False
        self._body.append(part)
        self.body_bytes += len(part)

    def on_message_complete(self) -> None:
        self._is_complete = self.head is not None

    # --- heads, which the parser is given whole ---

    def _take_head(self, data: bytes | bytearray) -> bytes | bytearray | None:
        """Parse the head if it is complete; the bytes after it, or None while more is expected. Raises BadHead."""
        received, start = data, 0
        if self._seen:
            start = max(0, len(self._seen) - 2)
            self._seen += data
            received = self._seen
        while True:
            if received[:1] in (b"\r", b"\n"):
                stripped = received.lstrip(b"\r\n")
                self._skipped_bytes += len(received) - len(stripped)
                received, start = stripped, 0
            end = end_of(received, start)
            if self._skipped_bytes + (end if end > 0 else len(received)) > self._headers_bytes_max:
                raise BadHead(FailureKind.HEADERS_TOO_LARGE, f"headers of more than {self._headers_bytes_max} bytes")
            if end < 0:
                check_begun(received, start)
                if received is not self._seen:
                    self._seen = bytearray(received)
                return None
            head, rest = bytes(received[:end]), received[end:]
            status = status_of(head)
            if status not in INTERIM or status == 101:
                return self._parse_head(head, rest, received)
            self._interims += 1
            if self._interims > INTERIM_MAX:
                raise BadHead(FailureKind.PROTOCOL, f"more than {INTERIM_MAX} interim responses")
            self._skipped_bytes += end
            received, start = rest, 0

    def _parse_head(self, head: bytes, rest: bytes | bytearray, both: bytes | bytearray) -> bytes | bytearray:
        """Parse the head; returns the bytes that the parser has not had yet. Usually it gets everything in one call."""
        self._seen = _NOTHING
        readable, is_doubtful = unfolded(head)
        as_it_came = readable is head
        try:
            self._parse(both if as_it_came else readable)
        except BadHead:
            plain = None if self.head is not None else with_plain_coding(readable)
            if self.head is None and self._refusal is None:
                plain = with_one_length(plain or readable) or plain
            if plain is None:
                raise
            is_doubtful, as_it_came = True, False
            self._parser, self._fields, self._reason, self._refusal = self._new_parser(), [], b"", None
            self._parse(plain)
        if self.head is None:
            raise BadHead(FailureKind.PROTOCOL, "headers without an end")
        self.is_spoiled = self.is_spoiled or is_doubtful
        return b"" if as_it_came else rest

    def _parse(self, data: bytes | bytearray) -> None:
        """Raises BadHead, except for bytes after a complete response, which only spoil the connection."""
        assert self._parser is not None
        try:
            self._parser.feed_data(data)
        except HttpParserError as error:
            self.is_spoiled, self.has_excess = True, self._is_complete
            if not self._is_complete:
                raise self._refusal or BadHead(FailureKind.PROTOCOL, said_by(error)) from None

    def _count_trailers(self, more: int) -> None:
        self._trailer_bytes += more
        if self._trailer_bytes > TRAILER_BYTES_MAX and not self._is_complete:
            raise self._refused(FailureKind.HEADERS_TOO_LARGE, f"trailers of more than {TRAILER_BYTES_MAX} bytes")

    def _refused(self, kind: FailureKind, detail: str) -> BadHead:
        self._refusal = BadHead(kind, detail)
        return self._refusal

    def _new_parser(self) -> HttpResponseParser:
        """As lenient as clients have to be: folded headers, bare LF, a space after a chunk's size."""
        parser = HttpResponseParser(self)
        parser.set_dangerous_leniencies(
            lenient_headers=True, lenient_optional_cr_before_lf=True, lenient_spaces_after_chunk_size=True
        )
        return parser
