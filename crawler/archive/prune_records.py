"""What a prune notes: which pages it removes, where they lie, and the journal that survives a crash."""

import contextlib
import mmap
import os
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, NamedTuple, Self

import msgspec

from crawler.archive.folder import CrawlFolder, archive_error
from crawler.archive.journals import WorkJournal
from crawler.archive.repair import whole_member
from crawler.errors import ArchiveError
from crawler.model import CommitEntry
from crawler.rules.jobs import name_of
from crawler.rules.urls import host_of, registrable_domain

if TYPE_CHECKING:
    import sqlite3


class PruneRule(msgspec.Struct, frozen=True, kw_only=True):
    """`before`: wall clock, s; 0: whenever it was fetched. `runs`: only pages of these; None: of any, or of none."""

    before: float = 0.0
    domain: str = ""
    runs: frozenset[str] | None = None
    active: frozenset[str] = frozenset()  # runs that go on

    def matches(self, entry: CommitEntry) -> bool:
        """Is this page to be removed?"""
        if entry.pruned or (entry.run and entry.run in self.active):
            return False
        if self.runs is not None and entry.run not in self.runs:
            return False
        if self.before and entry.fetched_at >= self.before:
            return False
        return not self.domain or registrable_domain(host_of(entry.url)) == self.domain

    @property
    def is_by_age_alone(self) -> bool:
        """Does it match whatever was written early enough, whatever it is?"""
        return bool(self.before) and not self.domain and self.runs is None and not self.active


def runs_beyond(runs: Iterable[str], keep: int, active: Iterable[str] = ()) -> frozenset[str]:
    """Those of these runs that are not among the newest `keep` of their job, by nominal time; active ones don't count.

    Attempts at one nominal time are kept or removed together. What is not the id of a run is kept.
    """
    going_on = frozenset(active)
    of_jobs: dict[str, dict[tuple[int, bool], list[str]]] = {}
    for run in runs:
        name = name_of(run)
        if name is not None and run not in going_on:
            of_jobs.setdefault(name.job, {}).setdefault((name.nominal, name.is_manual), []).append(run)
    old = (times[at] for times in of_jobs.values() for at in sorted(times, reverse=True)[keep:])
    return frozenset(run for some in old for run in some)


# A database for what does not fit into memory: in a file of the crawl folder that is gone with its process.

CACHE_KIB = 32 * 1024


def open_scratch(home: Path, prefix: str, tables: str) -> "sqlite3.Connection":
    """A new database in this folder, in a transaction, with these tables (SQL). Raises ArchiveError."""
    import sqlite3

    try:
        descriptor, path = tempfile.mkstemp(prefix=prefix, dir=home)
    except OSError as error:
        raise archive_error("write", home, error) from None
    os.close(descriptor)
    try:
        db = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        for pragma in ("journal_mode=OFF", "synchronous=OFF", "locking_mode=EXCLUSIVE", f"cache_size=-{CACHE_KIB}"):
            db.execute(f"PRAGMA {pragma}")
        db.executescript(tables)
        db.execute("BEGIN")
    finally:
        with contextlib.suppress(OSError):
            Path(path).unlink()  # it is open: its room is given back when this process ends, however it ends
    return db


# Where the records of a file begin and end, by the places that the index has, without reading what it names.
#
# Only what lies between these places is read: the request behind each response, and records that no line names.


class Extent(NamedTuple):
    """A named record, and what belongs to it: [offset, end)."""

    offset: int
    length: int
    end: int


class Layout:
    """One pass over a file. `has_unnamed` is complete once `extents` is exhausted."""

    def __init__(self, path: Path, *, is_warc: bool) -> None:
        self._path = path
        self._is_warc = is_warc
        self.has_unnamed = False  # are there records, or frames of items, at none of the places?
        self.size = path.stat().st_size

    def extents(self, places: Iterable[tuple[int, int]]) -> Iterator[Extent]:
        """(offset, length) of the named records, in order -> their extents. Raises ArchiveError."""
        if not self.size:  # can't be mapped
            yield from self._extents(memoryview(b""), places)
            return
        with self._path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
            data = memoryview(mapped)
            try:
                yield from self._extents(data, places)
            finally:
                data.release()

    def _extents(self, data: memoryview, places: Iterable[tuple[int, int]]) -> Iterator[Extent]:
        last: Extent | None = None
        for offset, length in _ended(places, len(data)):
            start = last.end if last is not None else 0
            if offset < start or offset + length > len(data):
                raise ArchiveError(f"{self._path}: the index has places in it that overlap, or lie behind its end")
            end = self._gap(data, start, offset, follows_record=last is not None)
            if last is not None:
                yield last._replace(end=end)
            last = Extent(offset, length, offset + length)

    def _gap(self, data: memoryview, start: int, stop: int, *, follows_record: bool) -> int:
        """Where the record before this gap ends, with its request."""
        if not self._is_warc:
            self.has_unnamed |= stop > start
            return start
        end, position = start, start
        while position < stop:
            found = whole_member(data[position:stop])
            if found is None:
                raise ArchiveError(f"{self._path} is damaged at byte {position:,}")
            record, length = found
            kind = _type_of(record)
            if kind == b"request" and follows_record and end == position and position == start:
                end = position + length
            elif kind in (b"request", b"response", b"revisit"):
                self.has_unnamed = True
            elif kind != b"warcinfo":
                raise ArchiveError(f"{self._path}: a record of type {kind.decode('latin-1')!r} at byte {position:,}")
            position += length
        return end


def _ended(places: Iterable[tuple[int, int]], size: int) -> Iterator[tuple[int, int]]:
    yield from places
    yield size, 0


def _type_of(record: bytes) -> bytes:
    head = record.partition(b"\r\n\r\n")[0]
    for line in head.split(b"\r\n"):
        if line[:10].lower() == b"warc-type:":
            return line[10:].strip()
    return b""


# What a prune reads from the index before it decides: a database in a temporary file, so that memory stays small.
#
# Some 100 bytes a line of the index. The file has no name once it is open.


WARC, ITEMS = "warc", "items"  # kinds of files; also the folders in which they are
_SCRATCH_TABLES = """
CREATE TABLE segments (id INTEGER PRIMARY KEY, name TEXT NOT NULL, busy TEXT NOT NULL);
CREATE TABLE files (
    id INTEGER PRIMARY KEY, kind TEXT NOT NULL, name TEXT NOT NULL, state TEXT NOT NULL DEFAULT '',
    size INTEGER NOT NULL DEFAULT 0, only_whole INTEGER NOT NULL DEFAULT 0
);
CREATE TABLE lines (
    fp INTEGER NOT NULL, visit INTEGER NOT NULL, segment INTEGER NOT NULL, matches INTEGER NOT NULL,
    gone INTEGER NOT NULL, warc INTEGER NOT NULL, warc_offset INTEGER NOT NULL, warc_length INTEGER NOT NULL,
    items INTEGER NOT NULL, items_offset INTEGER NOT NULL, items_length INTEGER NOT NULL,
    original INTEGER NOT NULL, original_offset INTEGER NOT NULL
);
CREATE TABLE named (
    file INTEGER NOT NULL, offset INTEGER NOT NULL, length INTEGER NOT NULL, end INTEGER NOT NULL,
    keep INTEGER NOT NULL DEFAULT 1, PRIMARY KEY (file, offset)
) WITHOUT ROWID;
"""
_INDEXES = """
CREATE INDEX lines_by_warc ON lines (warc, warc_offset, warc_length) WHERE warc > 0;
CREATE INDEX lines_by_items ON lines (items, items_offset, items_length) WHERE items > 0;
CREATE INDEX lines_by_original ON lines (original, original_offset) WHERE original > 0;
"""


class FoundFile(NamedTuple):
    """A file that some line names."""

    id: int
    kind: str
    name: str
    matching: int  # lines that name it and match the rule


class Scratch:
    """One prune's rows; use as a context manager. SQL that decides is in `plan`."""

    def __init__(self, home: Path, rule: PruneRule) -> None:
        """Raises ArchiveError."""
        self._rule = rule
        self._files: dict[tuple[str, str], int] = {}
        self.db = open_scratch(home, "prune-", _SCRATCH_TABLES)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.db.close()

    def add(self, segment: str, entries: Iterable[CommitEntry], *, busy: str = "") -> None:
        """The lines of a segment. `busy`: why it must stay as it is, and all that it names; "" when it need not."""
        number = self.db.execute("INSERT INTO segments (name, busy) VALUES (?, ?)", (segment, busy)).lastrowid
        self.db.executemany(
            "INSERT INTO lines VALUES (?, ?, ?, ?, 0, ?, ?, ?, ?, ?, ?, ?, ?)",
            ((int(one.fingerprint), one.visit, number, *self._row(one)) for one in entries),
        )

    def _row(self, entry: CommitEntry) -> tuple[int, ...]:
        warc, items, original = entry.warc, entry.items, entry.original
        return (
            self._rule.matches(entry),
            *((self._file_id(WARC, warc.file), warc.offset, warc.length) if warc else (0, 0, 0)),
            *((self._file_id(ITEMS, items.file), items.offset, items.length) if items else (0, 0, 0)),
            *((self._file_id(WARC, original.file), original.offset) if original else (0, 0)),
        )

    def _file_id(self, kind: str, name: str) -> int:
        known = self._files.get((kind, name))
        if known is None:
            known = self._files[kind, name] = len(self._files) + 1
            self.db.execute("INSERT INTO files (id, kind, name) VALUES (?, ?, ?)", (known, kind, name))
        return known

    def complete(self) -> None:
        """All lines were added."""
        self.db.executescript(_INDEXES)
        self.db.execute("BEGIN")

    def names_of(self, kind: str) -> frozenset[str]:
        """All files of a kind that lines name."""
        return frozenset(name for its_kind, name in self._files if its_kind == kind)

    def candidates(self) -> list[FoundFile]:
        """Files that lines name which match."""
        rows = self.db.execute(
            "SELECT id, kind, name, n FROM files JOIN (SELECT file, sum(n) AS n FROM ("
            "SELECT warc AS file, count(*) AS n FROM lines WHERE matches AND warc > 0 GROUP BY warc UNION ALL "
            "SELECT items, count(*) FROM lines WHERE matches AND items > 0 GROUP BY items) GROUP BY file) ON file = id "
            "ORDER BY name"
        )
        return [FoundFile(*row) for row in rows]

    def busy_files(self) -> dict[int, str]:
        """Files that must stay as they are, and why, by number."""
        found: dict[int, str] = {}
        for kind in (WARC, ITEMS):
            found |= self.db.execute(
                f"SELECT {kind}, min(busy) FROM lines JOIN segments ON segments.id = segment "  # noqa: S608 - ours
                f"WHERE busy != '' AND {kind} > 0 GROUP BY {kind}"
            ).fetchall()
        return found

    def places(self, file: FoundFile) -> Iterator[tuple[int, int]]:
        """(offset, length) of what lines name in a file, in order."""
        yield from self.db.execute(
            f"SELECT DISTINCT {file.kind}_offset, {file.kind}_length FROM lines WHERE {file.kind} = ? "  # noqa: S608
            f"ORDER BY {file.kind}_offset",
            (file.id,),
        )

    def add_extents(self, file: FoundFile, extents: Iterable[Extent]) -> None:
        self.db.executemany(
            "INSERT INTO named (file, offset, length, end) VALUES (?, ?, ?, ?)", ((file.id, *one) for one in extents)
        )

    def set_state(self, file: int, state: str, *, size: int = 0, only_whole: bool = False) -> None:
        self.db.execute(
            "UPDATE files SET state = ?, size = ?, only_whole = ? WHERE id = ?", (state, size, only_whole, file)
        )

    def number(self, sql: str) -> int:
        """The one number that a question has for an answer."""
        return int(self.db.execute(sql).fetchone()[0] or 0)


# The journal of a prune: what is to be done, on disk before anything changes; so a prune that is killed is completed.
#
# A small database in the crawl folder. Work is in batches, each with files that are removed, the parts of them that
# stay and the segments whose lines name them:
#
#     todo      nothing of the batch has changed; drafts of new files may be there
#     copied    new files are on disk, as drafts or under their names; segments may name them; old files may be gone
#     (no row)  done


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
