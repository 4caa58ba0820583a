"""Writes the history of one session: what became of each attempt, as JSON lines in segments `SESSION-SERIAL.jsonl`.

The folder's history is bounded: the oldest segments go when a new one is begun. Nothing is synced, for nothing depends
on it: a kill costs the lines of the last moment, a power cut perhaps some more. Must not know what a line says.
"""

import contextlib
import os
import threading
from pathlib import Path

from crawler.archive.crawl_folder import CrawlFolder, archive_error, open_private
from crawler.archive.history_lines import Attempt, to_line
from crawler.archive.session_lock import Life, life_of, sessions
from crawler.errors import ArchiveError

SUFFIX = ".jsonl"
SEGMENTS = 64  # of the bound: so much of the history goes at a time
WAITING_BYTES_MAX = 8_000_000  # while the disk hangs; what comes then is dropped


class HistoryWriter:
    """The segments of one session. `add` is memory only; `write` and `close` may run in another thread.

    `bytes_max`: of all segments in the folder, whoever wrote them; 0: no history. A segment is never longer than a 64th
    of it, and one in which a write failed is not written to again: it may end in a torn line.
    """

    def __init__(self, folder: CrawlFolder, session: str, *, bytes_max: int) -> None:
        self._folder = folder
        self._session = session
        self._bytes_max = bytes_max
        self._segment_bytes = bytes_max // SEGMENTS
        self._lines: list[bytes] = []
        self._waiting_bytes = 0
        self._adding = threading.Lock()
        self._writing = threading.Lock()
        self._serial = 0
        self._size = 0
        self._descriptor = -1

    def add(self, attempt: Attempt) -> None:
        """Take a line in; it reaches the disk with the next `write`."""
        if not self._bytes_max or self._waiting_bytes > WAITING_BYTES_MAX:
            return
        line = to_line(attempt)
        with self._adding:
            self._lines.append(line)
            self._waiting_bytes += len(line)

    def write(self) -> None:
        """Write what was added. Raises ArchiveError; those lines are gone then, and the next ones may be written."""
        with self._writing:
            with self._adding:
                lines, self._lines, self._waiting_bytes = self._lines, [], 0
            if not lines:
                return
            try:
                self._append(lines)
            except OSError as error:
                self._end_segment()
                raise archive_error("write to", self._folder.history, error) from None

    def close(self) -> None:
        """Write the rest, as far as the disk takes it: nothing depends on it. May be called twice."""
        with contextlib.suppress(ArchiveError):
            self.write()
        with self._writing:
            self._end_segment()

    def _append(self, lines: list[bytes]) -> None:
        start = 0
        while start < len(lines):
            if self._descriptor < 0:
                self._begin_segment()
            end, size = start, self._size
            while end < len(lines) and (size + len(lines[end]) <= self._segment_bytes or not size):
                size += len(lines[end])
                end += 1
            _write_all(self._descriptor, b"".join(lines[start:end]))
            start, self._size = end, size
            if end < len(lines):
                self._end_segment()

    def _begin_segment(self) -> None:
        make_room(self._folder, self._session, bytes_max=self._bytes_max, segment_bytes=self._segment_bytes)
        path = self._folder.history / f"{self._session}-{self._serial:06d}{SUFFIX}"
        self._descriptor = open_private(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
        self._serial += 1
        self._size = 0

    def _end_segment(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def make_room(folder: CrawlFolder, session: str, *, bytes_max: int, segment_bytes: int) -> None:
    """Remove the oldest segments before this session begins a new one: all living sessions may then fill theirs, and
    the folder's history stays within the bound.

    The last segment of another living session stays: it is being written to. Raises OSError.
    """
    others = {one for one in sessions(folder) if one != session and life_of(folder, one) is Life.ALIVE}
    last = {session_of(path): path for path in segments(folder)}
    in_use = {path for one, path in last.items() if one in others}
    known = {path: stat for path in set(segments(folder)) - in_use if (stat := _stat_of(path))}
    total = sum(size for _, size in known.values())
    for path in sorted(known, key=lambda path: (known[path][0], path.name)):
        if total + (len(others) + 1) * segment_bytes <= bytes_max:
            return
        path.unlink(missing_ok=True)
        total -= known[path][1]


def segments(folder: CrawlFolder) -> list[Path]:
    """All segments, those of one session in a row and in their order."""
    return sorted(folder.history.glob(f"*{SUFFIX}"))


def session_of(path: Path) -> str:
    """The session that wrote a segment."""
    return path.stem.rpartition("-")[0]


def _stat_of(path: Path) -> tuple[float, int] | None:
    """(time of the last write, bytes); None when it has gone."""
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    return found.st_mtime, found.st_size


def _write_all(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]
