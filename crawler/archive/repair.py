"""Repairs files that a dead session left open: whole records stay, a torn tail is cut, the file gets its final name.

And takes damage out of WARC files, for a rebuild that has every page that it hit fetched again.
"""

import contextlib
import mmap
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import IO

import msgspec
from isal import isal_zlib

from crawler import disk_sync
from crawler.archive import index, index_writer, items, warc_writer
from crawler.archive.appender import OPEN_SUFFIX
from crawler.archive.checked_lines import DamagedLine, has_checksum
from crawler.archive.folder import CrawlFolder, archive_error, replace_durably, sync_directory
from crawler.archive.index_reader import segment_names
from crawler.archive.new_places import WARC, at_new_places
from crawler.archive.warc import GZIP
from crawler.archive.warc_reader import Buffer, StoredResponse, members, next_member, stored_response
from crawler.errors import ArchiveError
from crawler.model import CommitEntry, WarcLocation

# Reads a whole crawl folder without trusting any of it: every response record, every line of the index.
#
# For audits and rebuilds. Nothing is skipped silently: unreadable parts are reported in between. Works while sessions
# are writing.

RECORD_BYTES_MAX = 1 << 30  # decompressed; a damaged length must not use up the memory
_WINDOW_BYTES = 1 << 20


class Flaw(msgspec.Struct, frozen=True, kw_only=True):
    """An unreadable part of the folder. `is_tail`: the end of a file that is, or was, being written."""

    file: str  # relative to the crawl folder
    reason: str
    is_tail: bool = False
    part: tuple[int, int] = (0, 0)  # of a WARC file: the first byte, and the one after the last


class ArchivedResponse(msgspec.Struct, frozen=True, kw_only=True):
    """A response record and its location."""

    location: WarcLocation
    stored: StoredResponse


class IndexLine(msgspec.Struct, frozen=True, kw_only=True):
    """A commit in one line of a segment; the same commit may be in several."""

    segment: str
    entry: CommitEntry
    length: int
    has_checksum: bool  # lines of earlier releases have none


def warc_names(folder: CrawlFolder) -> list[str]:
    """Final names of all WARC files, complete or being written, in order of time."""
    try:
        names = [path.name for path in folder.warc.iterdir()]
    except OSError:
        return []
    final = {name.removesuffix(OPEN_SUFFIX) for name in names}
    return sorted(name for name in final if name.endswith(warc_writer.SUFFIX))


class ArchiveSize:
    """How many bytes all WARC files of some folders have, and how many of them lie before the end of a record."""

    def __init__(self, folders: Sequence[CrawlFolder]) -> None:
        self.total = 0
        self._before: dict[str, int] = {}  # by file: its name has the session
        for folder in folders:
            for name in warc_names(folder):
                self._before[name] = self.total
                self.total += _size_of(folder.warc / name)

    def position(self, record: WarcLocation) -> int:
        return self._before.get(record.file, self.total) + record.offset + record.length


def _size_of(path: Path) -> int:
    try:
        file, _ = _opened(path)
        with file:
            return file.seek(0, 2)
    except OSError:  # whoever reads it reports it
        return 0


def walk_responses(folder: CrawlFolder) -> Iterator[ArchivedResponse | Flaw]:
    """All response records of all WARC files in order, and the unreadable parts. Memory: one record."""
    for name in warc_names(folder):
        yield from walk_warc(folder, name)


def walk_warc(folder: CrawlFolder, name: str) -> Iterator[ArchivedResponse | Flaw]:
    """The same of one file."""
    shown = f"{folder.warc.name}/{name}"
    try:
        file, is_open = _opened(folder.warc / name)
    except OSError as error:
        yield Flaw(file=shown, reason=error.strerror or "can't be read")
        return
    with file:
        size = file.seek(0, 2)
        if size == 0:
            return
        with mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ) as mapped:
            data = memoryview(mapped)
            try:
                yield from _records(data, name, shown, is_open=is_open)
            finally:
                data.release()


def _opened(path: Path) -> tuple[IO[bytes], bool]:
    """The file under its final name or its open one; tried twice, because it may be renamed in between."""
    for candidate in (path, path.with_name(path.name + OPEN_SUFFIX)):
        with contextlib.suppress(FileNotFoundError):
            return candidate.open("rb"), candidate != path
    return path.open("rb"), False


def _records(data: memoryview, name: str, shown: str, *, is_open: bool) -> Iterator[ArchivedResponse | Flaw]:
    start = 0
    while start < len(data):
        found = _member(data, start)
        if found is None:
            following = next_member(data, start + 1)
            if following is None:
                cut = f"its last {len(data) - start:,} bytes are not a whole record"
                yield Flaw(file=shown, reason=cut, is_tail=is_open, part=(start, len(data)))
                return
            reason = f"damaged from byte {start:,} to {following:,}"
            yield Flaw(file=shown, reason=reason, part=(start, following))
            start = following
            continue
        record, end = found
        try:
            stored = stored_response(record, f"{shown} at {start}")
        except ArchiveError as error:
            yield Flaw(file=shown, reason=str(error), part=(start, end))
        else:
            if stored is not None:
                location = WarcLocation(file=name, offset=start, length=end - start)
                yield ArchivedResponse(location=location, stored=stored)
        start = end


def _member(data: memoryview, start: int) -> tuple[bytes, int] | None:
    """The decompressed gzip member at `start` and its end; None when it is not whole (its CRC is checked)."""
    inflater = isal_zlib.decompressobj(wbits=GZIP)
    pieces: list[Buffer] = []
    position, room = start, RECORD_BYTES_MAX
    while position < len(data) and room > 0:
        chunk = data[position : position + _WINDOW_BYTES]
        try:
            pieces.append(inflater.decompress(chunk))
        except isal_zlib.error:  # type: ignore[misc]  # its stub declares an instance
            return None
        room -= len(pieces[-1])
        position += len(chunk)
        if inflater.eof:
            return b"".join(pieces), position - len(inflater.unused_data)
    return None


def whole_member(data: memoryview) -> tuple[bytes, int] | None:
    """The decompressed gzip member at the start of `data` and its length; None when it is not whole."""
    return _member(data, 0)


def walk_lines(folder: CrawlFolder) -> Iterator[IndexLine | Flaw]:
    """Every line of every index segment, unsorted and with repeats, and the unreadable parts."""
    names = segment_names(folder)
    for missing in index_writer.serials_missing(folder, names):
        yield Flaw(file=f"{folder.index.name}/{missing}", reason="not found")
    for final in sorted({name.removesuffix(OPEN_SUFFIX) for name in names}):  # both exist while one is being sorted
        yield from _walk_segment(folder, final)


def _walk_segment(folder: CrawlFolder, final: str) -> Iterator[IndexLine | Flaw]:
    shown = f"{folder.index.name}/{final}"
    try:
        file, is_open = _opened(folder.index / final)
        check, offset = index.SegmentCheck(), 0
        with file:
            for number, line in enumerate(file, 1):
                if check.is_entry(line):
                    entry = index.to_entry(line) if line.endswith(b"\n") else None
                    if entry is not None:
                        checked = has_checksum(line[:-1])
                        yield IndexLine(segment=final, entry=entry, length=len(line), has_checksum=checked)
                    elif is_open and not line.endswith(b"\n"):
                        yield Flaw(file=shown, reason="a torn last line", is_tail=True)
                        break  # what its writer adds meanwhile is the rest of it
                    else:
                        yield Flaw(file=shown, reason=str(DamagedLine(number, offset, line)))
                offset += len(line)
        if not is_open and (flaw := check.flaw()):
            yield Flaw(file=shown, reason=flaw)
    except OSError as error:
        yield Flaw(file=shown, reason=error.strerror or "can't be read")


LOCK = "recover"
WORK_FACTOR, WORK_BYTES_MIN = 16, 64 * 1024 * 1024  # limits of the search for whole members after damage
LOCK_TIMEOUT_S = 600.0  # a gigabyte of records takes a few seconds; another instance may have more to repair


class Recovered(msgspec.Struct, frozen=True, kw_only=True):
    """One repaired file. `file` is relative to the crawl folder, "" when nothing was left of it."""

    file: str
    kept: int  # records (all types) or index lines
    cut_bytes: int = 0
    damaged: bool = False  # damage in the middle: nothing was cut, the records around it are still readable


def recover_open_files(folder: CrawlFolder, is_dead: Callable[[str], bool]) -> list[Recovered]:
    """Repair the files that dead sessions left open. Blocks on the disk: call it in a thread.

    `is_dead` tells whether nobody writes to a session's files any more (`session_lock.is_abandoned`). Safe to repeat,
    also by several instances at once. Raises ArchiveError.
    """
    with folder.exclusive(LOCK, LOCK_TIMEOUT_S):
        found = [_recover_members(path) for path in _open_files(folder.warc, warc_writer.SUFFIX, is_dead)]
        found += [_recover_members(path) for path in _open_files(folder.items, items.SUFFIX, is_dead)]
        found += [_recover_index(folder, path) for path in _open_files(folder.index, index_writer.SUFFIX, is_dead)]
    return found


def _open_files(directory: Path, suffix: str, is_dead: Callable[[str], bool]) -> list[Path]:
    return [
        path
        for path in sorted(directory.glob(f"*{suffix}{OPEN_SUFFIX}"))
        if is_dead(session_of_stem(path.name.removesuffix(suffix + OPEN_SUFFIX)))
    ]


def session_of_stem(stem: str) -> str:
    """The session in `<prefix>-<digits>-<session>-<serial>` (WARC) or `<session>-<serial>` (index, items)."""
    parts = stem.split("-")
    stamp = next((i for i, part in enumerate(parts) if len(part) == 17 and part.isdigit()), -1)
    return "-".join(parts[stamp + 1 : -1])


def _recover_index(folder: CrawlFolder, path: Path) -> Recovered:
    lines = index_writer.seal(folder, path)
    return Recovered(file=str(Path(folder.index.name) / path.name.removesuffix(OPEN_SUFFIX)), kept=lines)


def _recover_members(path: Path) -> Recovered:
    """Repair a file of gzip members: records or items."""
    final = path.with_name(path.name.removesuffix(OPEN_SUFFIX))
    try:
        size = path.stat().st_size
        kept, end, damaged = _scan(path, size)
        if end == 0:
            path.unlink()
        else:
            if end < size:
                _cut(path, end)
            path.rename(final)
        sync_directory(path.parent)
    except OSError as error:
        raise archive_error("recover", path, error) from None
    file = str(Path(path.parent.name) / final.name) if end else ""
    return Recovered(file=file, kept=kept, cut_bytes=size - end, damaged=damaged)


def _scan(path: Path, size: int) -> tuple[int, int, bool]:
    """(number of whole records, end of the part to keep, is it damaged in the middle)."""
    if size == 0:
        return 0, 0, False
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        data = memoryview(mapped)
        try:
            kept, end = 0, 0
            for _, end in members(data):  # noqa: B007 (the last end is wanted)
                kept += 1
            damaged = end < size and whole_member_after(data, end + 1)
        finally:
            data.release()
    return kept, size if damaged else end, damaged


def whole_member_after(data: memoryview, start: int) -> bool:
    """Whether there is a whole member after `start`: then the damage is in the middle, not a torn tail.

    True when the search reaches its limit, so that nothing is cut.
    """
    return next_member(data, start, work_max=WORK_FACTOR * len(data) + WORK_BYTES_MIN) is not None


def _cut(path: Path, end: int) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.ftruncate(descriptor, end)
        disk_sync.sync(descriptor)
    finally:
        os.close(descriptor)


def next_generation(name: str) -> str:
    """The name of the file that has what stays of this one, of records or items: a number behind its serial."""
    suffix = warc_writer.SUFFIX if name.endswith(warc_writer.SUFFIX) else items.SUFFIX
    stem, _, serial = name.removesuffix(suffix).rpartition("-")
    number, _, generation = serial.partition("p")
    return f"{stem}-{number}p{int(generation or 0) + 1}{suffix}"


class TakenOut(msgspec.Struct, frozen=True, kw_only=True):
    """A WARC file that was damaged. Names are relative to the crawl folder; `left`: of the file that has its records
    now, "" if there was none.
    """

    file: str
    left: str
    damaged_bytes: int
    kept_in: str


_CHUNK_BYTES = 1 << 20
KEPT_SUFFIX = ".damaged"


def take_damage_out(folder: CrawlFolder, name: str, indexes: Sequence[CrawlFolder]) -> TakenOut | None:
    """Copy the whole records of a WARC file into a new one, and its damaged parts into the folder of logs; None if it
    has no damage. `indexes`: folders with lines that name it.

    May be repeated after a crash at any point: the old file goes last. Raises ArchiveError.
    """
    parts: list[tuple[int, int]] = []
    offsets: list[int] = []
    for found in walk_warc(folder, name):
        if isinstance(found, ArchivedResponse):
            offsets.append(found.location.offset)
        elif found.part[1]:
            parts.append(found.part)
    path = folder.warc / name
    if not parts or not path.exists():
        return None
    new_name, kept = next_generation(name), folder.log / f"{name}{KEPT_SUFFIX}"
    try:
        size = path.stat().st_size
        whole = [(a, b) for (_, a), (b, _) in zip([(0, 0), *parts], [*parts, (size, size)], strict=True) if a < b]
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            replace_durably(kept, folder.tmp / kept.name, chunks_of(data, parts))
            if whole:
                replace_durably(folder.warc / new_name, folder.tmp / new_name, chunks_of(data, whole))
        moved = {offset: offset - sum(b - a for a, b in parts if b <= offset) for offset in offsets}

        def now(kind: str, file: str, offset: int) -> tuple[str, int] | None:
            return (new_name, moved[offset]) if (kind, file) == (WARC, name) and offset in moved else None

        for one in indexes:
            index_writer.change_lines(one, partial(at_new_places, now=now))
        path.unlink()
        sync_directory(folder.warc)
    except OSError as error:
        raise archive_error("repair", path, error) from None
    return TakenOut(
        file=f"{folder.warc.name}/{name}",
        left=f"{folder.warc.name}/{new_name}" if whole else "",
        damaged_bytes=sum(b - a for a, b in parts),
        kept_in=f"{folder.log.name}/{kept.name}",
    )


def chunks_of(data: mmap.mmap, parts: Iterable[tuple[int, int]]) -> Iterator[bytes]:
    """These parts of a file, [start, end), a bounded piece at a time."""
    for start, end in parts:
        for at in range(start, end, _CHUNK_BYTES):
            yield data[at : min(at + _CHUNK_BYTES, end)]
