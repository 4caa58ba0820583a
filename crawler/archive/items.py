"""Items that handlers yielded: one gzip member of JSON lines for each page, new files per session, never reopened.

Items are objects, one a line. After them a page may have lines that are arrays: the links that its handler followed,
for a rebuild, as a URL that no page has a link to would be lost with the engine. The index says which pages count and
where their items are, so items of other pages are never read. Reading works while sessions are writing.
"""

import os
import threading
from collections import Counter, OrderedDict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Self

import msgspec
from isal import isal_zlib

from crawler.archive.appender import OPEN_SUFFIX, Appender, end_all, finish_all
from crawler.archive.folder import CrawlFolder
from crawler.archive.index_reader import IndexReader, MissingFile
from crawler.errors import ArchiveError
from crawler.model import CommitEntry, Followed, ItemsLocation

SUFFIX = ".items.gz"
FILE_BYTES_MAX = 1_000_000_000
OPEN_MAX = 32  # files read at a time: the index is in the order of URLs, which jumps between files of all sessions
_GZIP = 31  # window bits that ask for a gzip member
_decode_followed = msgspec.json.Decoder(Followed).decode


class ItemWriter:
    """The item files of one session, `SESSION-SERIAL.items.gz`.

    `add` is memory only and belongs to one thread; `sync` may run in another meanwhile. After an ArchiveError the pages
    whose items were not synced are not acked, and nothing more is taken before `drop_unwritten`.
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
        """Append the lines of one page, each a JSON text without line feeds. Durable when `sync` has returned."""
        text = b"".join([b"%b\n" % line for line in (*items, *followed)])
        frame: bytes = isal_zlib.compress(text, self._level, _GZIP)
        with self._lock:
            file = self._file()
            offset = file.add(frame)
        return ItemsLocation(file=file.final.name, offset=offset, length=len(frame), count=len(items))

    def sync(self) -> None:
        """Make durable all that was added before. Raises ArchiveError."""
        with self._lock:
            full, current = list(self._full), self._current
        for file in full:
            file.finish()
        with self._lock:
            del self._full[: len(full)]
        if current is not None:
            current.sync()

    def drop_unwritten(self) -> None:
        """After a NoRoomError: end the files with what is durable. The rest has to be added again, to a new file."""
        with self._lock:
            files = [*self._full, *([self._current] if self._current else [])]
            self._current, self._full = None, []
        end_all(files)

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


class ItemFiles:
    """The item files of a folder, read at locations from the index. Close it after use."""

    def __init__(self, folder: CrawlFolder) -> None:
        self._folder = folder
        self._open: OrderedDict[str, int] = OrderedDict()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        while self._open:
            os.close(self._open.popitem()[1])

    def items(self, where: ItemsLocation) -> list[bytes]:
        """The items of one page, each as JSON text of an object. Raises ArchiveError when they can't be read."""
        return self._lines(where)[: where.count]

    def followed(self, where: ItemsLocation) -> list[Followed]:
        """The links that the page's handler followed. Raises ArchiveError."""
        try:
            return [_decode_followed(line) for line in self._lines(where)[where.count :]]
        except msgspec.MsgspecError:
            raise ArchiveError(f"{self.path(where.file)}: damaged at byte {where.offset:,}") from None

    def _lines(self, where: ItemsLocation) -> list[bytes]:
        try:
            frame = os.pread(self._descriptor(where.file), where.length, where.offset)
            text: bytes = isal_zlib.decompress(frame, _GZIP)
        except FileNotFoundError:
            raise ArchiveError(f"{self.path(where.file)}: not found") from None
        except OSError as error:
            raise ArchiveError(f"{self.path(where.file)}: {error.strerror}") from None
        except isal_zlib.error:  # type: ignore[misc]  # its stub declares an instance
            raise ArchiveError(f"{self.path(where.file)}: damaged at byte {where.offset:,}") from None
        lines = text.split(b"\n")[:-1]
        if len(lines) < where.count:
            raise ArchiveError(f"{self.path(where.file)}: damaged at byte {where.offset:,}")
        return lines

    def path(self, name: str) -> str:
        """The path for messages, relative to the crawl folder."""
        return f"{self._folder.items.name}/{name}"

    def _descriptor(self, name: str) -> int:
        if name in self._open:
            self._open.move_to_end(name)
            return self._open[name]
        descriptor = _opened(self._folder.items / name)
        self._open[name] = descriptor
        if len(self._open) > OPEN_MAX:
            os.close(self._open.popitem(last=False)[1])
        return descriptor


def _opened(path: Path) -> int:
    """Opens the file under its final name or its open one; tried twice, because it may be renamed in between."""
    for candidate in (path, path.with_name(path.name + OPEN_SUFFIX)):
        try:
            return os.open(candidate, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            continue
    return os.open(path, os.O_RDONLY | os.O_CLOEXEC)


class ItemReader:
    """One pass over all items. `missing` is complete once `items` is exhausted."""

    def __init__(self, folder: CrawlFolder) -> None:
        self._folder = folder
        self._index = IndexReader(folder)
        self._unreadable: Counter[str] = Counter()
        self.pages = 0  # that have items

    @property
    def missing(self) -> list[MissingFile]:
        """Files that could not be read so far; `entries` counts pages. WARC files are not checked."""
        lost = [MissingFile(file, "items not readable", n) for file, n in sorted(self._unreadable.items())]
        return [*self._index.segments_missing, *lost]

    def items(self) -> Iterator[tuple[CommitEntry, int, bytes]]:
        """(page, number of the item on it from 0, JSON text), in the order of the index. Memory: one page's items.

        (fingerprint, visit, number) is a stable key.
        """
        with ItemFiles(self._folder) as files:
            for entry in self._index.entries():
                if entry.items is None or not entry.items.count:
                    continue
                try:
                    found = files.items(entry.items)
                except ArchiveError:
                    self._unreadable[files.path(entry.items.file)] += 1
                    continue
                self.pages += 1
                for number, item in enumerate(found):
                    yield entry, number, item


def items_of(folder: CrawlFolder) -> Iterator[tuple[CommitEntry, int, bytes]]:
    """All items of all committed pages, each once."""
    return ItemReader(folder).items()
