"""The in-flight log: which URLs' content a session was working on when its process died.

A small file next to the session's lock, mapped into memory: writing needs no system call, and the kernel keeps what was
written when the process is killed. Only URLs that are being processed are marked: one whose response is awaited can't
have ended the process. (A power cut may lose the file, but then no URL in it was the cause.)

A note in the engine before each request would cost a tenth of an ack, for something that is read only after a death;
the marks here cost some 4 us a page. Whoever removes the dead session from the member list reads its file, and records
the crash in the engine, once for each death and URL, before it acquires anything (membership/crashes.py). To list every
URL with an open request, or to count each claim that was never heard of again, blames innocent ones. Not covered: a
session that died on a machine where nobody else of the crawl runs, if its folder is gone.
"""

import contextlib
import enum
import mmap
import os
import struct
from collections.abc import Coroutine, Generator, Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar
from zlib import crc32

import msgspec

from crawler import disk_sync
from crawler.archive.folder import CrawlFolder, Life, archive_error, life_at, open_private
from crawler.errors import ArchiveError

SUFFIX = ".started"
STALL_SUFFIX = ".stall"
SLOT_BYTES = 256
# A slot: 1 while the event loop works on it; an `Aside`; `_URL`; the CRC-32 of that and of the URL; the URL.
_FLAGS = 2
_URL = struct.Struct("<Hiq")  # bytes of the URL, partition, fingerprint
_CRC = struct.Struct("<I")
_HEAD_BYTES = _FLAGS + _URL.size + _CRC.size
_LOOP_LINE = "Event loop "  # before the stacks: the loop's thread
_CURRENT_LINE = "Current thread "  # of faulthandler: the thread that was running
SHOWN_BYTES_MAX = SLOT_BYTES - _HEAD_BYTES  # of a URL

T = TypeVar("T")


def beginning_of(url: str) -> bytes:
    """The part of a URL that the log stores."""
    return url.encode("utf-8", "replace")[:SHOWN_BYTES_MAX]


class Aside(enum.IntEnum):
    """How a page is processed outside the event loop's own steps."""

    NOTHING = 0
    THREAD = 1  # a thread works on its content
    HANDLER = 2  # an asynchronous handler has it, and waits or has started its own threads


@lru_cache(maxsize=1024)  # a page is marked at six steps, and fewer than this many are between two of them
def _slot(partition: int, fingerprint: str, url: str) -> bytes:
    """What is written for a URL that is not being processed."""
    shown = beginning_of(url)
    head = _URL.pack(len(shown), partition, int(fingerprint))
    return b"\0\0" + head + _CRC.pack(crc32(shown, crc32(head))) + shown


class InflightMark:
    """One slot of the log: a URL, and whether its content is being processed. Not reentrant."""

    __slots__ = ("_at", "_map")

    def __init__(self, log: mmap.mmap, at: int) -> None:
        self._map = log
        self._at = at

    def set(self, partition: int, fingerprint: str, url: str) -> None:
        """Use the slot for this URL, which is not being processed yet."""
        slot, at = _slot(partition, fingerprint, url), self._at
        self._map[at : at + len(slot)] = slot

    def __enter__(self) -> None:
        """The event loop works on the content until `__exit__`: for a section without `await`."""
        self._map[self._at] = 1

    def __exit__(self, *_: object) -> None:
        self._map[self._at] = 0

    @contextlib.contextmanager
    def aside(self, how: Aside) -> Iterator[None]:
        """The content is processed in this way, while the event loop continues."""
        self._map[self._at + 1] = how
        try:
            yield
        finally:
            self._map[self._at + 1] = Aside.NOTHING

    def during(self, work: Coroutine[Any, Any, T]) -> "_Marked[T]":
        """An awaitable for `work` that sets the mark while it runs, and not while it waits."""
        return _Marked(work, self)


class _Marked(Coroutine[Any, Any, T]):
    """Passes every step on to a coroutine."""

    __slots__ = ("_mark", "_work")

    def __init__(self, work: Coroutine[Any, Any, T], mark: InflightMark) -> None:
        self._work = work
        self._mark = mark

    def send(self, value: Any) -> Any:
        with self._mark:
            return self._work.send(value)

    def throw(self, *error: Any) -> Any:
        with self._mark:
            return self._work.throw(*error)

    def close(self) -> None:
        self._work.close()

    def __await__(self) -> Generator[Any, Any, T]:
        result: T = yield from self
        return result

    def __iter__(self) -> "_Marked[T]":
        return self

    def __next__(self) -> Any:
        return self.send(None)


class InflightLog:
    """The log of one session. `slots`: the maximum number of marks."""

    def __init__(self, folder: CrawlFolder, session: str, *, slots: int) -> None:
        """Raises ArchiveError when the disk fails."""
        self._path = folder.sessions / f"{session}{SUFFIX}"
        self.stall_path = stacks_path(folder, session)
        size = slots * SLOT_BYTES
        try:
            descriptor = open_private(self._path, os.O_RDWR | os.O_CREAT | os.O_EXCL)
            try:
                disk_sync.reserve(descriptor, size)  # a full disk fails here, not with a signal later
                self._map = mmap.mmap(descriptor, size)
            finally:
                os.close(descriptor)
        except OSError as error:
            raise archive_error("write", self._path, error) from None
        self._free = iter(range(0, size, SLOT_BYTES))

    def mark(self) -> InflightMark:
        """A new mark, for as long as the session lives."""
        return InflightMark(self._map, next(self._free))

    def close(self) -> None:
        """Delete the log: the session ended normally."""
        self._map.close()
        self._path.unlink(missing_ok=True)
        self.stall_path.unlink(missing_ok=True)


def stacks_path(folder: CrawlFolder, session: str) -> Path:
    """The file for the stacks of a session's threads when its event loop stalls."""
    return folder.sessions / f"{session}{STALL_SUFFIX}"


class Suspect(msgspec.Struct, frozen=True):
    """A URL whose content was being processed when the process died."""

    partition: int
    fingerprint: str
    url: str  # its beginning
    in_loop: bool = False
    aside: Aside = Aside.NOTHING


class DeadSession(msgspec.Struct, frozen=True):
    """A session that died. `stacks`: of its threads when it stalled; "" when it ended otherwise. `damaged`: records of
    its log that were left out.
    """

    session: str
    suspects: tuple[Suspect, ...]
    stacks: str
    path: Path
    damaged: int = 0

    @property
    def blamed(self) -> tuple[Suspect, ...]:
        """The suspects that may have ended the process: those that ran, if any did."""
        if not self.stacks:
            running = [one for one in self.suspects if one.in_loop or one.aside is Aside.THREAD]
            return tuple(running or self.suspects)
        if self._ran_in_loop():
            return tuple(one for one in self.suspects if one.in_loop)
        # The loop may have been in the middle of a step, waiting for the interpreter lock.
        aside = [one for one in self.suspects if one.aside]
        return tuple([one for one in aside if one.aside is Aside.THREAD] or aside)

    @property
    def is_certain(self) -> bool:
        """Is there one suspect that would certainly stall the next process, too?"""
        return bool(self.stacks) and len(self.blamed) == 1

    def _ran_in_loop(self) -> bool:
        lines = self.stacks.splitlines()
        loop = next((line for line in lines if line.startswith(_LOOP_LINE)), "")
        current = next((line for line in lines if line.startswith(_CURRENT_LINE)), "")
        return _thread_in(loop) == _thread_in(current)

    def forget(self) -> None:
        """Delete the files, after the crash was recorded."""
        self.path.with_suffix(STALL_SUFFIX).unlink(missing_ok=True)
        self.path.unlink(missing_ok=True)


def dead_sessions(sessions: Path) -> Iterator[DeadSession]:
    """The logs in a crawl folder's `sessions` whose processes are dead. Unreadable ones are left out."""
    for path in sorted(sessions.glob(f"*{SUFFIX}")):
        with contextlib.suppress(OSError, ArchiveError):
            if life_at(path.with_suffix(".lock")) is Life.ALIVE:
                continue
            stall = path.with_suffix(STALL_SUFFIX)
            stacks = stall.read_text("utf-8", "replace") if stall.exists() else ""
            if _CURRENT_LINE not in stacks:
                stacks = ""  # the file exists from the start
            slots = list(_suspects(path.read_bytes()))
            found = tuple(one for one in slots if one is not None)
            yield DeadSession(path.stem, found, stacks, path, len(slots) - len(found))


def loop_line(thread: int) -> str:
    """The first line of the file with the stacks: the number of the event loop's thread."""
    return f"{_LOOP_LINE}{thread:#018x}\n"


def _thread_in(line: str) -> str:
    return line.removeprefix(_LOOP_LINE).removeprefix(_CURRENT_LINE).partition(" ")[0]


def _suspects(data: bytes) -> Iterator[Suspect | None]:
    """What is in each slot in use; None: its record is damaged."""
    for at in range(0, len(data), SLOT_BYTES):
        slot = data[at : at + SLOT_BYTES]
        if not any(slot[:_FLAGS]):
            continue
        head, crc = slot[_FLAGS : _HEAD_BYTES - _CRC.size], slot[_HEAD_BYTES - _CRC.size : _HEAD_BYTES]
        length = int.from_bytes(head[:2], "little")
        shown = slot[_HEAD_BYTES : _HEAD_BYTES + length]
        if slot[0] > 1 or slot[1] > Aside.HANDLER or crc != _CRC.pack(crc32(shown, crc32(head))):
            yield None
            continue
        _, partition, fingerprint = _URL.unpack(head)
        yield Suspect(partition, str(fingerprint), shown.decode("utf-8", "replace"), bool(slot[0]), Aside(slot[1]))
