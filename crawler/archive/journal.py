"""Journals: files of JSON lines with what only the engine would know, on disk before the engine has it.

Any number of processes may append to one.
"""

import contextlib
import fcntl
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Generic, TypeVar

import msgspec

from crawler.archive.crawl_folder import CrawlFolder, archive_error, open_private, sync_directory

SUFFIX = ".jsonl"
Line = TypeVar("Line", bound=msgspec.Struct)

_encode = msgspec.json.Encoder().encode


def journal_path(folder: CrawlFolder, kind: str, name: str, first_begun_at: float) -> Path:
    """The journal of a crawl in a folder. `first_begun_at` (wall clock, s) tells crawls of one name apart."""
    return folder.journal / f"{kind}-{name}-{round(first_begun_at * 1e6)}{SUFFIX}"


class Journal(Generic[Line]):
    """A file with lines of one type."""

    def __init__(self, path: Path, line: type[Line]) -> None:
        self.path = path
        self._decode = msgspec.json.Decoder(line).decode

    @property
    def has_lines(self) -> bool:
        return self.path.exists() and self.path.stat().st_size > 0

    def append(self, lines: Iterable[Line]) -> None:
        """Add lines; they are durable when this returns. Blocks on the disk. Raises ArchiveError."""
        data = b"".join(_encode(line) + b"\n" for line in lines)
        if not data:
            return
        try:
            is_new = not self.path.exists()
            descriptor = open_private(self.path, os.O_RDWR | os.O_CREAT)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX)
                _append(descriptor, data)
            finally:
                os.close(descriptor)  # releases the lock
            if is_new:
                sync_directory(self.path.parent)
        except OSError as error:
            raise archive_error("write", self.path, error) from None

    def read(self) -> Iterator[Line]:
        """All complete lines in order; repeats are possible. Raises ArchiveError."""
        try:
            with self.path.open("rb") as file:
                for line in file:
                    if line.endswith(b"\n"):  # else a crash cut it off: the engine never had it
                        with contextlib.suppress(msgspec.MsgspecError):
                            yield self._decode(line)
        except FileNotFoundError:
            return
        except OSError as error:
            raise archive_error("read", self.path, error) from None


def _append(descriptor: int, data: bytes) -> None:
    """Append all of `data` or nothing, after the last complete line; the rest of an incomplete one is cut off."""
    end = _end_of_lines(descriptor)
    try:
        os.ftruncate(descriptor, end)
        written = 0
        while written < len(data):
            written += os.pwrite(descriptor, data[written:], end + written)
        os.fdatasync(descriptor)
    except OSError:
        with contextlib.suppress(OSError):
            os.ftruncate(descriptor, end)
        raise


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
