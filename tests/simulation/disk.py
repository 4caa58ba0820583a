"""The disks of the simulated machines: real files, written by the real writers, with a memory of what was synced.

Replaces the modules `os` and `disk_sync` in `appender`, `index`, `history` and `told_log` of `crawler.archive`. A kill
of a process leaves what it has written; a power cut leaves what it has synced, and a random part of the rest.
"""

import contextlib
import errno
import os
import random
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from crawler import disk_sync
from crawler.archive import appender, history, index_writer, told_log
from tests.simulation.loop import PROCESS, Process, VirtualLoop


class Disks:
    """All disks. `full` names processes whose disk takes nothing at the moment, `broken` those whose syncs fail, `low`
    the machines whose disk has less room than an instance wants.
    """

    def __init__(self, loop: VirtualLoop, rng: random.Random) -> None:
        self._loop = loop
        self._rng = rng
        self._synced: dict[int, int] = {}  # inode -> bytes that survive a power cut
        self._open: dict[int, Process | None] = {}
        self.full: set[Process] = set()
        self.broken: set[Process] = set()
        self.low: set[str] = set()

    def free_bytes(self, folder: Path) -> int:
        """What the disk of a machine's folder has left."""
        return 0 if folder.name in self.low else 1 << 40

    def __getattr__(self, name: str) -> Any:
        return getattr(os, name)

    def open(self, path: Any, flags: int, mode: int = 0o777) -> int:
        if flags & (os.O_WRONLY | os.O_RDWR):
            self._check_alive()
        descriptor = os.open(path, flags, mode)
        self._open[descriptor] = PROCESS.get()
        return descriptor

    def write(self, descriptor: int, data: Any) -> int:
        self._check_alive()
        if PROCESS.get() in self.full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return os.write(descriptor, data)

    def sync_data(self, descriptor: int) -> None:
        """What was written is safe when the call returns, not before."""
        self._check_alive()
        if PROCESS.get() in self.broken:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        status = os.fstat(descriptor)
        thread = self._loop.thread
        if thread is None:
            self._keep(status.st_ino, status.st_size)
        else:
            thread.at_end.append(lambda: self._keep(status.st_ino, status.st_size))

    def sync(self, descriptor: int) -> None:
        self.sync_data(descriptor)

    def _keep(self, inode: int, size: int) -> None:
        self._synced[inode] = max(self._synced.get(inode, 0), size)

    def ftruncate(self, descriptor: int, length: int) -> None:
        self._check_alive()
        os.ftruncate(descriptor, length)
        inode = os.fstat(descriptor).st_ino
        self._synced[inode] = min(self._synced.get(inode, 0), length)

    def close(self, descriptor: int) -> None:
        if descriptor in self._open:
            del self._open[descriptor]
            os.close(descriptor)

    def _check_alive(self) -> None:
        process = PROCESS.get()
        if process is not None and process.is_dead:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))

    def killed(self, process: Process) -> None:
        """The kernel closes what a process had open; what it has written stays."""
        for descriptor in [d for d, owner in self._open.items() if owner is process]:
            self.close(descriptor)

    def power_cut(self, folder: Path) -> int:
        """The page cache of this folder's disk is gone: how many bytes that were written are lost."""
        return self.lose(
            sorted(path for kind in ("warc", "index", "items") for path in folder.glob(f"{kind}/*.open"))
        )  # others were synced before

    def lose(self, paths: Iterable[Path]) -> int:
        """What of these files was not synced is gone, or a random part of it: how many bytes."""
        lost = 0
        for path in paths:
            status = path.stat()
            safe = self._synced.get(status.st_ino, 0)
            if status.st_size > safe:
                kept = self._rng.randint(safe, status.st_size) if self._rng.random() < 0.5 else safe
                os.truncate(path, kept)
                lost += status.st_size - kept
        return lost

    def close_all(self) -> None:
        for descriptor in list(self._open):
            self.close(descriptor)


@contextlib.contextmanager
def mounted(disks: Disks) -> Iterator[None]:
    """The writers of the archive write to these disks."""
    appender.os = index_writer.os = history.os = told_log.os = disks  # type: ignore[assignment, attr-defined]
    appender.disk_sync = told_log.disk_sync = disks  # type: ignore[assignment, attr-defined]
    try:
        yield
    finally:
        appender.os = index_writer.os = history.os = told_log.os = os  # type: ignore[attr-defined]
        appender.disk_sync = told_log.disk_sync = disk_sync  # type: ignore[attr-defined]
        disks.close_all()
