"""What a session sent to other partitions in the last minutes, in files beside its in-flight log.

A shard of a cluster that fails over may lose its last writes: URLs that were found on pages of other shards, whose
commits are kept. Who sent them sends them again (instance/retelling.py). A call is noted before it is sent, because the
process may be killed before it reads the reply. The kernel keeps what a killed process wrote; only what a shard that is
down is owed is synced.
"""

import contextlib
import os
import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any
from zlib import crc32

import msgspec

from crawler import disk_sync
from crawler.archive.appender import write_all
from crawler.archive.folder import CrawlFolder, Life, archive_error, life_at, open_private

SUFFIX = ".told"
FILE_MS = 60_000  # a file takes what is sent in this time
FILES = 4  # that are kept: a replica that lacks what is older can't be promoted, with the engine's default settings
BYTES_MAX = 512 << 20  # that are kept for a shard that is down
_HEAD = struct.Struct("<II")  # bytes of a record, their CRC-32


class Told(msgspec.Struct, frozen=True, array_like=True):
    """One call of a script: its arguments are numbers, texts and bytes."""

    partition: int
    args: tuple[Any, ...]


_encode = msgspec.msgpack.Encoder().encode
_decoder = msgspec.msgpack.Decoder(Told)


class ToldLog:
    """The log of one session. The files are made as they are needed."""

    def __init__(self, folder: CrawlFolder, session: str, *, clock_ms: Callable[[], int]) -> None:
        self._stem = folder.sessions / session
        self._clock_ms = clock_ms
        self._first, self._number = 1, 0
        self._bytes = 0
        self._until_ms = 0
        self._descriptor = -1

    def note(self, calls: Iterable[Told], *, drops_old: bool = True) -> None:
        """Keep calls that are about to be sent. Raises ArchiveError when the disk fails."""
        records = [_encode(call) for call in calls]
        data = b"".join(part for record in records for part in (_HEAD.pack(len(record), crc32(record)), record))
        try:
            if self._clock_ms() >= self._until_ms:
                self._begin_file(drops_old=drops_old)
            size = os.fstat(self._descriptor).st_size
            try:
                write_all(self._descriptor, data)
            except OSError:
                os.ftruncate(self._descriptor, size)  # nothing behind a torn record would be read
                raise
        except OSError as error:
            raise archive_error("write", self._path(self._number), error) from None
        self._bytes += len(data)

    @property
    def has_room(self) -> bool:
        """May more be kept for a shard that is down?"""
        return self._bytes < BYTES_MAX

    def sync(self) -> None:
        """What was noted survives a power cut. Raises ArchiveError."""
        try:
            disk_sync.sync(self._descriptor)
        except OSError as error:
            raise archive_error("write", self._path(self._number), error) from None

    def _begin_file(self, *, drops_old: bool) -> None:
        self._close_file()
        if drops_old:
            for number in range(self._first, self._number + 2 - FILES):
                self._path(number).unlink(missing_ok=True)
            self._first = max(self._first, self._number + 2 - FILES)
            self._bytes = sum(path.stat().st_size for path in self.paths)
        self._descriptor = open_private(self._path(self._number + 1), os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        self._number += 1
        self._until_ms = self._clock_ms() + FILE_MS

    def _path(self, number: int) -> Path:
        return self._stem.with_name(f"{self._stem.name}{SUFFIX}{number}")

    def _close_file(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    @property
    def paths(self) -> list[Path]:
        """The files that there are, oldest first."""
        return [self._path(number) for number in range(self._first, self._number + 1)]

    def close(self, *, keep: bool) -> None:
        """`keep`: a shard may still lose what it has; whoever opens the folder next tells it again."""
        self._close_file()
        if not keep:
            for path in self.paths:
                path.unlink(missing_ok=True)


def left_behind(sessions: Path) -> list[Path]:
    """Files in a crawl folder's `sessions` whose session is over."""
    found = sorted(sessions.glob(f"*{SUFFIX}*"))
    return [path for path in found if life_at(path.with_suffix(".lock")) is not Life.ALIVE]


def told_in(paths: Sequence[Path]) -> Iterator[Told | None]:
    """What these files have; None for each place where a file is damaged. A file that ends in a record was torn there,
    before that call was sent. Raises ArchiveError.
    """
    for path in paths:
        try:
            data = path.read_bytes()
        except FileNotFoundError:  # as old as that
            continue
        except OSError as error:
            raise archive_error("read", path, error) from None
        at = 0
        while at + _HEAD.size <= len(data):
            length, crc = _HEAD.unpack_from(data, at)
            record = data[at + _HEAD.size : at + _HEAD.size + length]
            at += _HEAD.size + length
            if len(record) < length:
                break
            found = None
            if crc32(record) == crc:
                with contextlib.suppress(msgspec.DecodeError):
                    found = _decoder.decode(record)
            yield found
            if found is None:
                break  # its length may be what is wrong
