"""Heads of responses: finds their end, normalises them for the parser, and refuses bad ones. Pure.

The parser gets a head as a whole and in plain form, so the result does not depend on how the bytes arrive.
"""

import re
from collections.abc import Sequence

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
_CONTENT_LENGTH_LINE = re.compile(rb"(?im)^content-length[ \t]*:([^\n]*)\n")
_TRANSFER_ENCODING_LINE = re.compile(rb"(?im)^transfer-encoding[ \t]*:([^\n]*)\n")


class BadHead(Exception):
    """The received bytes are not an acceptable response; `kind` and `detail` are the reason."""

    def __init__(self, kind: FailureKind, detail: str) -> None:
        super().__init__(detail)
        self.kind = kind
        self.detail = detail


class Head(msgspec.Struct):
    """Status line and headers.

    `headers` as received, but for blanks around names and values: some servers put one before the colon, which is not
    part of the name (RFC 9112 5.1). `by_name` has the first of each, by lower-case name.
    """

    status: int
    reason: str
    http_version: str
    headers: tuple[tuple[bytes, bytes], ...]
    by_name: dict[bytes, bytes]
    keeps_alive: bool

    @classmethod
    def of(
        cls, fields: list[tuple[bytes, bytes]], *, status: int, reason: bytes, http_version: str, keeps_alive: bool
    ) -> "Head":
        headers = tuple([(name.rstrip(), value.rstrip(b" \t")) for name, value in fields])
        by_name = {name.lower(): value for name, value in reversed(headers)}
        words = reason.decode("utf-8", "surrogateescape")
        return cls(status, words, http_version, headers, by_name, keeps_alive)

    @property
    def has_body(self) -> bool:
        return self.status not in _STATUS_WITHOUT_BODY

    @property
    def says_length(self) -> bool:
        """Whether a header defines where the body ends; otherwise it ends with its connection (RFC 9112 6.3)."""
        return b"transfer-encoding" in self.by_name or b"content-length" in self.by_name

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


def with_one_length(head: bytes) -> bytes | None:
    """A head that the parser refuses for its lengths, corrected as RFC 9112 6.3 allows; None for any other.

    Content-Length next to Transfer-Encoding is dropped; a repeated equal length is given once. Raises BadHead for
    lengths that differ.
    """
    lengths_sent = _CONTENT_LENGTH_LINE.findall(head)
    if not lengths_sent:
        return None
    without = _CONTENT_LENGTH_LINE.sub(b"", head)
    if _TRANSFER_ENCODING_LINE.search(head):
        return without
    status_end = without.index(b"\n") + 1
    return without[:status_end] + b"Content-Length: %d\r\n" % _one_length(lengths_sent) + without[status_end:]


def with_plain_coding(head: bytes) -> bytes | None:
    """A head that says "chunked" in another way, in the parser's spelling; None for any other.

    RFC 9110 5.6: blanks and tabs around the members of a list, and empty members, mean nothing. A list with two members
    is another coding.
    """
    lines = [
        [coding for part in line.split(b",") if (coding := part.strip(b" \t\r"))]
        for line in _TRANSFER_ENCODING_LINE.findall(head)
    ]
    if {coding.lower() for line in lines for coding in line} != {b"chunked"} or max(map(len, lines)) > 1:
        return None
    without = _TRANSFER_ENCODING_LINE.sub(b"", head)
    status_end = without.index(b"\n") + 1
    return without[:status_end] + b"Transfer-Encoding: chunked\r\n" + without[status_end:]


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
