"""Reads WARC files of any tool by URL, for replays: responses are located once, and read when they are requested.

The newest response of a URL counts; revisit records get the body that they refer to. Damage is reported, and the rest
can be read.
"""

import contextlib
import io
import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
from warcio.archiveiterator import WARCIterator
from warcio.bufferedreaders import ChunkedDataReader

from crawler.archive.appender import OPEN_SUFFIX
from crawler.archive.warc_reader import is_length
from crawler.errors import ArchiveError, InvalidUrl, UsageError
from crawler.model import NOT_MODIFIED
from crawler.rules.progress import SILENT, Meter
from crawler.rules.urls import canonicalize, host_of

SUFFIXES = (".warc", ".warc.gz")
_CHUNK_BYTES = 65_536
_WHOLE = "non-chunked gzip"  # in an error of warcio: records can't be found by their offset
_END_OF_HEAD = re.compile(rb"\r?\n\r?\n")
FINAL_STATUS_MIN = 200
_NAME = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_STATUS_LINE = re.compile(rb"HTTP/\d(?:\.\d)? (\d{3}) ?(.*)")
# RFC 9110 7.6.1 and 9112: headers of the original connection, and of the body's length on it.
_OF_THE_CONNECTION = frozenset(
    (
        b"connection", b"content-length", b"keep-alive", b"proxy-authenticate", b"proxy-connection", b"te", b"trailer",
        b"transfer-encoding", b"upgrade",
    )
)  # fmt: skip


class RecordedResponse(msgspec.Struct, frozen=True, kw_only=True):
    """A recorded response. `headers` without those of its connection; `body` still content-coded."""

    status: int
    reason: str
    headers: tuple[tuple[bytes, bytes], ...]
    body: bytes


class _Place(msgspec.Struct, frozen=True):
    date: str  # ISO 8601: sorts by time
    file: int
    offset: int


class RecordedWeb:
    """Responses by canonical URL. Memory: about 500 bytes for each. `flaws`: unreadable parts, one line each."""

    def __init__(self, paths: Sequence[str | os.PathLike[str]], meter: Meter = SILENT) -> None:
        """`paths`: WARC files, folders of them, crawl folders. Raises UsageError when there is no response in them."""
        self.flaws: list[str] = []
        self.hosts: set[str] = set()
        self._files = [file for path in paths for file in _files_of(Path(path))]
        self._responses: dict[str, _Place] = {}
        self._revisits: dict[str, _Place] = {}
        self._by_digest: dict[str, _Place] = {}
        self._meter, self._records, self._before = meter, 0, 0
        meter.begin("reading archive", "record", sum(map(_size_of, self._files)))
        for number, file in enumerate(self._files):
            self._index(number, file)
            self._before += _size_of(file)
        if not self._responses:
            shown = "; ".join(self.flaws) or ", ".join(map(str, self._files))
            raise UsageError(f"no response to serve: {shown}" if self.flaws else f"{shown}: there is no response in it")

    def __len__(self) -> int:
        return len(self._responses.keys() | self._revisits.keys())

    @property
    def first_url(self) -> str:
        return next(iter(self._responses))

    def read(self, url: str) -> RecordedResponse | None:
        """The response that was recorded last; None without one. Raises ArchiveError."""
        place, again = self._responses.get(url), self._revisits.get(url)
        if again is not None and (place is None or again.date >= place.date):
            return self._revisited(url, again)
        return _parsed(self._block(place)[1], url) if place else None

    def _revisited(self, url: str, place: _Place) -> RecordedResponse:
        """Status and headers of the revisit, if it has them, with the body that it refers to; of a server that said
        that nothing was modified, all that it refers to.
        """
        fields, block = self._block(place)
        referred = _canonical(fields.get("warc-refers-to-target-uri", "")) or url
        origin = self._by_digest.get(fields.get("warc-payload-digest", "")) or self._responses.get(referred)
        if origin is None:
            raise ArchiveError(f"{url}: what its revisit record refers to is not in these files")
        original = _parsed(self._block(origin)[1], url)
        if not block.startswith(b"HTTP/"):
            return original
        again = _parsed(block, url)
        if again.status == NOT_MODIFIED:  # of other tools
            return original
        return RecordedResponse(status=again.status, reason=again.reason, headers=again.headers, body=original.body)

    def _block(self, place: _Place) -> tuple[dict[str, str], bytes]:
        path = self._files[place.file]
        try:
            with path.open("rb") as file:
                file.seek(place.offset)
                record = next(iter(WARCIterator(file, no_record_parse=True)))
                return _fields(record), b"".join(_chunks(record))
        except Exception as error:  # noqa: BLE001 - warcio raises many kinds of errors for a damaged file
            raise ArchiveError(f"{path} at byte {place.offset:,}: {_reason(error)}") from None

    # --- the index ---

    def _index(self, number: int, path: Path) -> None:
        complaints = io.StringIO()  # warcio writes to stderr
        try:
            with path.open("rb") as file, contextlib.redirect_stderr(complaints):
                records = WARCIterator(file, no_record_parse=True)
                for record in records:
                    self._enter(number, records, record)
                    self._records += 1
                    self._meter.reached(self._records, self._before + records.offset)
        except FileNotFoundError:
            raise UsageError(f"{path}: there is no such file") from None
        except OSError as error:
            raise UsageError(f"{path}: {error.strerror or _reason(error)}") from None
        except Exception as error:  # noqa: BLE001 - see above
            if _WHOLE in str(error):
                raise UsageError(f"{path}: all of it is one gzip member: rewrite it with 'warcio recompress'") from None
            self.flaws.append(f"{path}: {_reason(error)}")

    def _enter(self, number: int, records: Any, record: Any) -> None:
        fields, offset = _fields(record), records.offset
        wanted, there = fields.get("content-length", ""), sum(len(chunk) for chunk in _chunks(record))
        if not is_length(wanted) or there < int(wanted):
            raise ArchiveError(f"cut off at byte {offset:,}; what is before it can be read")
        url = _canonical(fields.get("warc-target-uri", ""))
        kind = fields.get("warc-type")
        if not url or kind not in ("response", "revisit"):
            return
        place = _Place(fields.get("warc-date", ""), number, offset)
        known = self._responses if kind == "response" else self._revisits
        if url not in known or known[url].date <= place.date:
            known[url] = place
        if kind == "response" and "warc-payload-digest" in fields:
            self._by_digest.setdefault(fields["warc-payload-digest"], place)
        self.hosts.add(host_of(url))


def _files_of(path: Path) -> list[Path]:
    """Raises UsageError for a folder without archives."""
    if not path.is_dir():
        return [path]
    where = path / "warc" if (path / "warc").is_dir() else path
    found = [file for file in sorted(where.iterdir()) if file.name.removesuffix(OPEN_SUFFIX).endswith(SUFFIXES)]
    if not found:
        raise UsageError(f"{path}: there is no WARC file in it (*.warc, *.warc.gz)")
    return found


def _size_of(file: Path) -> int:
    try:
        return file.stat().st_size
    except OSError:  # whoever reads it reports it
        return 0


def _fields(record: Any) -> dict[str, str]:
    return {name.lower(): value.strip() for name, value in record.rec_headers.headers}


def _chunks(record: Any) -> Iterator[bytes]:
    while chunk := record.raw_stream.read(_CHUNK_BYTES):
        yield chunk


def _canonical(uri: str) -> str:
    """Empty for anything but a URL of the web. Some tools write URLs in angle brackets."""
    try:
        return canonicalize(uri.strip("<>")) if uri else ""
    except InvalidUrl:
        return ""


def _parsed(block: bytes, url: str) -> RecordedResponse:
    head, _, body = _parted(block)
    lines = head.splitlines()
    found = _STATUS_LINE.match(lines.pop(0)) if lines else None
    if found is None:
        raise ArchiveError(f"{url}: its record is not an HTTP response")
    status, headers = int(found[1]), _headers_in(lines)
    if status < FINAL_STATUS_MIN:
        raise ArchiveError(f"{url}: its record is an interim response ({status})")
    if any(name.lower() == b"transfer-encoding" and b"chunked" in value.lower() for name, value in headers):
        body = _without_chunks(body, url)
    return RecordedResponse(
        status=status,
        reason=found[2].decode("latin-1").strip(),
        headers=tuple(header for header in headers if header[0].lower() not in _OF_THE_CONNECTION),
        body=body,
    )


def _headers_in(lines: Sequence[bytes]) -> list[tuple[bytes, bytes]]:
    """Headers with valid names (RFC 9110 5.1), without blanks before the colon; folded lines are joined."""
    headers: list[tuple[bytes, bytes]] = []
    folded: list[bytes] = []
    for line in lines:
        if line[:1] in (b" ", b"\t"):
            folded.append(line.strip())
            continue
        _unfold(headers, folded)
        name, colon, value = line.partition(b":")
        headers.append((name.rstrip(b" \t") if colon else b"", value.strip().replace(b"\0", b"")))
    _unfold(headers, folded)
    return [header for header in headers if _NAME.fullmatch(header[0])]


def _unfold(headers: list[tuple[bytes, bytes]], folded: list[bytes]) -> None:
    if headers and folded:
        name, value = headers[-1]
        headers[-1] = (name, b" ".join((value, *folded)))
    folded.clear()


def _without_chunks(body: bytes, url: str) -> bytes:
    try:
        read: bytes = ChunkedDataReader(io.BytesIO(body)).read()
    except Exception as error:  # noqa: BLE001 - warcio raises many kinds of errors
        raise ArchiveError(f"{url}: its chunked body can't be decoded: {_reason(error)}") from None
    return read


def _parted(block: bytes) -> tuple[bytes, bytes, bytes]:
    found = _END_OF_HEAD.search(block)
    return (block, b"", b"") if found is None else (block[: found.start()], found[0], block[found.end() :])


def _reason(error: Exception) -> str:
    """An error of warcio in one line, without its banner."""
    said = " ".join(str(error).split())
    if isinstance(error, StopIteration):
        return "there is no record"
    if "Invalid WARC record" in said:
        return "this is not a WARC record; what is before it can be read"
    return said[:200] or type(error).__name__
