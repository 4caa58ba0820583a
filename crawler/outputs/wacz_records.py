"""Which records go into a WACZ file: of the commits of one crawl folder or several, in the order of their keys.

A page that is unchanged since an earlier visit needs the record of that visit. Where not all commits are wanted it may
be left out, so then the index is read twice: first which commits are wanted and which records they need, noted in a
scratch file. Memory is bounded by that of the index readers, and by a record.
"""

import contextlib
import heapq
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from crawler.archive.folder import CrawlFolder, digits14
from crawler.archive.index import key_of
from crawler.archive.index_reader import IndexReader, MissingFile, find_url
from crawler.archive.scratch import open_scratch
from crawler.archive.warc_reader import Copied, copied_record, read_any, read_head
from crawler.errors import ArchiveError
from crawler.model import CommitEntry, WarcLocation
from crawler.outputs.export import Wanted, wanted_entries
from crawler.rules.progress import Meter

if TYPE_CHECKING:
    import sqlite3

_TABLES = """
CREATE TABLE wanted (folder INTEGER, fp INTEGER, visit INTEGER, PRIMARY KEY (folder, fp, visit)) WITHOUT ROWID;
CREATE TABLE needed (folder INTEGER, file TEXT, offset INTEGER, PRIMARY KEY (folder, file, offset)) WITHOUT ROWID;
"""
_ALL = Wanted()


class Counts(msgspec.Struct, kw_only=True):
    """What became of the commits, by number."""

    originals: int = 0  # earlier visits that wanted pages are unchanged from
    left_out: int = 0  # with a mark
    pruned: int = 0
    withheld: int = 0  # their bodies were not kept, because of their rights
    unarchived: int = 0  # no record was written of them
    without_original: int = 0  # unchanged from a page whose record is gone
    unchecked: int = 0  # lines of the index without a checksum


class Record(NamedTuple):
    """A commit with its record, and its place in the order of the index."""

    key: str
    moment: str
    entry: CommitEntry
    copied: Copied


class _Commit(NamedTuple):
    key: str
    moment: str
    folder: int
    entry: CommitEntry


class WantedRecords:
    """One pass. `counts` and `missing` are complete once `records` is exhausted."""

    def __init__(self, folders: Sequence[CrawlFolder], wanted: Wanted, home: Path, meter: Meter) -> None:
        """`home`: where the scratch file goes; crawl folders may be read-only."""
        self._folders, self._wanted, self._home, self._meter = folders, wanted, home, meter
        self._readers = [IndexReader(folder) for folder in folders]
        self._unreadable: Counter[tuple[int, str]] = Counter()
        self.counts = Counts()

    def records(self) -> Iterator[Record]:
        """Raises ArchiveError; what can't be read is counted."""
        db = None if self._wanted == _ALL else self._noted()
        try:
            streams = [self._commits(number, db) for number in range(len(self._folders))]
            yield from self._copied(self._each_once(heapq.merge(*streams)))
        finally:
            if db is not None:
                db.close()
        self.counts.unchecked = sum(reader.unchecked for reader in self._readers)

    def missing(self) -> list[MissingFile]:
        """All that could not be read; of several folders with the name of each."""
        found = []
        for number, (folder, reader) in enumerate(zip(self._folders, self._readers, strict=True)):
            files = [
                MissingFile(f"{folder.warc.name}/{name}", "records not readable", pages)
                for (of, name), pages in sorted(self._unreadable.items()) if of == number
            ]  # fmt: skip
            where = f"{folder.root}/" if len(self._folders) > 1 else ""
            # A file that is not there is told by its records.
            found += [MissingFile(f"{where}{one.file}", one.reason, one.entries) for one in reader.segments_missing]
            found += [MissingFile(f"{where}{one.file}", one.reason, one.entries) for one in files]
        return found

    # --- which ---

    def _noted(self) -> "sqlite3.Connection":
        """The commits that are wanted, and the records that they need."""
        db = open_scratch(self._home, "wacz-", _TABLES)
        for number, folder in enumerate(self._folders):
            chosen = self._chosen(IndexReader(folder), self._wanted)
            for entry in chain(chosen, self._shown(folder)):
                db.execute("INSERT OR IGNORE INTO wanted VALUES (?, ?, ?)", (number, *_identity(entry)))
                if entry.original is not None and (place := _original_of(folder, entry)) is not None:
                    db.execute("INSERT OR IGNORE INTO needed VALUES (?, ?, ?)", (number, place.file, place.offset))
        return db

    def _shown(self, folder: CrawlFolder) -> Iterator[CommitEntry]:
        """What pages show, of any run and time: it is fetched once, for all of them."""
        of_url = self._wanted.of_url
        if self._wanted != Wanted(of_url=of_url):
            for entry in IndexReader(folder).entries():
                if entry.is_requisite and (of_url is None or of_url(entry.url)):
                    yield entry

    def _chosen(self, reader: IndexReader, wanted: Wanted) -> Iterator[CommitEntry]:
        pruned, left_out = Counter[str](), Counter[str]()
        yield from wanted_entries(reader, wanted, pruned, left_out, self._meter, counts_pruned=True)
        self.counts.pruned += pruned[wanted.run] if wanted.run else pruned.total()
        self.counts.left_out += left_out.total()

    def _commits(self, number: int, db: "sqlite3.Connection | None") -> Iterator[_Commit]:
        """Those of a folder whose record goes in, in the order of their keys and moments."""
        reader = self._readers[number]
        entries = self._chosen(reader, _ALL) if db is None else reader.entries()
        for entry in entries:
            if db is None or self._is_noted(db, number, entry):
                yield _Commit(key_of(entry), digits14(entry.fetched_at), number, entry)

    def _is_noted(self, db: "sqlite3.Connection", number: int, entry: CommitEntry) -> bool:
        if db.execute(
            "SELECT 1 FROM wanted WHERE folder=? AND fp=? AND visit=?", (number, *_identity(entry))
        ).fetchone():
            return True
        if entry.warc is None:
            return False
        place = (number, entry.warc.file, entry.warc.offset)
        is_needed = db.execute("SELECT 1 FROM needed WHERE folder=? AND file=? AND offset=?", place).fetchone()
        self.counts.originals += bool(is_needed)
        return bool(is_needed)

    def _each_once(self, commits: Iterator[_Commit]) -> Iterator[_Commit]:
        """After a failover of the engine two folders may have one page."""
        key, seen = "", set[tuple[int, int]]()
        for commit in commits:
            if commit.key != key:
                key = commit.key
                seen.clear()
            identity = _identity(commit.entry)
            if identity not in seen:
                seen.add(identity)
                yield commit

    # --- what is in them ---

    def _copied(self, commits: Iterator[_Commit]) -> Iterator[Record]:
        for key, moment, number, entry in commits:
            folder, place = self._folders[number], entry.warc
            if entry.is_withheld:
                self.counts.withheld += 1
            elif place is None:
                self.counts.unarchived += 1
            elif entry.original is not None and _original_of(folder, entry) is None:
                self.counts.without_original += 1
            else:
                try:
                    copied = copied_record(folder, place)
                except ArchiveError:
                    self._unreadable[number, place.file] += 1
                    continue
                yield Record(key, moment, entry, copied)


def _identity(entry: CommitEntry) -> tuple[int, int]:
    return int(entry.fingerprint), entry.visit


def _referred_to(folder: CrawlFolder, entry: CommitEntry) -> str:
    """The URL of the page that has the body of another one."""
    if entry.is_duplicate and entry.warc is not None:
        with contextlib.suppress(ArchiveError):
            return read_any(folder, entry.warc).refers_to
    return entry.url


def _original_of(folder: CrawlFolder, entry: CommitEntry) -> WarcLocation | None:
    """Where the record is that a page is unchanged from. A prune may have moved it: then its own line has the place."""
    place = entry.original
    if place is not None and (stored := read_head(folder, place)) is not None and stored.digest == entry.digest:
        return place
    for one in find_url(folder, _referred_to(folder, entry)):
        if one.original is None and one.warc is not None and one.digest == entry.digest and read_head(folder, one.warc):
            return one.warc
    return None
