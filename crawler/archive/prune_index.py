"""What a prune reads from the index before it decides: a database in a temporary file, so that memory stays small.

Some 100 bytes a line of the index. The file has no name once it is open.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

from crawler.archive.new_places import ITEMS, WARC
from crawler.archive.prune_records import PruneRule
from crawler.archive.record_bounds import Extent
from crawler.archive.scratch import open_scratch
from crawler.model import CommitEntry

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
    original INTEGER NOT NULL, original_offset INTEGER NOT NULL, is_requisite INTEGER NOT NULL
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
            "INSERT INTO lines VALUES (?, ?, ?, ?, 0, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            ((int(one.fingerprint), one.visit, number, *self._row(one)) for one in entries),
        )

    def _row(self, entry: CommitEntry) -> tuple[int, ...]:
        warc, items, original = entry.warc, entry.items, entry.original
        return (
            self._rule.matches(entry),
            *((self._file_id(WARC, warc.file), warc.offset, warc.length) if warc else (0, 0, 0)),
            *((self._file_id(ITEMS, items.file), items.offset, items.length) if items else (0, 0, 0)),
            *((self._file_id(WARC, original.file), original.offset) if original else (0, 0)),
            entry.is_requisite,
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
