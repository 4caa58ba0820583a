"""An append-only file: one thread adds bytes in memory, another makes them durable.

All files of the archive are written through it, so the rules of durability are in one place.

A failed fsync is never repeated on the same file: the kernel may already have dropped the dirty pages and would report
success (the "fsyncgate" of PostgreSQL, 2018). The file is truncated to its durable part and no longer used.
"""

import contextlib
import os
import threading
from collections.abc import Iterable
from pathlib import Path

from crawler import disk_sync
from crawler.archive.folder import archive_error, open_private, sync_directory
from crawler.errors import ArchiveError

OPEN_SUFFIX = ".open"


def write_all(descriptor: int, data: bytes) -> None:
    """A disk that is almost full takes a part. Raises OSError."""
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


class Appender:
    """One new file. `add` never touches the disk; `sync` may run in another thread at the same time.

    The file is named `final` + ".open" until `finish`. `size` counts all added bytes, `durable` those on disk.
    """

    def __init__(self, final: Path) -> None:
        self.final = final
        self.path = final.with_name(final.name + OPEN_SUFFIX)
        self.size = 0
        self.durable = 0
        self.failed = False
        self._chunks: list[bytes] = []
        self._adding = threading.Lock()
        self._writing = threading.Lock()
        self._descriptor = -1

    def add(self, data: bytes) -> int:
        """Add whole records; returns their offset in the file."""
        with self._adding:
            offset = self.size
            self._chunks.append(data)
            self.size = offset + len(data)
        return offset

    def sync(self) -> None:
        """Make durable what was added before this call. After an ArchiveError it always fails."""
        with self._writing:
            if self.failed:
                raise ArchiveError(f"{self.path} failed before and can't be written any more")
            with self._adding:
                chunks, self._chunks = self._chunks, []
            if not chunks:
                return
            try:
                self._write(b"".join(chunks))
            except OSError as error:
                self.failed = True
                self._cut()
                raise archive_error("write", self.path, error) from None

    def give_up(self) -> None:
        """Take nothing more: what is durable stays. For a disk without room, where a new file is the next try."""
        with self._writing:
            self.failed = True
            self._cut()
            self._close()

    def finish(self) -> Path:
        """Sync, close, and give the file its final name. A file that failed keeps its durable part.

        A file without a durable part is deleted. After an ArchiveError a second call saves what can be saved.
        """
        if not self.failed:
            self.sync()
        with self._writing:
            try:
                if self.failed and self._descriptor >= 0:
                    os.ftruncate(self._descriptor, self.durable)
                    disk_sync.sync(self._descriptor)
                self._close()
                if self.durable and self.path.exists():
                    self.path.rename(self.final)
                else:
                    self.path.unlink(missing_ok=True)
                sync_directory(self.final.parent)
            except OSError as error:
                raise archive_error("finish", self.path, error) from None
        return self.final

    def close(self) -> None:
        """Close without renaming: recovery handles the file. May be called twice."""
        with self._writing:
            self._close()

    def _close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def _write(self, data: bytes) -> None:
        if self._descriptor < 0:
            self._descriptor = open_private(self.path, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
            sync_directory(self.path.parent)  # the name must survive a power cut, too
        write_all(self._descriptor, data)
        disk_sync.sync_data(self._descriptor)
        self.durable += len(data)

    def _cut(self) -> None:
        """Truncate to the last durable record; if that fails, recovery does it later."""
        if self._descriptor >= 0:
            with contextlib.suppress(OSError):
                os.ftruncate(self._descriptor, self.durable)
                disk_sync.sync(self._descriptor)


def end_all(files: Iterable[Appender]) -> None:
    """Give files whose last bytes found no room their final names, without these bytes: new files may be begun."""
    for file in files:
        file.give_up()
        with contextlib.suppress(ArchiveError):  # the next session that opens the folder finishes it
            file.finish()


def finish_all(files: Iterable[Appender]) -> None:
    """Finish all files, even if some fail. Raises the first ArchiveError."""
    failure: ArchiveError | None = None
    for file in files:
        try:
            file.finish()
        except ArchiveError as error:
            failure = failure or error
            with contextlib.suppress(ArchiveError):
                file.finish()  # its durable part
    if failure is not None:
        raise failure
