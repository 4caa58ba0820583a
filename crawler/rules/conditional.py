"""Whether a page has changed since it was archived: what is asked (RFC 9110 13.1), and which answers count."""

import re
from datetime import UTC
from hashlib import blake2b
from typing import NamedTuple

VALIDATOR_CHARS_MAX = 256
HEAD_DIGEST_BYTES = 6
# One entity tag. `*` would fit any page, and a list of them is not what a server may send with a page.
_ETAG = re.compile(r'(?:W/)?"[\x21\x23-\x7E]*"')
_CONDITIONS = (b"if-none-match:", b"if-modified-since:")
# The statuses that only answer conditions of a GET, and which ones (RFC 9110 13.1).
_CONDITIONS_OF = {304: _CONDITIONS, 412: (b"if-match:", b"if-unmodified-since:")}
HTTP_DATE_CHARS_MAX = 64  # the longest form has 33


class Validators(NamedTuple):
    """What a server sent with a page to recognise it by; each may be ""."""

    etag: str
    modified: str

    @property
    def headers(self) -> dict[str, str]:
        """Those of a request for the page if it has changed."""
        found = {"If-None-Match": self.etag, "If-Modified-Since": self.modified}
        return {name: value for name, value in found.items() if value}

    def confirmed_by(self, etag: str) -> bool:
        """Is a 304 with this ETag about the page that had these? Most servers send the same one, and some none."""
        return not etag or not self.etag or _opaque(etag) == _opaque(self.etag)


def validators_of(etag: str, modified: str) -> Validators:
    """Those of a page's headers that can be sent back; a site may send anything."""
    is_tag = len(etag) <= VALIDATOR_CHARS_MAX and _ETAG.fullmatch(etag) is not None
    is_one = modified.isascii() and modified.isprintable() and modified.count(",") <= 1  # not a list of them
    is_date = is_one and http_date_s(modified) is not None
    return Validators(etag if is_tag else "", modified if is_date else "")


def http_date_s(text: str) -> float | None:
    """Seconds since the epoch of an HTTP-date in any of its three forms (RFC 9110 5.6.7); None for anything else."""
    if len(text) > HTTP_DATE_CHARS_MAX:
        return None
    from email.utils import parsedate_to_datetime

    try:
        parsed = parsedate_to_datetime(text)
        return parsed.replace(tzinfo=parsed.tzinfo or UTC).timestamp()
    except (ValueError, OverflowError, TypeError, IndexError):  # the library's parser raises these for invalid dates
        return None


def is_unasked(status: int, request_head: bytes) -> bool:
    """Is it an answer to conditions (304, 412) that this GET did not have? Then it is none to its request."""
    conditions = _CONDITIONS_OF.get(status)
    if conditions is None or not request_head.startswith(b"GET "):
        return False
    return not any(line.lower().startswith(conditions) for line in request_head.split(b"\r\n"))


def _opaque(etag: str) -> str:
    """For the weak comparison (RFC 9110 8.8.3.2)."""
    return etag.removeprefix("W/")


def head_digest(head: bytes) -> str:
    """What tells the head of a request apart from others for the same URL, whether or not it is conditional."""
    lines = [line for line in head.split(b"\r\n") if not line.lower().startswith(_CONDITIONS)]
    return blake2b(b"\r\n".join(lines), digest_size=HEAD_DIGEST_BYTES).hexdigest()
