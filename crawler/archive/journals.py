"""Journals: files of JSON lines with what only the engine would know, on disk before the engine has it.

Any number of processes may append to one. Each line has a checksum. What a damaged line had is named by nothing else,
so nobody reads on as if it had not been there: a rebuild ends with an error, unless its loss is accepted. A file next
to a journal has its length, and one in the folder of sessions: so one that was cut, emptied or removed is noticed, also
with the whole folder of journals.

Also the journal of long work on a folder, a database.
"""

import contextlib
import fcntl
import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Generic, TypeVar

import msgspec

from crawler import disk_sync
from crawler.archive.checked_lines import (
    DamagedLine,
    LineReader,
    is_right,
    number_in,
    number_line,
    with_checksum,
    without_checksum,
)
from crawler.archive.folder import (
    CrawlFolder,
    archive_error,
    open_private,
    replace_durably,
    sync_directory,
    write_durably,
)
from crawler.errors import ArchiveError
from crawler.lazy_module import LazyModule

if TYPE_CHECKING:
    import sqlite3
else:
    sqlite3 = LazyModule("sqlite3")

SUFFIX = ".jsonl"
SIZE_SUFFIX = ".size"
Line = TypeVar("Line", bound=msgspec.Struct)

_encode = msgspec.json.Encoder().encode


def journal_path(folder: CrawlFolder, kind: str, name: str, first_begun_at: float) -> Path:
    """The journal of a crawl in a folder. `first_begun_at` (wall clock, s) tells crawls of one name apart."""
    return folder.journal / f"{kind}-{name}-{round(first_begun_at * 1e6)}{SUFFIX}"


def journals_at(folder: CrawlFolder, kind: str) -> list[Path]:
    """The paths of a folder's journals of this kind, of those too that are missing."""
    found = {*folder.journal.glob(f"{kind}-*{SUFFIX}")}
    for place in (folder.journal, folder.sessions):
        noted = place.glob(f"{kind}-*{SUFFIX}{SIZE_SUFFIX}")
        found |= {folder.journal / path.name.removesuffix(SIZE_SUFFIX) for path in noted}
    return sorted(found)


class Journal(Generic[Line]):
    """A file with lines of one type."""

    def __init__(self, path: Path, line: type[Line]) -> None:
        self.path = path
        self._line = line

    @property
    def has_lines(self) -> bool:
        """Has it, or had it, lines?"""
        return (self.path.exists() and self.path.stat().st_size > 0) or bool(self._noted_size())

    def append(self, lines: Iterable[Line]) -> None:
        """Add lines; they are durable when this returns. Blocks on the disk. Raises ArchiveError."""
        data = b"".join(with_checksum(_encode(line)) + b"\n" for line in lines)
        if not data:
            return
        try:
            is_new = not self.path.exists()
            with self._locked() as descriptor:
                before = _append(descriptor, data) - len(data)
                self._note_size(max(before, self._noted_size() or 0) + len(data))  # what is missing stays so
            if is_new:
                sync_directory(self.path.parent)
        except OSError as error:
            raise archive_error("write", self.path, error) from None

    def _note_size(self, size: int) -> None:
        """Note, durably, how long the file is now. Raises OSError."""
        for path in self._size_paths:
            descriptor = open_private(path, os.O_WRONLY | os.O_CREAT)
            try:
                line = number_line(size)
                os.pwrite(descriptor, line, 0)
                os.ftruncate(descriptor, len(line))
                disk_sync.sync_data(descriptor)
            finally:
                os.close(descriptor)

    def _noted_size(self) -> int | None:
        """None when no note can be read. Raises OSError."""
        return max((n for path in self._size_paths if (n := number_in(path)) is not None), default=None)

    @property
    def _size_paths(self) -> tuple[Path, Path]:
        """Next to the file, and in another folder: this one may be removed as a whole."""
        name = self.path.name + SIZE_SUFFIX
        return self.path.with_name(name), self.path.parent.parent / "sessions" / name

    def missing(self) -> str:
        """What is missing at the end of the file; "" for nothing. Raises ArchiveError."""
        try:
            noted = self._noted_size()
            if noted is None:
                return ""  # of an earlier release, or both notes were hit
            if not self.path.exists():
                return "not found"
            with self.path.open("rb") as file:
                size = _end_of_lines(file.fileno())
        except OSError as error:
            raise archive_error("read", self.path, error) from None
        return f"its lines have {size:,} bytes, and had {noted:,}" if size < noted else ""

    @contextlib.contextmanager
    def _locked(self) -> Iterator[int]:
        """The file, created if there is none, for this process alone. Raises OSError."""
        while True:
            descriptor = open_private(self.path, os.O_RDWR | os.O_CREAT)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX)
                if self.path.exists() and os.path.samestat(os.fstat(descriptor), self.path.stat()):
                    yield descriptor
                    return  # else it was replaced meanwhile, by `drop_damaged`
            finally:
                os.close(descriptor)  # releases the lock

    def read(self) -> Iterator[Line]:
        """All complete lines in order; repeats are possible. Raises ArchiveError at the end if any was damaged, and
        ConflictError for a line of a newer release.
        """
        reader = LineReader(str(self.path), self._line)
        yield from self._records(reader)
        if reader.damaged:
            raise ArchiveError(f"{self.path}: {reader.damaged[0]}")

    def damaged(self) -> list[DamagedLine]:
        """The damaged lines. Raises as `read`."""
        reader = LineReader(str(self.path), self._line)
        for _ in self._records(reader):
            pass
        return reader.damaged

    def _records(self, reader: LineReader[Line]) -> Iterator[Line]:
        try:
            with self.path.open("rb") as file:
                yield from reader.records(file)
        except FileNotFoundError:
            return
        except OSError as error:
            raise archive_error("read", self.path, error) from None

    def drop_damaged(self, kept_in: Path) -> int:
        """Take the damaged lines out of the file, after adding them to another one; how many. What is missing is
        accepted. Raises ArchiveError.
        """
        dropped = {one.number for one in self.damaged()}
        if not dropped and not self.missing():
            return 0
        draft = self.path.with_name(f"{self.path.name}.draft")
        try:
            with self._locked(), self.path.open("rb") as file:
                lines = [(number, line) for number, line in enumerate(file, 1) if line.endswith(b"\n")]
                with open(kept_in, "ab", opener=open_private) as kept:
                    write_durably(kept, (line for number, line in lines if number in dropped))
                replace_durably(self.path, draft, (line for number, line in lines if number not in dropped))
                self._note_size(self.path.stat().st_size)
        except OSError as error:
            raise archive_error("write", self.path, error) from None
        return len(dropped)

    def rewrite(self, change: Callable[[Line], Line | None]) -> int:
        """Replace lines: one that `change` returns itself stays as it is, one without a result goes; how many others.

        No line may be damaged, and nobody else may append meanwhile. May be repeated after a crash at any point. Raises
        ArchiveError.
        """
        if not self.path.exists():
            return 0
        decode = msgspec.json.Decoder(self._line).decode
        draft = self.path.with_name(f"{self.path.name}.draft")
        try:
            with self._locked(), self.path.open("rb") as file:
                kept, changed = list[bytes](), 0
                for raw in file:
                    if not raw.endswith(b"\n"):
                        continue  # torn
                    line = raw[:-1]
                    before = decode(without_checksum(line) if is_right(line) else line)
                    after = change(before)
                    changed += after is not before
                    if after is not None:
                        kept.append(raw if after is before else with_checksum(_encode(after)) + b"\n")
                if changed:
                    self._note_size(sum(map(len, kept)))  # before: a file that is longer than noted is whole
                    replace_durably(self.path, draft, kept)
        except OSError as error:
            raise archive_error("write", self.path, error) from None
        return changed


def _append(descriptor: int, data: bytes) -> int:
    """Append all of `data` or nothing, after the last complete line; the rest of an incomplete one is cut off. Returns
    the length of the file.
    """
    end = _end_of_lines(descriptor)
    try:
        os.ftruncate(descriptor, end)
        written = 0
        while written < len(data):
            written += os.pwrite(descriptor, data[written:], end + written)
        disk_sync.sync_data(descriptor)
    except OSError:
        with contextlib.suppress(OSError):
            os.ftruncate(descriptor, end)
        raise
    return end + written


def _end_of_lines(descriptor: int) -> int:
    """The position after the last line feed."""
    end = os.fstat(descriptor).st_size
    while end > 0:
        start = max(0, end - 65_536)
        found = os.pread(descriptor, end - start, start).rfind(b"\n")
        if found >= 0:
            return start + found + 1
        end = start
    return 0
