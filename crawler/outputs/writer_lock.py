"""One writer for each file that results go to: a lock file next to it that names the writing process.

Also knows the names of what is hidden next to a target: locks, and drafts, which a killed writer leaves there.
"""

import contextlib
import errno
import fcntl
import hashlib
import os
import secrets
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from crawler.archive.folder import FREE_SOME, NO_ROOM, open_private
from crawler.errors import ArchiveError, ConflictError, CrawlerError, UsageError

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
