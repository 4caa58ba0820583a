"""The journal of seeds: the seeds that a crawl got through this folder, on disk before they are in the engine.

No page links to a seed, so they would be lost with the engine's data. There is one file of JSON lines for each crawl,
which any number of processes may append to: a folder that is only used for seeding may serve several crawls.
"""

import contextlib
import fcntl
import os
from collections.abc import Iterable, Iterator

import msgspec

from crawler.archive.crawl_folder import CrawlFolder, archive_error, open_private, sync_directory

SUFFIX = ".jsonl"


class SeedLine(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One line: a seed (canonical URL), or a new root of the scope. `run`: the run of the crawl that it belongs to.

    `priority` is the one given with it; `sitemap_priority` and `changed_at` (wall clock, s) are from a sitemap.
    """

    url: str = ""
    depth: int = 0
    priority: float | None = None
    sitemap_priority: float | None = None
    changed_at: float | None = None
    root: str = ""
    run: int = 0
    number: int = 0  # of the seed, for the counts of its descendants
    visible_at: float = 0.0  # it is not fetched before; wall clock, s


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(SeedLine).decode


class SeedJournal:
    """The journal of one crawl in one folder. `first_begun_at` (wall clock, s) tells crawls of one name apart."""

    def __init__(self, folder: CrawlFolder, name: str, first_begun_at: float) -> None:
        self.path = folder.journal / f"seeds-{name}-{round(first_begun_at * 1e6)}{SUFFIX}"

    @property
    def has_lines(self) -> bool:
        return self.path.exists() and self.path.stat().st_size > 0

    def append(self, lines: Iterable[SeedLine]) -> None:
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

    def read(self) -> Iterator[SeedLine]:
        """All complete lines in order; repeats are possible. Raises ArchiveError."""
        try:
            with self.path.open("rb") as file:
                for line in file:
                    if line.endswith(b"\n"):  # else a crash cut it off: its seed was never added
                        with contextlib.suppress(msgspec.MsgspecError):
                            yield _decode(line)
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
