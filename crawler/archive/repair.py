"""Repairs files that a dead session left open: whole records stay, a torn tail is cut, the file gets its final name."""

import mmap
import os
from collections.abc import Callable
from pathlib import Path

import msgspec

from crawler.archive import index_writer, items, warc_writer
from crawler.archive.appender import OPEN_SUFFIX
from crawler.archive.crawl_folder import CrawlFolder, archive_error, sync_directory
from crawler.archive.warc_reader import members, next_member

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
