"""Reads a whole crawl folder without trusting any of it: every response record, every line of the index.

For audits and rebuilds. Nothing is skipped silently: unreadable parts are reported in between. Works while sessions are
writing.
"""

import contextlib
import mmap
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO

import msgspec
from isal import isal_zlib

from crawler.archive import cdxj, index_writer, warc_writer
from crawler.archive.appender import OPEN_SUFFIX
from crawler.archive.checked_lines import DamagedLine, has_checksum
from crawler.archive.crawl_folder import CrawlFolder
from crawler.archive.index_reader import segment_names
from crawler.archive.warc_reader import Buffer, StoredResponse, next_member, stored_response
from crawler.errors import ArchiveError
from crawler.model import CommitEntry, WarcLocation

RECORD_BYTES_MAX = 1 << 30  # decompressed; a damaged length must not use up the memory
_GZIP = 31
_WINDOW_BYTES = 1 << 20


class Flaw(msgspec.Struct, frozen=True, kw_only=True):
    """An unreadable part of the folder. `is_tail`: the end of a file that is, or was, being written."""

    file: str  # relative to the crawl folder
    reason: str
    is_tail: bool = False
    part: tuple[int, int] = (0, 0)  # of a WARC file: the first byte, and the one after the last


class ArchivedResponse(msgspec.Struct, frozen=True, kw_only=True):
    """A response record and its location."""

    location: WarcLocation
    stored: StoredResponse


class IndexLine(msgspec.Struct, frozen=True, kw_only=True):
    """A commit in one line of a segment; the same commit may be in several."""

    segment: str
    entry: CommitEntry
    length: int
    has_checksum: bool  # lines of earlier releases have none


def warc_names(folder: CrawlFolder) -> list[str]:
    """Final names of all WARC files, complete or being written, in order of time."""
    try:
        names = [path.name for path in folder.warc.iterdir()]
    except OSError:
        return []
    final = {name.removesuffix(OPEN_SUFFIX) for name in names}
    return sorted(name for name in final if name.endswith(warc_writer.SUFFIX))


class ArchiveSize:
    """How many bytes all WARC files of some folders have, and how many of them lie before the end of a record."""

    def __init__(self, folders: Sequence[CrawlFolder]) -> None:
        self.total = 0
        self._before: dict[str, int] = {}  # by file: its name has the session
        for folder in folders:
            for name in warc_names(folder):
                self._before[name] = self.total
                self.total += _size_of(folder.warc / name)

    def position(self, record: WarcLocation) -> int:
        return self._before.get(record.file, self.total) + record.offset + record.length


def _size_of(path: Path) -> int:
    try:
        file, _ = _opened(path)
        with file:
            return file.seek(0, 2)
    except OSError:  # whoever reads it reports it
        return 0


def walk_responses(folder: CrawlFolder) -> Iterator[ArchivedResponse | Flaw]:
    """All response records of all WARC files in order, and the unreadable parts. Memory: one record."""
    for name in warc_names(folder):
        yield from walk_warc(folder, name)


def walk_warc(folder: CrawlFolder, name: str) -> Iterator[ArchivedResponse | Flaw]:
    """The same of one file."""
    shown = f"{folder.warc.name}/{name}"
    try:
        file, is_open = _opened(folder.warc / name)
    except OSError as error:
        yield Flaw(file=shown, reason=error.strerror or "can't be read")
        return
    with file:
        size = file.seek(0, 2)
        if size == 0:
            return
        with mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ) as mapped:
            data = memoryview(mapped)
            try:
                yield from _records(data, name, shown, is_open=is_open)
            finally:
                data.release()


def _opened(path: Path) -> tuple[IO[bytes], bool]:
    """The file under its final name or its open one; tried twice, because it may be renamed in between."""
    for candidate in (path, path.with_name(path.name + OPEN_SUFFIX)):
        with contextlib.suppress(FileNotFoundError):
            return candidate.open("rb"), candidate != path
    return path.open("rb"), False


def _records(data: memoryview, name: str, shown: str, *, is_open: bool) -> Iterator[ArchivedResponse | Flaw]:
    start = 0
    while start < len(data):
        found = _member(data, start)
        if found is None:
            following = next_member(data, start + 1)
            if following is None:
                cut = f"its last {len(data) - start:,} bytes are not a whole record"
                yield Flaw(file=shown, reason=cut, is_tail=is_open, part=(start, len(data)))
                return
            reason = f"damaged from byte {start:,} to {following:,}"
            yield Flaw(file=shown, reason=reason, part=(start, following))
            start = following
            continue
        record, end = found
        try:
            stored = stored_response(record, f"{shown} at {start}")
        except ArchiveError as error:
            yield Flaw(file=shown, reason=str(error), part=(start, end))
        else:
            if stored is not None:
                location = WarcLocation(file=name, offset=start, length=end - start)
                yield ArchivedResponse(location=location, stored=stored)
        start = end


def _member(data: memoryview, start: int) -> tuple[bytes, int] | None:
    """The decompressed gzip member at `start` and its end; None when it is not whole (its CRC is checked)."""
    inflater = isal_zlib.decompressobj(wbits=_GZIP)
    pieces: list[Buffer] = []
    position, room = start, RECORD_BYTES_MAX
    while position < len(data) and room > 0:
        chunk = data[position : position + _WINDOW_BYTES]
        try:
            pieces.append(inflater.decompress(chunk))
        except isal_zlib.error:  # type: ignore[misc]  # its stub declares an instance
            return None
        room -= len(pieces[-1])
        position += len(chunk)
        if inflater.eof:
            return b"".join(pieces), position - len(inflater.unused_data)
    return None


def whole_member(data: memoryview) -> tuple[bytes, int] | None:
    """The decompressed gzip member at the start of `data` and its length; None when it is not whole."""
    return _member(data, 0)


def walk_lines(folder: CrawlFolder) -> Iterator[IndexLine | Flaw]:
    """Every line of every index segment, unsorted and with repeats, and the unreadable parts."""
    names = segment_names(folder)
    for missing in index_writer.serials_missing(folder, names):
        yield Flaw(file=f"{folder.index.name}/{missing}", reason="not found")
    for final in sorted({name.removesuffix(OPEN_SUFFIX) for name in names}):  # both exist while one is being sorted
        yield from _walk_segment(folder, final)


def _walk_segment(folder: CrawlFolder, final: str) -> Iterator[IndexLine | Flaw]:
    shown = f"{folder.index.name}/{final}"
    try:
        file, is_open = _opened(folder.index / final)
        check, offset = cdxj.SegmentCheck(), 0
        with file:
            for number, line in enumerate(file, 1):
                if check.is_entry(line):
                    entry = cdxj.to_entry(line) if line.endswith(b"\n") else None
                    if entry is not None:
                        checked = has_checksum(line[:-1])
                        yield IndexLine(segment=final, entry=entry, length=len(line), has_checksum=checked)
                    elif is_open and not line.endswith(b"\n"):
                        yield Flaw(file=shown, reason="a torn last line", is_tail=True)
                    else:
                        yield Flaw(file=shown, reason=str(DamagedLine(number, offset, line)))
                offset += len(line)
        if not is_open and (flaw := check.flaw()):
            yield Flaw(file=shown, reason=flaw)
    except OSError as error:
        yield Flaw(file=shown, reason=error.strerror or "can't be read")
