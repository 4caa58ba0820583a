"""How far an output has come: the place in each segment of the index, the keys that it has, the end of its file.

A small SQLite file for each target, in the crawl folder. It is committed after the target: what it does not know yet is
written once more, behind a file's mark or onto a table's key, and so counts once. A cursor that is lost or damaged
means that the output begins anew.
"""

import contextlib
import hashlib
import os
import sqlite3
from collections.abc import Iterator
from pathlib import Path

from crawler.archive.folder import archive_error, make_private, open_private
from crawler.archive.tail import Chunk, Place
from crawler.errors import ArchiveError, UsageError
from crawler.model import CommitEntry
from crawler.outputs.naming import Kind, Target
from crawler.outputs.sink import Mark

IN_MEMORY = Path(":memory:")
_TABLES = """
CREATE TABLE IF NOT EXISTS segments
    (name TEXT PRIMARY KEY, offset INTEGER, is_sealed INTEGER, is_done INTEGER) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS seen
    (fingerprint INTEGER, visit INTEGER, PRIMARY KEY (fingerprint, visit)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS mark (length INTEGER, digest TEXT);
"""
SUFFIX = ".cursor"


class Cursor:
    """One target's. `begin`, then `news` of any number of chunks, then `commit` or `rollback`.

    Without a path it is kept in memory. Raises ArchiveError.
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path or IN_MEMORY
        self.places: dict[str, Place] = {}
        self.mark: Mark | None = None
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

    def _open(self) -> sqlite3.Connection:
        if self._path != IN_MEMORY:
            os.close(open_private(self._path, os.O_RDWR | os.O_CREAT))  # the library would make it for all to read
        # Exclusive: one writer, and no shared memory, which file systems of networks don't have.
        base = sqlite3.connect(self._path, isolation_level=None, check_same_thread=False)
        for pragma in ("locking_mode = EXCLUSIVE", "journal_mode = WAL", "synchronous = NORMAL", "cache_size = -8000"):
            base.execute(f"PRAGMA {pragma}")
        base.executescript(_TABLES)
        base.execute("SELECT count(*) FROM segments").fetchone()
        return base

    def _load(self) -> None:
        rows = self._base.execute("SELECT name, offset, is_sealed, is_done FROM segments")
        self.places = {
            name: Place(offset=offset, is_sealed=bool(is_sealed), is_done=bool(is_done))
            for name, offset, is_sealed, is_done in rows
        }
        found = self._base.execute("SELECT length, digest FROM mark").fetchone()
        self.mark = Mark(*found) if found else None

    def begin(self) -> None:
        with self._errors():
            self._base.execute("BEGIN")

    def news(self, chunk: Chunk) -> Iterator[CommitEntry]:
        """The entries of a chunk that the output does not have; they count as had, and the chunk as read."""
        for entry in chunk.entries:
            with self._errors():
                added = self._base.execute(
                    "INSERT OR IGNORE INTO seen VALUES (?, ?)", (int(entry.fingerprint), entry.visit)
                )
            if added.rowcount:
                yield entry
        place = self.places[chunk.segment] = chunk.place
        with self._errors():
            self._base.execute(
                "INSERT OR REPLACE INTO segments VALUES (?, ?, ?, ?)",
                (chunk.segment, place.offset, place.is_sealed, place.is_done),
            )

    def commit(self, mark: Mark | None) -> None:
        """What was news since `begin` is in the target for good, which ends at this mark."""
        with self._errors():
            if mark is not None:
                self.mark = mark
                self._base.execute("DELETE FROM mark")
                self._base.execute("INSERT INTO mark VALUES (?, ?)", mark)
            self._base.execute("COMMIT")

    def rollback(self) -> None:
        """It is not: it will be news again."""
        with contextlib.suppress(sqlite3.Error):
            self._base.execute("ROLLBACK")
        with self._errors():
            self._load()

    def reset(self) -> None:
        """The target is not what it was: everything is news."""
        with self._errors():
            self._base.executescript("DELETE FROM segments; DELETE FROM seen; DELETE FROM mark;")
            self._load()

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
    return outputs / f"{what}-{target.kind.value}-{digest}{SUFFIX}"


def refuse_foreign(outputs: Path, target: Target, what: str) -> None:
    """Raise UsageError for a file with something in it that this crawl did not write: it would begin it anew."""
    if target.kind is not Kind.LINES or target.path is None or cursor_path(outputs, target, what).exists():
        return
    with contextlib.suppress(FileNotFoundError):
        if target.path.stat().st_size:
            raise UsageError(
                f"{target.shown} is there already, and this crawl did not write it; move it away, or name another file"
            )
