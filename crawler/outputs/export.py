"""One export: all committed records, each once, into every target. Nothing is left of one that fails.

Memory is bounded by the index reader's and by a batch of rows.
"""

import contextlib
import csv
import hashlib
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import IO

import msgspec

from crawler.archive.folder import CrawlFolder
from crawler.archive.index_reader import IndexReader, MissingFile, index_bytes
from crawler.archive.run_changes import changed_pages, no_page_of
from crawler.errors import OutputError, UsageError
from crawler.model import CommitEntry
from crawler.outputs.cursor import cursor_path, note_ours
from crawler.outputs.files import CsvLines, plain_cell, read_errors, text_of, writing
from crawler.outputs.opening import open_to_look, open_whole
from crawler.outputs.records import (
    ITEMS,
    PAGES,
    Items,
    Mark,
    OutputEnded,
    Pages,
    Record,
    RecordSource,
    Row,
    Sink,
    Wanted,
    committed_at,
    rows_of,
)
from crawler.outputs.target import Target, TargetKind
from crawler.rules.text import SILENT, Meter

BATCH_ROWS = 1000
PULSE_PAGES = 16  # pages between two reports of progress: one takes from 10 us to 50 ms


class ExportSummary(msgspec.Struct, frozen=True, kw_only=True):
    """What was written, and what could not be reached (by name: never passed over)."""

    records: int
    by_status: dict[int, int]  # of the pages that they are of
    pruned: int = 0  # pages of the run that was asked for that are not there any more
    left_out: int = 0  # pages with a mark
    missing: list[MissingFile] = msgspec.field(default_factory=list)
    unchecked: int = 0  # lines of the index without a checksum
    marks: dict[str, Mark] = {}  # of files, by the names of their targets
    renamed: dict[str, str] = {}  # fields whose columns in a table have other names
    kept: list[str] = []  # targets that stay as they were: nothing was found, and something is in their files


def export(
    folder: CrawlFolder,
    targets: Sequence[Target],
    source: RecordSource,
    *,
    since: float = 0.0,
    run: str = "",
    changed: bool = False,
    unless: Sequence[str] = (),
    of_part: Callable[[str], bool] | None = None,
    stdout: IO[bytes] | None = None,
    is_alone: bool = False,
    meter: Meter = SILENT,
) -> ExportSummary:
    """Write the records of all pages that were committed at `since` (wall time, seconds) or later; with `run`, only
    those of this run of a job, and with `changed` the ones of these that are new or other than in an earlier run;
    `unless`: without those that have one of these marks (noindex, truncated); `of_part`: only URLs of which this is
    true.

    Raises UsageError for a target that can't be written and ConflictError for one that another process is writing,
    before any work, and for a run of which nothing is known, before any target has changed; OutputError and
    ArchiveError when one fails, or lacks what it was given. A file that has something is not replaced by nothing: that
    of `is_alone` has what was written for this crawl, and is. A reader that closes
    standard output early ends the export without an error. `is_alone`: the caller has the locks of all targets.
    """
    reader = IndexReader(folder)
    by_status: Counter[int] = Counter()
    records = 0
    marks: dict[str, Mark] = {}
    renamed: dict[str, str] = {}
    with contextlib.ExitStack() as stack:
        stack.enter_context(folder.reading())
        for one in targets if not is_alone else ():
            if one.kind in (TargetKind.LINES, TargetKind.PARQUET) and one.path is not None:
                stack.enter_context(writing(one.path, one.shown, str(folder.root.resolve())))
        sinks = [stack.enter_context(contextlib.closing(open_whole(one, source.shape, stdout))) for one in targets]
        going = list(zip(targets, sinks, strict=True))
        pruned, left_out = Counter[str](), Counter[str]()
        rows = _rows(reader, source, since, run, changed, unless, of_part, by_status, pruned, left_out, meter)
        while going and (batch := list(islice(rows, BATCH_ROWS))):
            going = [(target, sink) for target, sink in going if _takes(sink, batch)]
            records += len(batch) if going else 0
        missing = source.missing(reader)
        if run and not (by_status or pruned[run] or changed or missing):
            raise UsageError(no_page_of(run, folder))
        kept = [target for target, _ in going if not (records or is_alone) and _has_something(target)]
        for target, sink in going:
            if target in kept:
                continue
            meter.begin(f"finishing {target.path.name if target.path else target.shown}")
            with contextlib.suppress(OutputEnded):
                mark = sink.commit()
                if mark is not None:
                    _check(target, source, sink, records)
                    marks[target.shown] = mark
                    if not is_alone:
                        note_ours(folder.outputs, target, source.shape.name, mark)
                renamed |= getattr(sink, "renamed", {})
    return ExportSummary(
        records=records,
        by_status=dict(sorted(by_status.items())),
        pruned=pruned[run],
        left_out=left_out.total(),
        missing=missing,
        unchecked=reader.unchecked,
        marks=marks,
        renamed=renamed,
        kept=[target.shown for target in kept],
    )


def _has_something(target: Target) -> bool:
    return target.path is not None and target.path.is_file() and target.path.stat().st_size > 0


def _takes(sink: Sink, batch: list[Row]) -> bool:
    """Write rows; False when nobody reads the target any more. The others go on."""
    try:
        sink.write(batch)
    except OutputEnded:
        return False
    return True


def _check(target: Target, source: RecordSource, sink: Sink, records: int) -> None:
    """Read back how many records are in a file. Raises OutputError."""
    found = sink.found((), lambda: None)
    if found != records:
        raise difference(target, source.shape.name, found, records)


def difference(target: Target, what: str, found: int, wanted: int) -> OutputError:
    """What is said of a target that lacks records, or has too many."""
    return OutputError(f"{target.shown} has {found:,} {what} where the crawl has {wanted:,}")


def _rows(
    reader: IndexReader,
    source: RecordSource,
    since: float,
    run: str,
    changed: bool,
    unless: Sequence[str],
    of_part: Callable[[str], bool] | None,
    by_status: Counter[int],
    pruned: Counter[str],
    left_out: Counter[str],
    meter: Meter,
) -> Iterator[Row]:
    """Counts pages by status, those that are left out by mark, and by run those that were pruned, if they are of the
    `run` that is asked for.
    """
    meter.begin("exporting", "page", index_bytes(reader.folder))
    entries = reader.entries(pruned=bool(run))
    for number, entry in enumerate(changed_pages(entries, run) if changed else entries, 1):
        if of_part is not None and not of_part(entry.url):
            pass
        elif entry.pruned:
            pruned[entry.run] += 1
        elif committed_at(entry) >= since and run in ("", entry.run):
            if mark := next((one for one in unless if getattr(entry, one)), ""):
                left_out[mark] += 1
            else:
                by_status[entry.status] += not entry.is_sitemap
                yield from rows_of(source, entry)
        if number % PULSE_PAGES == 0:
            meter.reached(number, reader.bytes_read)


# Compares targets with the index: what every record of the crawl should be in, and what really is there. Read-only.
#
# Pages are known by URL and visit, whatever else people changed or added. Items have no such key outside tables, so
# they are compared whole; of a Parquet file the rows are counted.

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
