"""Records as lines of JSON or CSV, and lines packed as gzip or zstd. Must not know where they are written."""

import csv
import gzip
import io
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import IO, Protocol

import msgspec

from crawler.outputs.columns import check_count
from crawler.outputs.sink import Record

BLOCK_BYTES = 1 << 20  # of lines in a member of a packed file, at most: a file can end behind any of them
_json = msgspec.json.Encoder().encode


def packed(data: bytes, how: str) -> bytes:
    """Whole gzip members or zstd frames; files of several are read as one. `how` is "", ".gz" or ".zst"."""
    if not how:
        return data
    return b"".join(_member(data[start : start + BLOCK_BYTES], how) for start in range(0, len(data), BLOCK_BYTES))


def _member(data: bytes, how: str) -> bytes:
    if how == ".gz":
        return gzip.compress(data, 6, mtime=0)
    import zstandard

    return zstandard.compress(data)


def open_unpacked(path: Path, how: str) -> IO[bytes]:
    """A packed file's lines, to be read."""
    if how == ".gz":
        return gzip.open(path, "rb")  # type: ignore[return-value]  # a file in all but its type
    if how == ".zst":
        import zstandard

        return zstandard.ZstdDecompressor().stream_reader(path.open("rb"), read_across_frames=True)
    return path.open("rb")


class Lines(Protocol):
    """A format of lines."""

    def encode(self, records: Iterable[Record]) -> bytes: ...
    def header(self) -> bytes: ...


class JsonLines:
    """One object a line."""

    def encode(self, records: Iterable[Record]) -> bytes:
        return b"".join([_json(record) + b"\n" for record in records])

    def header(self) -> bytes:
        return b""


class CsvLines:
    """A row each, under a header. What is nested stands there as JSON, links one after the other."""

    def __init__(self, columns: Iterable[str] = ()) -> None:
        self.columns = dict.fromkeys(columns)

    def missing(self, records: Iterable[Record]) -> list[str]:
        """Fields that have no column yet. Raises OutputError when there are too many."""
        found = dict.fromkeys(name for record in records for name in record if name not in self.columns)
        check_count([*self.columns, *found])
        return list(found)

    def encode(self, records: Iterable[Record]) -> bytes:
        return _csv([_cell(record.get(name), name) for name in self.columns] for record in records)

    def header(self) -> bytes:
        return _csv([list(self.columns)]) if self.columns else b""

    def widened(self, lines: Iterable[str], rows_max: int = 1000) -> Iterator[bytes]:
        """Lines that were written with fewer columns, header included, as they are with these."""
        rows = csv.reader(lines)
        before = len(next(rows, []))
        yield self.header()
        while block := [row for row, _ in zip(rows, range(rows_max), strict=False)]:
            yield _csv(row + [""] * (len(self.columns) - before) for row in block)

    def read_header(self, lines: Iterable[str]) -> None:
        """Go on with the columns of a file that has some."""
        self.columns = dict.fromkeys(next(csv.reader(lines), []))


def _csv(rows: Iterable[Sequence[object]]) -> bytes:
    text = io.StringIO(newline="")
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue().encode("utf-8", "replace")


def _cell(value: object, name: str) -> object:
    if name == "links" and isinstance(value, list):
        return " ".join(map(str, value))
    return _json(value).decode() if isinstance(value, (list, dict)) else value
