"""The index: CDXJ lines of commits, written in segments, as pywb reads them, with additional fields of our own."""

import re
from collections.abc import Iterable, Iterator
from urllib.parse import unquote_to_bytes
from zlib import crc32

import msgspec

from crawler.archive.checked_lines import is_right, with_checksum, without_checksum
from crawler.archive.folder import digits14
from crawler.archive.method_query import is_by_url, url_with_method
from crawler.errors import ConflictError
from crawler.model import NO_MEDIA_TYPE, CommitEntry

# Converts commit entries to index lines and back: CDXJ as pywb reads it, with additional fields of our own.
#
# A line is: SURT key, blank, 14-digit time, blank, JSON. The standard fields are strings, as other tools write them.
# The SURT key is the URL with its host reversed, as Wayback machines look it up (com,example)/path); it follows the
# rules of pywb and the Wayback tools, for canonical URLs. Of other requests than GET the method and the body are in the
# key, too (see `method_query`). The last field is a checksum of all before it (see
# `checked_lines`); lines of earlier releases have none.
#
# A closed segment of such lines ends with a footer, `~ 00000000000000 {"lines": ..., "sum": ..., "crc": ...}`: how many
# lines are before it, and their CRC-32. Its key sorts behind those of all URLs, and no look-up asks for it.

_YEAR_10000_S = 253_402_300_800
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(CommitEntry).decode


def to_line(entry: CommitEntry) -> bytes:
    """The entry as one line, with its line feed."""
    line = b"%b %b %b" % (key_of(entry).encode(), digits14(entry.fetched_at).encode(), _encode(entry))
    return with_checksum(line) + b"\n"


def key_of(entry: CommitEntry) -> str:
    """The key of its line: of its URL, and of its request if that was more than a GET of it."""
    request = entry.request
    if request is None or is_by_url(request.method):
        return surt(entry.url)
    return surt(url_with_method(entry.url, request.method, entry.request_body))


def to_entry(line: bytes) -> CommitEntry | None:
    """The entry of a line (with or without line feed); None when the line is damaged, or a footer. Raises ConflictError
    for a line of a newer release.
    """
    line = line.removesuffix(b"\n")
    proof = is_right(line)
    if proof is False or is_footer(line):
        return None
    try:
        entry = _decode((without_checksum(line) if proof else line).split(b" ", 2)[2])
        return entry if proof or _is_possible(entry) else None
    except (IndexError, ValueError, RecursionError, msgspec.MsgspecError) as error:
        if proof:
            raise ConflictError(f"the index was written by a newer release of the program ({error})") from None
        return None


def _is_possible(entry: CommitEntry) -> bool:
    """Can these values of a line without a checksum be used? ValueError: no."""
    is_fingerprint = -(2**63) <= int(entry.fingerprint) < 2**63
    is_one = entry.status >= 0 and all(place is None or place.offset >= 0 for place in (entry.warc, entry.original))
    return is_fingerprint and is_one and 0 <= entry.visit < 2**63 and 0 <= entry.fetched_at < _YEAR_10000_S


def pruned(entry: CommitEntry) -> CommitEntry:
    """What stays of a commit whose record and items are removed: its page remains done, and a rebuild can count it."""
    return msgspec.structs.replace(
        entry.placed(None, None).referring(None), mime=NO_MEDIA_TYPE, original_mime="", head_digest="", digest="",
        title="", truncated="", decode_error="",
        noindex=False, node="", sequence=0, label="" if entry.is_page else entry.label, times={}, pruned=True,
    )  # fmt: skip


def is_whole(line: bytes) -> bool:
    """Whether a line (without line feed) is complete: by its checksum, or as far as its form shows."""
    proof = is_right(line)
    return proof if proof is not None else line.endswith(b"}") and b" {" in line and b"\0" not in line


def without_torn_tail(lines: list[bytes]) -> list[bytes]:
    """The lines of a file that was being written, without the incomplete ones at its end. What is damaged before a
    complete line was not torn, and stays, so that it is reported.
    """
    while lines and not (lines[-1].endswith(b"\n") and is_whole(lines[-1][:-1])):
        lines.pop()
    return lines


_FOOTER = b"~ "


class _Footer(msgspec.Struct):
    lines: int
    sum: str


def is_footer(line: bytes) -> bool:
    """Is it the last line of a closed segment?"""
    return line.startswith(_FOOTER)


def with_footer(lines: Iterable[bytes]) -> Iterator[bytes]:
    """Sorted lines of a segment, and its footer; a footer among them is left out."""
    number = total = 0
    for line in lines:
        if not is_footer(line):
            number, total = number + 1, crc32(line, total)
            yield line
    yield with_checksum(b'%b00000000000000 {"lines":%d,"sum":"%08x"}' % (_FOOTER, number, total)) + b"\n"


class SegmentCheck:
    """Looks at the lines of one closed segment as they are read, from the first to the last."""

    def __init__(self) -> None:
        self._lines = self._sum = 0
        self._footer = b""
        self._needs_footer = False  # there are lines with checksums

    def is_entry(self, line: bytes) -> bool:
        """Is it a line of the index, damaged or not?"""
        if is_footer(line):
            self._footer = line
            return False
        self._needs_footer = self._needs_footer or is_right(line[:-1]) is not None
        self._lines, self._sum = self._lines + 1, crc32(line, self._sum)
        return True

    def flaw(self) -> str:
        """At the end: what is wrong with the segment as a whole; "": nothing."""
        if not self._footer:
            return "its end is missing" if self._needs_footer or not self._lines else ""
        if not is_right(self._footer[:-1]):
            return "its last line is damaged"
        footer = msgspec.json.decode(self._footer.split(b" ", 2)[2], type=_Footer)
        if self._lines != footer.lines:
            return f"it has {self._lines:,} lines, and had {footer.lines:,}"
        return "" if footer.sum == f"{self._sum:08x}" else "its lines are not those that were written"


_WWW = re.compile(r"www\d*\.")
_HEX = frozenset(b"0123456789ABCDEFabcdef")
_SLASHES = re.compile(r"//+")


def surt(url: str) -> str:
    """The sort key of a canonical http(s) URL. Different URLs may share one (letter case, `www.`, scheme)."""
    authority, _, rest = url.partition("://")[2].partition("/")
    path, mark, query = rest.partition("?")
    if "//" in path or path.startswith("/"):
        path = _SLASHES.sub("/", "/" + path)[1:]
    if not url.isascii() or not url.isprintable() or "%" in rest or " " in rest:
        path, query = _requoted(path), _requoted(query)
    path = path.lower().removesuffix("/")
    if not mark or not query:
        return f"{_reversed_host(authority)})/{path}"
    return f"{_reversed_host(authority)})/{path}?{_sorted_query(query.lower())}"


def _reversed_host(authority: str) -> str:
    authority = authority.rpartition("@")[2].lower()
    if authority.startswith("["):
        host, _, port = authority[1:].partition("]")
        return host + port
    if authority.startswith("www"):
        authority = _WWW.sub("", authority, count=1)
    host, colon, port = authority.partition(":")
    return ",".join(reversed(host.split("."))) + colon + port


def _sorted_query(query: str) -> str:
    if "&" not in query:
        return query
    return "&".join("=".join(pair) for pair in sorted(part.split("=", 1) for part in query.split("&")))


def _requoted(text: str) -> str:
    """Unescape until nothing changes, then escape blanks, controls, non-ASCII bytes, `#` and `%`."""
    raw = unquote_to_bytes(text.encode("utf-8", "surrogatepass"))
    if b"%" in raw:
        raw = _unescaped(raw)
    return "".join(chr(b) if 0x20 < b < 0x7F and b not in b"#%" else f"%{b:02X}" for b in raw)


def _unescaped(raw: bytes) -> bytes:
    """Unescape until nothing changes, in one pass: repeated passes over %252525... take quadratic time."""
    out = bytearray()
    for byte in raw:
        out.append(byte)
        while len(out) >= 3 and out[-3] == 0x25 and out[-2] in _HEX and out[-1] in _HEX:
            out[-3:] = bytes.fromhex(out[-2:].decode("ascii"))
    return bytes(out)
