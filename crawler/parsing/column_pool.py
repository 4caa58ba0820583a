"""Columns of many pages, in worker processes that may be killed: for exports, which run in threads and no event loop.

A process that dies takes no page with it: the columns of that page are asked for one by one then, and the one that it
died of has failed.
"""

import contextlib
import queue
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import IO, TypeVar

import msgspec

from crawler.content.page_columns import Found, PageBody
from crawler.parsing.column_worker import CPU_S, Asked, LibraryError
from crawler.parsing.parse_worker import FAILED, HEAD, READY, framed
from crawler.redaction import learned
from crawler.rules.text import one_line

PROCESSES = 2
START_S = 60.0
WHY_CHARS_MAX = 200
TIMEOUT_S = 60.0  # wall clock; the kernel ends the process after CPU_S
TOO_EXPENSIVE = f"took more than {CPU_S} s, or too much memory"
Result = TypeVar("Result")
_decode = msgspec.msgpack.Decoder(Found).decode
_NOT_STARTED = "their process does not start ({})"
_COMMAND = (sys.executable, "-P", "-m", "crawler.parsing.column_worker")


class NoProcessError(Exception):
    """No process can find columns here, whatever the page: why, in one line."""


class _WorkerDied(Exception):
    """The process gave no answer."""


class ColumnWorker:
    """One process, started with its first page, and again after it died. For one thread."""

    def __init__(self, command: tuple[str, ...] = _COMMAND, timeout_s: float = TIMEOUT_S) -> None:
        self._command, self._timeout_s = command, timeout_s
        self._process: subprocess.Popen[bytes] | None = None

    def columns(self, page: PageBody, names: tuple[str, ...]) -> Found:
        """Those of a page; of one that the process dies of, why. Raises NoProcessError."""
        try:
            return self._ask(page, names)
        except _WorkerDied:
            if len(names) == 1:
                return Found(columns={names[0]: None}, failed={names[0]: TOO_EXPENSIVE})
        found = [self.columns(page, (name,)) for name in names]
        return Found(
            columns={name: value for one in found for name, value in one.columns.items()},
            failed={name: why for one in found for name, why in one.failed.items()},
        )

    def _ask(self, page: PageBody, names: tuple[str, ...]) -> Found:
        request = msgspec.msgpack.encode(Asked(page=page, names=names, secrets=learned()))
        try:
            process = self._running()
            assert process.stdin is not None
            assert process.stdout is not None
            with _killed_after(process, self._timeout_s):
                process.stdin.write(framed(request))
                process.stdin.flush()
                return _decode(_answer(process.stdout))
        except (OSError, ValueError, _WorkerDied, msgspec.MsgspecError):
            self.close()
            raise _WorkerDied from None
        except NoProcessError:
            self.close()
            raise

    def _running(self) -> "subprocess.Popen[bytes]":
        if self._process is None:
            try:
                self._process = subprocess.Popen(
                    self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
                )
            except OSError as error:
                raise NoProcessError(_NOT_STARTED.format(error.strerror or type(error).__name__)) from None
            assert self._process.stdout is not None
            with _killed_after(self._process, START_S):
                is_ready = self._process.stdout.read(len(READY)) == READY
            if not is_ready:
                raise NoProcessError(_NOT_STARTED.format(_why_not_ready(self._command)))
        return self._process

    def close(self) -> None:
        """End the process."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    try:
                        pipe.close()
                    except OSError:
                        continue  # half a request is in its buffer
            process.wait()


@contextlib.contextmanager
def _killed_after(process: "subprocess.Popen[bytes]", seconds: float) -> Iterator[None]:
    timer = threading.Timer(seconds, process.kill)
    timer.daemon = True
    try:
        timer.start()
    except RuntimeError as error:
        raise NoProcessError(str(error)) from None
    try:
        yield
    finally:
        timer.cancel()


def _answer(stdout: IO[bytes]) -> bytes:
    """Raises _WorkerDied, and NoProcessError where no page is to blame."""
    if (text := _frame(stdout)) is not None:
        return text
    failure = (_frame(stdout) or b"").decode("utf-8", "replace")
    kind, _, why = failure.partition(": ")
    raise NoProcessError(one_line(why)) if kind == LibraryError.__name__ else _WorkerDied


def _frame(stdout: IO[bytes]) -> bytes | None:
    """None for the mark of a failure."""
    head = stdout.read(HEAD.size)
    if len(head) < HEAD.size:
        raise _WorkerDied
    (length,) = HEAD.unpack(head)
    if length == FAILED:
        return None
    if len(data := stdout.read(length)) < length:
        raise _WorkerDied
    return data


def _why_not_ready(command: tuple[str, ...]) -> str:
    """What the process says when it is started once more, and alone: nobody hears it otherwise."""
    try:
        ran = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=START_S, check=False)
    except subprocess.TimeoutExpired:
        return f"it is not ready after {START_S:g} s"
    except OSError as error:
        return error.strerror or type(error).__name__
    said = [line for line in ran.stderr.decode("utf-8", "replace").splitlines() if line.strip()]
    return one_line(said[-1])[:WHY_CHARS_MAX] if said and ran.returncode else f"it ended with code {ran.returncode}"


class ColumnPool:
    """A few processes. Starts nothing before its first page."""

    def __init__(self, processes: int = PROCESSES) -> None:
        self._threads: ThreadPoolExecutor | None = None
        self._processes = processes
        self._workers: queue.SimpleQueue[ColumnWorker] = queue.SimpleQueue()
        self._all = [ColumnWorker() for _ in range(processes)]
        for worker in self._all:
            self._workers.put(worker)

    def submit(self, find: Callable[[ColumnWorker], Result]) -> "Future[Result]":
        """Run this in a thread, with a process of its own."""
        if self._threads is None:
            self._threads = ThreadPoolExecutor(self._processes, thread_name_prefix="columns")
        try:
            return self._threads.submit(self._with_worker, find)
        except RuntimeError as error:  # no thread starts: too little memory, or too many there
            failed = Future[Result]()
            failed.set_exception(NoProcessError(str(error)))
            return failed

    def _with_worker(self, find: Callable[[ColumnWorker], Result]) -> Result:
        worker = self._workers.get()
        try:
            return find(worker)
        finally:
            self._workers.put(worker)

    def close(self) -> None:
        """End the processes, and don't wait for what they are at."""
        if self._threads is not None:
            self._threads.shutdown(wait=False, cancel_futures=True)
        for worker in self._all:
            worker.close()
        if self._threads is not None:
            self._threads.shutdown()
