"""Writes what handlers yielded: one gzip member of JSON lines for each page, new files per session, never reopened.

Items are objects, a line each; behind them a page may have lines that are arrays: where its handler led to, for a
rebuild. Knows names, rotation and durability; what stands in an item is the handler's matter.
"""

import threading
from collections.abc import Sequence

from isal import isal_zlib

from crawler.archive.appender import Appender, finish_all
from crawler.archive.crawl_folder import CrawlFolder
from crawler.model import ItemsLocation

SUFFIX = ".items.gz"
FILE_BYTES_MAX = 1_000_000_000
_GZIP = 31  # window bits that ask for a gzip member


class ItemWriter:
    """The item files of one session, `SESSION-SERIAL.items.gz`.

    `add` is memory only and belongs to one thread; `sync` may run in another meanwhile. After an ArchiveError nothing
    more is taken: the session ends, and the pages whose items were not synced are not acked.
    """

    def __init__(
        self, folder: CrawlFolder, session: str, *, level: int = 1, file_bytes_max: int = FILE_BYTES_MAX
    ) -> None:
        """`level`: of compression, as ISA-L counts."""
        self._folder = folder
        self._session = session
        self._level = level
        self._file_bytes_max = file_bytes_max
        self._serial = 0
        self._current: Appender | None = None
        self._full: list[Appender] = []  # rotated out, not yet synced and renamed
        self._lock = threading.Lock()

    def add(self, items: Sequence[bytes], followed: Sequence[bytes] = ()) -> ItemsLocation:
        """Append what one page gave, each a JSON text without line feeds. Nothing is durable before `sync` returned."""
        text = b"".join([b"%b\n" % line for line in (*items, *followed)])
        frame: bytes = isal_zlib.compress(text, self._level, _GZIP)
        with self._lock:
            file = self._file()
            offset = file.add(frame)
        return ItemsLocation(file=file.final.name, offset=offset, length=len(frame), count=len(items))

    def sync(self) -> None:
        """Make durable all that was added before. Raises ArchiveError."""
        with self._lock:
            full, self._full = self._full, []
            current = self._current
        for file in full:
            file.finish()
        if current is not None:
            current.sync()

    def close(self) -> None:
        """Sync and give all files their final names. Raises ArchiveError when that fails."""
        with self._lock:
            files = [*self._full, *([self._current] if self._current else [])]
            self._current, self._full = None, []
        finish_all(files)

    def _file(self) -> Appender:
        if self._current is not None and self._current.size >= self._file_bytes_max:
            self._full.append(self._current)
            self._current = None
        if self._current is None:
            self._current = Appender(self._folder.items / f"{self._session}-{self._serial:05d}{SUFFIX}")
            self._serial += 1
        return self._current
