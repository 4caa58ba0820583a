"""Where lines go: a stream, a draft, or a file that grows.

A stream takes bytes and gives nothing back. A draft is next to its target and gets its name at the commit, whole. A
file that grows is written in place, so that people can read along, and is cut back to its last commit after an error
or a crash. Must not know what a crawl is.
"""

import contextlib
import csv
import errno
import fcntl
import gzip
import hashlib
import io
import os
import re
import secrets
import shutil
import sys
import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import IO, Any, Protocol

import msgspec

from crawler import disk_sync
from crawler.archive.folder import FREE_SOME, NO_ROOM, archive_error, open_private, sync_directory
from crawler.errors import ArchiveError, ConflictError, CrawlerError, OutputError, UsageError
from crawler.outputs.columns import check_count
from crawler.outputs.sink import Mark, OutputEnded, Record, Row, TargetChanged, Wanted
from crawler.outputs.target import STDOUT_SHOWN, Target
from crawler.rules.text import printable_json

# One writer for each file that results go to: a lock file next to it that names the writing process.
#
# Also knows the names of what is hidden next to a target: locks, and drafts, which a killed writer leaves there.

POLL_S = 0.02
_HOLDER_BYTES_MAX = 4096
_NAME_BYTES_MAX = 200  # of 255 that file systems take, with what is added to a name


def draft_of(path: Path) -> Path:
    """A name for a draft, hidden, in the same folder."""
    return _hidden(path, f"{secrets.token_hex(4)}.part")


@contextlib.contextmanager
def writing(path: Path, shown: str, whose: str, *, timeout_s: float = 0.0) -> Iterator[Callable[[], bool]]:
    """Be the only writer of this file, which need not be there. `whose`: the crawl folder that it is written from.

    Gives a function that tells whether that is still so: not where somebody moved the folder of the file.
    Blocks; raises ConflictError after the time-out, what `unwritable` says where no lock can be made. Drafts of writers
    that were killed are removed.
    """
    path = path.resolve()
    lock = _hidden(path, "lock")
    try:
        descriptor = _acquired(lock, shown, timeout_s)
    except OSError as error:
        raise unwritable(shown, error, f"can't lock {lock}: ") from None
    try:
        with contextlib.suppress(OSError):  # the lock holds on a full disk, too
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, f"pid {os.getpid()}{f', crawl in {whose}' if whose else ''}\n".encode(), 0)
        _remove_drafts(path)
        yield lambda: _is_named(descriptor, lock)
    finally:
        with contextlib.suppress(OSError):
            if _is_named(descriptor, lock):
                lock.unlink()  # whoever waits for it looks whether it still has its name
        os.close(descriptor)


def unwritable(shown: str, error: OSError, what: str = "") -> CrawlerError:
    """Of a target that can't be opened: a full disk may have room later, else somebody must change something."""
    if error.errno in NO_ROOM:
        return ArchiveError(f"can't write {shown}: {what}{error.strerror}{FREE_SOME}")
    return UsageError(f"can't write {shown}: {what}{error.strerror}")


def _acquired(lock: Path, shown: str, timeout_s: float) -> int:
    deadline = time.monotonic() + timeout_s
    while True:
        descriptor = open_private(lock, os.O_RDWR | os.O_CREAT)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _is_named(descriptor, lock):
                return descriptor
            os.close(descriptor)
        except BlockingIOError:
            holder = os.pread(descriptor, _HOLDER_BYTES_MAX, 0).decode("utf-8", "replace").strip()
            os.close(descriptor)
            if time.monotonic() >= deadline:
                named = f" ({holder})" if holder else ""
                raise ConflictError(
                    f"another process is writing {shown}{named}; wait for it, stop it, or name another file"
                ) from None
            time.sleep(POLL_S)
        except BaseException:
            os.close(descriptor)
            raise


def _is_named(descriptor: int, lock: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), lock.stat())
    except (FileNotFoundError, NotADirectoryError):
        return False


def _remove_drafts(path: Path) -> None:
    """Nobody else writes this target now, so nobody needs them."""
    before = _hidden(path, "").name
    with contextlib.suppress(OSError):
        for other in path.parent.iterdir():
            mark = other.name.removeprefix(before).removesuffix(".part")
            if other.name == f"{before}{mark}.part" and len(mark) == 8 and mark.isalnum():
                other.unlink()


def _hidden(path: Path, ending: str) -> Path:
    return path.with_name(f".{_shortened(path.name)}.{ending}")


def set_aside(path: Path) -> Path:
    """Give somebody else's file another name, and return that. Raises OSError."""
    for number in range(1, 1_000_000):
        other = path.with_name(f"{_shortened(path.name)}.changed-{number}")
        if not os.path.lexists(other):
            path.rename(other)
            return other
    raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(path))


def _shortened(name: str) -> str:
    raw = os.fsencode(name)
    if len(raw) <= _NAME_BYTES_MAX:
        return name
    return f"{os.fsdecode(raw[:_NAME_BYTES_MAX])}-{hashlib.blake2b(raw, digest_size=4).hexdigest()}"


# Records as lines of JSON or CSV, and lines packed as gzip or zstd. Must not know where they are written.

BLOCK_BYTES = 1 << 20  # of lines in a member of a packed file, at most: a file can end behind any of them
ROWS = 1000  # of CSV at a time, when a file is read back
_json = msgspec.json.Encoder().encode
# Of the csv module's reader, for the whole process: 131,072 otherwise. What we read back are our own files, and how
# large a field of theirs can be is bounded where items are taken in.
csv.field_size_limit(sys.maxsize)


def packed(data: bytes, how: str) -> bytes:
    """Whole gzip members or zstd frames; files of several are read as one. `how` is "", ".gz" or ".zst"."""
    if not how:
        return data
    return b"".join(_member(data[start : start + BLOCK_BYTES], how) for start in range(0, len(data), BLOCK_BYTES))


def _member(data: bytes, how: str) -> bytes:
    if how == ".gz":
        return gzip.compress(data, 6, mtime=0)
    packed: bytes = _zstd().compress(data)
    return packed


def text_of(file: IO[bytes], how: str) -> io.TextIOWrapper:
    """The lines of a file from its beginning, unpacked. An end of line may stand within the quotes of CSV: each stays
    as it is. The file is closed with the text.
    """
    source: Any = file
    if how == ".gz":
        source = gzip.GzipFile(fileobj=file, mode="rb")
    elif how == ".zst" and file.seek(0, io.SEEK_END):  # it takes an empty file for one that is cut
        file.seek(0)
        source = _zstd().ZstdFile(file)
    return _Text(source, file)


def read_errors() -> tuple[type[Exception], ...]:
    """What reading such a file raises where it is damaged, or no such file."""
    return (EOFError, ValueError, csv.Error, zlib.error, gzip.BadGzipFile, _zstd().ZstdError)


def _zstd() -> Any:
    """The module; only files that need it load it."""
    if sys.version_info >= (3, 14):
        from compression import zstd
    else:
        from backports import zstd
    return zstd


class _Text(io.TextIOWrapper):
    """Closes the file that its source reads from, too."""

    def __init__(self, source: Any, file: IO[bytes]) -> None:
        super().__init__(source, encoding="utf-8", newline="")
        self._below = file

    def close(self) -> None:
        super().close()
        self._below.close()


class Lines(Protocol):
    """A format of lines."""

    def encode(self, records: Iterable[Record]) -> bytes: ...
    def beginning(self, records: Sequence[Record]) -> bytes:
        """What a file starts with, before these records."""
        ...

    def count(self, lines: io.TextIOWrapper, pulse: Callable[[], None]) -> int:
        """How many records there are in a file."""
        ...


class JsonLinesFormat:
    """One object a line. With `shown`, nothing in it can act on a terminal: it means the same, in escapes."""

    def __init__(self, *, shown: bool = False) -> None:
        self._shown = shown

    def encode(self, records: Iterable[Record]) -> bytes:
        data = b"".join([_json(record) + b"\n" for record in records])
        return printable_json(data.decode()).encode() if self._shown else data

    def beginning(self, records: Sequence[Record]) -> bytes:  # noqa: ARG002
        return b""

    def count(self, lines: io.TextIOWrapper, pulse: Callable[[], None]) -> int:
        found = 0
        while block := bytes(lines.buffer.read(BLOCK_BYTES)):
            found += block.count(b"\n")
            pulse()
        return found


class CsvLines:
    """A row each, under a header. What is nested is JSON there, links are one after the other.

    With `safe`, text that a spreadsheet would take for a formula begins with an apostrophe.
    """

    def __init__(self, columns: Iterable[str] = (), *, safe: bool = True) -> None:
        self.columns = dict.fromkeys(columns)
        self.safe = safe

    def missing(self, records: Iterable[Record]) -> list[str]:
        """Fields that have no column yet. Raises OutputError when there are too many."""
        found = dict.fromkeys(name for record in records for name in record if name not in self.columns)
        check_count([*self.columns, *found])
        return list(found)

    def encode(self, records: Iterable[Record]) -> bytes:
        if self.safe:
            return _csv([_safe(_cell(record.get(name), name)) for name in self.columns] for record in records)
        return _csv([_cell(record.get(name), name) for name in self.columns] for record in records)

    def beginning(self, records: Sequence[Record]) -> bytes:
        """The header. Records without a field have an empty one: else the first of them would be taken for it."""
        return (
            _csv([[_header(name) if self.safe else name for name in self.columns]]) if self.columns or records else b""
        )

    def count(self, lines: io.TextIOWrapper, pulse: Callable[[], None]) -> int:
        rows, found = csv.reader(lines), -1  # without the header
        while number := sum(1 for _ in islice(rows, ROWS)):
            found += number
            pulse()
        return max(found, 0)

    def widened(self, lines: Iterable[str]) -> Iterator[bytes]:
        """Lines that were written with fewer columns, header included, as they are with these."""
        rows = csv.reader(lines)
        before = len(next(rows, []))
        yield self.beginning([{}])
        while block := list(islice(rows, ROWS)):
            yield _csv(row + [""] * (len(self.columns) - before) for row in block)

    def read_header(self, lines: Iterable[str]) -> None:
        """Go on with the columns of a file that has some, whatever `safe` was when it began."""
        header = next(csv.reader(lines), [])
        self.columns = dict.fromkeys(self.names_of(header) if self.safe else header)

    @staticmethod
    def names_of(header: Iterable[str]) -> list[str]:
        """The fields of a header that is safe."""
        names: dict[str, None] = {}
        for one in header:
            name = _named(one)
            names[one if name in names else name] = None
        return list(names)


class _Rows(list[str]):
    """What the CSV writer writes, a row each. Only with this line end does it quote both halves of it in cells."""

    end = "\r\n"

    def write(self, row: str) -> None:
        self.append(row.removesuffix(self.end) + "\n")


def _csv(rows: Iterable[Sequence[object]]) -> bytes:
    text = _Rows()
    csv.writer(text, lineterminator=text.end).writerows(rows)
    return "".join(text).encode("utf-8", "replace")


# What spreadsheets take for the beginning of a formula, some after blanks, some in full width (OWASP, CSV injection).
_FORMULA = re.compile(r"[\t\r\n]|[\s\ufeff]*[=+\-@\uff1d\uff0b\uff0d\uff20]")


def _safe(value: object) -> object:
    return f"'{value}" if isinstance(value, str) and _FORMULA.match(value) else value


def _header(name: str) -> str:
    """The header of a field. One that begins with apostrophes before a formula gets one more: each stays itself."""
    return f"'{name}" if _FORMULA.match(name.lstrip("'")) else name


def _named(header: str) -> str:
    """The field that a header stands for."""
    return header[1:] if header[:1] == "'" and _FORMULA.match(header.lstrip("'")) else header


def _cell(value: object, name: str) -> object:
    if name == "links" and isinstance(value, list):
        return " ".join(map(str, value))
    return _json(value).decode() if isinstance(value, (list, dict)) else value


def plain_cell(value: object, name: str) -> str:
    """The text of a value or of a cell that was read, equal for both, whether or not the file is safe."""
    cell = _cell(value, name)
    text = "" if cell is None else str(cell)
    return _named(text)


DIGEST_BYTES = 4096  # before the end of a file: by them it is known again
NAME_SHOWN = 60  # characters of a field's name in a message
PACK_ROWS = 1000  # of a packed draft: a few large members are smaller than many small ones


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
