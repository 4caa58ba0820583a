"""The history of attempts: each attempt and its result, as JSON lines in segments `SESSION-SERIAL.jsonl`.

It is for people; the crawler decides nothing by it. It is bounded: the oldest segments are deleted when a new one is
started. Nothing is synced: a kill loses the lines of the last moment, a power cut perhaps a few more. Reading works
while sessions write; incomplete lines are skipped.
"""

import contextlib
import enum
import heapq
import mmap
import os
import threading
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby, islice
from pathlib import Path

import msgspec

from crawler.archive.checked_lines import is_right, with_checksum
from crawler.archive.folder import CrawlFolder, Life, archive_error, open_private
from crawler.archive.session_locks import life_of, sessions
from crawler.errors import ArchiveError

SUFFIX = ".jsonl"
SEGMENTS = 64  # in the whole history: the share that is deleted at a time
LOOKED_AT_BYTES_MAX = 256_000_000  # for the newest attempts: some 0.1 s
CLOCK_SLACK_S = 5.0  # between the time of an attempt and that of its segment: lines wait to be written
WAITING_BYTES_MAX = 8_000_000  # while the disk hangs; further lines are dropped


class Became(enum.StrEnum):
    """The result of an attempt. LOST: it does not count, because its lease was lost or its request was cut off."""

    COMMITTED = "committed"
    RETRY = "retry"
    DEAD = "dead"
    REFUSED = "refused"
    LOST = "lost"


TIMES = ("queued", "claimed", "started", "finished", "failed", "refused", "lost")


class Attempt(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """One attempt, and the session that made it. Wall times in s; 0 for what did not happen or was not recorded.

    `attempt` counts earlier failed ones and this one; a URL that ended without a request adds none. `kind` is that of
    the failure, or the reason of a refusal.
    """

    url: str
    fp: str
    domain: str
    attempt: int
    became: Became
    node: str
    session: str
    epoch: int
    queued: float = 0.0
    claimed: float = 0.0
    started: float = 0.0
    finished: float = 0.0
    failed: float = 0.0
    refused: float = 0.0
    lost: float = 0.0
    http_status: int = 0
    kind: str = ""
    detail: str = ""

    @property
    def times(self) -> dict[str, float]:
        """The known times, in the order of `TIMES`."""
        return {name: at for name in TIMES if (at := getattr(self, name))}

    @property
    def last_at(self) -> float:
        return max(self.times.values(), default=0.0)


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Attempt).decode


def status_of(times: Mapping[str, float]) -> str:
    """How far an attempt came, by its times: the last of `TIMES` that is set, or "unknown"."""
    return next((name for name in reversed(TIMES) if times.get(name)), "unknown")


def to_line(attempt: Attempt) -> bytes:
    """The attempt as one line, with its checksum (see `checked_lines`) and its line feed."""
    return with_checksum(_encode(attempt)) + b"\n"


def to_attempt(line: bytes) -> Attempt | None:
    """The attempt of a line; None when the line is torn or damaged."""
    if is_right(line.removesuffix(b"\n")) is False:
        return None
    try:
        return _decode(line)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None


def needle_of(field: str, value: str) -> bytes:
    """Bytes that occur in every line with this value of `url`, `fp` or `domain`, and in no other."""
    return b'"%b":%b' % (field.encode(), _encode(value))


class HistoryWriter:
    """The segments of one session. `add` is memory only; `write` and `close` may run in another thread.

    `bytes_max`: of all segments in the folder, of all sessions; 0: no history. A segment is never longer than a 64th of
    it. After a failed write a new segment is started, because the old one may end in an incomplete line.
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
        """Add a line; it reaches the disk with the next `write`."""
        if not self._bytes_max or self._waiting_bytes > WAITING_BYTES_MAX:
            return
        line = to_line(attempt)
        with self._adding:
            self._lines.append(line)
            self._waiting_bytes += len(line)

    @property
    def has_any(self) -> bool:
        """Was something added since the last write?"""
        return bool(self._lines)

    def write(self) -> None:
        """Write what was added. Raises ArchiveError: then these lines are lost, but later ones may be written."""
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
        """Write the rest, and ignore errors. May be called twice."""
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
    """Delete the oldest segments before this session starts a new one.

    So the folder's history stays within the bound when all living sessions fill their segments. The last segment of
    another living session stays: it is being written. Raises OSError.
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
    """All segments, sorted by session and serial."""
    return sorted(folder.history.glob(f"*{SUFFIX}"))


def session_of(path: Path) -> str:
    """The session that wrote a segment."""
    return path.stem.rpartition("-")[0]


def _stat_of(path: Path) -> tuple[float, int] | None:
    """(time of the last write, bytes); None when it was deleted."""
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    return found.st_mtime, found.st_size


def _write_all(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


def attempts(
    folders: Sequence[CrawlFolder], *, url: str = "", domain: str = "", damaged: Counter[str] | None = None
) -> Iterator[Attempt]:
    """Attempts at a canonical URL, or at all URLs of a domain, by time; those of one moment in any order.

    Damaged lines about it are left out, and counted in `damaged`, by file. Memory: a line of each session.
    """
    field, value = ("url", url) if url else ("domain", domain)
    needle = needle_of(field, value)
    found = (
        _of_session(list(mine), needle, Counter[str]() if damaged is None else damaged)
        for folder in folders
        for _, mine in groupby(segments(folder), key=session_of)
    )
    for attempt in heapq.merge(*found, key=lambda attempt: attempt.last_at):
        if getattr(attempt, field) == value:
            yield attempt


def newest_attempts(
    folder: CrawlFolder, *, url: str = "", domain: str = "", limit: int, bytes_max: int = LOOKED_AT_BYTES_MAX
) -> list[Attempt]:
    """The newest attempts at a canonical URL, or at all URLs of a domain, the newest first, at most `limit`.

    Reads backwards, at most the `bytes_max` of the history that were written last. Memory: twice `limit` attempts.
    """
    field, value = ("url", url) if url else ("domain", domain)
    needle = needle_of(field, value)
    known = {path: stat for path in segments(folder) if (stat := _stat_of(path))}
    found: list[Attempt] = []
    left = bytes_max
    for path in sorted(known, key=lambda path: (known[path][0], path.name), reverse=True):
        written_at, size = known[path]
        if left <= 0 or (len(found) == limit and found[-1].last_at > written_at + CLOCK_SLACK_S):
            break
        lines = _last_lines_with(path, needle, max(0, size - left))
        mine = (one for line in lines if (one := to_attempt(line)) and getattr(one, field) == value)
        found = heapq.nlargest(limit, [*found, *islice(mine, limit)], key=lambda one: one.last_at)
        left -= size
    return found


def kept_since(folders: Iterable[CrawlFolder]) -> float:
    """When the oldest attempt in the history ended (wall clock, s); 0 when there is none."""
    begins = (_first(path) for folder in folders for path in segments(folder))
    return min((attempt.last_at for attempt in begins if attempt), default=0.0)


def _of_session(paths: Sequence[Path], needle: bytes, damaged: Counter[str]) -> Iterator[Attempt]:
    for path in paths:
        for line in _lines_with(path, needle):
            attempt = to_attempt(line)
            if attempt is not None:
                yield attempt
            else:
                damaged[f"{path.parent.name}/{path.name}"] += 1


def _lines_with(path: Path, needle: bytes) -> Iterator[bytes]:
    with _mapped(path) as data:
        at = data.find(needle)
        while at >= 0:
            begin, end = data.rfind(b"\n", 0, at) + 1, data.find(b"\n", at)
            if end < 0:
                return  # incomplete
            yield bytes(data[begin:end])
            at = data.find(needle, end)


def _last_lines_with(path: Path, needle: bytes, begin: int) -> Iterator[bytes]:
    """The same from the end on, without what was written before `begin`."""
    with _mapped(path) as data:
        end = data.rfind(b"\n") + 1  # behind it is an incomplete line
        while (at := data.rfind(needle, begin, max(begin, end))) >= 0:
            start = data.rfind(b"\n", 0, at) + 1
            yield bytes(data[start : data.find(b"\n", at)])
            end = start


def _mapped(path: Path) -> "mmap.mmap | contextlib.nullcontext[bytes]":
    """The bytes of a segment; empty when it was deleted or is still empty."""
    try:
        with path.open("rb") as file:
            return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except (FileNotFoundError, ValueError):  # an empty file can't be mapped
        return contextlib.nullcontext(b"")


def _first(path: Path) -> Attempt | None:
    with contextlib.suppress(FileNotFoundError), path.open("rb") as file:
        return to_attempt(file.readline())
    return None
