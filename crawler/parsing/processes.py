"""Worker processes: started when needed, one request at a time each, domains in turns."""

import asyncio
import contextlib
import signal
import sys
from collections import deque
from collections.abc import Callable

from crawler.parsing.parse_worker import FAILED, HEAD, READY, framed

START_TIMEOUT_S = 60.0  # it loads the user's code, which may hang
END_TIMEOUT_S = 1.0  # between the end of a process's stdout and its own


class WorkerDiedError(Exception):
    """The process gave no answer: it took too long, was killed by the kernel, crashed, or failed on the request."""


class WorkerProcess:
    """Started on first use, and again after it died. One request at a time; others wait."""

    def __init__(self, *command: str, is_silent: bool = False) -> None:
        """`command`: arguments of the Python interpreter. `is_silent`: what it prints on stderr goes nowhere."""
        self._command = command
        self._stderr = asyncio.subprocess.DEVNULL if is_silent else None
        self._process: asyncio.subprocess.Process | None = None
        self._lock = asyncio.Lock()

    async def ask(self, request: Callable[[], bytes], timeout_s: float) -> bytes:
        """Its answer. Raises WorkerDiedError. The start of the process does not count towards the timeout.

        The request is encoded only when it is sent: those that wait hold no copy of their page.
        """
        async with self._lock:
            try:
                process = await self._running()
                async with asyncio.timeout(timeout_s):
                    return await _answer(process, request())
            except (TimeoutError, asyncio.IncompleteReadError, OSError) as error:
                died = await self._end_of_dead() if isinstance(error, asyncio.IncompleteReadError) else ""
                await self.close()
                raise WorkerDiedError(died or type(error).__name__) from None
            except (WorkerDiedError, asyncio.CancelledError):
                await self.close()  # it ends by itself, or half an answer may be in the pipe
                raise

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.returncode is None

    async def _running(self) -> asyncio.subprocess.Process:
        if self._process is None or not self.is_running:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable, *self._command,
                stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=self._stderr,
            )  # fmt: skip
            assert self._process.stdout is not None
            async with asyncio.timeout(START_TIMEOUT_S):
                await self._process.stdout.readexactly(len(READY))
        return self._process

    async def _end_of_dead(self) -> str:
        """How the process ended that closed its stdout: by which signal, or with which exit code; "" if it lives."""
        if self._process is None:
            return ""
        try:
            async with asyncio.timeout(END_TIMEOUT_S):
                code = await self._process.wait()
        except TimeoutError:
            return ""
        try:
            return signal.Signals(-code).name if code < 0 else f"exit code {code}"
        except ValueError:  # a real-time signal has no name
            return f"signal {-code}"

    def kill(self) -> None:
        """End the process, but don't wait for its end."""
        process, self._process = self._process, None
        if process is not None and process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()

    async def close(self) -> None:
        """End the process."""
        process = self._process
        self.kill()
        if process is not None:
            await process.wait()


class WorkerPool:
    """Worker processes for the pages of many domains. Each is started when no other has been free for a time.

    Those who wait take turns by domain. Domains that are known to take long come after the others and never hold the
    last process: however many they are, the page of another domain does not wait for theirs.
    """

    def __init__(
        self, workers: list[WorkerProcess], *, start_after_s: float = 0.0, idle_s: float | None = None
    ) -> None:
        """`start_after_s`: when pages have waited for so long without a break, the next process is started. `idle_s`:
        processes without a request for this long are ended.
        """
        self._workers = workers
        self._free = workers[::-1]  # the one that was used last is at the end
        self._start_after_s = start_after_s
        self._start_timer: asyncio.TimerHandle | None = None
        self._idle_s = idle_s
        self._idle_timer: asyncio.TimerHandle | None = None
        self._slow_active = 0
        self._slow_max = max(1, len(workers) - 1)
        self._waiting: dict[bool, dict[str, deque[asyncio.Future[WorkerProcess]]]] = {False: {}, True: {}}

    async def ask(self, domain: str, request: Callable[[], bytes], timeout_s: float, *, is_slow: bool = False) -> bytes:
        """The answer of a process, see `WorkerProcess.ask`. `is_slow`: pages of this domain are known to take long."""
        turn: asyncio.Future[WorkerProcess] = asyncio.get_running_loop().create_future()
        self._waiting[is_slow].setdefault(domain, deque()).append(turn)
        self._hand_out()
        try:
            worker = await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self._release(turn.result(), is_slow=is_slow)
            raise
        try:
            return await worker.ask(request, timeout_s)
        finally:
            self._release(worker, is_slow=is_slow)

    def _release(self, worker: WorkerProcess, *, is_slow: bool) -> None:
        self._slow_active -= is_slow
        self._free.append(worker)
        self._hand_out()
        if self._start_timer is not None and not any(self._waiting.values()):
            self._start_timer.cancel()
            self._start_timer = None
        if self._idle_s is not None and len(self._free) == len(self._workers):
            if self._idle_timer is not None:
                self._idle_timer.cancel()
            self._idle_timer = asyncio.get_running_loop().call_later(self._idle_s, self._end_idle)

    def _hand_out(self, *, may_start: bool = False) -> None:
        while self._free:
            is_slow = not self._waiting[False]
            if is_slow and (not self._waiting[True] or self._slow_active >= self._slow_max):
                return
            is_start = not self._free[-1].is_running and len(self._free) < len(self._workers)
            if is_start and self._start_after_s and not may_start:
                if self._start_timer is None:
                    self._start_timer = asyncio.get_running_loop().call_later(self._start_after_s, self._start)
                return
            may_start &= not is_start
            waiting = self._waiting[is_slow]
            domain = next(iter(waiting))
            turns = waiting.pop(domain)
            turn = turns.popleft()
            if turns:
                waiting[domain] = turns  # behind the others
            if not turn.done():  # cancelled
                self._slow_active += is_slow
                turn.set_result(self._free.pop())

    def _start(self) -> None:
        self._start_timer = None
        self._hand_out(may_start=True)

    def _end_idle(self) -> None:
        """No page came for long."""
        if len(self._free) == len(self._workers):
            for worker in self._workers:
                worker.kill()

    async def close(self) -> None:
        """End the processes."""
        for timer in (self._start_timer, self._idle_timer):
            if timer is not None:
                timer.cancel()
        for worker in self._workers:
            await worker.close()


async def _answer(process: asyncio.subprocess.Process, request: bytes) -> bytes:
    stdin, stdout = process.stdin, process.stdout
    assert stdin is not None
    assert stdout is not None
    stdin.write(framed(request))
    await stdin.drain()
    (length,) = HEAD.unpack(await stdout.readexactly(HEAD.size))
    if length == FAILED:
        (length,) = HEAD.unpack(await stdout.readexactly(HEAD.size))
        raise WorkerDiedError((await stdout.readexactly(length)).decode("utf-8", "replace"))
    return await stdout.readexactly(length)
