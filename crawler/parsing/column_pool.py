"""Columns of many pages, in worker processes that may be killed: for exports, which run in threads and no event loop.

A process that dies takes no page with it: the columns of that page are asked for one by one then, and the one that it
died of has failed.
"""

import queue
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

import msgspec

from crawler.content.page_columns import Found, PageBody
from crawler.parsing.column_worker import CPU_S, Asked
from crawler.parsing.parse_worker import FAILED, HEAD, READY, framed
from crawler.redaction import learned

PROCESSES = 2
TIMEOUT_S = 60.0  # wall clock; the kernel ends the process after CPU_S
TOO_EXPENSIVE = f"took more than {CPU_S} s, or too much memory"
Result = TypeVar("Result")
_decode = msgspec.msgpack.Decoder(Found).decode
_COMMAND = (sys.executable, "-P", "-m", "crawler.parsing.column_worker")


class _WorkerDied(Exception):
    """The process gave no answer."""


class ColumnWorker:
    """One process, started with its first page, and again after it died. For one thread."""

    def __init__(self, command: tuple[str, ...] = _COMMAND, timeout_s: float = TIMEOUT_S) -> None:
        self._command, self._timeout_s = command, timeout_s
        self._process: subprocess.Popen[bytes] | None = None

    def columns(self, page: PageBody, names: tuple[str, ...]) -> Found:
        """Those of a page; of one that the process dies of, why."""
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
        process = self._running()
        request = msgspec.msgpack.encode(Asked(page=page, names=names, secrets=learned()))
        timer = threading.Timer(self._timeout_s, process.kill)
        timer.daemon = True
        timer.start()
        try:
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write(framed(request))
            process.stdin.flush()
            head = process.stdout.read(HEAD.size)
            if len(head) < HEAD.size or HEAD.unpack(head)[0] == FAILED:
                raise _WorkerDied
            answer = process.stdout.read(HEAD.unpack(head)[0])
            if len(answer) < HEAD.unpack(head)[0]:
                raise _WorkerDied
            return _decode(answer)
        except (OSError, ValueError, _WorkerDied, msgspec.MsgspecError):
            self.close()
            raise _WorkerDied from None
        finally:
            timer.cancel()

    def _running(self) -> "subprocess.Popen[bytes]":
        if self._process is None:
            self._process = subprocess.Popen(
                self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
            )
            assert self._process.stdout is not None
            if self._process.stdout.read(len(READY)) != READY:
                self.close()
                raise RuntimeError("the process that reads pages does not start")
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
        return self._threads.submit(self._with_worker, find)

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
