"""Decides what a prune removes, and writes it into a journal: nothing in the folder changes here.

A page goes when the rule matches it, no page that stays needs its record, and neither its record nor its items are in a
file that must stay as it is. Why pages stay:

    running      a file that is named by a commit which is not in a complete segment yet, or, while its session lives,
                 one with a record that no line names: that may be committed any time
    outputs      a file that is named in a segment which an output has not read to its end
    unnamed      a file with records that no line here names, where commits of this crawl are in other folders: one of
                 their lines may name it. It goes once everything in it is old enough
    unchanged    a page that stays, of a later run, is unchanged from it, and has its body there
    shown        a requisite, while a page stays that may show it; where a domain is named, those of it go
    damaged      a file in which the index has what can't be there; `crawler audit` tells more

Of a file of an ended session whose records are all accounted for, what no line names goes with the rest.
"""

import contextlib
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby
from pathlib import Path

from crawler.archive import items, warc_writer
from crawler.archive.appender import OPEN_SUFFIX
from crawler.archive.folder import CrawlFolder, archive_error
from crawler.archive.index import to_entry
from crawler.archive.index_reader import segment_names
from crawler.archive.new_places import ITEMS, WARC
from crawler.archive.prune_index import FoundFile, Scratch
from crawler.archive.prune_journal import Figures, Journal, PrunedFile
from crawler.archive.prune_records import PruneRule
from crawler.archive.prune_steps import is_here
from crawler.archive.read_segments import OutputsRead
from crawler.archive.record_bounds import Layout
from crawler.archive.repair import next_generation, session_of_stem
from crawler.errors import ArchiveError
from crawler.model import CommitEntry
from crawler.rules.progress import SILENT, Meter

RUNNING, OUTPUTS, UNNAMED, DAMAGED = "running", "outputs", "unnamed", "damaged"
PRUNABLE, FOREIGN = "prunable", "foreign"  # states of files; the others are the reasons above

BATCH_BYTES = 1_000_000_000  # of files that are copied before the old ones go: what a prune needs of the disk


PULSE = 16  # segments


class Planned:
    """What was decided. `keep` writes it into a journal that counts from then on."""

    def __init__(
        self,
        folder: CrawlFolder,
        rule: PruneRule,
        scratch: Scratch,
        strays: Sequence[tuple[str, str, int]],
        cursors: Sequence[str],
    ) -> None:
        """`strays`: (kind, name, bytes) of files that go although no line names them."""
        self._folder = folder
        self._rule = rule
        self._scratch = scratch
        self._strays = strays
        self._cursors = cursors
        self.figures = self._figures()

    def keep(self) -> Journal:
        """Raises ArchiveError."""
        with Journal.draft(self._folder, self._rule, self.figures) as draft:
            for number, files in enumerate(self._batches()):
                segments = self._segments(files, has_bare=number == 0)
                if files or segments:
                    kept = (row for one in files if one.new_name for row in self._kept(one))
                    draft.add_batch(number, files, kept, segments)
            return draft.begun(self._folder)

    @property
    def is_empty(self) -> bool:
        return not self.figures.pages and not self._strays

    # --- figures ---

    def _figures(self) -> Figures:
        number = self._scratch.number
        whole = number("SELECT count(*) FROM touched WHERE kept = 0") + len(self._strays)
        taken = number("SELECT sum(size - kept) FROM touched") + sum(size for *_, size in self._strays)
        waiting = dict(self._scratch.db.execute(_WAITING).fetchall())
        return Figures(
            pages=number("SELECT count(*) FROM (SELECT DISTINCT fp, visit FROM lines WHERE gone)"),
            bytes=taken,
            files_removed=whole,
            files_rewritten=number("SELECT count(*) FROM touched WHERE kept > 0"),
            waiting=waiting,
            cursors=list(self._cursors) if OUTPUTS in waiting else [],
        )

    # --- batches ---

    def _batches(self) -> Iterator[list[PrunedFile]]:
        """Whole files first, because that needs no disk and makes room."""
        rows = self._scratch.db.execute("SELECT id, kind, name, kept FROM touched ORDER BY name").fetchall()
        highest = max((number for number, *_ in rows), default=0)
        strays = [PrunedFile(highest + n, kind, name, "") for n, (kind, name, _) in enumerate(self._strays, 1)]
        yield [PrunedFile(number, kind, name, "") for number, kind, name, kept in rows if not kept] + strays
        batch, size = list[PrunedFile](), 0
        for number, kind, name, kept in rows:
            if not kept:
                continue
            if batch and size + kept > BATCH_BYTES:
                yield batch
                batch, size = [], 0
            batch.append(PrunedFile(number, kind, name, next_generation(name)))
            size += kept
        if batch:
            yield batch

    def _kept(self, file: PrunedFile) -> Iterator[tuple[int, int, int]]:
        yield from self._scratch.db.execute(
            "SELECT file, offset, end FROM named WHERE file = ? AND keep ORDER BY offset", (file.id,)
        )

    def _segments(self, files: Iterable[PrunedFile], *, has_bare: bool) -> list[str]:
        """Segments whose lines name these files; `has_bare`: and those with lines that go and name no file here."""
        found = set[str]()
        for file in files:
            sql = f"SELECT DISTINCT name FROM lines JOIN segments ON segments.id = segment WHERE {file.kind} = ?"  # noqa: S608
            found.update(name for (name,) in self._scratch.db.execute(sql, (file.id,)))
            if file.kind == WARC:
                found.update(name for (name,) in self._scratch.db.execute(_REFERRING_SEGMENTS, (file.id,)))
        if has_bare:
            found.update(name for (name,) in self._scratch.db.execute(_BARE_SEGMENTS))
        return sorted(found)


# Files of which something goes: number, kind, name, size, and how many bytes of them stay.
_TOUCHED = """
CREATE TEMP TABLE touched AS
SELECT id, kind, name, size, (SELECT ifnull(sum(end - offset), 0) FROM named WHERE file = id AND keep) AS kept
FROM files WHERE state = 'prunable' AND EXISTS (SELECT 1 FROM named WHERE file = id AND NOT keep)
"""


_GONE = """
UPDATE lines SET gone = matches
    AND (SELECT busy FROM segments WHERE id = segment) = ''
    AND (warc = 0 OR (SELECT state FROM files WHERE id = warc) IN ('prunable', 'foreign'))
    AND (items = 0 OR (SELECT state FROM files WHERE id = items) IN ('prunable', 'foreign'))
WHERE matches
"""


# No line has which pages show a requisite. Each is fetched once, for all pages and runs that come later.
_SHOWN = """
UPDATE lines SET gone = 0 WHERE gone AND is_requisite AND EXISTS (
    SELECT 1 FROM lines WHERE NOT gone AND NOT is_requisite AND (warc > 0 OR original > 0)
)
"""


# A page stays as long as one that stays is unchanged from it: its record has the body of both.
_NEEDED = """
UPDATE lines SET gone = 0 WHERE gone AND warc > 0 AND EXISTS (
    SELECT 1 FROM lines AS later
    WHERE later.original > 0 AND later.original = lines.warc AND later.original_offset = lines.warc_offset
        AND NOT later.gone
)
"""


# What an open segment refers to is found without its place, by the lines of the pages themselves.
_REFERRING_SEGMENTS = """
SELECT DISTINCT name FROM lines JOIN segments ON segments.id = segment WHERE original = ? AND busy = ''
"""


_BARE_SEGMENTS = """
SELECT DISTINCT segments.name FROM lines JOIN segments ON segments.id = segment WHERE gone
    AND (warc = 0 OR (SELECT state FROM files WHERE id = warc) = 'foreign')
    AND (items = 0 OR (SELECT state FROM files WHERE id = items) = 'foreign')
"""


# Files that may only go as a whole, and of which something stays.
_BROKEN = """
SELECT id FROM files WHERE state = 'prunable' AND only_whole AND (
    EXISTS (SELECT 1 FROM lines WHERE warc = files.id AND warc > 0 AND NOT gone)
    OR EXISTS (SELECT 1 FROM lines WHERE items = files.id AND items > 0 AND NOT gone)
    OR EXISTS (SELECT 1 FROM lines WHERE original = files.id AND original > 0 AND NOT gone)
)
"""


_WAITING = """
SELECT why, count(*) FROM (
    SELECT DISTINCT fp, visit, coalesce(
        nullif(busy, ''),
        (SELECT state FROM files WHERE id = warc AND state NOT IN ('prunable', 'foreign')),
        (SELECT state FROM files WHERE id = items AND state NOT IN ('prunable', 'foreign')),
        iif(is_requisite, 'shown', 'unchanged')
    ) AS why
    FROM lines JOIN segments ON segments.id = segment WHERE matches AND NOT gone
) GROUP BY why ORDER BY why
"""


class Planner:
    """Reads index and files of one folder. `undrained` entries are commits that are in the engine's log alone.

    `committed`: how many the whole crawl had, before these and the index were read; with fewer here, some of them are
    in other folders. `is_alive` tells of a session whether it may still write, or commit what it wrote.
    """

    def __init__(
        self,
        folder: CrawlFolder,
        rule: PruneRule,
        *,
        committed: int,
        is_alive: Callable[[str], bool],
        meter: Meter = SILENT,
    ) -> None:
        self._folder = folder
        self._rule = rule
        self._committed = committed
        self._is_alive = is_alive
        self._meter = meter
        self._cursors = set[str]()  # of outputs that have not read everything

    @contextlib.contextmanager
    def plan(self, undrained: Iterable[CommitEntry]) -> Iterator[Planned]:
        """Read everything and decide. Blocks. Raises ArchiveError."""
        with Scratch(self._folder.tmp, self._rule) as scratch:
            try:
                scratch.add("", undrained, busy=RUNNING)
                self._read_index(scratch)
                scratch.complete()
                self._judge_files(scratch)
                self._decide(scratch)
                strays = list(self._strays(scratch))
                planned = Planned(self._folder, self._rule, scratch, strays, sorted(self._cursors))
            except sqlite3.Error as error:
                raise ArchiveError(
                    f"can't write to {self._folder.tmp}, where a prune needs some 100 bytes a page to decide: {error}"
                ) from None
            yield planned

    # --- index ---

    def _read_index(self, scratch: Scratch) -> None:
        names, outputs = segment_names(self._folder), OutputsRead(self._folder)
        opened = {name.removesuffix(OPEN_SUFFIX) for name in names if name.endswith(OPEN_SUFFIX)}
        finals = sorted({name.removesuffix(OPEN_SUFFIX) for name in names})
        self._meter.begin("reading index", "segment", len(finals))
        for number, final in enumerate(finals):
            if number % PULSE == 0:
                self._meter.reached(number, number)
            waiting = outputs.waiting_for(final)
            self._cursors.update(waiting)
            busy = RUNNING if final in opened else OUTPUTS if waiting else ""
            scratch.add(final, self._entries(final, is_open=final in opened), busy=busy)

    def _entries(self, final: str, *, is_open: bool) -> Iterator[CommitEntry]:
        path = self._folder.index / final
        try:
            for candidate in (path.with_name(final + OPEN_SUFFIX), path) if is_open else (path,):
                with contextlib.suppress(FileNotFoundError), candidate.open("rb") as file:
                    yield from (entry for line in file if (entry := to_entry(line)) is not None)
        except OSError as error:
            raise archive_error("read", path, error) from None

    # --- files ---

    def _judge_files(self, scratch: Scratch) -> None:
        busy, has_all = scratch.busy_files(), None
        candidates = scratch.candidates()
        self._meter.begin("reading files", "file", len(candidates))
        for number, file in enumerate(candidates):
            self._meter.reached(number, number)
            if file.id in busy:
                scratch.set_state(file.id, busy[file.id])
            elif not is_here(self._folder, file.kind, file.name):
                scratch.set_state(file.id, FOREIGN)
            elif not self._path(file.kind, file.name).exists():
                scratch.set_state(file.id, RUNNING)  # open
            else:
                has_all = self._judge_file(scratch, file, has_all)

    def _judge_file(self, scratch: Scratch, file: FoundFile, has_all: bool | None) -> bool | None:
        """Lay out a file that is complete; what is known of whether all commits are in this folder."""
        path = self._path(file.kind, file.name)
        try:
            layout = Layout(path, is_warc=file.kind == WARC)
            scratch.add_extents(file, layout.extents(scratch.places(file)))
        except ArchiveError:
            scratch.set_state(file.id, DAMAGED)
            return has_all
        except OSError as error:
            raise archive_error("read", path, error) from None
        state, only_whole = PRUNABLE, False
        if layout.has_unnamed:
            if has_all is None:
                has_all = self._has_all(scratch)
            if self._is_alive(_session_of(file.kind, file.name)):
                state = RUNNING
            elif not has_all:
                only_whole = self._is_old(path)
                state = PRUNABLE if only_whole else UNNAMED
        scratch.set_state(file.id, state, size=layout.size, only_whole=only_whole)
        return has_all

    def _has_all(self, scratch: Scratch) -> bool:
        """Are all commits of the crawl in this folder, or in the engine's log?"""
        return scratch.number("SELECT count(*) FROM (SELECT DISTINCT fp, visit FROM lines)") >= self._committed

    def _is_old(self, path: Path) -> bool:
        """Does the rule match everything in a file, whoever names it? It was last written to before the rule's time."""
        return self._rule.is_by_age_alone and path.stat().st_mtime < self._rule.before

    def _path(self, kind: str, name: str) -> Path:
        return (self._folder.warc if kind == WARC else self._folder.items) / name

    def _decide(self, scratch: Scratch) -> None:
        while True:
            scratch.db.execute(_GONE)
            if not self._rule.domain:
                scratch.db.execute(_SHOWN)
            scratch.db.execute(_NEEDED)
            broken = scratch.db.execute(_BROKEN).fetchall()
            if not broken:
                break
            scratch.db.executemany("UPDATE files SET state = 'unnamed' WHERE id = ?", broken)
        for kind in (WARC, ITEMS):
            scratch.db.execute(
                f"UPDATE named SET keep = EXISTS (SELECT 1 FROM lines WHERE {kind} = file AND {kind} > 0 "  # noqa: S608
                f"AND {kind}_offset = offset AND NOT gone) WHERE file IN (SELECT id FROM files WHERE kind = '{kind}')"
            )
        scratch.db.execute(_TOUCHED)

    def _strays(self, scratch: Scratch) -> Iterator[tuple[str, str, int]]:
        """(kind, name, bytes) of old files that no line names: nothing in them was committed, or is any more."""
        if not self._rule.is_by_age_alone:
            return
        for kind, suffix in ((WARC, warc_writer.SUFFIX), (ITEMS, items.SUFFIX)):
            known = scratch.names_of(kind)
            for path in sorted(self._path(kind, "").glob(f"*{suffix}")):
                if path.name in known or self._is_alive(_session_of(kind, path.name)):
                    continue
                with contextlib.suppress(FileNotFoundError):
                    if self._is_old(path):
                        yield kind, path.name, path.stat().st_size


def _session_of(kind: str, name: str) -> str:
    return session_of_stem(name.removesuffix(warc_writer.SUFFIX if kind == WARC else items.SUFFIX))


def runs_in(folder: CrawlFolder, undrained: Iterable[CommitEntry]) -> set[str]:
    """All runs that the pages of a folder belong to, except those that were removed. Raises ArchiveError."""
    found = {entry.run for entry in undrained}
    for name in segment_names(folder):
        path = folder.index / name
        try:
            with path.open("rb") as file:
                for run, _ in groupby(filter(None, map(_run_of, file))):
                    found.add(run)
        except FileNotFoundError:
            continue  # sealed meanwhile: its newest runs are kept anyway
        except OSError as error:
            raise archive_error("read", path, error) from None
    return found - {""}


def _run_of(line: bytes) -> str:
    if b'"run":"' not in line or not line.endswith(b"\n"):
        return ""
    entry = to_entry(line)
    return "" if entry is None or entry.pruned else entry.run
