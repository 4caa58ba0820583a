"""Heads of responses: finds their end, normalises them for the parser, and refuses bad ones. Pure.

The parser gets a head as a whole and in plain form, so the result does not depend on how the bytes arrive.

Lines that are no headers are left out, as browsers do: a warning of a script, a line without a colon, a name with a
blank, a second status line. Where a body ends is decided by RFC 9112 6.3: Transfer-Encoding wins over Content-Length, a
final "chunked" means chunks, without it the body ends with its connection. Whoever is between us and the host may have
read such a head otherwise, so its connection carries no other exchange.
"""

import re
from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from crawler.model import FailureKind

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
        return self.status not in _STATUS_WITHOUT_BODY

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
    lf = received.find(b"\n\n", start, crlf if crlf >= 0 else len(received))
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
