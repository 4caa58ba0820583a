"""The journal of a prune: what is to be done, on disk before anything changes; so a prune that is killed is completed.

A small database in the crawl folder. Work is in batches, each with files that are removed, the parts of them that
stay and the segments whose lines name them:

    todo      nothing of the batch has changed; drafts of new files may be there
    copied    new files are on disk, as drafts or under their names; segments may name them; old files may be gone
    (no row)  done
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import msgspec

from crawler.archive.folder import CrawlFolder
from crawler.archive.job_journal import WorkJournal
from crawler.archive.prune_records import PruneRule

PRUNE_LOCK = "prune"  # of a folder: one prune at a time, and no rebuild meanwhile
PRUNE_LOCK_TIMEOUT_S = 1.0
FILE = "prune.db"
ROWS = 1_000  # read at a time
DRAFT = "prune.db.new"
_TABLES = """
CREATE TABLE work (rule TEXT NOT NULL, figures TEXT NOT NULL);
CREATE TABLE batches (number INTEGER PRIMARY KEY, state TEXT NOT NULL);
CREATE TABLE files (
    id INTEGER PRIMARY KEY, batch INTEGER NOT NULL, kind TEXT NOT NULL, name TEXT NOT NULL, new_name TEXT NOT NULL
);
CREATE TABLE places (
    file INTEGER NOT NULL, offset INTEGER NOT NULL, end INTEGER NOT NULL, new_offset INTEGER, PRIMARY KEY (file, offset)
) WITHOUT ROWID;
CREATE TABLE segments (batch INTEGER NOT NULL, name TEXT NOT NULL, PRIMARY KEY (batch, name)) WITHOUT ROWID;
"""


class Figures(msgspec.Struct, frozen=True, kw_only=True):
    """What a prune removes. `bytes`: of records and items; `waiting`: pages that match and stay for now, by reason.

    `cursors`: of the outputs that some of them wait for, relative to the crawl folder.
    """

    pages: int = 0
    bytes: int = 0
    files_removed: int = 0
    files_rewritten: int = 0
    waiting: dict[str, int] = {}
    cursors: list[str] = []


class PrunedFile(NamedTuple):
    """A file that goes. `new_name`: of the file that has what stays of it; "" when nothing does."""

    id: int
    kind: str
    name: str
    new_name: str


class Kept(NamedTuple):
    """A part of a file that stays: [offset, end)."""

    offset: int
    end: int


class Journal(WorkJournal):
    """The journal of one folder."""

    file = FILE

    @classmethod
    def found(cls, folder: CrawlFolder) -> "Journal | None":
        """That of a prune which did not come to its end, if there is one."""
        _drop_draft(folder)
        path = folder.root / FILE
        return cls(path) if path.exists() else None

    @classmethod
    def draft(cls, folder: CrawlFolder, rule: PruneRule, figures: Figures) -> "Journal":
        """A new one, which counts once it is `begun`."""
        _drop_draft(folder)
        new = cls(folder.root / DRAFT)
        with new._errors():
            new._db.executescript(_TABLES)
            new._db.execute("BEGIN")
            stored = (msgspec.json.encode(rule).decode(), msgspec.json.encode(figures).decode())
            new._db.execute("INSERT INTO work VALUES (?, ?)", stored)
        return new

    def add_batch(
        self, number: int, files: Iterable[PrunedFile], kept: Iterable[tuple[int, int, int]], segments: Iterable[str]
    ) -> None:
        """`kept`: (file, offset, end) of what stays of the files that have a new name."""
        with self._errors():
            self._db.execute("INSERT INTO batches VALUES (?, 'todo')", (number,))
            self._db.executemany(
                "INSERT INTO files VALUES (?, ?, ?, ?, ?)", ((one[0], number, *one[1:]) for one in files)
            )
            self._db.executemany("INSERT INTO places (file, offset, end) VALUES (?, ?, ?)", kept)
            self._db.executemany("INSERT INTO segments VALUES (?, ?)", ((number, name) for name in segments))

    @property
    def rule(self) -> PruneRule:
        return msgspec.json.decode(self._one("SELECT rule FROM work"), type=PruneRule)

    @property
    def figures(self) -> Figures:
        return msgspec.json.decode(self._one("SELECT figures FROM work"), type=Figures)

    def _one(self, sql: str) -> str:
        with self._errors():
            return str(self._db.execute(sql).fetchone()[0])

    def batches(self) -> list[tuple[int, bool]]:
        """(number, is copied) of those that are left."""
        with self._errors():
            rows = self._db.execute("SELECT number, state FROM batches ORDER BY number").fetchall()
        return [(number, state == "copied") for number, state in rows]

    def files(self, batch: int) -> list[PrunedFile]:
        with self._errors():
            rows = self._db.execute("SELECT id, kind, name, new_name FROM files WHERE batch = ? ORDER BY id", (batch,))
            return [PrunedFile(*row) for row in rows]

    def segments(self, batch: int) -> list[str]:
        with self._errors():
            rows = self._db.execute("SELECT name FROM segments WHERE batch = ? ORDER BY name", (batch,))
            return [name for (name,) in rows]

    def kept(self, file: PrunedFile) -> Iterator[Kept]:
        """What stays of a file, in order; rows may be changed meanwhile."""
        after = -1
        while True:
            with self._errors():
                rows = self._db.execute(
                    "SELECT offset, end FROM places WHERE file = ? AND offset > ? ORDER BY offset LIMIT ?",
                    (file.id, after, ROWS),
                ).fetchall()
            if not rows:
                return
            yield from map(Kept._make, rows)
            after = rows[-1][0]

    def copied(self, batch: int, moved: Iterable[tuple[int, int, int]]) -> None:
        """Note that the new files of a batch are on disk once `moved` is exhausted: (new offset, file, offset)."""
        with self._errors():
            self._db.execute("BEGIN")
            try:
                self._db.executemany("UPDATE places SET new_offset = ? WHERE file = ? AND offset = ?", moved)
                self._db.execute("UPDATE batches SET state = 'copied' WHERE number = ?", (batch,))
            except BaseException:
                self._db.execute("ROLLBACK")
                raise
            self._db.execute("COMMIT")

    def new_offset(self, file: PrunedFile, offset: int) -> int | None:
        """Where a record of a file is in its new file; None when it is gone."""
        with self._errors():
            row = self._db.execute(
                "SELECT new_offset FROM places WHERE file = ? AND offset = ?", (file.id, offset)
            ).fetchone()
        return None if row is None else int(row[0])

    def done(self, batch: int) -> None:
        with self._errors():
            self._db.execute("DELETE FROM batches WHERE number = ?", (batch,))


def _drop_draft(folder: CrawlFolder) -> None:
    """With what the library notes of a transaction: it would undo that in a new file of the same name."""
    for name in (f"{DRAFT}-journal", DRAFT):
        (folder.root / name).unlink(missing_ok=True)
