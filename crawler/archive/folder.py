"""The crawl folder: paths of all kinds of files, creation, permissions and locks.

Pages may have been fetched with a login, and `bound.json` has the crawl's key. So all files and folders in it are
created with `open_private` and `make_private`, for their owner only.
"""

import contextlib
import enum
import errno
import fcntl
import os
import secrets
import shutil
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import IO

import msgspec

from crawler import disk_sync, given_path
from crawler.archive.checked_lines import is_right, with_checksum
from crawler.errors import ArchiveError, ConflictError, NoRoomError, UsageError

# Wall times in the formats of WARC, CDX and file names; always UTC.


@lru_cache(maxsize=1024)
def _iso_second(second: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(second))


@lru_cache(maxsize=1024)
def _digits_second(second: int) -> str:
    return time.strftime("%Y%m%d%H%M%S", time.gmtime(second))


def iso_ms(at: float) -> str:
    """ISO 8601 with milliseconds, as WARC 1.1 allows in WARC-Date (5.4): 2024-05-01T12:00:00.250Z."""
    ms = int(at * 1000)
    return f"{_iso_second(ms // 1000)}.{ms % 1000:03d}Z"


def digits14(at: float) -> str:
    """The timestamp of CDX lines: 20240501120000."""
    return _digits_second(int(at))


def digits17(at: float) -> str:
    """With milliseconds, for file names: 20240501120000250."""
    ms = int(at * 1000)
    return f"{_digits_second(ms // 1000)}{ms % 1000:03d}"


LAYOUT = 3  # grows when a program could no longer read what another wrote
OLDEST_LAYOUT = 2  # that is read: its lines have no checksums, and its segments no footers
DESCRIPTION = "crawl.json"
SUBFOLDERS = ("warc", "index", "items", "history", "journal", "sessions", "engine", "log", "tmp")
OUTPUTS = "outputs"
NO_ROOM = (errno.ENOSPC, errno.EDQUOT)
FREE_SOME = "; free some space and start again"
PRIVATE_FILE, PRIVATE_FOLDER = 0o600, 0o700
EXCLUSIVE_TIMEOUT_S = 10.0
EXCLUSIVE_POLL_S = 0.02
_ALLOWED_IN_EMPTY = frozenset({"lost+found"})  # the root of a new file system counts as empty


class Description(msgspec.Struct, frozen=True, kw_only=True):
    """The content of crawl.json, behind which is a checksum (see `checked_lines`); earlier releases wrote none."""

    crawl: str
    layout: int
    created_at: float


class Holder(msgspec.Struct, frozen=True, kw_only=True):
    """The content of a session's lock file; for people, never for decisions."""

    pid: int
    node: str
    started: float


def archive_error(action: str, path: Path, error: OSError) -> ArchiveError:
    """An error of one line with the file and the reason, and with what to do if that is known."""
    reason = f"can't {action} {path}: {error.strerror or type(error).__name__}"
    return NoRoomError(reason + FREE_SOME, path.parent) if error.errno in NO_ROOM else ArchiveError(reason)


def open_private(path: str | os.PathLike[str], flags: int) -> int:
    """Like os.open, but only the owner may read and write a new file. Also for `open(..., opener=open_private)`."""
    return os.open(path, flags | os.O_CLOEXEC, PRIVATE_FILE)


def write_durably(file: IO[bytes], lines: Iterable[bytes]) -> None:
    """Write lines, which are on disk when this returns. Raises OSError."""
    file.writelines(lines)
    file.flush()
    disk_sync.sync(file.fileno())


def replace_durably(path: Path, draft: Path, lines: Iterable[bytes]) -> None:
    """Replace a file, or make it, by way of a draft on the same disk: at any time the old or the new one is there.
    Raises OSError.
    """
    try:
        with open(draft, "wb", opener=open_private) as file:
            write_durably(file, lines)
        draft.replace(path)
        sync_directory(path.parent)
    except OSError:
        draft.unlink(missing_ok=True)
        raise


def make_private(path: Path, *, parents: bool = False) -> None:
    """Create a folder that only its owner may use, unless it exists. Raises OSError."""
    path.mkdir(mode=PRIVATE_FOLDER, parents=parents, exist_ok=True)


def is_open_to_others(path: Path) -> bool:
    """May other users of this machine read this folder, or change it? Raises OSError."""
    return bool(path.stat().st_mode & 0o077)


def sync_directory(path: Path) -> None:
    """Make creations, renames and removals in this directory durable."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        disk_sync.sync(descriptor)
    finally:
        os.close(descriptor)


UNKNOWN = -1  # bytes


def free_bytes(folder: Path) -> int:
    """What the disk of a folder has left for us; `UNKNOWN` when it can't be read."""
    with contextlib.suppress(OSError):
        return shutil.disk_usage(folder).free
    return UNKNOWN


class CrawlFolder:
    """Paths of one crawl folder. Creates nothing: see `open_or_create` and `open_existing`."""

    def __init__(self, root: Path, description: Description) -> None:
        self.root = root
        self.description = description
        self.crawl = description.crawl
        self.created_at = description.created_at
        self.warc = root / "warc"
        self.index = root / "index"
        self.items = root / "items"
        self.history = root / "history"
        self.journal = root / "journal"
        self.sessions = root / "sessions"
        self.engine = root / "engine"
        self.log = root / "log"
        self.spill = root / "spill"  # created with the first spilled URLs
        self.outputs = root / OUTPUTS  # created with the first cursor
        self.tmp = root / "tmp"

    def __repr__(self) -> str:
        return f"CrawlFolder({str(self.root)!r}, crawl={self.crawl!r})"

    @property
    def is_unused(self) -> bool:
        """Does it have no seeds and no results?"""
        return not any(
            any(place.glob("*")) for place in (self.journal, self.warc, self.index, self.items, self.history)
        )

    @contextlib.contextmanager
    def exclusive(self, name: str, timeout_s: float = EXCLUSIVE_TIMEOUT_S) -> Iterator[None]:
        """Hold the named lock of this folder; blocks, so call it in a thread. ConflictError after the timeout."""
        path = self.tmp / f"{name}.lock"
        try:
            descriptor = open_private(path, os.O_RDWR | os.O_CREAT)
        except OSError as error:
            raise archive_error("open the lock file", path, error) from None
        try:
            if not _locked_within(descriptor, timeout_s):
                raise ConflictError(f"another process has held {path} for {timeout_s:g} s; wait for it or stop it")
            yield
        finally:
            os.close(descriptor)  # releases the lock

    def is_locked(self, name: str) -> bool:
        """Does somebody hold the named lock? Disturbs nobody."""
        return life_at(self.tmp / f"{name}.lock") is Life.ALIVE

    @contextlib.contextmanager
    def reading(self) -> Iterator[None]:
        """Let nobody remove or rewrite files meanwhile (`changing`); any number of readers may. Blocks.

        In a folder that can't be written nobody removes any, as far as we know.
        """
        try:
            descriptor = open_private(self._read_lock, os.O_RDONLY | os.O_CREAT)
        except OSError:
            yield
            return
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH)
            yield
        finally:
            os.close(descriptor)  # releases the lock

    @contextlib.contextmanager
    def changing(self, timeout_s: float) -> Iterator[None]:
        """Remove and rewrite files that are complete while nobody reads them. Blocks.

        Raises ConflictError when somebody still does after the timeout, ArchiveError.
        """
        try:
            descriptor = open_private(self._read_lock, os.O_RDONLY | os.O_CREAT)
        except OSError as error:
            raise archive_error("open the lock file", self._read_lock, error) from None
        try:
            if not _locked_within(descriptor, timeout_s):
                raise ConflictError(
                    f"an export, audit or rebuild still reads {self.root}: repeat the command when it has ended"
                )
            yield
        finally:
            os.close(descriptor)  # releases the lock

    @property
    def _read_lock(self) -> Path:
        return self.tmp / "read.lock"


@contextlib.contextmanager
def alone_in(folder: CrawlFolder, pid: int) -> Iterator[None]:
    """Be the only `crawler crawl` of this folder, until it ends or dies. `pid`: of the process that people may stop.

    Raises ConflictError, ArchiveError.
    """
    path = folder.tmp / "crawl.lock"
    try:
        descriptor = open_private(path, os.O_RDWR | os.O_CREAT)
    except OSError as error:
        raise archive_error("open the lock file", path, error) from None
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            other = os.read(descriptor, 20).decode("ascii", "replace").strip()
            raise ConflictError(
                f"another crawl is running in {folder.root}{f' (pid {other})' if other else ''}; "
                "use --dir, or 'crawler seed' to add URLs to it"
            ) from None
        with contextlib.suppress(OSError):  # the lock holds on a full disk, too
            os.ftruncate(descriptor, 0)
            os.write(descriptor, b"%d\n" % pid)
        yield
    finally:
        os.close(descriptor)  # releases the lock


def is_there(path: str | os.PathLike[str]) -> bool:
    """Does the path exist?"""
    try:
        return Path(path).exists()
    except OSError:  # reported when it is opened
        return False


def is_crawl_folder(path: str | os.PathLike[str]) -> bool:
    """Is there a crawl folder, usable or not?"""
    return is_there(Path(path) / DESCRIPTION)


def _locked_within(descriptor: int, timeout_s: float) -> bool:
    """Wait for an exclusive lock; False when somebody else has it after the timeout."""
    deadline = time.monotonic() + timeout_s
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            if time.monotonic() >= deadline:
                return False
            time.sleep(EXCLUSIVE_POLL_S)


def open_or_create(path: str | os.PathLike[str], clock: Callable[[], float] = time.time) -> CrawlFolder:
    """Open the crawl folder at `path` for writing; create it when there is none.

    Raises UsageError when there is something else, ConflictError for another layout, ArchiveError when it can't be
    written.
    """
    root = Path(path)
    _check_name(root)
    try:
        make_private(root, parents=True)
    except (FileExistsError, NotADirectoryError):
        raise UsageError(f"{root} is a file; name a folder for the crawl") from None
    except OSError as error:
        raise archive_error("make the crawl folder", root, error) from None
    foreign = _foreign_names(root)
    if not (root / DESCRIPTION).exists():
        # The description is created first: without it, all other files are foreign.
        if foreign:
            raise UsageError(f"{root} is not a crawl folder, and not empty; name an empty or a new folder")
        _describe(root, Description(crawl=secrets.token_hex(8), layout=LAYOUT, created_at=clock()))
    folder = open_existing(root)
    if folder.description.layout < LAYOUT:
        _raise_layout(folder)
        folder = open_existing(root)
    _make_writable(folder)
    return folder


@contextlib.contextmanager
def open_or_borrow(path: str | os.PathLike[str]) -> Iterator[CrawlFolder]:
    """Open the crawl folder at `path`, or a temporary one when there is none.

    For commands that only query an engine elsewhere. Raises like `open_or_create`.
    """
    if Path(path).exists():
        yield open_or_create(path)
    else:
        with open_temporary() as folder:
            yield folder


@contextlib.contextmanager
def open_temporary() -> Iterator[CrawlFolder]:
    """A temporary crawl folder. Raises like `open_or_create`."""
    with tempfile.TemporaryDirectory(prefix="crawler-") as place:
        yield open_or_create(place)


def _check_name(root: Path) -> None:
    """The engine and the crawl's files store the path as text, so it must be UTF-8. Raises UsageError."""
    try:
        str(root.absolute()).encode()
        given_path.exists(root)
    except UnicodeEncodeError:
        raise UsageError(f"the path {root.absolute()} is not valid UTF-8: rename the folder, or use another") from None
    except OSError as error:
        if error.errno == errno.ENAMETOOLONG:
            raise UsageError(f"the path {str(root)[:60]}... is too long: use another folder") from None
        raise archive_error("find the folder", root, error) from None


def open_existing(path: str | os.PathLike[str]) -> CrawlFolder:
    """Open a crawl folder for reading; writes nothing. Raises UsageError, ConflictError, ArchiveError."""
    root = Path(path)
    _check_name(root)
    file = root / DESCRIPTION
    try:
        raw = file.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        raise UsageError(f"{root} is not a crawl folder ({DESCRIPTION} is missing)") from None
    except OSError as error:
        raise archive_error("read", file, error) from None
    try:
        if is_right(msgspec.json.format(raw, indent=-1)) is False:
            raise msgspec.DecodeError("its checksum is wrong")
        description = msgspec.json.decode(raw, type=Description)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise ArchiveError(f"{file} is damaged ({error}): restore it from a copy") from None
    if not OLDEST_LAYOUT <= description.layout <= LAYOUT:
        whose = "a newer" if description.layout > LAYOUT else "an older"
        raise ConflictError(
            f"{root} was created by {whose} release of the program (folder layout {description.layout}, this one "
            f"needs {LAYOUT}); use that release or another folder"
        )
    return CrawlFolder(root, description)


def _foreign_names(root: Path) -> list[str]:
    try:
        names = [path.name for path in root.iterdir()]
    except OSError as error:
        raise archive_error("read the crawl folder", root, error) from None
    return [n for n in names if n not in _ALLOWED_IN_EMPTY and not n.startswith(f".{DESCRIPTION}.")]


def _describe(root: Path, description: Description) -> None:
    """Write crawl.json atomically; of two concurrent calls the first one wins."""
    draft = root / f".{DESCRIPTION}.{description.crawl}"
    try:
        with open(draft, "xb", opener=open_private) as file:
            write_durably(file, [_text_of(description)])
        with contextlib.suppress(FileExistsError):
            (root / DESCRIPTION).hardlink_to(draft)
        draft.unlink()
        sync_directory(root)
    except OSError as error:
        with contextlib.suppress(OSError):
            draft.unlink(missing_ok=True)
        raise archive_error("make the crawl folder", root, error) from None


def _raise_layout(folder: CrawlFolder) -> None:
    """From now on the folder may have what earlier releases can't read."""
    path, raised = folder.root / DESCRIPTION, msgspec.structs.replace(folder.description, layout=LAYOUT)
    draft = folder.root / f".{DESCRIPTION}.{secrets.token_hex(4)}"
    try:
        replace_durably(path, draft, [_text_of(raised)])
    except OSError as error:
        raise archive_error("write", path, error) from None


def _text_of(description: Description) -> bytes:
    return msgspec.json.format(with_checksum(msgspec.json.encode(description)), indent=2) + b"\n"


def _make_writable(folder: CrawlFolder) -> None:
    """Create missing subfolders and test that bytes reach the disk, before anything is crawled."""
    try:
        for name in SUBFOLDERS:
            make_private(folder.root / name)
        probe = folder.tmp / f"probe-{secrets.token_hex(8)}"
        try:
            with open(probe, "xb", opener=open_private) as file:
                write_durably(file, [b"\0" * 4096])
        finally:
            probe.unlink(missing_ok=True)
    except OSError as error:
        raise archive_error("write to the crawl folder", folder.root, error) from None


class Life(enum.Enum):
    """State of a session by its lock file."""

    ALIVE = "alive"
    DEAD = "dead"
    UNKNOWN = "unknown"  # no lock file here: it ended normally, or is on another machine


def life_at(path: Path) -> Life:
    """Like `life_of`, by the lock file's path, which may be in another crawl's folder on this machine."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return Life.UNKNOWN
    except OSError as error:
        raise archive_error("read", path, error) from None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)  # shared: concurrent callers see the same
    except BlockingIOError:
        return Life.ALIVE
    finally:
        os.close(descriptor)
    return Life.DEAD
