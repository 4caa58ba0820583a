"""Heads of responses beyond what the parser judges: what is no response for us, and what can still be understood.

Pure; knows nothing of connections.
"""

import re

import msgspec

from crawler.model import FailureKind

HEADERS_MAX = 256
CONTENT_LENGTH_MAX = 2**63 - 1
_STATUS_WITHOUT_BODY = frozenset((204, 205, 304))
_END = re.compile(rb"\r?\n\r?\n")
_CONTENT_LENGTH_LINE = re.compile(rb"(?im)^content-length[ \t]*:[ \t]*([^\r\n]*?)[ \t]*\r?\n")
_TRANSFER_ENCODING_LINE = re.compile(rb"(?im)^transfer-encoding[ \t]*:")


class Refusal(Exception):
    """The host's bytes are no response for us; `kind` and `detail` say why."""

    def __init__(self, kind: FailureKind, detail: str) -> None:
        super().__init__(detail)
        self.kind = kind
        self.detail = detail


class Head(msgspec.Struct):
    """Status line and headers. `headers` as they came; `by_name` has the first of each, by its name in lower case
    without the space that some servers put before the colon.
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
        headers = tuple([(name, value.rstrip(b" \t")) for name, value in fields])
        by_name = {name.lower().rstrip(): value for name, value in reversed(headers)}
        words = reason.decode("utf-8", "surrogateescape")
        return cls(status, words, http_version, headers, by_name, keeps_alive)

    @property
    def has_body(self) -> bool:
        return self.status not in _STATUS_WITHOUT_BODY

    @property
    def says_length(self) -> bool:
        """Whether a header says where the body ends; otherwise a body ends with its connection (RFC 9112 6.3)."""
        return b"transfer-encoding" in self.by_name or b"content-length" in self.by_name

    def get(self, name: bytes) -> str | None:
        """First value of a header by its lower-case name."""
        value = self.by_name.get(name)
        return None if value is None else value.decode("latin-1")

    def all_of(self, name: bytes) -> set[bytes]:
        """The different values of a header, by its lower-case name."""
        return {value for key, value in self.headers if key.rstrip().lower() == name}


def judge(head: Head, wire_bytes: int, headers_bytes_max: int) -> None:
    """Raises Refusal for a response that the parser let pass and that is none for us."""
    if head.status == 101:
        raise Refusal(FailureKind.PROTOCOL, "an upgrade that was not asked for")
    if head.status < 100:
        raise Refusal(FailureKind.PROTOCOL, f"status {head.status}")
    # One word in one header: of anything else, the parser's idea of where the body ends can't be asked.
    if b"transfer-encoding" in head.by_name:
        for coding in head.all_of(b"transfer-encoding"):
            if coding.lower() != b"chunked":
                raise Refusal(FailureKind.PROTOCOL, f"transfer coding {coding[:60].decode('latin-1')!r}")
    for _, value in head.headers:
        if b"\0" in value:
            raise Refusal(FailureKind.PROTOCOL, "a NUL in a header")
    length = head.by_name.get(b"content-length")
    if length is not None and len(length) > 18 and int(length) > CONTENT_LENGTH_MAX:
        raise Refusal(FailureKind.PROTOCOL, "a length beyond 63 bits")
    if wire_bytes > headers_bytes_max:
        head_bytes = len(head.reason) + sum(len(name) + len(value) + 4 for name, value in head.headers)
        if head_bytes > headers_bytes_max:
            raise Refusal(FailureKind.HEADERS_TOO_LARGE, f"headers of {head_bytes} bytes")


def split_head(received: bytes) -> tuple[bytes, bytes] | None:
    """Head with its empty line, and what follows; None while the head is not complete."""
    end = _END.search(received)
    return None if end is None else (received[: end.end()], received[end.end() :])


def repaired(head: bytes) -> bytes | None:
    """A head that RFC 9112 6.3 lets a client understand though the parser does not; None when there is none.

    Content-Length beside Transfer-Encoding is dropped; the same length said more than once is said once.
    """
    lengths: set[bytes] = {part.strip() for line in _CONTENT_LENGTH_LINE.findall(head) for part in line.split(b",")}
    if not lengths:
        return None
    without = _CONTENT_LENGTH_LINE.sub(b"", head)
    if _TRANSFER_ENCODING_LINE.search(head):
        return without
    if len(lengths) > 1:
        return None
    status_end = without.index(b"\n") + 1
    return without[:status_end] + b"Content-Length: " + lengths.pop() + b"\r\n" + without[status_end:]
