"""Writes the index of one session: CDXJ segments, append-only while open, sorted when sealed.

Lines (see `cdxj`) are sorted by bytes (LC_ALL=C), as every CDX tool expects. An open segment is in order of arrival
and has the name `<session>-<serial>.cdxj.open`. `sessions/<session>.last` has the serial of the last one: no other
segment would show that it is missing.
"""

import contextlib
import os
import threading
from collections.abc import Callable, Collection, Sequence
from pathlib import Path

from crawler.archive.appender import OPEN_SUFFIX, Appender
from crawler.archive.checked_lines import number_in, number_line
from crawler.archive.folder import CrawlFolder, archive_error, open_private, replace_durably, write_durably
from crawler.archive.index import SegmentCheck, to_entry, to_line, with_footer, without_torn_tail
from crawler.model import CommitEntry

SUFFIX = ".cdxj"
LAST_SUFFIX = ".last"
DROPPED = "refetched.cdxj"  # lines that a rebuild removed from the index; in the folder of logs
# Sorting holds the interpreter lock, and all lines in memory: 0.02 s and 10 MB for this number. With 50,000 the
# allocator kept the 30 MB that they had taken, once for each thread that sorted.
SEGMENT_LINES = 16_384


class IndexWriter:
    """The index segments of one session. `add` is memory only; the others may run in another thread."""

    def __init__(self, folder: CrawlFolder, session: str, *, lines_max: int = SEGMENT_LINES) -> None:
        self._folder = folder
        self._session = session
        self._lines_max = lines_max
        self._serial = 0  # of the next segment
        self._noted = -1  # the last one in the file of the session
        self._lines = 0
        self._current: Appender | None = None
        self._full: list[Appender] = []
        self._lock = threading.Lock()

    def add(self, entry: CommitEntry) -> None:
        """Append one committed entry. It is durable when `sync` has returned."""
        line = to_line(entry)
        with self._lock:
            if self._current is None:
                self._current = self._next_segment()
            elif self._lines >= self._lines_max:
                self._full.append(self._current)
                self._current = self._next_segment()
            self._lines += 1
            self._current.add(line)

    def sync(self) -> None:
        """Make durable all that was added before, and seal full segments. Raises ArchiveError."""
        with self._lock:
            full, current, last = list(self._full), self._current, self._serial - 1
        for segment in full:
            self._seal(segment)
            with self._lock:
                self._full.remove(segment)
        if current is not None:
            current.sync()
            if current.durable:
                self._note(last)

    def drop_unwritten(self) -> None:
        """After a NoRoomError: keep the lines that are durable, to be sealed later. The others have to be added again,
        to a new segment.
        """
        with self._lock:
            segments = [*self._full, *([self._current] if self._current else [])]
            for segment in segments:
                segment.give_up()
            self._full, self._current = [one for one in segments if one.durable and one.path.exists()], None
            for segment in reversed(segments):
                if segment.durable:
                    break
                segment.path.unlink(missing_ok=True)
                self._serial -= 1  # numbers have no gaps

    def close(self) -> None:
        """Sync and seal all segments. Raises ArchiveError; segments that could not be sealed stay readable."""
        with self._lock:
            segments = [*self._full, *([self._current] if self._current else [])]
            self._current, self._full = None, []
        for segment in segments:
            self._seal(segment)
        if segments:
            self._note(self._serial - 1)

    def _note(self, last: int) -> None:
        """Note the last segment, which exists, once."""
        if self._noted < last:
            note_last(self._folder, self._session, last)
            self._noted = last

    def _seal(self, segment: Appender) -> None:
        if not segment.failed:
            segment.sync()
        segment.close()
        seal(self._folder, segment.path)

    def _next_segment(self) -> Appender:
        name = f"{self._session}-{self._serial:05d}{SUFFIX}"
        self._serial += 1
        self._lines = 0
        return Appender(self._folder.index / name)


def seal(folder: CrawlFolder, path: Path) -> int:
    """Sort an open segment into its final file, then remove it; returns the number of lines.

    An incomplete last line is dropped. May be repeated after a crash at any point: the final file appears atomically.
    Raises ArchiveError.
    """
    try:
        lines = sorted_lines(path)
        replace_segment(folder, path.with_name(path.name.removesuffix(OPEN_SUFFIX)), lines, of=path)
        path.unlink(missing_ok=True)
    except OSError as error:
        raise archive_error("sort", path, error) from None
    return len(lines)


def note_last(folder: CrawlFolder, session: str, serial: int) -> None:
    """Note the last segment of a session, which exists. Raises ArchiveError."""
    path = folder.sessions / f"{session}{LAST_SUFFIX}"
    try:
        replace_durably(path, folder.tmp / path.name, [number_line(serial)])
    except OSError as error:
        raise archive_error("write", path, error) from None


def _noted_last(folder: CrawlFolder) -> dict[str, int]:
    """Sessions and their last segments, as far as noted."""
    found = {}
    for path in folder.sessions.glob(f"*{LAST_SUFFIX}"):
        with contextlib.suppress(OSError):
            if (serial := number_in(path)) is not None:
                found[path.name.removesuffix(LAST_SUFFIX)] = serial
    return found


def change_lines(
    folder: CrawlFolder,
    change: Callable[[CommitEntry], CommitEntry | None],
    *,
    mends: bool = False,
    drops_to: str | None = DROPPED,
) -> None:
    """Replace entries in all sealed segments: one that `change` returns itself stays, one without a result goes.

    With `mends` damaged lines go, too, and in place of a missing segment comes one without lines. Else segments with
    damage are left alone. What goes is written to `log/refetched.cdxj` before (`drops_to`; None: nowhere). May be
    repeated after a crash at any point: each segment is replaced atomically. Raises ArchiveError.
    """
    names = {path.name.removesuffix(OPEN_SUFFIX) for path in folder.index.glob(f"*{SUFFIX}*")}
    missing = map(folder.index.joinpath, serials_missing(folder, names) if mends else ())
    for path in sorted([*folder.index.glob(f"*{SUFFIX}"), *missing]):
        left, gone = list[bytes](), list[bytes]()
        check, is_changed, is_damaged = SegmentCheck(), False, False
        try:
            with path.open("rb") if path.exists() else contextlib.nullcontext(()) as lines:
                for line in filter(check.is_entry, lines):
                    entry = to_entry(line) if line.endswith(b"\n") else None
                    after = change(entry) if entry is not None else None
                    is_damaged |= entry is None
                    is_changed |= after is not entry
                    if after is None:
                        gone.append(line)
                    else:
                        left.append(line if after is entry else to_line(after))
            is_damaged = is_damaged or bool(check.flaw())
            if is_damaged and not mends:
                continue
            if gone and drops_to is not None:
                with open(folder.log / drops_to, "ab", opener=open_private) as kept:
                    write_durably(kept, gone)
            if is_changed or is_damaged:
                replace_segment(folder, path, sorted(set(left)))  # a line may have been copied over another
        except OSError as error:
            raise archive_error("write", path, error) from None


def replace_segment(folder: CrawlFolder, path: Path, lines: Sequence[bytes], *, of: Path | None = None) -> None:
    """Write a segment with these sorted lines and a footer, atomically replacing an existing one. It keeps the time of
    that one, or of the file that the lines are `of`: when the last of them was written. Raises OSError.
    """
    try:
        written_ns = (of or path).stat().st_mtime_ns
    except FileNotFoundError:
        written_ns = 0
    replace_durably(path, folder.tmp / path.name, with_footer(lines))
    os.utime(path, ns=(written_ns, written_ns))


def written_lines(path: Path) -> list[bytes]:
    """The lines of an open segment as they stand, without a torn tail, each with its line feed. Raises OSError."""
    with path.open("rb") as file:
        return without_torn_tail(list(file))


def sorted_lines(path: Path) -> list[bytes]:
    """The same in byte order."""
    return sorted(written_lines(path))


def serials_missing(folder: CrawlFolder, names: Collection[str]) -> list[str]:
    """Segments that are missing among those with these names: a session numbers its segments without gaps."""
    highest = {session: last + 1 for session, last in _noted_last(folder).items()}  # behind which there are none
    present = set()
    for name in names:
        session, _, serial = name.removesuffix(OPEN_SUFFIX).removesuffix(SUFFIX).rpartition("-")
        if serial.isdigit():
            present.add((session, int(serial)))
            highest[session] = max(highest.get(session, 0), int(serial))
    missing = [
        f"{session}-{serial:05d}{SUFFIX}"
        for session, last in sorted(highest.items())
        for serial in range(last)
        if (session, serial) not in present
    ]
    # One may have come since they were listed, and get its final name at any moment: that is looked for last.
    paths = map(folder.index.joinpath, missing)
    return [path.name for path in paths if not path.with_name(path.name + OPEN_SUFFIX).exists() and not path.exists()]
