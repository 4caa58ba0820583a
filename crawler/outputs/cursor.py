"""How far an output has come: the place in each segment of the index, the keys that it has, the end of its file.

A small SQLite file for each target, in the crawl folder. It is committed after the target: what it does not know yet is
written once more, behind a file's mark or onto a table's key, and so counts once. A cursor that is lost or damaged
means that the output begins again from its first record. It proves itself: each commit stores sums over all rows, which
are compared when it is opened (one scan of the keys, 0.2 s for a million).
"""

import contextlib
import hashlib
import logging
import os
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from zlib import crc32

import msgspec

from crawler.archive.folder import CrawlFolder, archive_error, make_private, open_private
from crawler.archive.index_reader import Chunk, Place
from crawler.archive.read_segments import CURSOR_SUFFIX, ReadMarks
from crawler.errors import ArchiveError, UsageError
from crawler.model import CommitEntry
from crawler.outputs.sink import Mark, Wanted
from crawler.outputs.target import Target, TargetKind

log = logging.getLogger(__name__)

IN_MEMORY = Path(":memory:")
OLD_ROWS = Mark(0, "")  # as `ours`, of a table: rows of a visit go before its records are written
_TABLES = """
CREATE TABLE IF NOT EXISTS segments
    (name TEXT PRIMARY KEY, offset INTEGER, is_sealed INTEGER, is_done INTEGER, damaged INTEGER) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS seen
    (fingerprint INTEGER, visit INTEGER, records INTEGER, lost INTEGER, PRIMARY KEY (fingerprint, visit)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS mark (length INTEGER, digest TEXT);
CREATE TABLE IF NOT EXISTS ours (length INTEGER, digest TEXT);
CREATE TABLE IF NOT EXISTS closed (is_closed INTEGER);
CREATE TABLE IF NOT EXISTS sums
    (visits INTEGER, low INTEGER, high INTEGER, visit INTEGER, records INTEGER, lost INTEGER, others INTEGER);
"""
_LOW = 0xFFFFFFFF
# A flipped bit of a row changes one of these. None can overflow: values have 32 bits.
_SUMS = """
SELECT count(*), ifnull(sum(fingerprint & 0xFFFFFFFF), 0), ifnull(sum((fingerprint >> 32) & 0xFFFFFFFF), 0),
    ifnull(sum(visit), 0), ifnull(sum(records), 0), ifnull(sum(lost), 0) FROM seen
"""
_OTHERS = (
    "SELECT * FROM segments ORDER BY name", "SELECT * FROM mark", "SELECT * FROM ours", "SELECT * FROM closed",
)  # fmt: skip
_OF_THE_DISK = frozenset({  # others mean that the file is damaged
    sqlite3.SQLITE_PERM, sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_NOMEM, sqlite3.SQLITE_READONLY,
    sqlite3.SQLITE_IOERR, sqlite3.SQLITE_FULL, sqlite3.SQLITE_CANTOPEN,
})  # fmt: skip
_EMPTY = "DELETE FROM segments", "DELETE FROM seen", "DELETE FROM mark", "DELETE FROM ours"
NEXT_SUFFIX = ".next"
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(tuple[Mark | None, Mark]).decode


class Cursor:
    """One target's. `begin`, then `news` of any number of chunks, then `commit` or `rollback`.

    Without a path it is kept in memory. Raises ArchiveError.
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path or IN_MEMORY
        self._next = self._path.with_name(self._path.name + NEXT_SUFFIX)
        self.places: dict[str, Place] = {}
        self.mark: Mark | None = None
        self.ours: Mark | None = None  # of a whole file that this crawl wrote too, but not bit by bit
        self._read_marks = None if path is None else ReadMarks(path)
        self.was_closed = False  # by who had it before: nothing of it lies behind the mark
        if path is not None:
            try:
                make_private(path.parent)
            except OSError as error:
                raise archive_error("make", path.parent, error) from None
        try:
            self._base = self._open()
        except (sqlite3.Error, UnicodeDecodeError) as error:
            if getattr(error, "sqlite_errorcode", 0) & 0xFF in _OF_THE_DISK:
                raise ArchiveError(f"can't write {path}: {error}") from None
            log.warning("output.cursor_damaged", extra={"file": str(path), "error": str(error)})
            self._destroy()
            self._base = self._open()
        self._note_read()

    def _open(self) -> sqlite3.Connection:
        if self._path != IN_MEMORY:
            os.close(open_private(self._path, os.O_RDWR | os.O_CREAT))  # the library would make it for all to read
        # Exclusive: one writer, and no shared memory, which file systems of networks don't have.
        base = sqlite3.connect(self._path, isolation_level=None, check_same_thread=False)
        base.text_factory = partial(str, encoding="utf-8", errors="replace")  # the sums tell that it is another text
        try:
            for pragma in (
                "locking_mode = EXCLUSIVE", "journal_mode = WAL", "synchronous = NORMAL", "cache_size = -8000"
            ):  # fmt: skip
                base.execute(f"PRAGMA {pragma}")
            base.executescript(_TABLES)
            self._check(base)
            self._load(base)
        except (sqlite3.Error, UnicodeDecodeError):
            base.close()
            raise
        return base

    def _check(self, base: sqlite3.Connection) -> None:
        """Compare the sums; raises sqlite3.DatabaseError if a row is another one."""
        self._sums: list[int] = list(base.execute(_SUMS).fetchone())
        stored = base.execute("SELECT * FROM sums").fetchone()  # earlier releases stored none
        if stored is not None and stored != (*self._sums, _others(base)):
            raise sqlite3.DatabaseError("its rows are not those that were written")

    def _load(self, base: sqlite3.Connection) -> None:
        """Read what is small."""
        rows = base.execute("SELECT name, offset, is_sealed, is_done FROM segments")
        self.places = {
            name: Place(offset=offset, is_sealed=bool(is_sealed), is_done=bool(is_done))
            for name, offset, is_sealed, is_done in rows
        }
        found = base.execute("SELECT length, digest FROM mark").fetchone()
        self.mark = Mark(*found) if found else None
        found = base.execute("SELECT length, digest FROM ours").fetchone()
        self.ours = Mark(*found) if found else None
        self.was_closed = base.execute("SELECT is_closed FROM closed").fetchone() == (1,)

    def begin(self) -> None:
        self._sums_before, self._changes_before = self._sums, self._base.total_changes
        with self._errors():
            self._base.execute("BEGIN")

    def news(self, chunk: Chunk, count_of: Callable[[CommitEntry], int]) -> Iterator[CommitEntry]:
        """The entries of a chunk that the output does not have; they count as had, and the chunk as read.

        `count_of`: how many records the target gets of one, unless `note_lost` says something else.
        """
        for entry in chunk.entries:
            fingerprint, records = int(entry.fingerprint), count_of(entry)
            with self._errors():
                added = self._base.execute(
                    "INSERT OR IGNORE INTO seen (fingerprint, visit, records) VALUES (?, ?, ?)",
                    (fingerprint, entry.visit, records),
                )
            if added.rowcount:
                self._add(1, fingerprint & _LOW, (fingerprint >> 32) & _LOW, entry.visit, records, 0)
                yield entry
        place = self.places[chunk.segment] = chunk.place
        with self._errors():
            self._base.execute(
                "INSERT INTO segments (name, offset, is_sealed, is_done, damaged) VALUES (?, ?, ?, ?, ?) "
                "ON CONFLICT (name) DO UPDATE SET offset = excluded.offset, is_done = excluded.is_done, "
                "damaged = excluded.damaged + iif(is_sealed = excluded.is_sealed AND offset <= excluded.offset, "
                "damaged, 0), is_sealed = excluded.is_sealed",
                (chunk.segment, place.offset, place.is_sealed, place.is_done, chunk.damaged),
            )

    def note_lost(self, entry: CommitEntry, records: int, lost: int) -> None:
        """The target gets so many records of an entry that is news, and so many can't be read."""
        key = int(entry.fingerprint), entry.visit
        with self._errors():
            before = self._base.execute(
                "SELECT records, ifnull(lost, 0) FROM seen WHERE fingerprint = ? AND visit = ?", key
            ).fetchone()
            self._base.execute(
                "UPDATE seen SET records = ?, lost = ? WHERE fingerprint = ? AND visit = ?", (records, lost, *key)
            )
        if before:
            self._add(0, 0, 0, 0, records - before[0], lost - before[1])

    def _add(self, *more: int) -> None:
        self._sums = [a + b for a, b in zip(self._sums, more, strict=True)]

    def _note_sums(self) -> None:
        self._base.execute("DELETE FROM sums")
        self._base.execute("INSERT INTO sums VALUES (?, ?, ?, ?, ?, ?, ?)", (*self._sums, _others(self._base)))

    def wanted(self) -> Iterator[Wanted]:
        """How many records of each visit the target must have, in order of their keys."""
        with self._errors():
            rows = self._base.execute(
                "SELECT fingerprint, visit, records FROM seen WHERE records > 0 ORDER BY fingerprint, visit"
            )
            yield from map(Wanted._make, rows)

    def total(self) -> int:
        """How many records the target must have."""
        with self._errors():
            return int(self._base.execute("SELECT ifnull(sum(records), 0) FROM seen").fetchone()[0])

    def lost(self) -> tuple[int, int]:
        """Records that could not be read, and of how many visits."""
        with self._errors():
            records, visits = self._base.execute("SELECT ifnull(sum(lost), 0), count(lost) FROM seen").fetchone()
        return records, visits

    def retry_lost(self) -> None:
        """Have what could not be read tried again, by reading the whole index again: what is known is no news."""
        if not self.damaged() and not self.lost()[0]:
            return
        with self._errors(), self._whole():
            self._base.execute("DELETE FROM segments")
            self._base.execute("DELETE FROM seen WHERE lost > 0 AND records = 0")
            self._sums = list(self._base.execute(_SUMS).fetchone())
            self._note_sums()
        with self._errors():
            self._load(self._base)

    def damaged(self) -> dict[str, int]:
        """Segments of the index with lines that could not be read, or that are not what was written: how many flaws."""
        with self._errors():
            return dict(self._base.execute("SELECT name, damaged FROM segments WHERE damaged > 0 ORDER BY name"))

    def commit(self, mark: Mark | None) -> None:
        """What was news since `begin` is in the target permanently, which ends at this mark."""
        with self._errors():
            if mark is not None:
                self.mark = mark
                self._base.execute("DELETE FROM mark")
                self._base.execute("INSERT INTO mark VALUES (?, ?)", mark)
            if self._base.total_changes != self._changes_before:  # most looks find nothing new
                self._note_sums()
            self._base.execute("COMMIT")
        self._note_read()

    def _note_read(self) -> None:
        """Note which segments were read completely, for those who may remove what all outputs have."""
        if self._read_marks is None:
            return
        done = frozenset(name for name, place in self.places.items() if place.is_done)
        if done != self._read_marks.noted:
            with self._errors():
                self._base.execute("PRAGMA wal_checkpoint(TRUNCATE)")  # on disk before others rely on it
            self._read_marks.note(done)

    def note_whole(self) -> None:
        """The target was written whole: nothing in the index waits for this cursor until it is opened again."""
        if self._read_marks is not None:
            self._read_marks.note(None)

    def note_next(self, mark: Mark) -> None:
        """A file with the same records, which ends at this mark, is about to take the place of the target's.

        If we die before the open transaction ends, the file is known by `successor`.
        """
        if self._path != IN_MEMORY:
            try:
                with open(self._next, "wb", opener=open_private) as file:
                    file.write(_encode((self.mark, mark)))
            except OSError as error:
                raise archive_error("write", self._next, error) from None

    def successor(self) -> Mark | None:
        """What was noted, if it is of the last commit."""
        try:
            before, mark = _decode(self._next.read_bytes())
        except (OSError, msgspec.MsgspecError):
            return None
        return mark if before == self.mark else None

    def rollback(self) -> None:
        """It is not: it will be news again."""
        self._sums = self._sums_before
        with contextlib.suppress(sqlite3.Error):
            self._base.execute("ROLLBACK")
        with self._errors():
            self._load(self._base)

    def reset(self, ours: Mark | None = None) -> None:
        """The target is not what it was: everything is news. `ours`: of a file that may be replaced then."""
        if self._read_marks is not None:
            self._read_marks.note(frozenset())
        with self._errors(), self._whole():
            for statement in _EMPTY:
                self._base.execute(statement)
            if ours is not None:
                self._base.execute("INSERT INTO ours VALUES (?, ?)", ours)
            self._sums = [0] * len(self._sums)
            self._note_sums()
        with self._errors():
            self._load(self._base)

    def start_over(self, kind: TargetKind) -> None:
        """Everything that the target has gets new values. A whole file is written whole the next time in any case."""
        if kind is TargetKind.LINES and self.mark is not None:
            self.reset(self.mark)
        elif kind in (TargetKind.SQLITE, TargetKind.POSTGRES):
            self.reset(OLD_ROWS)

    @property
    def has_old_rows(self) -> bool:
        """May a table have records that the crawl does not have any more?"""
        return self.ours == OLD_ROWS

    def forget(self, visits: Sequence[tuple[int, int]], mark: Mark | None = None) -> None:
        """The target has no records of these visits any more. `mark`: where it ends now, of a file."""
        with self._errors(), self._whole():
            self._base.executemany("DELETE FROM seen WHERE fingerprint = ? AND visit = ?", visits)
            self._sums = list(self._base.execute(_SUMS).fetchone())
            if mark is not None and self.mark is not None:
                self.mark = mark
                self._base.execute("DELETE FROM mark")
                self._base.execute("INSERT INTO mark VALUES (?, ?)", mark)
            self._note_sums()

    def set_closed(self, *, is_closed: bool) -> None:
        """Say that nothing of ours lies behind the mark; or, before anything is written, that this is not known."""
        with self._errors(), self._whole():
            self._base.execute("DELETE FROM closed")
            self._base.execute("INSERT INTO closed VALUES (?)", (is_closed,))
            self._note_sums()

    @contextlib.contextmanager
    def _whole(self) -> Iterator[None]:
        """Statements that count together: in the open transaction, or in one of their own."""
        if self._base.in_transaction:
            yield
            return
        self._base.execute("BEGIN")
        try:
            yield
        except sqlite3.Error:
            with contextlib.suppress(sqlite3.Error):
                self._base.execute("ROLLBACK")
            raise
        self._base.execute("COMMIT")

    def close(self) -> None:
        self._base.close()

    def _destroy(self) -> None:
        for ending in ("", "-wal", "-shm", "-journal"):
            self._path.with_name(self._path.name + ending).unlink(missing_ok=True)

    @contextlib.contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise ArchiveError(f"can't write {self._path}: {error}") from None


def _others(base: sqlite3.Connection) -> int:
    """The checksum of all rows but those of the visits."""
    return crc32(repr([base.execute(rows).fetchall() for rows in _OTHERS]).encode())


def cursor_path(outputs: Path, target: Target, what: str) -> Path:
    """Where, below a crawl folder's `outputs`, the cursor of a target lies: one for each kind of record (`what`).

    The name is made from the path between the crawl folder and the target: both may be moved together. Earlier
    releases made it from the absolute path.
    """
    places = [target.shown]
    if target.path is not None:
        path = target.path.resolve()
        places = [os.path.relpath(path, outputs.parent.resolve()), str(path)]
    digests = [
        hashlib.blake2b(f"{place} {target.table} {what}".encode(), digest_size=6).hexdigest() for place in places
    ]
    paths = [outputs / f"{what}-{target.kind.value}-{digest}{CURSOR_SUFFIX}" for digest in digests]
    return next((path for path in paths if path.exists()), paths[0])


def start_items_over(folder: CrawlFolder) -> None:
    """Let all outputs of items that were kept up to date begin again from the first record, in place of what they have.

    Blocks. Raises ConflictError while one is being written, ArchiveError.
    """
    for path in sorted(folder.outputs.glob(f"items-*{CURSOR_SUFFIX}")):
        kind = TargetKind(path.name.split("-")[1])
        with folder.exclusive(lock_of(path)), contextlib.closing(Cursor(path)) as cursor:
            cursor.start_over(kind)


def lock_of(cursor: Path) -> str:
    """The name of the folder's lock that whoever uses this cursor has."""
    return f"output-{cursor.stem}"


def note_ours(outputs: Path, target: Target, what: str, mark: Mark) -> None:
    """Let the next one who keeps this file up to date know that it is the crawl's, if anybody does so.

    Raises ArchiveError.
    """
    path = cursor_path(outputs, target, what)
    if path.exists():
        with contextlib.closing(Cursor(path)) as cursor:
            cursor.reset(mark)
            cursor.note_whole()


def refuse_foreign(outputs: Path, target: Target, what: str) -> None:
    """Raise UsageError for a file with something in it that this crawl did not write: it would be replaced."""
    if target.kind not in (TargetKind.LINES, TargetKind.PARQUET) or target.path is None:
        return
    if cursor_path(outputs, target, what).exists():
        return
    with contextlib.suppress(FileNotFoundError):
        if target.path.stat().st_size:
            raise UsageError(
                f"{target.shown} already exists, and this crawl did not write it; move it, or name another file"
            )
