"""Reads responses from a connection's bytes, within limits; httptools (llhttp) is the parser of all but chunks.

Pure: bytes in, a response or a BadHead out.
"""

import re
from collections.abc import Sequence
from typing import NamedTuple

import msgspec
from httptools import HttpParserError, HttpResponseParser

from crawler.model import FailureKind

# Heads of responses: finds their end, normalises them for the parser, and refuses bad ones. Pure.
#
# The parser gets a head as a whole and in plain form, so the result does not depend on how the bytes arrive.
#
# Lines that are no headers are left out, as browsers do: a warning of a script, a line without a colon, a name with a
# blank, a second status line. Where a body ends is decided by RFC 9112 6.3: Transfer-Encoding wins over Content-Length,
# a final "chunked" means chunks, without it the body ends with its connection. Whoever is between us and the host may
# have read such a head otherwise, so its connection carries no other exchange.

HEADERS_MAX = 256
CONTENT_LENGTH_MAX = 2**63 - 1
INTERIM = range(100, 200)  # statuses of responses that precede the final one
_STATUS_WITHOUT_BODY = frozenset((204, 205, 304))
_START = b"HTTP/1."
_STATUS_LINE = re.compile(rb"HTTP/1\.[01] ([1-9][0-9]{2})(?: [^\0\r\n]*)?\r?\n")
_FOLDED = re.compile(rb"\n[ \t]")
_FOLD = re.compile(rb"\r?\n[ \t]+")
_BARE_CR = re.compile(rb"\r[^\n]")
_TOKEN = b"!#$%&'*+-.^_`|~0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"  # RFC 9110 5.6.2
_CHUNKED, _NO_CODING = b"chunked", frozenset((b"", b"identity"))


class BadHead(Exception):
    """The received bytes are not an acceptable response; `kind` and `detail` are the reason."""

    def __init__(self, kind: FailureKind, detail: str) -> None:
        super().__init__(detail)
        self.kind = kind
        self.detail = detail


class Head(msgspec.Struct):
    """Status line and headers.

    `headers` as received, but for blanks around names and values: some servers put one before the colon, which is not
    part of the name (RFC 9112 5.1). `by_name` has the first of each, by lower-case name. `says_length`: the head
    defines where the body ends; otherwise it ends with its connection (RFC 9112 6.3). `transfer`: other codings of the
    transfer than "chunked", in the order of a Content-Encoding.
    """

    status: int
    reason: str
    http_version: str
    headers: tuple[tuple[bytes, bytes], ...]
    by_name: dict[bytes, bytes]
    keeps_alive: bool
    says_length: bool
    is_chunked: bool
    transfer: str = ""
    is_of_head: bool = False  # the request was a HEAD

    @classmethod
    def of(
        cls, fields: list[tuple[bytes, bytes]], *, status: int, reason: bytes, http_version: str, keeps_alive: bool
    ) -> "Head":
        headers = tuple([(name.rstrip(), value.rstrip(b" \t")) for name, value in fields])
        by_name = _by_name(headers)
        words = reason.decode("utf-8", "surrogateescape")
        is_chunked = b"transfer-encoding" in by_name
        says_length = is_chunked or b"content-length" in by_name
        return cls(status, words, http_version, headers, by_name, keeps_alive, says_length, is_chunked)

    def as_received(self, repaired: "Repaired") -> None:
        """Have the headers that were received, instead of those that the parser got."""
        self.headers, self.transfer = repaired.headers, repaired.transfer
        self.by_name = _by_name(repaired.headers)

    @property
    def has_body(self) -> bool:
        return not self.is_of_head and self.status not in _STATUS_WITHOUT_BODY

    def get(self, name: bytes) -> str | None:
        """First value of a header by its lower-case name."""
        value = self.by_name.get(name)
        return None if value is None else value.decode("latin-1")

    def listed(self, name: bytes) -> str:
        """The values of a header that is a list, by its lower-case name (RFC 9110 5.3)."""
        if name not in self.by_name:
            return ""
        return b",".join([value for key, value in self.headers if key.lower() == name]).decode("latin-1")

    def all_of(self, name: bytes) -> set[bytes]:
        """The different values of a header, by its lower-case name."""
        return {value for key, value in self.headers if key.lower() == name}


def said_by(error: Exception) -> str:
    """The message of a library's error, as a short line."""
    return " ".join(str(error).split())[:200] or type(error).__name__


def judge(head: Head, fields: Sequence[tuple[bytes, bytes]]) -> None:
    """Raises BadHead for a response that the parser accepted, but that we don't. `fields`: headers as it has them."""
    if head.status == 101:
        raise BadHead(FailureKind.PROTOCOL, "an upgrade that was not asked for")
    # Exactly "chunked": for anything else we can't know where the parser sees the end of the body.
    if b"transfer-encoding" in head.by_name:
        for name, coding in fields:
            if name.rstrip().lower() == b"transfer-encoding" and coding.rstrip(b" ").lower() != b"chunked":
                raise BadHead(FailureKind.PROTOCOL, f"transfer coding {coding[:60].decode('latin-1')!r}")
    for _, value in head.headers:
        if b"\0" in value:
            raise BadHead(FailureKind.PROTOCOL, "a NUL in a header")
    length = head.by_name.get(b"content-length")
    if length is not None and len(length) > 18 and _is_too_long(length):
        raise BadHead(FailureKind.PROTOCOL, "a length beyond 63 bits")


def end_of(received: bytes | bytearray, start: int = 0) -> int:
    """The end of a head with its empty line; -1 while it is incomplete. Searches from `start`."""
    crlf = received.find(b"\n\r\n", start)
    lf = received.find(b"\n\n", start, crlf + 1 if crlf >= 0 else len(received))  # they may share a line feed
    if lf >= 0:
        return lf + 2
    return crlf + 3 if crlf >= 0 else -1


def check_begun(received: bytes | bytearray, start: int = 0) -> None:
    """Raises BadHead as soon as the received bytes can't be a head. Bare CRs are searched from `start`."""
    if not received.startswith(_START) and not _START.startswith(received):
        raise BadHead(FailureKind.PROTOCOL, f"not HTTP/1.1: {_shown(received)}")
    if _BARE_CR.search(received, start):
        raise BadHead(FailureKind.PROTOCOL, "a bare CR in a header")


def status_of(head: bytes) -> int:
    """Status of a head. Raises BadHead, because the parser also accepts other protocols and versions."""
    line = _STATUS_LINE.match(head)
    if line is None:
        first = head.partition(b"\n")[0].rstrip()
        raise BadHead(FailureKind.PROTOCOL, f"status line {_shown(first)}")
    status = int(line[1])
    if status in INTERIM and _BARE_CR.search(head):  # the parser does not see these heads
        raise BadHead(FailureKind.PROTOCOL, "a bare CR in a header")
    return status


def unfolded(head: bytes) -> tuple[bytes, bool]:
    """The head with its folded lines joined (RFC 9112 5.2), and whether its connection must not be reused.

    That is so if there are lines with a leading blank before the first header, which are left out (2.2).
    """
    if _FOLDED.search(head) is None:
        return head, False
    kept = _without_blank_start(head)
    return _FOLD.sub(b" ", kept), len(kept) != len(head)


class Repaired(NamedTuple):
    """A head that the parser refused: as it takes it, and the headers as they came."""

    head: bytes
    headers: tuple[tuple[bytes, bytes], ...]
    transfer: str


def repaired(head: bytes) -> Repaired:
    """An unfolded head without the lines that are no headers, and with one that tells where the body ends, if any does.

    Raises BadHead for a NUL or a bare CR, which are ways to hide a header, and for lengths that are none or differ.
    """
    if b"\0" in head or _BARE_CR.search(head):
        raise BadHead(FailureKind.PROTOCOL, "a NUL or a bare CR in a header")
    status_line, *lines = head.removesuffix(b"\n").split(b"\n")
    headers = [header for line in lines if (header := _header_of(line)) is not None]
    codings = [coding.strip(b" \t").lower() for coding in _listed(headers, b"transfer-encoding")]
    codings = [coding for coding in codings if coding not in _NO_CODING]
    lengths = [value for name, value in headers if name.lower() == b"content-length"]
    framing = b""
    if codings[-1:] == [_CHUNKED]:
        framing = b"Transfer-Encoding: chunked\r\n"
    elif lengths and not codings:
        framing = b"Content-Length: %d\r\n" % _one_length(lengths)
    others = b"".join([b"%b: %b\r\n" % header for header in headers if header[0].lower() not in _FRAMING])
    transfer = ",".join([coding.decode("latin-1") for coding in codings if coding != _CHUNKED])
    return Repaired(b"%b\n%b%b\r\n" % (status_line, framing, others), tuple(headers), transfer)


_FRAMING = frozenset((b"transfer-encoding", b"content-length"))


def _header_of(line: bytes) -> tuple[bytes, bytes] | None:
    """Name and value of a line; None if it is no header (RFC 9112 5). A blank before the colon is forgiven (5.1)."""
    name, colon, value = line.partition(b":")
    name = name.rstrip(b" \t")
    if not colon or not name or name.translate(None, _TOKEN):
        return None
    return name, value.strip(b" \t\r")


def _listed(headers: Sequence[tuple[bytes, bytes]], name: bytes) -> list[bytes]:
    return [part for key, value in headers if key.lower() == name for part in value.split(b",")]


def _by_name(headers: Sequence[tuple[bytes, bytes]]) -> dict[bytes, bytes]:
    return {name.lower(): value for name, value in reversed(headers)}


def _without_blank_start(head: bytes) -> bytes:
    start = at = head.index(b"\n") + 1
    while head[at : at + 1] in (b" ", b"\t"):
        at = head.index(b"\n", at) + 1
    return head[:start] + head[at:]


def _one_length(lengths_sent: Sequence[bytes]) -> int:
    lengths: set[int] = set()
    for part in b",".join(lengths_sent).split(b","):
        digits = part.strip(b" \t\r")
        if not digits.isdigit() or _is_too_long(digits):
            raise BadHead(FailureKind.PROTOCOL, f"Content-Length {_shown(digits)}")
        lengths.add(int(digits.lstrip(b"0") or b"0"))
    if len(lengths) > 1:
        raise BadHead(FailureKind.PROTOCOL, "lengths that differ")
    return lengths.pop()


def _is_too_long(digits: bytes) -> bool:
    """Is it beyond 63 bits? Does not convert thousands of digits."""
    digits = digits.lstrip(b"0")
    return len(digits) > 18 and (len(digits) > 19 or int(digits) > CONTENT_LENGTH_MAX)


def _shown(received: bytes | bytearray) -> str:
    return repr(bytes(received[:60]).decode("latin-1"))


HEADERS_BYTES_MAX = 64 * 1024  # of a response; longer ones are a failure
INTERIM_MAX = 20  # 1xx responses before the final one
TRAILER_BYTES_MAX = 16 * 1024
CHUNK_OVERHEAD_BYTES_MAX = 2 * 1024 * 1024  # sizes, extensions, trailers: each tiny chunk costs time


_NOTHING = bytearray()
_NO_CHUNKS = b"0\r\n\r\n"
_LINE_KEPT = 64  # bytes of a line between chunks; more is an extension, which means nothing
_SIZE = re.compile(rb"([0-9A-Fa-f]+)[ \t]*(?:;|$)")
_SIZE_DIGITS_MAX = 15
_CONTROL = re.compile(rb"\0|\r[^\n]")


class Chunks:
    """Undoes the transfer coding "chunked" (RFC 9112 7.1), as leniently as browsers do: lines may end in a bare LF, and
    sizes may have blanks behind them. Extensions and trailers are read over.

    `is_doubtful`: another reader might see other chunks, so the connection must not be reused.
    """

    __slots__ = (
        "_is_last",
        "_last",
        "_left",
        "_line",
        "_trailer_bytes",
        "_trailers_left",
        "is_complete",
        "is_doubtful",
    )

    def __init__(self, *, trailers_max: int) -> None:
        self.is_complete = self.is_doubtful = False
        self._left = -1  # of the data of a chunk; 0: its line end is expected, -1: a size
        self._is_last = False
        self._line = b""  # the beginning of a line whose end has not come
        self._last = b""  # its last byte
        self._trailer_bytes = 0
        self._trailers_left = trailers_max

    def feed(self, data: bytes | bytearray, body: list[bytes]) -> int:
        """Append what is data to `body`; the position behind the last byte that belongs to it. Raises BadHead."""
        at = 0
        while at < len(data) and not self.is_complete:
            if self._left > 0:
                body.append(bytes(data[at : at + self._left]))
                at += len(body[-1])
                self._left -= len(body[-1])
                continue
            if not self._left and not self._is_last and not self._last and data[at : at + 2] == b"\r\n":
                self._left = -1  # the common case
                at += 2
                continue
            end = data.find(b"\n", at)
            part = bytes(data[at : end + 1 if end >= 0 else len(data)])
            at += len(part)
            self._take(part, is_whole=end >= 0)
        return at

    def _take(self, part: bytes, *, is_whole: bool) -> None:
        """A line, or the next part of it."""
        before = self._last + part
        if _CONTROL.search(before):
            raise BadHead(FailureKind.PROTOCOL, "a NUL or a bare CR between chunks")
        if self._is_last:
            self._trailer_bytes += len(part)
            if self._trailer_bytes > TRAILER_BYTES_MAX + _LINE_KEPT:
                raise BadHead(FailureKind.HEADERS_TOO_LARGE, f"trailers of more than {TRAILER_BYTES_MAX} bytes")
        if is_whole and not before.endswith(b"\r\n"):
            self.is_doubtful = True
        line = (self._line + part[:_LINE_KEPT])[:_LINE_KEPT]
        if not is_whole:
            self._line, self._last = line, part[-1:]
            if not self._is_last:
                self._check_begun(line)
            return
        self._line = self._last = b""
        self._end_line(line.rstrip(b"\r\n"))

    def _end_line(self, line: bytes) -> None:
        if self._is_last:
            self.is_complete = not line
            self._trailers_left -= 1
            if self._trailers_left < 0 and line:
                raise BadHead(FailureKind.HEADERS_TOO_LARGE, f"more than {HEADERS_MAX} headers")
            self.is_doubtful = self.is_doubtful or (bool(line) and b":" not in line)
        elif self._left == 0:
            self._check_begun(line)
            self._left = -1
        else:
            size = _SIZE.match(line)
            digits = size[1].lstrip(b"0") if size else b""
            if size is None or size.end() >= _LINE_KEPT or len(digits) > _SIZE_DIGITS_MAX:
                raise BadHead(FailureKind.PROTOCOL, f"size of a chunk {line[:_LINE_KEPT].decode('latin-1')!r}")
            self._left = int(digits or b"0", 16)
            if not self._left:
                self._is_last = True

    def _check_begun(self, line: bytes) -> None:
        """Raises BadHead as soon as a line can't be what must come here."""
        if self._left == 0 and line not in (b"", b"\r"):
            raise BadHead(FailureKind.PROTOCOL, "a chunk without a line end")
        if self._left < 0 and line[:1] not in b"0123456789ABCDEFabcdef":
            raise BadHead(FailureKind.PROTOCOL, f"size of a chunk {line[:_LINE_KEPT].decode('latin-1')!r}")


class ResponseReader:
    """After `begin`, call `feed` with received bytes until it returns how the response ended, or raises; then `clear`.

    `head` is set as soon as it is complete; `body` and `body_bytes` (received so far) are available at any time.
    `is_spoiled`: bytes arrived that belong to no request of ours, or that the parser refused; the connection must not
    be reused. `has_excess`: they came behind a complete response.
    """

    __slots__ = (
        "_body",
        "_body_bytes_max",
        "_chunks",
        "_fields",
        "_headers_bytes_max",
        "_interims",
        "_is_complete",
        "_is_of_head",
        "_parser",
        "_reason",
        "_refusal",
        "_seen",
        "_skipped_bytes",
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
        self._is_of_head = False
        self.clear()

    def begin(self, *, body_bytes_max: int, is_of_head: bool = False) -> None:
        """The next bytes start a response. `body_bytes_max` is before content decoding. `is_of_head`: to a HEAD
        request, so it has no body, whatever it says. The connection carries no other exchange after that.
        """
        assert self._wire_bytes == 0, "not cleared since the last response"
        self._body_bytes_max = body_bytes_max
        self._is_of_head = is_of_head

    def clear(self) -> None:
        """Drop the response: an idle connection holds no body."""
        self.head: Head | None = None
        self._fields: list[tuple[bytes, bytes]] = []
        self._reason = b""
        self._body: list[bytes] = []
        self.body_bytes = 0
        self._wire_bytes = 0
        self._interims = 0
        self._is_complete = False
        self._chunks: Chunks | None = None
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
        if data and self._chunks is not None:
            self._take_chunks(self._chunks, data)
        elif data:
            self._parse(data)
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
        if len(self._fields) >= HEADERS_MAX:
            raise self._refused(FailureKind.HEADERS_TOO_LARGE, f"more than {HEADERS_MAX} headers")
        self._fields.append((name, value))

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
        if self._is_of_head:
            head.is_of_head = self.is_spoiled = True
        self.head = head

    def on_body(self, part: bytes) -> None:
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
                return self._parse_head(head, rest)
            self._interims += 1
            if self._interims > INTERIM_MAX:
                raise BadHead(FailureKind.PROTOCOL, f"more than {INTERIM_MAX} interim responses")
            self._skipped_bytes += end
            received, start = rest, 0

    def _parse_head(self, received: bytes, rest: bytes | bytearray) -> bytes | bytearray:
        """Parse the head; returns the bytes behind it."""
        self._seen = _NOTHING
        readable, is_doubtful = unfolded(received)
        better = None
        try:
            self._parse(readable)
        except BadHead as refusal:
            if self.head is not None or refusal.kind is FailureKind.HEADERS_TOO_LARGE:
                raise
            better = repaired(readable)
        if better is not None:
            self._parser, self._fields, self._reason, self._refusal = self._new_parser(), [], b"", None
            self._parse(better.head)
        head = self.head
        if head is None:
            raise BadHead(FailureKind.PROTOCOL, "headers without an end")
        if better is not None:
            head.as_received(better)
            is_doubtful = True
        if head.is_chunked:
            # RFC 9112 6.1: HTTP/1.0 has no transfer coding; whoever is between may not have seen it, nor a second one.
            is_doubtful = is_doubtful or head.http_version == "1.0" or _count_of_codings(self._fields) > 1
            if head.has_body:
                self._parse(_NO_CHUNKS)  # what follows is not for the parser, which is ready for the next head then
                self._is_complete = False
                self._chunks = Chunks(trailers_max=HEADERS_MAX - len(self._fields))
        if b" :" in received and any(name.endswith(b" ") for name, _ in self._fields):
            is_doubtful = True
        self.is_spoiled = self.is_spoiled or is_doubtful
        return rest

    def _take_chunks(self, chunks: Chunks, data: bytes | bytearray) -> None:
        parts = len(self._body)
        end = chunks.feed(data, self._body)
        self.body_bytes += sum(map(len, self._body[parts:]))
        self.is_spoiled = self.is_spoiled or chunks.is_doubtful
        self._is_complete = chunks.is_complete
        if end < len(data):
            self.is_spoiled = self.has_excess = True

    def _parse(self, data: bytes | bytearray) -> None:
        """Raises BadHead, except for bytes after a complete response, which only spoil the connection."""
        assert self._parser is not None
        try:
            self._parser.feed_data(data)
        except HttpParserError as error:
            self.is_spoiled, self.has_excess = True, self._is_complete
            if not self._is_complete:
                raise self._refusal or BadHead(FailureKind.PROTOCOL, said_by(error)) from None

    def _refused(self, kind: FailureKind, detail: str) -> BadHead:
        self._refusal = BadHead(kind, detail)
        return self._refusal

    def _new_parser(self) -> HttpResponseParser:
        """As lenient as clients have to be: odd bytes in values, bare LF."""
        parser = HttpResponseParser(self)
        parser.set_dangerous_leniencies(lenient_headers=True, lenient_optional_cr_before_lf=True)
        return parser


def _count_of_codings(fields: list[tuple[bytes, bytes]]) -> int:
    return sum(1 for name, _ in fields if name.rstrip().lower() == b"transfer-encoding")
