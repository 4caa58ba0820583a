"""Compares targets with the index: what every record of the crawl should be in, and what really is there. Read-only.

Pages are known by URL and visit, whatever else people changed or added. Items have no such key outside tables, so
they are compared whole; of a Parquet file the rows are counted.
"""

import contextlib
import csv
import hashlib
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import msgspec

from crawler.archive.folder import CrawlFolder
from crawler.archive.index_reader import IndexReader, index_bytes
from crawler.errors import UsageError
from crawler.model import CommitEntry
from crawler.outputs.cursor import cursor_path
from crawler.outputs.lines import CsvLines, plain_cell, read_errors, text_of
from crawler.outputs.opening import open_to_look
from crawler.outputs.records import ITEMS, PAGES, Items, Pages, RecordSource, rows_of
from crawler.outputs.sink import Record, Wanted
from crawler.outputs.target import Target, TargetKind
from crawler.rules.progress import SILENT, Meter

PULSE_RECORDS = 256  # records between two reports of progress
PAGE_KEY = ("url", "visit")
_TABLES = """
CREATE TABLE visits
    (fingerprint INTEGER, visit INTEGER, records INTEGER, PRIMARY KEY (fingerprint, visit)) WITHOUT ROWID;
CREATE TABLE records (digest INTEGER PRIMARY KEY, difference INTEGER, may_be INTEGER NOT NULL DEFAULT 0);
"""
_json = msgspec.json.Encoder(order="sorted").encode
_decode = msgspec.json.Decoder(Record).decode


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """Numbers of records. `extra`: in a file, and not in the crawl; a table may have others'."""

    target: str
    what: str
    found: int
    wanted: int
    missing: int
    extra: int = 0


def compare(folders: Sequence[CrawlFolder], target: Target, *, items: bool, meter: Meter = SILENT) -> Comparison:
    """Compare one target with the folders that keep it up to date, or with all when none does.

    Blocks. Raises UsageError for a target that is not there or can't be read, OutputError, ArchiveError.
    """
    shape = ITEMS if items or _has_cursor(folders, target, ITEMS.name) else PAGES
    whose = [one for one in folders if cursor_path(one.outputs, target, shape.name).exists()] or folders
    if target.kind is TargetKind.STREAM:
        raise UsageError(f"{target.shown} can't be read back; name a file or a database")
    if target.path is not None and not target.path.is_file():
        raise UsageError(f"file {target.shown} does not exist")
    with contextlib.closing(sqlite3.connect("", isolation_level=None)) as scratch:  # a temporary file
        scratch.executescript(_TABLES)
        sides = _Sides(scratch, target, is_items=shape is ITEMS, meter=meter)
        for folder in whose:
            source: RecordSource = Items(folder) if shape is ITEMS else Pages(folder)
            with contextlib.closing(source):
                sides.add_wanted(folder, source)
        found = sides.found()
        missing, extra = sides.difference(found)
        return Comparison(
            target=target.shown, what=shape.name, found=found, wanted=sides.wanted, missing=missing, extra=extra
        )


def _has_cursor(folders: Sequence[CrawlFolder], target: Target, what: str) -> bool:
    return any(cursor_path(one.outputs, target, what).exists() for one in folders)


class _Sides:
    """What should be there, and what is."""

    def __init__(self, scratch: sqlite3.Connection, target: Target, *, is_items: bool, meter: Meter) -> None:
        self.wanted = 0
        self._pruned = 0  # pages that a target may have, or not
        self._meter = meter
        self._scratch, self._target, self._is_items = scratch, target, is_items
        self._shape = ITEMS if is_items else PAGES
        self._is_by_record = target.kind is TargetKind.LINES

    def add_wanted(self, folder: CrawlFolder, source: RecordSource) -> None:
        self._scratch.execute("BEGIN")
        reader = IndexReader(folder)
        self._meter.begin("reading index", "page", index_bytes(folder))
        for number, entry in enumerate(reader.entries(pruned=True)):
            self._meter.reached(number, reader.bytes_read)
            if entry.pruned:
                self._add_pruned(source, entry)
                continue
            records = source.count_of(entry)
            added = self._scratch.execute(
                "INSERT OR IGNORE INTO visits VALUES (?, ?, ?)", (int(entry.fingerprint), entry.visit, records)
            )
            if added.rowcount:
                self.wanted += records
                if self._is_by_record:
                    self._count((row.record for row in rows_of(source, entry)), 1)
        self._scratch.execute("COMMIT")

    def _add_pruned(self, source: RecordSource, entry: CommitEntry) -> None:
        self._pruned += 1
        if self._is_by_record and not self._is_items:
            self._scratch.executemany(
                "INSERT INTO records VALUES (?, 0, 1) ON CONFLICT (digest) DO UPDATE SET may_be = may_be + 1",
                ((self._digest(row.record),) for row in rows_of(source, entry)),
            )

    def found(self) -> int:
        if not self._is_by_record:
            self._meter.begin(f"reading {self._target.path.name if self._target.path else self._target.shown}")
            sink = open_to_look(self._target, self._shape)
            try:
                return sink.found(self._visits(), lambda: None)
            finally:
                sink.close()
        path = self._target.path
        assert path is not None
        self._scratch.execute("BEGIN")
        try:
            found = self._count(self._records(path), -1)
        except OSError as error:
            raise UsageError(f"can't read {self._target.shown}: {error.strerror or error}") from None
        self._scratch.execute("COMMIT")
        return found

    def difference(self, found: int) -> tuple[int, int]:
        """How many records are missing, and how many are too much."""
        if not self._is_by_record:
            missing, extra = max(0, self.wanted - found), max(0, found - self.wanted - self._pruned)
        else:
            missing, extra = self._scratch.execute(
                "SELECT ifnull(sum(max(difference, 0)), 0), ifnull(sum(max(-difference - may_be, 0)), 0) FROM records"
            ).fetchone()
        # How many items pruned pages had, and which, is not known any more.
        return missing, 0 if self._is_items and self._pruned else extra

    def _visits(self) -> Iterator[Wanted]:
        rows = self._scratch.execute("SELECT * FROM visits WHERE records > 0 ORDER BY fingerprint, visit")
        yield from map(Wanted._make, rows)

    def _count(self, records: Iterable[Record | bytes], step: int) -> int:
        return self._scratch.executemany(
            "INSERT INTO records VALUES (?, ?, 0) "
            "ON CONFLICT (digest) DO UPDATE SET difference = difference + excluded.difference",
            ((self._digest(record), step) for record in records),
        ).rowcount

    def _digest(self, record: Record | bytes) -> int:
        """Equal for the same record. What is not a record at all is given as bytes."""
        if isinstance(record, bytes):
            data = b"\0" + record
        else:
            if not self._is_items:
                record = {name: record.get(name) for name in PAGE_KEY}
            if self._target.format == "csv":
                record = {name: cell for name, value in record.items() if (cell := plain_cell(value, name)) != ""}
            data = _json(record)
        return int.from_bytes(hashlib.blake2b(data, digest_size=8).digest(), "big", signed=True)

    def _records(self, path: Path) -> Iterator[Record | bytes]:
        """Of a file, as far as it can be read; the rest is one that should not be there."""
        read = _csv_of if self._target.format == "csv" else _json_of
        try:
            with path.open("rb") as file, text_of(file, self._target.packed) as text:
                self._meter.begin(f"reading {path.name}", "record", path.stat().st_size)
                for number, record in enumerate(read(text)):
                    if number % PULSE_RECORDS == 0:
                        self._meter.reached(number, file.tell())
                    yield record
        except read_errors():
            yield b"damaged"


def _json_of(lines: Iterable[str]) -> Iterator[Record | bytes]:
    for line in lines:
        try:
            yield _decode(line)
        except (msgspec.MsgspecError, RecursionError):
            yield line.encode()


def _csv_of(lines: Iterable[str]) -> Iterator[Record | bytes]:
    rows = csv.reader(lines)
    names = CsvLines.names_of(next(rows, []))
    for row in rows:
        if len(row) == len(names):
            yield dict(zip(names, row, strict=True))
        else:
            yield "\0".join(row).encode()
