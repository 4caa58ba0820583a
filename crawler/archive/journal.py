"""The journal: what must not be forgotten while the engine may still lose its tail (adds sent to other
partitions).

Append-only files of length, CRC and payload; payloads are opaque. Times are the caller's clock (monotonic)
and are never stored: they only decide when an own file may go.
"""

import contextlib
import struct
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from crawler.archive.appender import OPEN_SUFFIX, Appender
from crawler.archive.crawl_folder import CrawlFolder, archive_error
from crawler.archive.session_lock import is_abandoned

SUFFIX = ".journal"
KEEP_S = 600.0  # how far back an engine may fall: a lagging replica or a lost tail is seconds, this is generous
ROTATE_S = 60.0
_FRAME = struct.Struct("<II")  # payload length, CRC-32 of the payload


class _Closed(msgspec.Struct, frozen=True):
    """A file to which nothing is added any more; `until` is when its last payload was added or replayed."""

    path: Path
    until: float


class Journal:
    """The journal of one session. `append` is memory only; `sync` may run in another thread meanwhile."""

    def __init__(
        self,
        folder: CrawlFolder,
        session: str,
        *,
        clock: Callable[[], float] = time.monotonic,
        keep_s: float = KEEP_S,
        rotate_s: float = ROTATE_S,
    ) -> None:
        self._folder = folder
        self._session = session
        self._clock = clock
        self._keep_s = keep_s
        self._rotate_s = rotate_s
        self._serial = 0
        self._current: Appender | None = None
        self._current_since = 0.0
        self._full: list[Appender] = []
        self._closed: list[_Closed] = []
        self._confirmed = float("-inf")
        self._lock = threading.Lock()

    def append(self, payload: bytes) -> None:
        """Add one payload. Nothing is durable before `sync` returned."""
        now = self._clock()
        frame = _FRAME.pack(len(payload), _checksum(payload)) + payload
        with self._lock:
            if self._current is not None and now - self._current_since >= self._rotate_s:
                self._full.append(self._current)
                self._closed.append(_Closed(self._current.final, now))
                self._current = None
            if self._current is None:
                self._current = self._new_file(now)
            self._current.add(frame)

    def sync(self) -> None:
        """Make durable what was appended before. After an ArchiveError: `reopen`, and append that again."""
        with self._lock:
            full, current = list(self._full), self._current
        for file in full:
            file.finish()
            with self._lock:
                self._full.remove(file)
        if current is not None:
            current.sync()

    def reopen(self) -> None:
        """After a failure: leave the failed files (their durable part stays valid) and go on in a new one."""
        now = self._clock()
        with self._lock:
            given_up = [*self._full, *([self._current] if self._current else [])]
            self._current, self._full = None, []
            self._closed += [_Closed(file.path, now) for file in given_up]
        for file in given_up:
            file.close()

    def confirm_before(self, at: float) -> None:
        """What was appended (or replayed) before this time is safe in the engine; it goes once it is old, too."""
        self._confirmed = max(self._confirmed, at)
        self._remove_old(self._clock())

    def replay(self) -> Iterator[bytes]:
        """All payloads in the files of this session and of dead ones, oldest file first; repeats are
        possible.

        What is read here counts as appended now: a dead session's file goes when that is confirmed and old.
        """
        self.sync()
        for path in sorted(self._folder.journal.glob(f"*{SUFFIX}*"), key=_age_order):
            session = _session_of(path)
            if session == self._session:
                yield from _payloads(path)
            elif is_abandoned(self._folder, session):
                yield from _payloads(path)
                self._replayed(path)

    def close(self) -> None:
        """Sync and close. The files stay: they are replayed until somebody confirms them."""
        with self._lock:
            if self._current is not None:
                self._full.append(self._current)
                self._closed.append(_Closed(self._current.final, self._clock()))
                self._current = None
        self.sync()

    def _replayed(self, path: Path) -> None:
        now = self._clock()
        with self._lock:
            self._closed = [closed for closed in self._closed if closed.path != path]
            self._closed.append(_Closed(path, now))

    def _remove_old(self, now: float) -> None:
        with self._lock:
            limit = min(self._confirmed, now - self._keep_s)
            old = [closed for closed in self._closed if closed.until < limit]
            self._closed = [closed for closed in self._closed if closed.until >= limit]
        for closed in old:
            with contextlib.suppress(OSError):
                closed.path.unlink(missing_ok=True)

    def _new_file(self, now: float) -> Appender:
        self._current_since = now
        name = f"{self._session}-{self._serial:05d}{SUFFIX}"
        self._serial += 1
        return Appender(self._folder.journal / name)


def _checksum(payload: bytes) -> int:
    return zlib.crc32(payload, 0x5EED)  # seeded: zeros, which a power cut may leave, are no valid frame


def _session_of(path: Path) -> str:
    return path.name.removesuffix(OPEN_SUFFIX).removesuffix(SUFFIX).rpartition("-")[0]


def _age_order(path: Path) -> tuple[float, str]:
    try:
        return path.stat().st_mtime, path.name
    except OSError:
        return 0.0, path.name  # went away: another instance replayed and confirmed it


def _payloads(path: Path) -> Iterator[bytes]:
    """Whole payloads of one file; ends without an error at a torn or damaged one."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        if path.suffix == OPEN_SUFFIX:  # got its final name meanwhile
            yield from _payloads(path.with_suffix(""))
        return
    except OSError as error:
        raise archive_error("read", path, error) from None
    position = 0
    while position + _FRAME.size <= len(data):
        length, checksum = _FRAME.unpack_from(data, position)
        payload = data[position + _FRAME.size : position + _FRAME.size + length]
        if len(payload) < length or _checksum(payload) != checksum:
            return
        yield payload
        position += _FRAME.size + length
