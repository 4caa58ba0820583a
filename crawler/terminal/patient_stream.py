"""Standard error that never holds up a crawl: what a stopped terminal or a full pipe does not take is dropped.

A write to a terminal after Ctrl-S, or to a pipe that nobody reads, would block the event loop until leases are lost.
"""

import contextlib
import io
import os
import select
import stat
import sys
from collections.abc import Iterator
from typing import TextIO

PATIENCE_S = 0.1  # for a reader that is only slow; none for one that did not come back since


class PatientStream(io.TextIOBase):
    """Writes to a descriptor that does not block. After a gap it tells how many lines are missing."""

    def __init__(self, stream: TextIO, descriptor: int) -> None:
        self._stream = stream
        self._descriptor = descriptor
        self._dropped = 0
        self._is_stuck = False

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return self._stream.encoding

    def isatty(self) -> bool:
        return self._stream.isatty()

    def fileno(self) -> int:
        return self._stream.fileno()

    def writable(self) -> bool:
        return True

    def write(self, text: str) -> int:
        """Write it, or drop what the reader does not take. Raises BrokenPipeError when there is no reader."""
        if self._descriptor < 0:
            return self._stream.write(text)
        data = text.encode(self.encoding)
        if self._dropped and self._has_room(0):
            data = f"\n... {self._dropped:,} lines are missing here: nobody read them\n".encode() + data
            self._dropped = 0
        left = memoryview(data)
        while left:
            try:
                left = left[os.write(self._descriptor, left) :]
                self._is_stuck = False
            except BlockingIOError:
                if self._is_stuck or not self._has_room(PATIENCE_S):
                    self._is_stuck = True
                    self._dropped += bytes(left).count(b"\n") or 1
                    break
        return len(text)

    def restore(self) -> None:
        """Whoever still has this stream, like a log, writes to the one that it replaced."""
        os.close(self._descriptor)
        self._descriptor = -1

    def _has_room(self, patience_s: float) -> bool:
        waiting = select.poll()
        waiting.register(self._descriptor, select.POLLOUT)
        return bool(waiting.poll(patience_s * 1000))


@contextlib.contextmanager
def patient_stderr() -> Iterator[None]:
    """Replace `sys.stderr` meanwhile, where it is a terminal or a pipe."""
    before, descriptor = sys.stderr, _reopened(sys.stderr)
    if descriptor < 0:
        yield
        return
    sys.stderr = patient = PatientStream(before, descriptor)
    try:
        yield
    finally:
        sys.stderr = before
        patient.restore()


def _reopened(stream: TextIO) -> int:
    """A descriptor of its own: O_NONBLOCK on the inherited one would hold for the shell, too. -1: not possible."""
    try:
        number = stream.fileno()
        mode = os.fstat(number).st_mode
        if stat.S_ISFIFO(mode) or os.isatty(number):
            stream.flush()
            return os.open(f"/proc/self/fd/{number}", os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    except (OSError, ValueError, AttributeError):
        pass
    return -1
