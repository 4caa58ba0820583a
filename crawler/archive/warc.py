"""WARC files: records (ISO 28500:2017) made, written and read, safely for exchanges with hostile sites."""

import hashlib
import itertools
import os
import re
import struct
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from urllib.parse import quote

import msgspec
from isal import isal_zlib

from crawler.archive.appender import Appender, end_all, finish_all
from crawler.archive.folder import CrawlFolder, archive_error, digits17, iso_ms
from crawler.archive.index_reader import archive_path, find_url
from crawler.errors import ArchiveError
from crawler.model import CommitEntry, Response, WarcLocation
from crawler.settings import ArchiveSettings

# Builds WARC 1.1 records (ISO 28500:2017) as bytes, safely for exchanges with hostile sites. Pure.

# The names that Nutch, StormCrawler and Common Crawl give to headers which no longer describe the stored body.
_KEPT_AS = b"X-Crawler-"
_LINE_BREAKS = re.compile(rb"[\r\n\0]+")
_CREDENTIALS = re.compile(r"^(https?://)[^/?#]*@", re.IGNORECASE)
_IP_ADDRESS = re.compile(r"[0-9A-Fa-f:.]{2,45}")
_TRUNCATIONS = frozenset({"length", "time", "disconnect", "unspecified"})
FINGERPRINT = "Crawler-Fingerprint"  # a field of our own (ISO 28500 5.1): requests of one URL may differ
FINGERPRINT_DIGITS_MAX = 19
_RESERVED = ";/?:@&=+$,#[]!'()*~%"
NOT_MODIFIED_PROFILE = "http://netpreserve.org/warc/1.1/revisit/server-not-modified"
_RECORD_ID = re.compile(r"<urn:uuid:[0-9a-f-]{36}>")
_DATE = re.compile(r"[0-9T:.Z-]{20,30}")


def record_ids() -> Iterator[str]:
    """Endless record ids: one random UUID whose last 48 bits count up (a new UUID for each costs ten times more)."""
    random = uuid.uuid4()
    first = str(random)[:24]
    for number in itertools.count(random.node):
        yield f"<urn:uuid:{first}{number & 0xFFFF_FFFF_FFFF:012x}>"


def warcinfo(identity: str, *, filename: str, at: float, software: str, fields: dict[str, str]) -> bytes:
    """The first record of every file."""
    described = {"software": software, "format": "WARC File Format 1.1", **fields}
    described["conformsTo"] = "http://iipc.github.io/warc-specifications/specifications/warc-format/warc-1.1/"
    block = "".join(f"{k}: {_one_line(v)}\r\n" for k, v in described.items()).encode()
    head = (
        "WARC/1.1\r\nWARC-Type: warcinfo\r\n"
        f"WARC-Record-ID: {identity}\r\nWARC-Date: {iso_ms(at)}\r\nWARC-Filename: {_one_line(filename)}\r\n"
        f"WARC-Block-Digest: {payload_digest(block)}\r\n"
        f"Content-Type: application/warc-fields\r\nContent-Length: {len(block)}\r\n\r\n"
    )
    return b"%b%b\r\n\r\n" % (head.encode(), block)


def response_record(response: Response, identity: str, fingerprint: str = "") -> tuple[bytes, str]:
    """The record of the response, and the digest of its payload ("sha1:BASE32", of the content-coded body).

    `fingerprint`: of a request that its URL alone does not tell.
    """
    body = response.raw_body
    http = _http_head(response)
    payload = payload_digest(body)
    truncated = f"WARC-Truncated: {_truncation(response.truncated)}\r\n" if response.truncated else ""
    named = f"{FINGERPRINT}: {fingerprint}\r\n" if fingerprint else ""
    head = (
        f"WARC/1.1\r\nWARC-Type: response\r\nWARC-Record-ID: {identity}\r\n{_common(response)}"
        f"WARC-Block-Digest: {payload_digest(body, after=http)}\r\nWARC-Payload-Digest: {payload}\r\n{truncated}{named}"
        f"Content-Type: application/http;msgtype=response\r\nContent-Length: {len(http) + len(body)}\r\n\r\n"
    )
    return b"".join((head.encode("ascii"), http, body, b"\r\n\r\n")), payload


def revisit_record(response: Response, original: "Original", identity: str, fingerprint: str = "") -> bytes:
    """The record of an answer which said that the page is as it was archived before (ISO 28500 6.7.3): where that is.

    Its block is empty. With the head of the 304 in it, pywb sends that head to browsers, which show nothing then.
    """
    named = f"{FINGERPRINT}: {fingerprint}\r\n" if fingerprint else ""
    refers_to = f"WARC-Refers-To: {original.record_id}\r\n" if _RECORD_ID.fullmatch(original.record_id) else ""
    refers_to += f"WARC-Refers-To-Date: {original.date}\r\n" if _DATE.fullmatch(original.date) else ""
    head = (
        f"WARC/1.1\r\nWARC-Type: revisit\r\nWARC-Record-ID: {identity}\r\n{_common(response)}"
        f"WARC-Profile: {NOT_MODIFIED_PROFILE}\r\n{refers_to}WARC-Refers-To-Target-URI: {safe_uri(response.url)}\r\n"
        f"WARC-Payload-Digest: {original.digest}\r\n{named}Content-Length: 0\r\n\r\n"
    )
    return head.encode("ascii") + b"\r\n\r\n"


def request_record(response: Response, identity: str, concurrent_to: str) -> bytes:
    """The record of the request for that response."""
    block = response.request_head + response.request_body
    head = (
        f"WARC/1.1\r\nWARC-Type: request\r\nWARC-Record-ID: {identity}\r\n{_common(response)}"
        f"WARC-Concurrent-To: {concurrent_to}\r\n"
        f"WARC-Block-Digest: {payload_digest(block)}\r\n"
        f"Content-Type: application/http;msgtype=request\r\nContent-Length: {len(block)}\r\n\r\n"
    )
    return b"%b%b\r\n\r\n" % (head.encode("ascii"), block)


def _common(response: Response) -> str:
    address = response.remote_ip.partition("%")[0]  # an IPv6 zone means nothing outside this machine
    shown = f"WARC-IP-Address: {address}\r\n" if _IP_ADDRESS.fullmatch(address) else ""
    return f"WARC-Date: {iso_ms(response.started_at)}\r\nWARC-Target-URI: {safe_uri(response.url)}\r\n{shown}"


def safe_uri(url: str) -> str:
    """The URL as one header value: no line breaks, blanks or credentials. Canonical URLs pass unchanged."""
    if "@" in url:
        url = _CREDENTIALS.sub(r"\1", url)
    if url.isascii() and url.isprintable() and " " not in url:
        return url
    return quote(url, safe=_RESERVED)


def _http_head(response: Response) -> bytes:
    """Status line and headers as received, except those that contradict the stored body.

    Transfer coding was removed, and a truncated body is shorter than announced: a replay that trusted the original
    headers would fail. So these get other names, and Content-Length is that of the stored body. Hosts also write blanks
    before the colon; readers of archives take the name without them.
    """
    names = [name.rstrip().lower() for name, _ in response.headers]
    status = f"HTTP/{response.http_version} {response.status} {response.reason}"
    lines = [status.encode("utf-8", "surrogateescape")]
    stale = _stale_headers(response, names)
    lines.extend(
        [
            b"%b%b: %b" % (_KEPT_AS if lower in stale else b"", name, value)
            for (name, value), lower in zip(response.headers, names, strict=True)
        ]
        if stale
        else [b"%b: %b" % header for header in response.headers]
    )
    if stale:
        lines.append(b"Content-Length: %d" % len(response.raw_body))
    head = b"\r\n".join(lines)
    if head.count(b"\n") + 1 != len(lines) or head.count(b"\r") + 1 != len(lines) or b"\0" in head:
        head = b"\r\n".join([_LINE_BREAKS.sub(b" ", line) for line in lines])
    return head + b"\r\n\r\n"


_OF_LENGTH = frozenset({b"transfer-encoding", b"content-length"})
_WITHOUT_BODY = frozenset({204, 304})  # whatever a length says, nobody expects a body (RFC 9112 6.3)


def _stale_headers(response: Response, names: Sequence[bytes]) -> frozenset[bytes]:
    """Lower-case names of the headers that define another body than the stored one; none, or both."""
    if response.truncated or b"transfer-encoding" in names:
        return _OF_LENGTH
    if b"content-length" in names and response.status not in _WITHOUT_BODY:
        length = b"%d" % len(response.raw_body)
        for name, (_, value) in zip(names, response.headers, strict=True):
            if name == b"content-length" and value.strip() != length:
                return _OF_LENGTH
    return frozenset()


def _truncation(reason: str) -> str:
    return reason if reason in _TRUNCATIONS else "unspecified"


def _one_line(text: str) -> str:
    return " ".join(text.split())


_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567"
_PAIRS = [a + b for a, b in itertools.product(_LETTERS, repeat=2)]  # by ten bits
_FIVE_BYTES = struct.Struct(">BI").iter_unpack


def payload_digest(payload: bytes, *, after: bytes = b"") -> str:
    """SHA-1 in base 32 after "sha1:", the form that pywb and OutbackCDX compare (a name, not for security).

    `after`: bytes before the payload, passed separately to avoid a copy.
    """
    digest = hashlib.sha1(after, usedforsecurity=False)
    digest.update(payload)
    return "sha1:" + _base32(digest.digest())


def _base32(digest: bytes) -> str:
    """Base 32 of a multiple of five bytes; three times as fast as the standard library, for three digests a page."""
    return "".join(
        [
            _PAIRS[high << 2 | low >> 30] + _PAIRS[low >> 20 & 1023] + _PAIRS[low >> 10 & 1023] + _PAIRS[low & 1023]
            for high, low in _FIVE_BYTES(digest)
        ]
    )


# Writes exchanges into WARC files: one gzip member per record, new files per session, never reopened.


SUFFIX = ".warc.gz"
_GZIP = 31  # window bits that ask for a gzip member
# A request has about 300 bytes: ISA-L's levels above 0 first take 7 us to clear tables.
_REQUEST_LEVEL = 0


class WarcWriter:
    """The archive of one session.

    `add` only writes to memory, and belongs to one thread; `sync` may run in another meanwhile. After an ArchiveError
    nothing more is accepted before `drop_unwritten`; `close` keeps what is durable.
    """

    def __init__(
        self,
        folder: CrawlFolder,
        *,
        prefix: str,
        session: str,
        settings: ArchiveSettings,
        software: str,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._folder = folder
        self._prefix = prefix
        self._session = session
        self._settings = settings
        self._software = software
        self._clock = clock
        self._ids = record_ids()
        self._serial = 0
        self._current: Appender | None = None
        self._full: list[Appender] = []  # rotated out, not yet synced and renamed
        self._lock = threading.Lock()
        self._failed = False

    def add(
        self, response: Response, fingerprint: str = "", original: "Original | None" = None
    ) -> tuple[WarcLocation, str]:
        """Append the exchange; returns the location of the response record and its payload digest. `fingerprint`: of a
        request that its URL alone does not tell. `original`: the page that the response says is unchanged.

        It is durable when `sync` has returned. Raises ArchiveError when an earlier sync failed.
        """
        identity = next(self._ids)
        if original is None:
            record, digest = response_record(response, identity, fingerprint)
        else:
            record, digest = revisit_record(response, original, identity, fingerprint), original.digest
        member: bytes = isal_zlib.compress(record, self._settings.compression_level, _GZIP)
        length = len(member)
        if self._settings.request_records and response.request_head:
            request = request_record(response, next(self._ids), identity)
            member += isal_zlib.compress(request, _REQUEST_LEVEL, _GZIP)
        with self._lock:
            if self._failed:
                raise ArchiveError("the archive failed to write and takes nothing more")
            file = self._file()
            offset = file.add(member)
        return WarcLocation(file=file.final.name, offset=offset, length=length), digest

    def sync(self) -> None:
        """Make durable all that was added before. Raises ArchiveError."""
        with self._lock:
            full, current = list(self._full), self._current
        try:
            for file in full:
                file.finish()
            with self._lock:
                del self._full[: len(full)]
            if current is not None:
                current.sync()
        except ArchiveError:
            with self._lock:
                self._failed = True
            raise

    def drop_unwritten(self) -> None:
        """After a NoRoomError: end the files with what is durable. The rest has to be added again, to a new file."""
        with self._lock:
            files = [*self._full, *([self._current] if self._current else [])]
            self._current, self._full = None, []
            self._failed = False
        end_all(files)

    def close(self) -> None:
        """Sync and give all files their final names. Raises ArchiveError when that fails."""
        with self._lock:
            files = [*self._full, self._current] if self._current else self._full
            self._current, self._full = None, []
            self._failed = True
        finish_all(files)

    def _file(self) -> Appender:
        current = self._current
        if current is not None and current.size < self._settings.warc_bytes_max:
            return current
        if current is not None:
            self._full.append(current)
        self._current = self._new_file()
        return self._current

    def _new_file(self) -> Appender:
        now = self._clock()
        name = f"{self._prefix}-{digits17(now)}-{self._session}-{self._serial:05d}{SUFFIX}"
        self._serial += 1
        file = Appender(self._folder.warc / name)
        info = warcinfo(
            next(self._ids),
            filename=name,
            at=now,
            software=self._software,
            fields={"isPartOf": self._folder.crawl, "description": f"session {self._session}"},
        )
        file.add(isal_zlib.compress(info, self._settings.compression_level, _GZIP))
        return file


# Reads WARC records: the stored HTTP exchange, and the gzip members that contain records.

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
    is_revisit: bool = False  # the page is unchanged, and in another record

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


class Original(msgspec.Struct, frozen=True, kw_only=True):
    """A page in the archive that a later answer says is unchanged. `mime`: its media type, as the index has it."""

    place: WarcLocation
    record_id: str
    date: str
    digest: str
    mime: str


def read_head(folder: CrawlFolder, location: WarcLocation) -> StoredResponse | None:
    """The response record at this place without its payload, by its first bytes; None when that can't be read."""
    path = archive_path(folder, location.file)
    if path is None:
        return None
    try:
        member = _bytes_at(path, location.offset, min(location.length, HEAD_BYTES))
        begin: bytes = isal_zlib.decompressobj(wbits=_GZIP).decompress(member, HEAD_BYTES)
    except (OSError, isal_zlib.error):  # type: ignore[misc]  # its stub declares an instance
        return None
    head, _, block = begin.partition(b"\r\n\r\n")
    http, end, _ = block.partition(b"\r\n\r\n")
    if not head.startswith(b"WARC/1.1\r\n") or not end:
        return None
    fields = dict(_headers(head))
    return _stored(fields, http, b"") if fields.get("WARC-Type") == "response" else None


def _bytes_at(path: Path, offset: int, length: int) -> bytes:
    with path.open("rb") as file:
        return os.pread(file.fileno(), length, offset)


def read_record(folder: CrawlFolder, location: WarcLocation) -> StoredResponse:
    """The response record at this place. Raises ArchiveError when it is not there or not whole."""
    path = archive_path(folder, location.file)
    if path is None:
        raise ArchiveError(f"can't find {folder.warc / location.file}")
    where = f"{path} at {location.offset}"
    try:
        member = _bytes_at(path, location.offset, location.length)
    except OSError as error:
        raise archive_error("read", path, error) from None
    try:
        record: bytes = isal_zlib.decompress(member, _GZIP)
    except (isal_zlib.error, EOFError):  # type: ignore[misc]  # its stub declares an instance
        raise ArchiveError(f"no whole record in {where}") from None
    stored = stored_response(record, where)
    if stored is None or stored.is_revisit:
        raise ArchiveError(f"no response record in {where}")
    return stored


def read_content(folder: CrawlFolder, entry: CommitEntry) -> StoredResponse:
    """The response record with the body of a page. Raises ArchiveError when it is not there or not whole."""
    if entry.original is not None:
        return read_original(folder, entry.url, entry.original, entry.digest)
    if entry.warc is None:
        raise ArchiveError(f"{entry.url}: it was stored without its body")
    return read_record(folder, entry.warc)


def read_original(folder: CrawlFolder, url: str, place: WarcLocation, digest: str) -> StoredResponse:
    """The record of the page that one with this digest is unchanged from. A prune may have moved it since: then that
    page's own line knows where to. Raises ArchiveError.
    """
    try:
        return read_record(folder, place)
    except ArchiveError:
        for one in find_url(folder, url):
            if one.warc is not None and one.original is None and one.digest == digest:
                return read_record(folder, one.warc)
        raise


def stored_response(record: bytes, where: str) -> StoredResponse | None:
    """The response in a decompressed record, or what a revisit record tells of one; None when it is of another type.
    ArchiveError when it is damaged.
    """
    head, _, block = record.partition(b"\r\n\r\n")
    fields = dict(_headers(head))
    if not head.startswith(b"WARC/1.1\r\n") or not is_length(fields.get("Content-Length", "")):
        raise ArchiveError(f"no record in {where}")
    if fields.get("WARC-Type") not in ("response", "revisit"):
        return None
    length = int(fields["Content-Length"])
    if len(block) != length + 4:
        raise ArchiveError(f"the record in {where} does not have its declared length")
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
    )


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
    inflater = isal_zlib.decompressobj(wbits=_GZIP)
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
