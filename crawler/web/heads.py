"""Response heads beyond what the parser judges: what is no response for us, and what can still be understood.

Pure functions; know nothing of connections.
"""

import re

from aiohttp import hdrs
from aiohttp.http import RawResponseMessage

from crawler.model import FailureKind

CONTENT_LENGTH_MAX = 2**63 - 1
_END = re.compile(rb"\r?\n\r?\n")
_CONTENT_LENGTH_LINE = re.compile(rb"(?im)^content-length[ \t]*:[ \t]*([^\r\n]*?)[ \t]*\r?\n")
_TRANSFER_ENCODING_LINE = re.compile(rb"(?im)^transfer-encoding[ \t]*:")


def split_head(received: bytes) -> tuple[bytes, bytes] | None:
    """Head with its empty line, and what follows; None while the head is not complete."""
    end = _END.search(received)
    return None if end is None else (received[: end.end()], received[end.end() :])


def complaint(message: RawResponseMessage, wire_bytes: int, headers_bytes_max: int) -> tuple[FailureKind, str] | None:
    """Why a response that the parser let pass is none for us."""
    if message.code == 101:
        return FailureKind.PROTOCOL, "an upgrade that was not asked for"
    if message.code < 100:
        return FailureKind.PROTOCOL, f"status {message.code}"
    headers = message.headers
    coding = headers.get(hdrs.TRANSFER_ENCODING)
    if coding is not None and (not message.chunked or coding.strip().lower() != "chunked"):
        return FailureKind.PROTOCOL, f"transfer coding {coding[:60]!r}"
    length = headers.get(hdrs.CONTENT_LENGTH)
    if length is not None and len(length) > 18 and int(length) > CONTENT_LENGTH_MAX:
        return FailureKind.PROTOCOL, "a length beyond 63 bits"
    if wire_bytes > headers_bytes_max:
        head_bytes = sum(len(name) + len(value) + 4 for name, value in message.raw_headers)
        if head_bytes > headers_bytes_max:
            return FailureKind.HEADERS_TOO_LARGE, f"headers of {head_bytes} bytes"
    return None


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
