"""Records as lines of JSON or CSV, and lines packed as gzip or zstd. Must not know where they are written."""

import csv
import gzip
import io
import re
import sys
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import IO, Any, Protocol

import msgspec

from crawler.outputs.columns import check_count
from crawler.outputs.sink import Record
from crawler.rules.text import printable_json

BLOCK_BYTES = 1 << 20  # of lines in a member of a packed file, at most: a file can end behind any of them


ROWS = 1000  # of CSV at a time, when a file is read back


_json = msgspec.json.Encoder().encode
# Of the csv module's reader, for the whole process: 131,072 otherwise. What we read back are our own files, and how
# large a field of theirs can be is bounded where items are taken in.
csv.field_size_limit(sys.maxsize)


def packed(data: bytes, how: str) -> bytes:
    """Whole gzip members or zstd frames; files of several are read as one. `how` is "", ".gz" or ".zst"."""
    if not how:
        return data
    return b"".join(_member(data[start : start + BLOCK_BYTES], how) for start in range(0, len(data), BLOCK_BYTES))


def _member(data: bytes, how: str) -> bytes:
    if how == ".gz":
        return gzip.compress(data, 6, mtime=0)
    packed: bytes = _zstd().compress(data)
    return packed


def text_of(file: IO[bytes], how: str) -> io.TextIOWrapper:
    """The lines of a file from its beginning, unpacked. An end of line may stand within the quotes of CSV: each stays
    as it is. The file is closed with the text.
    """
    source: Any = file
    if how == ".gz":
        source = gzip.GzipFile(fileobj=file, mode="rb")
    elif how == ".zst" and file.seek(0, io.SEEK_END):  # it takes an empty file for one that is cut
        file.seek(0)
        source = _zstd().ZstdFile(file)
    return _Text(source, file)


def read_errors() -> tuple[type[Exception], ...]:
    """What reading such a file raises where it is damaged, or no such file."""
    return (EOFError, ValueError, csv.Error, zlib.error, gzip.BadGzipFile, _zstd().ZstdError)


def _zstd() -> Any:
    """The module; only files that need it load it."""
    if sys.version_info >= (3, 14):
        from compression import zstd
    else:
        from backports import zstd
    return zstd


class _Text(io.TextIOWrapper):
    """Closes the file that its source reads from, too."""

    def __init__(self, source: Any, file: IO[bytes]) -> None:
        super().__init__(source, encoding="utf-8", newline="")
        self._below = file

    def close(self) -> None:
        super().close()
        self._below.close()


class Lines(Protocol):
    """A format of lines."""

    def encode(self, records: Iterable[Record]) -> bytes: ...
    def beginning(self, records: Sequence[Record]) -> bytes:
        """What a file starts with, before these records."""
        ...

    def count(self, lines: io.TextIOWrapper, pulse: Callable[[], None]) -> int:
        """How many records there are in a file."""
        ...


class JsonLinesFormat:
    """One object a line. With `shown`, nothing in it can act on a terminal: it means the same, in escapes."""

    def __init__(self, *, shown: bool = False) -> None:
        self._shown = shown

    def encode(self, records: Iterable[Record]) -> bytes:
        data = b"".join([_json(record) + b"\n" for record in records])
        return printable_json(data.decode()).encode() if self._shown else data

    def beginning(self, records: Sequence[Record]) -> bytes:  # noqa: ARG002
        return b""

    def count(self, lines: io.TextIOWrapper, pulse: Callable[[], None]) -> int:
        found = 0
        while block := bytes(lines.buffer.read(BLOCK_BYTES)):
            found += block.count(b"\n")
            pulse()
        return found


class CsvLines:
    """A row each, under a header. What is nested is JSON there, links are one after the other.

    With `safe`, text that a spreadsheet would take for a formula begins with an apostrophe.
    """

    def __init__(self, columns: Iterable[str] = (), *, safe: bool = True) -> None:
        self.columns = dict.fromkeys(columns)
        self.safe = safe

    def missing(self, records: Iterable[Record]) -> list[str]:
        """Fields that have no column yet. Raises OutputError when there are too many."""
        found = dict.fromkeys(name for record in records for name in record if name not in self.columns)
        check_count([*self.columns, *found])
        return list(found)

    def encode(self, records: Iterable[Record]) -> bytes:
        if self.safe:
            return csv_rows([_safe(_cell(record.get(name), name)) for name in self.columns] for record in records)
        return csv_rows([_cell(record.get(name), name) for name in self.columns] for record in records)

    def beginning(self, records: Sequence[Record]) -> bytes:
        """The header. Records without a field have an empty one: else the first of them would be taken for it."""
        return (
            csv_rows([[_header(name) if self.safe else name for name in self.columns]])
            if self.columns or records
            else b""
        )

    def count(self, lines: io.TextIOWrapper, pulse: Callable[[], None]) -> int:
        rows, found = csv.reader(lines), -1  # without the header
        while number := sum(1 for _ in islice(rows, ROWS)):
            found += number
            pulse()
        return max(found, 0)

    def widened(self, lines: Iterable[str]) -> Iterator[bytes]:
        """Lines that were written with fewer columns, header included, as they are with these."""
        rows = csv.reader(lines)
        before = len(next(rows, []))
        yield self.beginning([{}])
        while block := list(islice(rows, ROWS)):
            yield csv_rows(row + [""] * (len(self.columns) - before) for row in block)

    def read_header(self, lines: Iterable[str]) -> None:
        """Go on with the columns of a file that has some, whatever `safe` was when it began."""
        header = next(csv.reader(lines), [])
        self.columns = dict.fromkeys(self.names_of(header) if self.safe else header)

    @staticmethod
    def names_of(header: Iterable[str]) -> list[str]:
        """The fields of a header that is safe."""
        names: dict[str, None] = {}
        for one in header:
            name = _named(one)
            names[one if name in names else name] = None
        return list(names)


class _Rows(list[str]):
    """What the CSV writer writes, a row each. Only with this line end does it quote both halves of it in cells."""

    end = "\r\n"

    def write(self, row: str) -> None:
        self.append(row.removesuffix(self.end) + "\n")


def csv_rows(rows: Iterable[Sequence[object]]) -> bytes:
    """Rows as lines of a file."""
    text = _Rows()
    csv.writer(text, lineterminator=text.end).writerows(rows)
    return "".join(text).encode("utf-8", "replace")


# What spreadsheets take for the beginning of a formula, some after blanks, some in full width (OWASP, CSV injection).
_FORMULA = re.compile(r"[\t\r\n]|[\s\ufeff]*[=+\-@\uff1d\uff0b\uff0d\uff20]")


def _safe(value: object) -> object:
    return f"'{value}" if isinstance(value, str) and _FORMULA.match(value) else value


def _header(name: str) -> str:
    """The header of a field. One that begins with apostrophes before a formula gets one more: each stays itself."""
    return f"'{name}" if _FORMULA.match(name.lstrip("'")) else name


def _named(header: str) -> str:
    """The field that a header stands for."""
    return header[1:] if header[:1] == "'" and _FORMULA.match(header.lstrip("'")) else header


def _cell(value: object, name: str) -> object:
    if name == "links" and isinstance(value, list):
        return " ".join(map(str, value))
    return _json(value).decode() if isinstance(value, (list, dict)) else value


def plain_cell(value: object, name: str) -> str:
    """The text of a value or of a cell that was read, equal for both, whether or not the file is safe."""
    cell = _cell(value, name)
    text = "" if cell is None else str(cell)
    return _named(text)
