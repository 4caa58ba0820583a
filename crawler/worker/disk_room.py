"""Stops claims before the disk of the crawl folder is full, or when it took a write no more, until it has room again.

Others get the partitions meanwhile, and keep them until it is sure that there is room: a disk that fills and empties
moves none. What is in flight is still committed, as `archive.disk_free_bytes_min` is larger than what an instance
fetches between two looks. A write may find no room above that (a quota, a group of large pages, another program): then
pages that are not on disk go back to the engine, and nothing is written until a trial of the same size succeeds.
"""

import logging
import os
from pathlib import Path
from typing import NamedTuple

from crawler import disk_sync
from crawler.archive.appender import write_all
from crawler.archive.folder import NO_ROOM, UNKNOWN, open_private
from crawler.errors import NoRoomError
from crawler.runtime.clocks import monotonic_ms
from crawler.settings import ArchiveSettings
from crawler.worker.counters import Counters
from crawler.worker.work import DuePartitions

log = logging.getLogger(__name__)

AMPLE = 2  # times the minimum
TRIAL_BYTES_MIN = 1 << 20
TRIAL_BYTES_MAX = 64 << 20  # a trial each second is to stay cheap
_BLOCK_BYTES = 1 << 20
TRIAL_NAME = ".trial"  # unlinked as soon as it is open


class _Failed(NamedTuple):
    folder: Path
    size: int


class DiskRoom:
    """Judges the free bytes of the disk, as `Vitals` measures them, and failed writes. `is_enough`: may this instance
    have partitions that others could have?
    """

    def __init__(self, counters: Counters, due: DuePartitions, settings: ArchiveSettings) -> None:
        self._counters = counters
        self._due = due
        self._free_min = settings.disk_free_bytes_min
        self._return_ms = int(1000 * settings.room_s)
        self._ample_since_ms: int | None = None
        self._failed: _Failed | None = None
        self.is_enough = True

    @property
    def refuses(self) -> bool:
        """Did a write find no room, and no trial since? Then nothing is written."""
        return self._failed is not None

    def failed(self, error: NoRoomError, size: int = 0) -> None:
        """A write of about this size found no room."""
        self._failed = _Failed(error.folder, min(max(AMPLE * size, TRIAL_BYTES_MIN), TRIAL_BYTES_MAX))
        log.error("disk.no_room", extra={"error": str(error), "bytes": size})
        self.judge(0)

    def usable(self, free: int) -> int:
        """Of so many free bytes: none while what could not be written would find no room. Blocks on the disk."""
        failed = self._failed
        if failed is None:
            return free
        if 0 <= free < failed.size or not can_write(*failed):
            return 0
        if self._failed is failed:
            self._failed = None
        return max(AMPLE * self._free_min, 1) if free == UNKNOWN else free

    def judge(self, free: int) -> None:
        """Claim nothing while the disk has less than the setting demands."""
        full = self.refuses or free < self._free_min
        if full != self._counters.is_disk_full:
            self._counters.is_disk_full = full
            log.warning("disk.full" if full else "disk.has_room", extra={"free_bytes": free})
            self._due.room_changed()
        if full or free < AMPLE * self._free_min:
            self.is_enough, self._ample_since_ms = self.is_enough and not full, None
        elif not self.is_enough:
            now_ms = monotonic_ms()
            self._ample_since_ms = now_ms if self._ample_since_ms is None else self._ample_since_ms
            self.is_enough = now_ms - self._ample_since_ms >= self._return_ms


def can_write(folder: Path, size: int) -> bool:
    """Does a folder take a file of this size? It leaves none. True where something else is wrong: that is for the next
    write to say.
    """
    path = folder / f"{TRIAL_NAME}-{os.getpid()}"
    try:
        descriptor = open_private(path, os.O_WRONLY | os.O_CREAT)
        try:
            path.unlink()
            for _ in range(0, size, _BLOCK_BYTES):
                write_all(descriptor, os.urandom(min(size, _BLOCK_BYTES)))  # zeros may take no room
            disk_sync.sync(descriptor)
        finally:
            os.close(descriptor)
    except OSError as error:
        return error.errno not in NO_ROOM
    return True
