"""Locks of the sessions on this machine: each session holds a file lock as long as it lives.

The kernel frees the lock when the process ends, however it ends, so a free lock proves death. A process id proves
nothing: it is reused, and means something else in another container. A count of users in a file is wrong after the
first kill. By this proof the same command goes on at once after a crash, where others would wait for seven seconds of
silence; and the last session of a folder stops its embedded engine, also when others were killed: whoever leaves looks,
under the folder's engine lock, whether another session is alive. Starting goes through the same lock, and adopts an
engine that was left running.

A lock is tried only where it means something: the member list has host, boot id and path of each. It shortens the wait
for a lease, not the politeness hold: what the dead session fetched last stays unknown. A network file system without
working `flock` is not supported.

The lock belongs to the open file, which a *forked* child shares: start helpers by exec, not by plain fork.
"""

import fcntl
import os
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from crawler.archive.folder import CrawlFolder, Holder, Life, archive_error, life_at, open_private
from crawler.errors import ConflictError


class SessionLock:
    """The lock of a living session; `close` it when the session ends normally."""

    def __init__(
        self,
        folder: CrawlFolder,
        session: str,
        *,
        node: str = "",
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Take the lock. Raises ConflictError when this session exists already, ArchiveError when the disk fails."""
        self.session = session
        self.path = _path(folder, session)
        draft = folder.tmp / f"{session}.session"
        holder = Holder(pid=os.getpid(), node=node, started=clock())
        try:
            self._descriptor = open_private(draft, os.O_RDWR | os.O_CREAT | os.O_EXCL)
        except FileExistsError:
            raise ConflictError(f"session {session} is being started by another process") from None
        except OSError as error:
            raise archive_error("write", draft, error) from None
        try:
            # Locked before it gets its name: a living session's file is never seen without its lock.
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.write(self._descriptor, msgspec.json.encode(holder))
            self.path.hardlink_to(draft)
        except OSError as error:
            os.close(self._descriptor)
            if isinstance(error, FileExistsError):
                raise ConflictError(f"session {session} exists already in {folder.root}") from None
            raise archive_error("write", self.path, error) from None
        finally:
            draft.unlink(missing_ok=True)

    def close(self) -> None:
        """Delete the session's file: it ended normally. May be called twice."""
        if self._descriptor >= 0:
            self.path.unlink(missing_ok=True)
            os.close(self._descriptor)
            self._descriptor = -1


def life_of(folder: CrawlFolder, session: str) -> Life:
    """Whether a session lives. Does not disturb it, nor other callers."""
    return life_at(_path(folder, session))


def is_abandoned(folder: CrawlFolder, session: str) -> bool:
    """Whether nobody writes any more to files that this session left open *in this folder*."""
    return life_of(folder, session) is not Life.ALIVE


def sessions(folder: CrawlFolder) -> list[str]:
    """Sessions that have a lock file here, alive or dead, whatever is in it."""
    return [path.stem for path in sorted(folder.sessions.glob("*.lock"))]


def _path(folder: CrawlFolder, session: str) -> Path:
    return folder.sessions / f"{session}.lock"
