"""Reads WARC records: the stored HTTP exchange, and the gzip members that contain records."""

import os
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec
from isal import isal_zlib

from crawler.archive.folder import CrawlFolder, archive_error
from crawler.archive.index_reader import archive_path, find_url
from crawler.archive.warc import (
    FINGERPRINT,
    FINGERPRINT_DIGITS_MAX,
    GZIP,
    HTTP_FIELD,
    KIND,
    LINK_FIELD,
    WITHHELD_BY,
    payload_digest,
)
from crawler.errors import ArchiveError
from crawler.model import CommitEntry, WarcLocation

LENGTH_DIGITS_MAX = 18
HEAD_BYTES = 128 * 1024  # of a record: more than the heads of an exchange may have
_MAGIC = b"\x1f\x8b\x08"
_CHUNK_BYTES = 64 * 1024
_WINDOW_BYTES = 1 << 20

Buffer = bytes | memoryview


class StoredResponse(msgspec.Struct, frozen=True, kw_only=True):
    """A response record. `payload` is the body as received, still content-coded; of a revisit record there is none."""

    uri: str
    status_line: str
    headers: tuple[tuple[str, str], ...]
    payload: bytes
    digest: str = ""  # of the payload, from the record
    truncated: str = ""  # the value of WARC-Truncated
    fingerprint: str = ""  # of a request that its URL alone does not tell; "": a plain GET
    record_id: str = ""
    date: str = ""
    is_revisit: bool = False  # the page, or its body, is in another record
    refers_to: str = ""  # the URL of that one
    is_withheld: bool = False  # its body was not kept, because of its rights; `links` has where it leads
    links: tuple[str, ...] = ()

    @property
    def status(self) -> int:
        """The status code; 0 when the status line has none."""
        code = self.status_line.partition(" ")[2][:3]
        return int(code) if code.isascii() and code.isdigit() else 0

    def header(self, name: str) -> str:
        """First value of a header by its lower-case name; '' when absent."""
        return next((value for key, value in self.headers if key.lower() == name), "")

    def listed(self, name: str) -> str:
        """The values of a header that is a list, by its lower-case name (RFC 9110 5.3)."""
        return ",".join([value for key, value in self.headers if key.lower() == name])


def read_head(folder: CrawlFolder, location: WarcLocation) -> StoredResponse | None:
    """The response record at this place without its payload, by its first bytes; None when that can't be read."""
    path = archive_path(folder, location.file)
    if path is None:
        return None
    try:
        member = _bytes_at(path, location.offset, min(location.length, HEAD_BYTES))
        begin: bytes = isal_zlib.decompressobj(wbits=GZIP).decompress(member, HEAD_BYTES)
    except (OSError, isal_zlib.error):  # type: ignore[misc]  # its stub declares an instance
        return None
    head, _, block = begin.partition(b"\r\n\r\n")
    http, end, _ = block.partition(b"\r\n\r\n")
    if not head.startswith(b"WARC/1.1\r\n") or not end:
        return None
    fields = dict(_headers(head))
    return _stored(fields, http, b"") if fields.get("WARC-Type") == "response" else None


def info_of(path: Path) -> dict[str, str]:
    """The fields of the first record of a WARC file, that describe the file; none when that can't be read."""
    try:
        begin: bytes = isal_zlib.decompressobj(wbits=GZIP).decompress(_bytes_at(path, 0, HEAD_BYTES), HEAD_BYTES)
    except (OSError, isal_zlib.error):  # type: ignore[misc]  # its stub declares an instance
        return {}
    head, _, block = begin.partition(b"\r\n\r\n")
    if dict(_headers(head)).get("WARC-Type") != "warcinfo":
        return {}
    lines = block.decode("utf-8", "replace").partition("\r\n\r\n")[0].split("\r\n")
    return {name: value.strip() for name, _, value in (line.partition(":") for line in lines) if value}


def _bytes_at(path: Path, offset: int, length: int) -> bytes:
    with path.open("rb") as file:
        return os.pread(file.fileno(), length, offset)


def read_record(folder: CrawlFolder, location: WarcLocation) -> StoredResponse:
    """The response record at this place. Raises ArchiveError when it is not there or not whole."""
    stored = read_any(folder, location)
    if stored.is_revisit:
        raise ArchiveError(f"no response record in {folder.warc / location.file} at {location.offset}")
    return stored


def read_any(folder: CrawlFolder, location: WarcLocation) -> StoredResponse:
    """The same, also of a revisit record."""
    return _read(folder, location)[2]


def _read(folder: CrawlFolder, location: WarcLocation) -> tuple[Path, bytes, StoredResponse]:
    """The file, the gzip member at this place, and the record in it. Raises ArchiveError."""
    path = archive_path(folder, location.file)
    if path is None:
        raise ArchiveError(f"can't find {folder.warc / location.file}")
    where = f"{path} at {location.offset}"
    try:
        member = _bytes_at(path, location.offset, location.length)
    except OSError as error:
        raise archive_error("read", path, error) from None
    try:
        record: bytes = isal_zlib.decompress(member, GZIP)
    except (isal_zlib.error, EOFError):  # type: ignore[misc]  # its stub declares an instance
        raise ArchiveError(f"no whole record in {where}") from None
    stored = stored_response(record, where)
    if stored is None:
        raise ArchiveError(f"no response record in {where}")
    return path, member, stored


class Copied(msgspec.Struct, frozen=True, kw_only=True):
    """A record as it is in its file, in a gzip member, and the member of its request behind it; b"": it has none."""

    stored: StoredResponse
    member: bytes
    request: bytes = b""


def copied_record(folder: CrawlFolder, location: WarcLocation) -> Copied:
    """The record at this place, for a copy elsewhere. Raises ArchiveError when it is not there or not whole."""
    path, member, stored = _read(folder, location)
    try:
        request = _request_at(path, location.offset + location.length)
    except OSError as error:
        raise archive_error("read", path, error) from None
    except (isal_zlib.error, EOFError):  # type: ignore[misc]  # its stub declares an instance
        raise ArchiveError(f"no whole record in {path} at {location.offset}") from None
    return Copied(stored=stored, member=member, request=request)


def _request_at(path: Path, offset: int) -> bytes:
    """The member that begins there, if it is the record of a request. Raises OSError, and what isal raises."""
    begin = _bytes_at(path, offset, _CHUNK_BYTES)
    if not begin:
        return b""
    head: bytes = isal_zlib.decompressobj(wbits=GZIP).decompress(begin, _CHUNK_BYTES).partition(b"\r\n\r\n")[0]
    if b"\r\nWARC-Type: request\r\n" not in head:
        return b""
    size = _CHUNK_BYTES
    while True:
        data = memoryview(_bytes_at(path, offset, size))
        if found := next(members(data), None):
            return bytes(data[: found[1]])
        if len(data) < size:
            return b""  # it is still being written
        size *= 4


def read_content(folder: CrawlFolder, entry: CommitEntry) -> StoredResponse:
    """The response record with the body of a page. Raises ArchiveError when it is not there or not whole."""
    if entry.warc is None:
        raise ArchiveError(f"{entry.url}: it was stored without its body")
    if entry.original is None:
        return read_record(folder, entry.warc)
    if not entry.is_duplicate:
        return read_original(folder, entry.url, entry.original, entry.digest)
    return completed(folder, read_any(folder, entry.warc), entry.original)


def completed(folder: CrawlFolder, revisit: StoredResponse, place: WarcLocation) -> StoredResponse:
    """What a revisit record stands for: its own head with the body that is at this place, or all of the page that is
    there. Raises ArchiveError, also for another body.
    """
    original = read_original(folder, revisit.refers_to or revisit.uri, place, revisit.digest)
    if original.uri != (revisit.refers_to or revisit.uri) or payload_digest(original.payload) != revisit.digest:
        raise ArchiveError("another page")
    if not revisit.status:
        return original
    return msgspec.structs.replace(revisit, payload=original.payload, is_revisit=False)


def read_original(folder: CrawlFolder, url: str, place: WarcLocation, digest: str) -> StoredResponse:
    """The record of the page that one with this digest is unchanged from; `url`: its own. A prune may have moved it
    since: then that page's own line knows where to. Raises ArchiveError.
    """
    try:
        return read_record(folder, place)
    except ArchiveError:
        for one in find_url(folder, url):
            if one.warc is not None and one.original is None and one.digest == digest:
                return read_record(folder, one.warc)
        raise


def stored_response(record: bytes, where: str) -> StoredResponse | None:
    """The response in a decompressed record, or what a revisit record tells of one; None when it is of another type, or
    of no page. ArchiveError when it is damaged.
    """
    head, _, block = record.partition(b"\r\n\r\n")
    fields = dict(_headers(head))
    if not head.startswith(b"WARC/1.1\r\n") or not is_length(fields.get("Content-Length", "")):
        raise ArchiveError(f"no record in {where}")
    is_withheld = fields.get("WARC-Type") == "metadata" and WITHHELD_BY in fields
    if KIND in fields:
        return None
    if fields.get("WARC-Type") not in ("response", "revisit") and not is_withheld:
        return None
    length = int(fields["Content-Length"])
    if len(block) != length + 4:
        raise ArchiveError(f"the record in {where} does not have its declared length")
    if is_withheld:
        return _withheld(fields, block[:length])
    http, _, payload = block[:length].partition(b"\r\n\r\n")
    return _stored(fields, http, payload)


def _stored(fields: Mapping[str, str], http: bytes, payload: bytes) -> StoredResponse:
    return StoredResponse(
        uri=fields.get("WARC-Target-URI", ""),
        status_line=http.partition(b"\r\n")[0].decode("latin-1"),
        headers=tuple(_headers(http)),
        payload=payload,
        digest=fields.get("WARC-Payload-Digest", ""),
        truncated=fields.get("WARC-Truncated", ""),
        fingerprint=_number_of(fields.get(FINGERPRINT, "")),
        record_id=fields.get("WARC-Record-ID", ""),
        date=fields.get("WARC-Date", ""),
        is_revisit=fields.get("WARC-Type") == "revisit",
        refers_to=fields.get("WARC-Refers-To-Target-URI", ""),
    )


def _withheld(fields: Mapping[str, str], block: bytes) -> StoredResponse:
    """A page without its body, of what is in its place."""
    lines = [line.partition(b": ") for line in block.split(b"\r\n")]
    http = [value for name, _, value in lines if name == HTTP_FIELD.encode()]
    links = tuple([value.decode("ascii", "replace") for name, _, value in lines if name == LINK_FIELD.encode()])
    found = _stored(fields, b"\r\n".join(http), b"")
    return msgspec.structs.replace(found, digest=payload_digest(b""), is_withheld=True, links=links)


def _number_of(text: str) -> str:
    """A fingerprint as it was written; "" for anything else."""
    digits = text.removeprefix("-")
    return text if digits.isascii() and digits.isdigit() and len(digits) <= FINGERPRINT_DIGITS_MAX else ""


def is_length(text: str) -> bool:
    """Whether a header's value is a length that `int` accepts: it raises for thousands of digits."""
    return text.isascii() and text.isdigit() and len(text) <= LENGTH_DIGITS_MAX


def _headers(head: bytes) -> list[tuple[str, str]]:
    lines = head.decode("latin-1").split("\r\n")[1:]
    return [(name, value.strip()) for name, _, value in (line.partition(":") for line in lines)]


def members(data: memoryview) -> Iterator[tuple[int, int]]:
    """(start, end) of the gzip members from the beginning up to the first that is not whole."""
    start = 0
    while start < len(data):
        end, _ = _member_end(data, start)
        if end is None:
            return
        yield start, end
        start = end


def next_member(data: memoryview, start: int, *, work_max: int | None = None) -> int | None:
    """The start of the next whole gzip member at or after `start`; None when there is none.

    A body may be full of bytes that look like the start of a member. After `work_max` bytes were read, the last
    candidate is returned without being read to its end.
    """
    position, looked_at = start, 0
    while position < len(data):
        window = bytes(data[position : position + _WINDOW_BYTES])
        found = window.find(_MAGIC)
        while found >= 0:
            end, work = _member_end(data, position + found)
            looked_at += work
            if end is not None or (work_max is not None and looked_at > work_max):
                return position + found
            found = window.find(_MAGIC, found + 1)
        position += max(len(window) - len(_MAGIC) + 1, 1)
    return None


def _member_end(data: memoryview, start: int) -> tuple[int | None, int]:
    """End of the member at `start`, None when it is torn or damaged (its CRC is checked); and the bytes read."""
    inflater = isal_zlib.decompressobj(wbits=GZIP)
    position = start
    while position < len(data):
        chunk = data[position : position + _CHUNK_BYTES]
        try:
            inflater.decompress(chunk)
        except isal_zlib.error:  # type: ignore[misc]  # its stub declares an instance
            return None, position + len(chunk) - start
        position += len(chunk)
        if inflater.eof:
            return position - len(inflater.unused_data), position - start
    return None, position - start
