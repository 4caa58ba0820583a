"""Where lines go: a stream, a draft, or a file that grows.

A stream takes bytes and gives nothing back. A draft is next to its target and gets its name at the commit, whole. A
file that grows is written in place, so that people can read along, and is cut back to its last commit after an error
or a crash. Must not know what a crawl is.
"""

import contextlib
import fcntl
import hashlib
import io
import os
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import IO

from crawler import disk_sync
from crawler.archive.folder import archive_error, sync_directory
from crawler.errors import ConflictError, OutputError
from crawler.outputs.lines import CsvLines, Lines, packed, read_errors, text_of
from crawler.outputs.sink import Mark, OutputEnded, Record, Row, TargetChanged, Wanted
from crawler.outputs.target import STDOUT_SHOWN, Target
from crawler.outputs.writer_lock import draft_of, set_aside, unwritable

DIGEST_BYTES = 4096  # before the end of a file: by them it is known again
NAME_SHOWN = 60  # characters of a field's name in a message
PACK_ROWS = 1000  # of a packed draft: a few large members are smaller than many small ones

# --- what both kinds of files do ---


def fill(
    lines: Lines, records: list[Record], file: IO[bytes], how: str, widen: Callable[[CsvLines], IO[bytes]]
) -> bytes:
    """Append records; what was written. Where they have fields that the file has no columns for, `widen` gives another
    file before.
    """
    is_begun = file.seek(0, os.SEEK_END) > 0
    if isinstance(lines, CsvLines) and (new := lines.missing(records)):
        wider = CsvLines([*lines.columns, *new], safe=lines.safe)
        if is_begun:
            file = widen(wider)
            file.seek(0, os.SEEK_END)
        lines.columns = wider.columns
    data = lines.encode(records)
    data = packed(data if is_begun else lines.beginning(records) + data, how)
    file.write(data)
    return data


def rewritten(path: Path, file: IO[bytes], how: str, wider: CsvLines) -> Path:
    """A draft of a CSV file with more columns, next to `path`. Raises OSError."""
    draft = draft_of(path)
    try:
        with draft.open("xb") as new, text_of(_again(file), how) as old:
            for block in wider.widened(old):
                new.write(packed(block, how))
    except BaseException:
        draft.unlink(missing_ok=True)
        raise
    return draft


def count(lines: Lines, file: IO[bytes], how: str, pulse: Callable[[], None]) -> int:
    """How many records an open file has; what can't be read has none. Raises OSError."""
    try:
        with text_of(_again(file), how) as text:
            return lines.count(text, pulse)
    except read_errors():
        return 0


def _again(file: IO[bytes]) -> IO[bytes]:
    """The same file, whatever has its name now, from its beginning; to be read while nobody writes. Raises OSError."""
    file.flush()
    other = os.fdopen(os.dup(file.fileno()), "rb")
    other.seek(0)
    return other


def take_place(draft: Path, path: Path) -> None:
    """All bytes on disk, then the name; the file keeps its rights. Raises OSError."""
    with draft.open("rb") as file:
        disk_sync.sync(file.fileno())
    if path.exists():
        shutil.copymode(path, draft)
    draft.replace(path)
    sync_directory(path.parent)


def mark_of(file: IO[bytes], length: int = -1) -> Mark:
    """The mark at a place in an open file, its end unless told. Raises OSError."""
    state = os.fstat(file.fileno())
    place = state.st_size if length < 0 else length
    # Nothing is like any other nothing: there it is the file's own number.
    return Mark(place, _digest(_end_of(file, place)) if place else f"{state.st_dev}:{state.st_ino}")


def _end_of(file: IO[bytes], length: int) -> bytes:
    start = max(0, length - DIGEST_BYTES)
    return os.pread(file.fileno(), length - start, start)


def _digest(end: bytes) -> str:
    """Of the last bytes before a place: whoever finds others there looks at another file."""
    return hashlib.blake2b(end, digest_size=16).hexdigest()


def is_at(path: Path, mark: Mark, *, ends: bool = False) -> bool:
    """Is this the file that the mark was made in, and does it reach that far? `ends`: and no further."""
    try:
        with path.open("rb") as file:
            length = os.fstat(file.fileno()).st_size
            if length < mark.length or (ends and length > mark.length):
                return False
            return mark_of(file, mark.length) == mark
    except OSError:
        return False


@contextlib.contextmanager
def _disk(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise archive_error("write", path, error) from None


class StreamSink:
    """Standard output (`stdout`, or that of the process), a pipe or a device."""

    def __init__(self, target: Target, lines: Lines, stdout: IO[bytes] | None = None) -> None:
        self._path, self._shown, self._lines = target.path, target.shown, lines
        self._began = False
        self._count = 0
        try:
            self._file = target.path.open("wb") if target.path else stdout or sys.stdout.buffer
        except OSError as error:
            raise unwritable(target.shown, error) from None

    def write(self, rows: Sequence[Row]) -> None:
        records = [row.record for row in rows]
        if isinstance(self._lines, CsvLines) and (new := self._lines.missing(records)):
            if self._began:
                raise OutputError(
                    f"field {new[0][:NAME_SHOWN]!r} came after the header of {self._shown} was written; "
                    "name a file, or write JSON Lines"
                )
            self._lines.columns = dict.fromkeys([*self._lines.columns, *new])
        self._count += len(rows)
        data = (b"" if self._began else self._lines.beginning(records)) + self._lines.encode(records)
        self._put(data)
        self._began = self._began or bool(data)

    def _put(self, data: bytes) -> None:
        try:
            self._file.write(data)
            self._file.flush()
        except BrokenPipeError:
            raise OutputEnded from None
        except OSError as error:
            raise archive_error("write", self._path or Path(STDOUT_SHOWN), error) from None

    def commit(self) -> Mark | None:
        if not self._began:
            self.write([])
        return None

    def found(self, wanted: Iterable[Wanted], pulse: Callable[[], None]) -> int:  # noqa: ARG002
        return self._count

    def close(self) -> None:
        if self._path is not None:
            with contextlib.suppress(OSError):
                self._file.close()


class DraftSink:
    """A file that appears whole at its commit, or not at all."""

    def __init__(self, target: Target, lines: Lines) -> None:
        assert target.path is not None
        self._path = target.path.resolve()
        self._lines, self._packed = lines, target.packed
        self._draft = draft_of(self._path)
        self._rows: list[Record] = []
        try:
            self._file: IO[bytes] = self._draft.open("x+b")
        except OSError as error:
            raise unwritable(target.shown, error) from None

    def write(self, rows: Sequence[Row]) -> None:
        self._rows += [row.record for row in rows]
        if not self._packed or len(self._rows) >= PACK_ROWS:
            with _disk(self._path):
                self._drain()

    def commit(self) -> Mark | None:
        """All bytes on disk, then the name. The mark is of the whole file."""
        with _disk(self._path):
            self._drain()
            self._file.flush()
            mark = mark_of(self._file)
            self._file.close()
            take_place(self._draft, self._path)
        return mark

    def found(self, wanted: Iterable[Wanted], pulse: Callable[[], None]) -> int:  # noqa: ARG002
        with _disk(self._path), self._path.open("rb") as file:
            return count(self._lines, file, self._packed, pulse)

    def _drain(self) -> None:
        fill(self._lines, self._rows, self._file, self._packed, self._widen)
        self._rows.clear()

    def _widen(self, wider: CsvLines) -> IO[bytes]:
        draft = rewritten(self._path, self._file, self._packed, wider)
        draft.replace(self._draft)
        self._file.close()
        self._file = self._draft.open("r+b")
        return self._file

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._file.close()
        self._draft.unlink(missing_ok=True)


class GrowingSink:
    """A file in place, from a mark on; what lies behind the mark is cut off. Without one it begins with nothing: a file
    that is there gets another name (`moved_to`), unless it may be replaced.

    Between two commits nobody else may write to the file. Each commit looks first, and leaves what it does not know.
    """

    def __init__(
        self,
        target: Target,
        lines: Lines,
        since: Mark | None,
        *,
        may_replace: bool = False,
        on_replace: Callable[[Mark], None] = lambda _: None,
    ) -> None:
        assert target.path is not None
        self._shown, self._path = target.shown, target.path.resolve()
        self._lines, self._packed = lines, target.packed
        self._rows: list[Record] = []
        self._is_dirty = False
        self._on_replace = on_replace
        self.moved_to: Path | None = None
        try:
            self._file = self._opened(since, may_replace=may_replace)
            self.mark = mark_of(self._file)
            self._length = self.mark.length
            if since and isinstance(lines, CsvLines):
                with self._text() as text:
                    lines.read_header(text)
        except OSError as error:
            raise unwritable(target.shown, error) from None

    def _opened(self, since: Mark | None, *, may_replace: bool) -> IO[bytes]:
        if since is None:
            with contextlib.suppress(FileNotFoundError):
                if self._path.stat().st_size:
                    if may_replace:
                        self._path.unlink()
                    else:
                        self.moved_to = set_aside(self._path)
        file = self._locked(self._path)
        if since and mark_of(file, since.length) != since:
            file.close()
            raise TargetChanged(f"{self._shown} was changed by another program")
        file.truncate(since.length if since else 0)
        return file

    def _locked(self, path: Path) -> IO[bytes]:
        file = os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644), "rb+")
        try:
            fcntl.flock(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)  # for who comes by another name of the file
        except BlockingIOError:
            file.close()
            raise ConflictError(f"another process is writing {self._shown}; wait for it or stop it") from None
        return file

    def write(self, rows: Sequence[Row]) -> None:
        self._rows += [row.record for row in rows]

    def commit(self) -> Mark | None:
        """Append what was given, and sync. Before the first byte of it the file is what it was at the last commit."""
        with _disk(self._path):
            self._check()
            self._is_dirty = True
            data = fill(self._lines, self._rows, self._file, self._packed, self._widen)
            self._file.flush()
            disk_sync.sync(self._file.fileno())
            if data:  # by what was written, not by what is there now
                end = (_end_of(self._file, self._length) + data)[-DIGEST_BYTES:]
                self._length += len(data)
                self.mark = Mark(self._length, _digest(end))
            self._is_dirty = False
            self._rows.clear()
            self._check()
            return self.mark

    def found(self, wanted: Iterable[Wanted], pulse: Callable[[], None]) -> int:  # noqa: ARG002
        with _disk(self._path):
            self._check()
            return count(self._lines, self._file, self._packed, pulse)

    def _check(self) -> None:
        """Raises TargetChanged when the file is not what the last commit left."""
        self._check_name()
        if mark_of(self._file) != self.mark:
            raise TargetChanged(f"{self._shown} was changed by another program")

    def _check_name(self) -> None:
        """That the file has its name and its length."""
        try:
            named = self._path.stat()
        except FileNotFoundError:
            raise TargetChanged(f"{self._shown} was removed by another program") from None
        if not os.path.samestat(named, os.fstat(self._file.fileno())):
            raise TargetChanged(f"{self._shown} was replaced by another program")
        if named.st_size != self._length:
            how = "shortened" if named.st_size < self._length else "written to"
            raise TargetChanged(f"{self._shown} was {how} by another program")

    def _text(self) -> io.TextIOWrapper:
        return text_of(_again(self._file), self._packed)

    def _widen(self, wider: CsvLines) -> IO[bytes]:
        draft = rewritten(self._path, self._file, self._packed, wider)
        file = self._locked(draft)
        try:
            self._on_replace(mark_of(file))
            self._check_name()  # it took a while
            take_place(draft, self._path)
        except BaseException:
            file.close()
            raise
        finally:
            draft.unlink(missing_ok=True)
        self._file.close()
        self._file, self.mark = file, mark_of(file)
        self._length = self.mark.length
        return file

    def close(self) -> None:
        with contextlib.suppress(OSError, ValueError), contextlib.ExitStack() as last:
            if self._is_dirty:
                descriptor = os.dup(self._file.fileno())
                last.callback(os.close, descriptor)
                last.callback(os.ftruncate, descriptor, self._length)
            self._file.close()  # which tries again to write what the disk did not take
