"""Puts new items in the place of those that pages have: all of them are written first, and then their places change.

New items are in item files of their own, which nothing names until every page was handled. Then a small database in the
crawl folder counts, the journal, and whoever finds it completes the work:

    rehandle.db.new   pages are being handled: nothing else has changed, and the next one begins again
    rehandle.db       all were handled: lines of the index change, and item files go that no line names any more
"""

import contextlib
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from crawler.archive import index_writer
from crawler.archive.folder import CrawlFolder, archive_error, sync_directory
from crawler.archive.index_reader import IndexReader
from crawler.archive.job_journal import WorkJournal
from crawler.errors import ArchiveError
from crawler.model import CommitEntry, ItemsLocation

FILE = "rehandle.db"
DRAFT = "rehandle.db.new"
ROWS = 1_000  # read at a time
_TABLES = """
CREATE TABLE work (session TEXT NOT NULL);
CREATE TABLE pages (
    fp INTEGER NOT NULL, visit INTEGER NOT NULL, at REAL NOT NULL, file TEXT NOT NULL, offset INTEGER NOT NULL,
    length INTEGER NOT NULL, count INTEGER NOT NULL, followed INTEGER NOT NULL, PRIMARY KEY (fp, visit)
) WITHOUT ROWID;
CREATE TABLE replaced (file TEXT PRIMARY KEY, bytes INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE counts (
    number INTEGER PRIMARY KEY, partition INTEGER NOT NULL, queue TEXT NOT NULL, run TEXT NOT NULL,
    items INTEGER NOT NULL, UNIQUE (partition, queue, run)
);
"""
_ADD_COUNT = """
INSERT INTO counts (partition, queue, run, items) VALUES (?, ?, ?, ?)
ON CONFLICT (partition, queue, run) DO UPDATE SET items = items + excluded.items
"""
_ADD_REPLACED = "INSERT INTO replaced VALUES (?, ?) ON CONFLICT (file) DO UPDATE SET bytes = bytes + excluded.bytes"


class NewItems(NamedTuple):
    """What a page gets: where its items are, if it has any, and how many of the links behind them are new."""

    items: ItemsLocation | None
    followed: int


class RehandleJournal(WorkJournal):
    """The journal of one folder."""

    file = FILE

    @classmethod
    def found(cls, folder: CrawlFolder) -> "RehandleJournal | None":
        """The one that is to be completed, if there is one."""
        return cls(folder.root / FILE) if (folder.root / FILE).exists() else None

    @classmethod
    def draft(cls, folder: CrawlFolder, session: str) -> "RehandleJournal":
        """A new one for new items in the files of this session. It counts once it is `begun`."""
        drop_draft(folder)
        new = cls(folder.root / DRAFT)
        with new._errors():
            new._db.executescript(_TABLES)
            new._db.execute("INSERT INTO work VALUES (?)", (session,))  # on disk before the first of its files
            new._db.execute("BEGIN")
        return new

    def add(self, entry: CommitEntry, new: NewItems, place: tuple[int, str]) -> None:
        """Note what a page gets. `place`: its partition and queue."""
        at, old = new.items or ItemsLocation("", 0, 0, 0), entry.items
        row = (int(entry.fingerprint), entry.visit, entry.fetched_at, at.file, at.offset, at.length, at.count)
        with self._errors():
            self._db.execute("INSERT INTO pages VALUES (?, ?, ?, ?, ?, ?, ?, ?)", (*row, new.followed))
            if old is not None:
                self._db.execute(_ADD_REPLACED, (old.file, old.length))
            if more := at.count - (old.count if old else 0):
                self._db.execute(_ADD_COUNT, (*place, entry.run, more))

    @property
    def session(self) -> str:
        """Whose files the new items are in."""
        with self._errors():
            return str(self._db.execute("SELECT session FROM work").fetchone()[0])

    @property
    def is_empty(self) -> bool:
        with self._errors():
            return self._db.execute("SELECT 1 FROM pages LIMIT 1").fetchone() is None

    @property
    def has_followed(self) -> bool:
        """Does any page lead where it did not lead before?"""
        with self._errors():
            return self._db.execute("SELECT 1 FROM pages WHERE followed > 0 LIMIT 1").fetchone() is not None

    def of(self, entry: CommitEntry) -> NewItems | None:
        """What a page gets; None: it keeps what it has. One that was fetched again since then keeps it, too."""
        with self._errors():
            row = self._db.execute(
                "SELECT file, offset, length, count, followed FROM pages WHERE fp = ? AND visit = ? AND at = ?",
                (int(entry.fingerprint), entry.visit, entry.fetched_at),
            ).fetchone()
        if row is None or entry.pruned:
            return None
        return NewItems(ItemsLocation(*row[:4]) if row[0] else None, row[4])

    def replaced(self) -> list[tuple[str, int]]:
        """Item files that pages had items in which they lose, and how many bytes of each that is."""
        with self._errors():
            return self._db.execute("SELECT file, bytes FROM replaced ORDER BY file").fetchall()

    def counts(self) -> Iterator[tuple[int, int, str, str, int]]:
        """(number, partition, queue, run, by how much its number of items changes); the numbers only grow."""
        last = 0
        while True:
            with self._errors():
                rows = self._db.execute(
                    "SELECT number, partition, queue, run, items FROM counts WHERE number > ? ORDER BY number LIMIT ?",
                    (last, ROWS),
                ).fetchall()
            if not rows:
                return
            yield from rows
            last = rows[-1][0]


def drop_draft(folder: CrawlFolder) -> None:
    """Remove what was begun and does not count, with its item files. Raises ArchiveError."""
    path = folder.root / DRAFT
    try:
        if path.exists():
            for session in _sessions_in(path):
                for file in folder.items.glob(f"{session}-*"):
                    file.unlink()
        for name in (f"{DRAFT}-journal", DRAFT):
            (folder.root / name).unlink(missing_ok=True)
    except OSError as error:
        raise archive_error("remove", path, error) from None


def _sessions_in(path: Path) -> Sequence[str]:
    """None in one that was killed before it had any files."""
    with contextlib.closing(sqlite3.connect(path)) as base, contextlib.suppress(sqlite3.Error):
        return [session for (session,) in base.execute("SELECT session FROM work") if session]
    return ()


def put_in_place(folder: CrawlFolder, journal: RehandleJournal, step: Callable[[str], None]) -> None:
    """Give pages the items that the journal has for them. May be repeated after a crash at any point; nobody reads
    meanwhile. Raises ArchiveError, and changes nothing where a segment is damaged, as its lines would keep their items.
    """
    reader = IndexReader(folder)
    for _ in reader.entries():
        pass
    check_whole(reader)

    def changed(entry: CommitEntry) -> CommitEntry:
        new = journal.of(entry)
        if new is None or new.items == entry.items:
            return entry
        step("line")
        return entry.placed(entry.warc, new.items)

    index_writer.change_lines(folder, changed)


def check_whole(reader: IndexReader) -> None:
    """After all entries were read: raises ArchiveError when the index has damage."""
    for flaw in reader.segments_missing:
        raise ArchiveError(f"{flaw.file}: {flaw.reason}; no items were changed: 'crawler rebuild' mends it")


def remove_replaced(folder: CrawlFolder, journal: RehandleJournal, step: Callable[[str], None]) -> None:
    """Remove item files of which every byte was replaced: no line of any folder can name one. Raises ArchiveError."""
    for name, replaced in journal.replaced():
        path = folder.items / name
        try:
            if path.exists() and path.stat().st_size == replaced:
                path.unlink()
                step("removed")
        except OSError as error:
            raise archive_error("remove", path, error) from None
    sync_directory(folder.items)
