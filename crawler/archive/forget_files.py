"""Takes a domain's records and items out of a crawl's folders, and its lines out of their indexes.

Nothing is trusted to be named: each WARC file is read, and each record tells its own URL, also one that was never
committed. A frame of items tells none: what goes is what lines of the domain name, and what no line names.

A file of which something goes is rewritten next to it, under the name of its next generation (archive/repair.py);
then the lines of all folders get the new places, and the old file goes last. Who is killed in between leaves both
files, and lines that name the one or the other: `settle` puts the new one in place, by the bytes of its members,
before anything is judged again. Until all is done, the domain's own lines stay as they are: `drop_lines` comes last.
"""

import mmap
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import NamedTuple

import msgspec

from crawler.archive import index, items, warc_writer
from crawler.archive.folder import CrawlFolder, archive_error, open_private, replace_durably, sync_directory
from crawler.archive.index_writer import change_lines
from crawler.archive.new_places import ITEMS, WARC, at_new_places
from crawler.archive.repair import IndexLine, chunks_of, next_generation, walk_lines, whole_member
from crawler.archive.scratch import open_scratch
from crawler.archive.warc import KIND
from crawler.archive.warc_reader import members
from crawler.errors import ArchiveError, ConflictError
from crawler.model import CommitEntry, ItemsLocation, WarcLocation
from crawler.rules.forgotten import Forgotten, Named
from crawler.rules.progress import SILENT, Meter

FILE = "forget.begun"  # in a folder whose files may be half replaced: a prune would take their names
MOVED_MAX = 200_000  # places of records in memory, before the lines of the index get them
BATCH_BYTES = 1_000_000_000  # of new files, before the old ones go
READERS_TIMEOUT_S = 60.0
SPARE_BYTES = 32 << 20
HEAD_BYTES = 64 << 10  # of a record: its own fields
_SUFFIXES = {WARC: warc_writer.SUFFIX, ITEMS: items.SUFFIX}
_TABLES = """
CREATE TABLE places (
    file TEXT NOT NULL, offset INTEGER NOT NULL, is_ours INTEGER NOT NULL, PRIMARY KEY (file, offset)
) WITHOUT ROWID;
"""

Step = Callable[[str], None]


class Figures(msgspec.Struct, kw_only=True):
    """What goes of the folders, or would."""

    pages: int = 0  # by the index
    records: int = 0  # of the archive, those of no page too
    bytes: int = 0
    files_removed: int = 0
    files_rewritten: int = 0
    lines: int = 0  # of logs, journals and the history


class Unreached(NamedTuple):
    """Something that stays, and why."""

    place: str
    why: str


class _New(NamedTuple):
    """A file that was written in place of another; `name` "": nothing is left."""

    name: str
    moved: Mapping[int, int]


class ForgetFiles:
    """The work on all folders that were given; the caller has their locks. All calls block, and raise ArchiveError."""

    def __init__(
        self,
        folders: Sequence[CrawlFolder],
        named: Named,
        *,
        forgotten: Forgotten | None,
        has_all: bool,
        step: Step,
        meter: Meter = SILENT,
    ) -> None:
        """`forgotten`: also other domains. `has_all`: no other folder of the crawl is known, so that what no line names
        is of no page.
        """
        self._folders = folders
        self._named = named
        self._forgotten = forgotten
        self._stuck = set[Path]()
        self._is_flawed = False  # lines can't be changed: no file may go that they name
        self._has_all = has_all
        self._step = step
        self._meter = meter
        self.figures = Figures()
        self.unreached: list[Unreached] = []
        self._db = open_scratch(folders[0].tmp, "forget-", _TABLES)

    def close(self) -> None:
        self._db.close()

    def owns(self, entry: CommitEntry) -> bool:
        return self._named.owns(entry.url)

    def entries(self) -> Iterator[tuple[CrawlFolder, str, CommitEntry]]:
        """The domain's lines: (folder, segment, entry), repeats too."""
        for folder in self._folders:
            for line in walk_lines(folder):
                if isinstance(line, IndexLine) and self.owns(line.entry):
                    yield folder, line.segment, line.entry

    def settle(self) -> None:
        """Put files in place that a call which was killed had written: no line names the old ones then."""
        for folder in self._folders:
            begin(folder)
            for kind, path in _files(folder):
                new = path.with_name(next_generation(path.name))
                if not new.exists():
                    continue
                batch = {(kind, path.name): _New(new.name, _same_members(path, new))}
                self._move(batch)
                if any(map(self._needs(kind, path.name), self._all_entries())):
                    self._stuck |= {path, new}
                    why = f"what follows it, {new.name}, lacks some of it: 'crawler rebuild' mends it"
                    self._stays(folder, f"{path.parent.name}/{path.name}", why)
                else:
                    _remove(path)
                self._step("settled")

    def _needs(self, kind: str, name: str) -> Callable[[CommitEntry], bool]:
        def needs(entry: CommitEntry) -> bool:
            places = (entry.items,) if kind == ITEMS else (entry.warc, entry.original)
            is_named = any(place is not None and place.file == name for place in places)
            return is_named and not self.owns(entry) and not (self._forgotten and self._forgotten.has(entry.url))

        return needs

    def _all_entries(self) -> Iterator[CommitEntry]:
        for folder in self._folders:
            yield from (line.entry for line in walk_lines(folder) if isinstance(line, IndexLine))

    def read(self) -> None:
        """Note where all lines say that items and records are."""
        pages = set[tuple[str, int]]()
        self._meter.begin("reading index", "line")
        for folder in self._folders:
            for number, line in enumerate(walk_lines(folder)):
                self._meter.reached(number)
                if isinstance(line, IndexLine):
                    is_ours = self.owns(line.entry)
                    if is_ours:
                        pages.add((line.entry.fingerprint, line.entry.visit))
                    self._note(line.entry, is_ours=is_ours)
                elif not line.is_tail:
                    self._is_flawed = True
                    self._stays(folder, line.file, f"{line.reason}: 'crawler rebuild' mends it")
        self.figures.pages = len(pages)

    def _note(self, entry: CommitEntry, *, is_ours: bool) -> None:
        for place in (entry.warc, entry.items, entry.original):
            if place is not None:
                row = f"{_kind_of(place)}/{place.file}", place.offset, is_ours
                self._db.execute(
                    "INSERT INTO places VALUES (?, ?, ?) ON CONFLICT DO UPDATE SET is_ours = min(is_ours, ?)",
                    (*row, is_ours),
                )

    def _stays(self, folder: CrawlFolder, place: str, why: str) -> None:
        self.unreached.append(Unreached(f"{folder.root}/{place}", why))

    # --- records and items ---

    def change_files(self, *, dry_run: bool) -> None:
        """Rewrite each file of which something goes, and give all lines the new places."""
        batch: dict[tuple[str, str], _New] = {}
        old, size = list[Path](), 0
        for folder in self._folders:
            for kind, path in _files(folder):
                self._meter.begin(f"reading {path.name}")
                kept = None if path in self._stuck else self._kept(folder, kind, path)
                if kept is None:
                    continue
                if self._is_flawed:
                    self._stays(folder, f"{path.parent.name}/{path.name}", "it waits for the index to be mended")
                    continue
                self._count(path, kept)
                if dry_run:
                    continue
                if old and size + _size(kept) > BATCH_BYTES:
                    self._replace(batch, old)
                    batch, old, size = {}, [], 0
                batch[kind, path.name] = self._written(folder, path, kept)
                old.append(path)
                size += _size(kept)
                self._step("written")
                if sum(len(new.moved) for new in batch.values()) > MOVED_MAX:
                    self._replace(batch, old)
                    batch, old, size = {}, [], 0
        if old:
            self._replace(batch, old)

    def _count(self, path: Path, kept: Sequence[tuple[int, int]]) -> None:
        left = _size(kept)
        self.figures.bytes += path.stat().st_size - left
        if left:
            self.figures.files_rewritten += 1
        else:
            self.figures.files_removed += 1

    def _kept(self, folder: CrawlFolder, kind: str, path: Path) -> list[tuple[int, int]] | None:
        """The members that stay, [start, end); none of them when only the file's own record would; None when nothing
        goes, or when it may not be changed.
        """
        shown = f"{path.parent.name}/{path.name}"
        try:
            size = path.stat().st_size
            if not size:
                return None
            with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
                data = memoryview(mapped)
                try:
                    return self._judged(folder, kind, shown, data, path.name)
                finally:
                    data.release()
        except OSError as error:
            raise archive_error("read", path, error) from None

    def _judged(
        self, folder: CrawlFolder, kind: str, shown: str, data: memoryview, name: str
    ) -> list[tuple[int, int]] | None:
        places = dict[int, int](
            self._db.execute("SELECT offset, is_ours FROM places WHERE file = ?", (f"{kind}/{name}",)).fetchall()
        )
        kept, gone, of_nobody, others, end = list[tuple[int, int]](), 0, 0, 0, 0
        for start, end in members(data):
            is_ours = places.get(start)
            if kind == WARC:
                found = whole_member(data[start:end])
                uri = target_of(found[0]) if found else ""
                goes = bool(uri) and self._named.owns(uri)
                others += bool(uri) and not goes and is_ours is None and not (found and is_of_no_page(found[0]))
            else:
                goes = bool(is_ours) or (is_ours is None and self._has_all)
                of_nobody += is_ours is None
                uri = "items"
            gone += goes
            if not goes:
                kept.append((start, end))
        if end < len(data):
            self._stays(folder, shown, f"damaged from byte {end:,}: 'crawler rebuild' takes the damage out")
            return None
        if kind == ITEMS and of_nobody and not self._has_all:
            self._stays(folder, shown, f"no line of these folders names {of_nobody:,} of its pages: {_ALL_FOLDERS}")
        if not gone:
            return None
        if others and not self._has_all:
            self._stays(
                folder, shown, f"only the index of another folder names {others:,} of its records: {_ALL_FOLDERS}"
            )
            return None
        self.figures.records += gone
        if kind == WARC and len(kept) == 1 and not _has_target(data, kept[0]):
            return []  # its warcinfo
        return kept

    def _written(self, folder: CrawlFolder, path: Path, kept: Sequence[tuple[int, int]]) -> _New:
        if not kept:
            return _New("", {})
        name = next_generation(path.name)
        new = path.with_name(name)
        need, free = _size(kept) + SPARE_BYTES, shutil.disk_usage(path.parent).free
        if free < need:
            raise ArchiveError(
                f"to forget what is in {path}, the disk needs {need:,} free bytes for what stays of it, and has "
                f"{free:,}: make room and give the same command again"
            )
        moved, at = dict[int, int](), 0
        for start, end in kept:
            moved[start] = at
            at += end - start
        try:
            with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
                replace_durably(new, folder.tmp / name, chunks_of(data, kept))
        except OSError as error:
            raise archive_error("write", new, error) from None
        return _New(name, moved)

    def _replace(self, batch: Mapping[tuple[str, str], _New], old: Iterable[Path]) -> None:
        """All lines name the new files; then the old ones go."""
        self._move(batch)
        for path in old:
            _remove(path)
            self._step("removed")

    def _move(self, batch: Mapping[tuple[str, str], _New]) -> None:
        def now(kind: str, name: str, offset: int) -> tuple[str, int] | None:
            new = batch.get((kind, name))
            return (new.name, new.moved[offset]) if new is not None and offset in new.moved else None

        def changed(entry: CommitEntry) -> CommitEntry:
            return entry if self.owns(entry) else at_new_places(entry, now)

        for folder in self._folders:
            with folder.changing(READERS_TIMEOUT_S):
                change_lines(folder, changed, drops_to=None)
                self._step("lines")

    # --- lines ---

    def drop_lines(self, folder: CrawlFolder, *, keeps_keys: bool) -> None:
        """The domain's lines go from an index. `keeps_keys`: an output needs them still, so a pruned one stays."""

        def changed(entry: CommitEntry) -> CommitEntry | None:
            if not self.owns(entry):
                return entry
            if not keeps_keys:
                return None
            return entry if entry.pruned else index.pruned(entry)

        with folder.changing(READERS_TIMEOUT_S):
            change_lines(folder, changed, drops_to=None)
        self._step("dropped")


_ALL_FOLDERS = "name all folders of the crawl with --dir"


def begin(folder: CrawlFolder) -> None:
    """Files of this folder are replaced from here on. Raises ArchiveError."""
    path = folder.root / FILE
    try:
        os.close(open_private(path, os.O_WRONLY | os.O_CREAT))
        sync_directory(folder.root)
    except OSError as error:
        raise archive_error("write", path, error) from None


def end(folder: CrawlFolder) -> None:
    """No file of it is half replaced. Raises ArchiveError."""
    _remove(folder.root / FILE)


def check_not_begun(folder: CrawlFolder) -> None:
    """Raises ConflictError when files of this folder may be half replaced."""
    if (folder.root / FILE).exists():
        raise ConflictError("a forget was interrupted: give the same 'crawler forget' again first, which completes it")


def target_of(record: bytes) -> str:
    """The URL that a WARC record is of; "" for one without. The URL is as `safe_uri` makes it, or as other tools do."""
    head = record[:HEAD_BYTES].partition(b"\r\n\r\n")[0]
    for line in head.split(b"\r\n")[1:]:
        name, _, value = line.partition(b":")
        if name.strip().lower() == b"warc-target-uri":
            uri = value.strip().strip(b"<>").decode("utf-8", "replace")
            return uri if "://" in uri else ""
    return ""


def is_of_no_page(record: bytes) -> bool:
    """Is it a record that no line names?"""
    return f"\r\n{KIND}: ".encode() in record[:HEAD_BYTES].partition(b"\r\n\r\n")[0]


def _has_target(data: memoryview, part: tuple[int, int]) -> bool:
    found = whole_member(data[part[0] : part[1]])
    return found is None or bool(target_of(found[0]))


def _files(folder: CrawlFolder) -> Iterator[tuple[str, Path]]:
    for kind, place in ((ITEMS, folder.items), (WARC, folder.warc)):
        for path in sorted(place.glob(f"*{_SUFFIXES[kind]}")):
            yield kind, path


def _size(kept: Iterable[tuple[int, int]]) -> int:
    return sum(end - start for start, end in kept)


def _kind_of(place: WarcLocation | ItemsLocation) -> str:
    return ITEMS if isinstance(place, ItemsLocation) else WARC


def _frames(path: Path) -> Iterator[tuple[int, bytes]]:
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        data = memoryview(mapped)
        try:
            for start, end in members(data):
                yield start, blake2b(data[start:end], digest_size=16).digest()
        finally:
            data.release()


def _remove(path: Path) -> None:
    try:
        path.unlink(missing_ok=True)
        sync_directory(path.parent)
    except OSError as error:
        raise archive_error("remove", path, error) from None


def _same_members(old: Path, new: Path) -> dict[int, int]:
    """Where the members of one file are in another. Of equal ones any will do."""
    try:
        there = {digest: offset for offset, digest in _frames(new)}
        return {offset: there[digest] for offset, digest in _frames(old) if digest in there}
    except OSError as error:
        raise archive_error("read", new, error) from None


def removed_drafts(folder: CrawlFolder, *, dry_run: bool) -> None:
    """What commands that were killed left half-written. The caller has the folder's locks."""
    for place in (folder.warc, folder.items):
        for path in [] if dry_run else place.glob("*.pruning"):
            path.unlink(missing_ok=True)
    for path in [] if dry_run else folder.tmp.iterdir():
        if path.suffix != ".lock":
            if path.is_dir():
                shutil.rmtree(path, ignore_errors=True)
            elif os.path.lexists(path):
                path.unlink(missing_ok=True)
