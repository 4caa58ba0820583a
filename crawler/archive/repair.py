"""Repairs files that a dead session left open: whole records stay, a torn tail is cut, the file gets its final name.

And takes damage out of WARC files, for a rebuild that has every page that it hit fetched again.
"""

import mmap
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import msgspec

from crawler.archive import index_writer, items, warc_writer
from crawler.archive.appender import OPEN_SUFFIX
from crawler.archive.crawl_folder import CrawlFolder, archive_error, replace_durably, sync_directory
from crawler.archive.folder_scan import ArchivedResponse, walk_warc
from crawler.archive.warc_reader import members, next_member
from crawler.model import CommitEntry, WarcLocation

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
        if is_dead(session_of(path.name.removesuffix(suffix + OPEN_SUFFIX)))
    ]


def session_of(stem: str) -> str:
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
        os.fsync(descriptor)
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
            replace_durably(kept, folder.tmp / kept.name, _chunks(data, parts))
            if whole:
                replace_durably(folder.warc / new_name, folder.tmp / new_name, _chunks(data, whole))
        moved = {offset: offset - sum(b - a for a, b in parts if b <= offset) for offset in offsets}

        def changed(entry: CommitEntry) -> CommitEntry:
            warc = entry.warc
            if warc is None or warc.file != name or warc.offset not in moved:
                return entry
            place = WarcLocation(file=new_name, offset=moved[warc.offset], length=warc.length)
            return entry.placed(place, entry.items)

        for one in indexes:
            index_writer.change_lines(one, changed)
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


def _chunks(data: mmap.mmap, parts: Sequence[tuple[int, int]]) -> Iterator[bytes]:
    for start, end in parts:
        for at in range(start, end, _CHUNK_BYTES):
            yield data[at : min(at + _CHUNK_BYTES, end)]
