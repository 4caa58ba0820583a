"""How far an output has come: the place in each segment of the index, the keys that it has, the end of its file.

A small SQLite file for each target, in the crawl folder. It is committed after the target: what it does not know yet is
written once more, behind a file's mark or onto a table's key, and so counts once. A cursor that is lost or damaged
means that the output begins again from its first record.
"""

import contextlib
import hashlib
import os
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from crawler.archive.crawl_folder import archive_error, make_private, open_private
from crawler.archive.index_reader import Chunk, Place
from crawler.archive.read_marks import CURSOR_SUFFIX, ReadMarks
from crawler.errors import ArchiveError, UsageError
from crawler.model import CommitEntry
from crawler.outputs.sink import Mark, Wanted
from crawler.outputs.target import Target, TargetKind

IN_MEMORY = Path(":memory:")
_TABLES = """
CREATE TABLE IF NOT EXISTS segments
    (name TEXT PRIMARY KEY, offset INTEGER, is_sealed INTEGER, is_done INTEGER, damaged INTEGER) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS seen
    (fingerprint INTEGER, visit INTEGER, records INTEGER, lost INTEGER, PRIMARY KEY (fingerprint, visit)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS mark (length INTEGER, digest TEXT);
CREATE TABLE IF NOT EXISTS ours (length INTEGER, digest TEXT);
CREATE TABLE IF NOT EXISTS closed (is_closed INTEGER);
"""
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
        except sqlite3.OperationalError as error:
            raise ArchiveError(f"can't write {path}: {error}") from None
        except sqlite3.DatabaseError:  # damaged
            self._destroy()
            self._base = self._open()
        self._load()
        self._note_read()

    def _open(self) -> sqlite3.Connection:
        if self._path != IN_MEMORY:
            os.close(open_private(self._path, os.O_RDWR | os.O_CREAT))  # the library would make it for all to read
        # Exclusive: one writer, and no shared memory, which file systems of networks don't have.
        base = sqlite3.connect(self._path, isolation_level=None, check_same_thread=False)
        for pragma in ("locking_mode = EXCLUSIVE", "journal_mode = WAL", "synchronous = NORMAL", "cache_size = -8000"):
            base.execute(f"PRAGMA {pragma}")
        base.executescript(_TABLES)
        return base

    def _load(self) -> None:
        rows = self._base.execute("SELECT name, offset, is_sealed, is_done FROM segments")
        self.places = {
            name: Place(offset=offset, is_sealed=bool(is_sealed), is_done=bool(is_done))
            for name, offset, is_sealed, is_done in rows
        }
        found = self._base.execute("SELECT length, digest FROM mark").fetchone()
        self.mark = Mark(*found) if found else None
        found = self._base.execute("SELECT length, digest FROM ours").fetchone()
        self.ours = Mark(*found) if found else None
        self.was_closed = self._base.execute("SELECT is_closed FROM closed").fetchone() == (1,)

    def begin(self) -> None:
        with self._errors():
            self._base.execute("BEGIN")

    def news(self, chunk: Chunk, count_of: Callable[[CommitEntry], int]) -> Iterator[CommitEntry]:
        """The entries of a chunk that the output does not have; they count as had, and the chunk as read.

        `count_of`: how many records the target gets of one, unless `note_lost` says something else.
        """
        for entry in chunk.entries:
            with self._errors():
                added = self._base.execute(
                    "INSERT OR IGNORE INTO seen (fingerprint, visit, records) VALUES (?, ?, ?)",
                    (int(entry.fingerprint), entry.visit, count_of(entry)),
                )
            if added.rowcount:
                yield entry
        place = self.places[chunk.segment] = chunk.place
        with self._errors():
            self._base.execute(
                "INSERT INTO segments (name, offset, is_sealed, is_done, damaged) VALUES (?1, ?2, ?3, ?4, ?5) "
                "ON CONFLICT (name) DO UPDATE SET offset = ?2, is_done = ?4, "
                "damaged = ?5 + iif(is_sealed = ?3, damaged, 0), is_sealed = ?3",
                (chunk.segment, place.offset, place.is_sealed, place.is_done, chunk.damaged),
            )

    def note_lost(self, entry: CommitEntry, records: int, lost: int) -> None:
        """The target gets so many records of an entry that is news, and so many can't be read."""
        with self._errors():
            self._base.execute(
                "UPDATE seen SET records = ?, lost = ? WHERE fingerprint = ? AND visit = ?",
                (records, lost, int(entry.fingerprint), entry.visit),
            )

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

    def damaged(self) -> int:
        """Lines of the index that could not be read."""
        with self._errors():
            return int(self._base.execute("SELECT ifnull(sum(damaged), 0) FROM segments").fetchone()[0])

    def commit(self, mark: Mark | None) -> None:
        """What was news since `begin` is in the target permanently, which ends at this mark."""
        with self._errors():
            if mark is not None:
                self.mark = mark
                self._base.execute("DELETE FROM mark")
                self._base.execute("INSERT INTO mark VALUES (?, ?)", mark)
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
        with contextlib.suppress(sqlite3.Error):
            self._base.execute("ROLLBACK")
        with self._errors():
            self._load()

    def reset(self, ours: Mark | None = None) -> None:
        """The target is not what it was: everything is news. `ours`: of a file that may be replaced then."""
        if self._read_marks is not None:
            self._read_marks.note(frozenset())
        with self._errors():
            self._base.executescript("DELETE FROM segments; DELETE FROM seen; DELETE FROM mark; DELETE FROM ours;")
            if ours is not None:
                self._base.execute("INSERT INTO ours VALUES (?, ?)", ours)
            self._load()

    def set_closed(self, *, is_closed: bool) -> None:
        """Say that nothing of ours lies behind the mark; or, before anything is written, that this is not known."""
        with self._errors():
            self._base.execute("DELETE FROM closed")
            self._base.execute("INSERT INTO closed VALUES (?)", (is_closed,))

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


def cursor_path(outputs: Path, target: Target, what: str) -> Path:
    """Where, below a crawl folder's `outputs`, the cursor of a target lies: one for each kind of record (`what`)."""
    place = str(target.path.resolve()) if target.path else target.shown
    digest = hashlib.blake2b(f"{place} {target.table} {what}".encode(), digest_size=6).hexdigest()
    return outputs / f"{what}-{target.kind.value}-{digest}{CURSOR_SUFFIX}"


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
