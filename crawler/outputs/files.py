"""Where lines go: a stream, a draft, or a file that grows.

A stream takes bytes and gives nothing back. A draft lies beside its target and gets its name at the commit, whole. A
file that grows is written in place, so that people can read along, and is cut back to its last commit after an error
or a crash. Must not know what a crawl is.
"""

import contextlib
import fcntl
import hashlib
import os
import secrets
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import IO

from crawler.archive.folder import archive_error, sync_directory
from crawler.errors import ConflictError, OutputError, UsageError
from crawler.outputs.lines import CsvLines, Lines, open_text, packed
from crawler.outputs.naming import STDOUT_SHOWN, Target
from crawler.outputs.sink import Mark, OutputEnded, Record, Row

DIGEST_BYTES = 4096  # before the end of a file: by them it is known again
NAME_SHOWN = 60  # characters of a field's name in a message
PACK_ROWS = 1000  # of a packed draft: a few large members are smaller than many small ones


class StreamSink:
    """Standard output (`stdout`, or that of the process), a pipe or a device."""

    def __init__(self, target: Target, lines: Lines, stdout: IO[bytes] | None = None) -> None:
        self._path, self._shown, self._lines = target.path, target.shown, lines
        self._began = False
        try:
            self._file = target.path.open("wb") if target.path else stdout or sys.stdout.buffer
        except OSError as error:
            raise UsageError(f"can't write {target.shown}: {error.strerror}") from None

    def write(self, rows: Sequence[Row]) -> None:
        records = [row.record for row in rows]
        if isinstance(self._lines, CsvLines) and (new := self._lines.missing(records)):
            if self._began:
                raise OutputError(
                    f"field {new[0][:NAME_SHOWN]!r} came after the header of {self._shown} was written; "
                    "name a file, or write JSON Lines"
                )
            self._lines.columns = dict.fromkeys([*self._lines.columns, *new])
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
        self._draft = beside(self._path)
        self._rows: list[Record] = []
        try:
            self._file: IO[bytes] = self._draft.open("xb")
        except OSError as error:
            raise UsageError(f"can't write {target.shown}: {error.strerror}") from None

    def write(self, rows: Sequence[Row]) -> None:
        self._rows += [row.record for row in rows]
        if not self._packed or len(self._rows) >= PACK_ROWS:
            with _disk(self._path):
                self._drain()

    def commit(self) -> Mark | None:
        """All bytes on disk, then the name."""
        with _disk(self._path):
            self._drain()
            self._file.close()
            take_place(self._draft, self._path)
        return None

    def _drain(self) -> None:
        fill(self._lines, self._rows, self._file, self._packed, self._widen)
        self._rows.clear()

    def _widen(self, wider: CsvLines) -> IO[bytes]:
        self._file.close()
        rewrite(self._draft, self._packed, wider)
        self._file = self._draft.open("ab")
        return self._file

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._file.close()
        self._draft.unlink(missing_ok=True)


class GrowingSink:
    """A file in place, from a mark on. What lies behind the mark is cut off; without one the file begins anew."""

    def __init__(self, target: Target, lines: Lines, since: Mark | None) -> None:
        assert target.path is not None
        self._shown, self._path = target.shown, target.path.resolve()
        self._lines, self._packed = lines, target.packed
        self._rows: list[Record] = []
        self._length = since.length if since else 0
        try:
            self._file = self._opened()
            if since and isinstance(lines, CsvLines):
                with open_text(self._path, self._packed) as text:
                    lines.read_header(text)
        except OSError as error:
            raise UsageError(f"can't write {target.shown}: {error.strerror}") from None

    def _opened(self) -> IO[bytes]:
        file = os.fdopen(os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644), "rb+")
        try:
            fcntl.flock(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.close()
            raise ConflictError(f"another process is writing {self._shown}; wait for it or stop it") from None
        file.truncate(self._length)
        return file

    def write(self, rows: Sequence[Row]) -> None:
        self._rows += [row.record for row in rows]

    def commit(self) -> Mark | None:
        """Append what was given, and sync. Before the first byte of it the file is what it was at the last commit."""
        with _disk(self._path):
            fill(self._lines, self._rows, self._file, self._packed, self._widen)
            self._file.flush()
            os.fsync(self._file.fileno())
            self._length = self._file.tell()
            self._rows.clear()
            return Mark(self._length, digest(self._path, self._length))

    def _widen(self, wider: CsvLines) -> IO[bytes]:
        self._length = rewrite(self._path, self._packed, wider)
        self._file.close()
        self._file = self._opened()
        return self._file

    def close(self) -> None:
        with contextlib.suppress(OSError, ValueError):
            os.ftruncate(self._file.fileno(), self._length)
        with contextlib.suppress(OSError):
            self._file.close()


# --- what both kinds of files do ---


def fill(
    lines: Lines, records: list[Record], file: IO[bytes], how: str, widen: Callable[[CsvLines], IO[bytes]]
) -> None:
    """Append records. Where they have fields that the file has no columns for, `widen` gives another one before."""
    is_begun = file.seek(0, os.SEEK_END) > 0
    if isinstance(lines, CsvLines) and (new := lines.missing(records)):
        wider = CsvLines([*lines.columns, *new], safe=lines.safe)
        if is_begun:
            file = widen(wider)
            file.seek(0, os.SEEK_END)
        lines.columns = wider.columns
    data = lines.encode(records)
    file.write(packed(data if is_begun else lines.beginning(records) + data, how))


def rewrite(path: Path, how: str, wider: CsvLines) -> int:
    """Put a CSV file with more columns in the place of one with fewer; its length in bytes. Raises OSError."""
    draft = beside(path)
    try:
        with draft.open("xb") as new, open_text(path, how) as old:
            for block in wider.widened(old):
                new.write(packed(block, how))
            length = new.tell()
        take_place(draft, path)
    finally:
        draft.unlink(missing_ok=True)
    return length


def beside(path: Path) -> Path:
    """A name for a draft, hidden, in the same folder."""
    return path.with_name(f".{path.name}.{secrets.token_hex(4)}.part")


def take_place(draft: Path, path: Path) -> None:
    """All bytes on disk, then the name; the file keeps its rights. Raises OSError."""
    with draft.open("rb") as file:
        os.fsync(file.fileno())
    if path.exists():
        shutil.copymode(path, draft)
    draft.replace(path)
    sync_directory(path.parent)


def digest(path: Path, length: int) -> str:
    """Of the last bytes before a place: whoever finds others there looks at another file. Raises OSError."""
    with path.open("rb") as file:
        start = max(0, length - DIGEST_BYTES)
        file.seek(start)
        return hashlib.blake2b(file.read(length - start), digest_size=16).hexdigest()


def is_at(path: Path, mark: Mark) -> bool:
    """Is this the file that the mark was made in, and does it reach that far?"""
    try:
        return path.stat().st_size >= mark.length and digest(path, mark.length) == mark.digest
    except OSError:
        return False


@contextlib.contextmanager
def _disk(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise archive_error("write", path, error) from None
