"""Does what a prune's journal says, batch by batch; whoever finds the journal later continues where it ended.

Of each batch: what stays of files is copied into new ones, the segments of the index that name them are replaced one
by one, and then the old files go. So at each moment a line names a record that is there, or says that it was pruned.
"""

import errno
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import IO

from isal import isal_zlib

from crawler import disk_sync
from crawler.archive import index, index_writer
from crawler.archive.folder import CrawlFolder, archive_error, open_private, sync_directory
from crawler.archive.index_reader import archive_path
from crawler.archive.new_places import ITEMS, WARC, at_new_places
from crawler.archive.prune_journal import Journal, PrunedFile
from crawler.archive.read_segments import OutputsRead
from crawler.archive.repair import session_of_stem
from crawler.archive.warc import GZIP, record_ids, warcinfo
from crawler.archive.warc_reader import info_of
from crawler.archive.warc_writer import SUFFIX
from crawler.errors import ArchiveError, ConflictError
from crawler.model import CommitEntry, ItemsLocation, WarcLocation
from crawler.rules.progress import SILENT, Meter

DRAFT_SUFFIX = ".pruning"  # of a new file until it is complete: no reader knows it
COPY_BYTES = 1 << 20
READERS_TIMEOUT_S = 60.0
SPARE_BYTES = 32 << 20  # of disk, for a segment and the journal

Step = Callable[[str], None]


def no_step(name: str) -> None:
    """What tests replace, to end the process at any step."""


class PruneWork:
    """The work of one journal. `software`: what new WARC files name as theirs; `now_s`: wall clock."""

    def __init__(
        self,
        folder: CrawlFolder,
        journal: Journal,
        *,
        software: str,
        now_s: float,
        step: Step = no_step,
        meter: Meter = SILENT,
        readers_timeout_s: float = READERS_TIMEOUT_S,
    ) -> None:
        self._folder = folder
        self._journal = journal
        self._software = software
        self._now_s = now_s
        self._step = step
        self._meter = meter
        self._readers_timeout_s = readers_timeout_s
        self._ids = record_ids()

    def run(self) -> None:
        """Do all that is left. Blocks.

        Raises ArchiveError, and ConflictError while somebody reads what is to be removed: the journal stays then.
        """
        batches = self._journal.batches()
        self._meter.begin("removing", "batch", len(batches))
        for done, (number, is_copied) in enumerate(batches):
            self._meter.reached(done, done)
            files = self._journal.files(number)
            if not is_copied and any(one.new_name for one in files):
                self._copy(number, files)
            with self._folder.changing(self._readers_timeout_s):
                self._replace(number, files)
            self._journal.done(number)
            self._step("done")
        self._journal.end()
        self._step("ended")

    # --- new files ---

    def _copy(self, batch: int, files: Sequence[PrunedFile]) -> None:
        self._journal.copied(batch, self._all_copied(files))
        self._step("copied")

    def _all_copied(self, files: Sequence[PrunedFile]) -> Iterator[tuple[int, int, int]]:
        try:
            for one in files:
                yield from self._copied(one)
        except ArchiveError:
            for one in files:  # a disk that is full gets its room back
                self._draft(one).unlink(missing_ok=True)
            raise

    def _copied(self, file: PrunedFile) -> Iterator[tuple[int, int, int]]:
        """Copies what stays of a file into a draft, durably; where each part went: (new offset, file, offset)."""
        source, draft = self._path(file, file.name), self._draft(file)
        need, free = source.stat().st_size + SPARE_BYTES, shutil.disk_usage(source.parent).free
        if free < need:
            raise ArchiveError(
                f"to prune {source}, the disk needs {need:,} free bytes for what stays of it, and has {free:,}: "
                "make room and give the same command again"
            )
        try:
            with source.open("rb") as old, open(draft, "wb", opener=open_private) as new:
                if file.kind == WARC:
                    new.write(self._info(file))
                for kept in self._journal.kept(file):
                    yield new.tell(), file.id, kept.offset
                    _copy_part(old.fileno(), new, kept.offset, kept.end)
                    self._step("part")
                new.flush()
                disk_sync.sync(new.fileno())
        except OSError as error:
            raise archive_error("write", draft, error) from None
        self._step("draft")

    def _info(self, file: PrunedFile) -> bytes:
        session = session_of_stem(file.name.removesuffix(SUFFIX))
        fields = info_of(self._path(file, file.name))  # who archived it
        fields |= {"isPartOf": self._folder.crawl, "description": f"session {session}; what stays of {file.name}"}
        info = warcinfo(next(self._ids), filename=file.new_name, at=self._now_s, software=self._software, fields=fields)
        packed: bytes = isal_zlib.compress(info, 1, GZIP)
        return packed

    def _path(self, file: PrunedFile, name: str) -> Path:
        return (self._folder.warc if file.kind == WARC else self._folder.items) / name

    def _draft(self, file: PrunedFile) -> Path:
        path = self._path(file, file.new_name)
        return path.with_name(path.name + DRAFT_SUFFIX)

    # --- in their place ---

    def _replace(self, batch: int, files: Sequence[PrunedFile]) -> None:
        """Nobody reads meanwhile."""
        segments = self._journal.segments(batch)
        outputs = OutputsRead(self._folder)
        for segment in segments:
            for cursor in outputs.waiting_for(segment):
                raise ConflictError(
                    f"an output ({cursor}) has begun to read what is to be removed: give the same command again when "
                    "it has come to the end"
                )
        try:
            for file in files:
                if file.new_name and self._draft(file).exists():
                    self._draft(file).rename(self._path(file, file.new_name))
                    self._step("named")
            for directory in (self._folder.warc, self._folder.items):
                sync_directory(directory)
            lines = _Lines(self._folder, self._journal, files, removes_bare=batch == 0)
            for segment in segments:
                self._replace_segment(self._folder.index / segment, lines)
            for file in files:
                self._path(file, file.name).unlink(missing_ok=True)
                self._step("removed")
            for directory in (self._folder.warc, self._folder.items):
                sync_directory(directory)
        except OSError as error:
            raise archive_error("prune", self._folder.root, error) from None

    def _replace_segment(self, path: Path, lines: "_Lines") -> None:
        check = index.SegmentCheck()
        with path.open("rb") as file:
            before = list(filter(check.is_entry, file))
        if flaw := check.flaw():  # a new footer would hide it
            raise ArchiveError(f"{path}: {flaw}; 'crawler rebuild' mends it")
        after = [lines.of(line) for line in before]
        if after != before:
            after.sort()
            index_writer.replace_segment(self._folder, path, after)
            self._step("segment")


class _Lines:
    """What the lines of a segment become when the files of a batch are replaced."""

    def __init__(
        self, folder: CrawlFolder, journal: Journal, files: Sequence[PrunedFile], *, removes_bare: bool
    ) -> None:
        """`removes_bare`: also lines go that match the rule and name no file of this folder."""
        self._folder = folder
        self._journal = journal
        self._rule = journal.rule
        self._files = {(one.kind, one.name): one for one in files}
        self._removes_bare = removes_bare
        self._foreign: dict[str, bool] = {}

    def of(self, line: bytes) -> bytes:
        entry = index.to_entry(line)
        if entry is None or entry.pruned:
            return line
        moved = at_new_places(entry, self._now)
        goes = self._goes(WARC, entry.warc, moved.warc) or self._goes(ITEMS, entry.items, moved.items)
        if goes or self._is_bare(entry):
            return index.to_line(index.pruned(entry))
        return line if moved is entry else index.to_line(moved)

    def _now(self, kind: str, name: str, offset: int) -> tuple[str, int] | None:
        """Where a record of a file of this batch is now; None where it goes, or is of another batch."""
        file = self._files.get((kind, name))
        if file is None or not file.new_name or (new := self._journal.new_offset(file, offset)) is None:
            return None
        return file.new_name, new

    def _goes(
        self, kind: str, was: WarcLocation | ItemsLocation | None, now: WarcLocation | ItemsLocation | None
    ) -> bool:
        """Was it in a file of this batch, and has no new place?"""
        return was is not None and was == now and (kind, was.file) in self._files

    def _is_bare(self, entry: CommitEntry) -> bool:
        return (
            self._removes_bare
            and (entry.warc is None or self._is_foreign(WARC, entry.warc.file))
            and (entry.items is None or self._is_foreign(ITEMS, entry.items.file))
            and self._rule.matches(entry)
        )

    def _is_foreign(self, kind: str, name: str) -> bool:
        """Is the file in another folder of the crawl, and not one that this prune removes?"""
        known = self._foreign.get(name)
        if known is None:
            known = self._foreign[name] = (kind, name) not in self._files and not is_here(self._folder, kind, name)
        return known


def is_here(folder: CrawlFolder, kind: str, name: str) -> bool:
    """Is a file in the folder, complete or being written?"""
    if kind == WARC:
        return archive_path(folder, name) is not None
    return (folder.items / name).exists() or (folder.items / f"{name}.open").exists()


def _copy_part(source: int, target: IO[bytes], offset: int, end: int) -> None:
    """Raises OSError, also when the source ends before."""
    while offset < end:
        data = os.pread(source, min(COPY_BYTES, end - offset), offset)
        if not data:
            raise OSError(errno.EIO, "it ends before what the index has in it")
        target.write(data)
        offset += len(data)
