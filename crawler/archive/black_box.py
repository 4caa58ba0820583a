"""What a session was at when its process died: the URLs whose fetch or parsing had begun, for whoever comes after.

A small file beside the session's lock, mapped into memory: writing costs no system call, and the kernel keeps what
was written when the process is killed. (A power cut may lose it; that is nobody's fault whose URL stands here.)
"""

import contextlib
import mmap
import os
import struct
from collections.abc import Iterator
from pathlib import Path

import msgspec

from crawler.archive.folder import CrawlFolder, archive_error
from crawler.archive.sessions import Life, life_at
from crawler.errors import ArchiveError

SUFFIX = ".started"
_SLOT = struct.Struct("<iiq")  # 1 when in use, partition, fingerprint (signed)
_FREE = bytes(_SLOT.size)


class BlackBox:
    """The record of one session. `slots`: how many URLs may be under way at a time."""

    def __init__(self, folder: CrawlFolder, session: str, *, slots: int) -> None:
        """Raises ArchiveError when the disk fails."""
        self._path = folder.sessions / f"{session}{SUFFIX}"
        try:
            descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
            try:
                os.posix_fallocate(descriptor, 0, slots * _SLOT.size)  # a full disk shows now, not as a signal later
                self._map = mmap.mmap(descriptor, slots * _SLOT.size)
            finally:
                os.close(descriptor)
        except OSError as error:
            raise archive_error("write", self._path, error) from None
        self._free = list(range(slots))

    def started(self, partition: int, fingerprint: str) -> int:
        """A URL is under way from now on; the number to give to `ended`."""
        slot = self._free.pop()
        _SLOT.pack_into(self._map, slot * _SLOT.size, 1, partition, int(fingerprint))
        return slot

    def ended(self, slot: int) -> None:
        """It is not any more, whatever came of it."""
        at = slot * _SLOT.size
        self._map[at : at + _SLOT.size] = _FREE
        self._free.append(slot)

    def close(self) -> None:
        """The session ends in good order: nobody needs to know."""
        self._map.close()
        self._path.unlink(missing_ok=True)


class Fallen(msgspec.Struct, frozen=True):
    """A session that died: what it had begun, as (partition, fingerprint)."""

    session: str
    started: tuple[tuple[int, str], ...]
    path: Path

    def forget(self) -> None:
        """What it says has been noted."""
        self.path.unlink(missing_ok=True)


def fallen_sessions(sessions: Path) -> Iterator[Fallen]:
    """The black boxes in a crawl folder's `sessions` whose processes are dead. Unreadable ones are left out."""
    for path in sorted(sessions.glob(f"*{SUFFIX}")):
        with contextlib.suppress(OSError, ArchiveError):
            if life_at(path.with_suffix(".lock")) is Life.ALIVE:
                continue
            data = path.read_bytes()
            whole = data[: len(data) - len(data) % _SLOT.size]
            started = tuple((partition, str(fp)) for used, partition, fp in _SLOT.iter_unpack(whole) if used == 1)
            yield Fallen(path.stem, started, path)
