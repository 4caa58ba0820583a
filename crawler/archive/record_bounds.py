"""Where the records of a file begin and end, by the places that the index has, without reading what it names.

Only what lies between these places is read: the request behind each response, and records that no line names.
"""

import mmap
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from crawler.archive.repair import whole_member
from crawler.archive.warc import WITHHELD_BY
from crawler.errors import ArchiveError


class Extent(NamedTuple):
    """A named record, and what belongs to it: [offset, end)."""

    offset: int
    length: int
    end: int


class Layout:
    """One pass over a file. `has_unnamed` is complete once `extents` is exhausted."""

    def __init__(self, path: Path, *, is_warc: bool) -> None:
        self._path = path
        self._is_warc = is_warc
        self.has_unnamed = False  # are there records, or frames of items, at none of the places?
        self.size = path.stat().st_size

    def extents(self, places: Iterable[tuple[int, int]]) -> Iterator[Extent]:
        """(offset, length) of the named records, in order -> their extents. Raises ArchiveError."""
        if not self.size:  # can't be mapped
            yield from self._extents(memoryview(b""), places)
            return
        with self._path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
            data = memoryview(mapped)
            try:
                yield from self._extents(data, places)
            finally:
                data.release()

    def _extents(self, data: memoryview, places: Iterable[tuple[int, int]]) -> Iterator[Extent]:
        last: Extent | None = None
        for offset, length in _ended(places, len(data)):
            start = last.end if last is not None else 0
            if offset < start or offset + length > len(data):
                raise ArchiveError(f"{self._path}: the index has places in it that overlap, or lie behind its end")
            end = self._gap(data, start, offset, follows_record=last is not None)
            if last is not None:
                yield last._replace(end=end)
            last = Extent(offset, length, offset + length)

    def _gap(self, data: memoryview, start: int, stop: int, *, follows_record: bool) -> int:
        """Where the record before this gap ends, with its request."""
        if not self._is_warc:
            self.has_unnamed |= stop > start
            return start
        end, position = start, start
        while position < stop:
            found = whole_member(data[position:stop])
            if found is None:
                raise ArchiveError(f"{self._path} is damaged at byte {position:,}")
            record, length = found
            kind = _type_of(record)
            if kind == b"request" and follows_record and end == position and position == start:
                end = position + length
            elif kind in (b"request", b"response", b"revisit"):
                self.has_unnamed = True
            elif kind != b"warcinfo":
                raise ArchiveError(f"{self._path}: a record of type {kind.decode('latin-1')!r} at byte {position:,}")
            position += length
        return end


def _ended(places: Iterable[tuple[int, int]], size: int) -> Iterator[tuple[int, int]]:
    yield from places
    yield size, 0


def _type_of(record: bytes) -> bytes:
    head = record.partition(b"\r\n\r\n")[0]
    if f"\r\n{WITHHELD_BY}: ".encode() in head:
        return b"response"  # it stands for one
    for line in head.split(b"\r\n"):
        if line[:10].lower() == b"warc-type:":
            return line[10:].strip()
    return b""
