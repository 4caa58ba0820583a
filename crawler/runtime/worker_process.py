"""A helper process that answers requests one by one, and is killed when one takes too long."""

import asyncio
import contextlib
import sys
from collections.abc import Callable

from crawler.runtime.frames import HEAD, READY, framed

START_TIMEOUT_S = 60.0  # it loads the user's code, which may hang


class WorkerDiedError(Exception):
    """The process gave no answer: it took too long, was killed by the kernel, or crashed."""


class WorkerProcess:
    """Started on first use, and again after it died. One request at a time; others wait."""

    def __init__(self, *command: str) -> None:
        """`command`: arguments of the Python interpreter."""
        self._command = command
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
                await self.close()
                raise WorkerDiedError(type(error).__name__) from None
            except asyncio.CancelledError:
                await self.close()  # half an answer may be in the pipe
                raise

    async def _running(self) -> asyncio.subprocess.Process:
        if self._process is None or self._process.returncode is not None:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable, *self._command, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
            )
            assert self._process.stdout is not None
            async with asyncio.timeout(START_TIMEOUT_S):
                await self._process.stdout.readexactly(len(READY))
        return self._process

    async def close(self) -> None:
        """End the process."""
        process, self._process = self._process, None
        if process is not None and process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()


async def _answer(process: asyncio.subprocess.Process, request: bytes) -> bytes:
    stdin, stdout = process.stdin, process.stdout
    assert stdin is not None
    assert stdout is not None
    stdin.write(framed(request))
    await stdin.drain()
    (length,) = HEAD.unpack(await stdout.readexactly(HEAD.size))
    return await stdout.readexactly(length)
