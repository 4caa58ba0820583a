"""Stops claims before the disk of the crawl folder is full, and lets them go on when there is room again.

What is in flight then is still committed: the bound is larger than what an instance fetches until it looks again.
"""

import logging

from crawler.pipeline.due_partitions import DuePartitions
from crawler.runtime.counters import Counters
from crawler.settings import ArchiveSettings

log = logging.getLogger(__name__)


class DiskRoom:
    """Judges the free bytes of the disk, as `Vitals` measures them."""

    def __init__(self, counters: Counters, due: DuePartitions, settings: ArchiveSettings) -> None:
        self._counters = counters
        self._due = due
        self._free_min = settings.disk_free_bytes_min

    def judge(self, free: int) -> None:
        """Claim nothing while the disk has less than the setting demands."""
        full = free < self._free_min
        if full != self._counters.is_disk_full:
            self._counters.is_disk_full = full
            log.warning("disk.full" if full else "disk.has_room", extra={"free_bytes": free})
            self._due.room_changed()
