"""N instances on this machine: start, restart with back-off, stop in order; no child outlives its parent.

Each child's standard input is a pipe that nobody writes to: it ends when the parent is gone, however it went, and the
child then stops in order. Children are in a session of their own, so a terminal's Ctrl-C reaches only the parent.
Knows commands and exit codes; nothing of crawls.
"""

import asyncio
import contextlib
import signal
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from crawler.errors import CrawlerError, Stopped

RESTARTS_MAX = 3
BACKOFF_S = 1.0  # before the first restart; doubled for each further one
STEADY_S = 300.0  # a child that ran for so long starts its count of restarts afresh
USELESS = frozenset({2, 4, 5})  # bad settings, a taken node, a full disk: the same again would end the same


class GaveUpError(CrawlerError):
    """An instance ended again and again; the others were stopped."""

    exit_code = 1

    def __init__(self, message: str, exit_code: int) -> None:
        super().__init__(message)
        self.exit_code = exit_code


@dataclass(slots=True)
class Child:
    """One place for an instance, and the process that has it now."""

    name: str
    command: Sequence[str]
    process: asyncio.subprocess.Process | None = None
    restarts: int = 0
    code: int | None = None
    last_words: str = ""
    started_s: float = field(default=0.0)


class Supervisor:
    """Starts `commands` (name -> argument list) and waits for them. `say` gets one line for each thing of note."""

    def __init__(
        self,
        commands: Mapping[str, Sequence[str]],
        *,
        environment: Mapping[str, str],
        say: Callable[[str], None],
        backoff_s: float = BACKOFF_S,
    ) -> None:
        self._children = [Child(name, command) for name, command in commands.items()]
        self._environment = dict(environment)
        self._say = say
        self._backoff_s = backoff_s
        self._stopping = asyncio.Event()
        self._failure: GaveUpError | None = None

    @property
    def was_stopped(self) -> bool:
        return self._stopping.is_set()

    async def run(self) -> None:
        """Until every child has ended for good. Raises GaveUpError when one could not be kept running."""
        keepers = [asyncio.create_task(self._keep(child)) for child in self._children]
        try:
            await asyncio.gather(*keepers)
        finally:
            self.kill()
            for keeper in keepers:
                keeper.cancel()
            await asyncio.gather(*keepers, return_exceptions=True)
        if self._failure is not None:
            raise self._failure

    def stop(self) -> None:
        """Ask all children to stop in order."""
        self._stopping.set()
        self._signal(signal.SIGTERM)

    def kill(self) -> None:
        """End what still runs at once."""
        self._signal(signal.SIGKILL)

    def _signal(self, number: signal.Signals) -> None:
        for child in self._children:
            if child.process is not None and child.process.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    child.process.send_signal(number)

    async def _keep(self, child: Child) -> None:
        """Run one child until it ends as it should, or too often as it should not."""
        loop = asyncio.get_running_loop()
        while True:
            child.started_s = loop.time()
            child.code = await self._run_once(child)
            if child.code == 0 or (self.was_stopped and child.code == Stopped.exit_code):
                return
            if self.was_stopped:
                self._say(f"instance {child.name} {_ending(child)}")
                return
            if loop.time() - child.started_s >= STEADY_S:
                child.restarts = 0
            if child.code in USELESS or child.restarts >= RESTARTS_MAX:
                self._give_up(child)
                return
            await self._pause(child)
            if self._stopping.is_set():
                return

    async def _pause(self, child: Child) -> None:
        wait_s = self._backoff_s * 2**child.restarts
        child.restarts += 1
        self._say(f"instance {child.name} {_ending(child)}; starting it again in {wait_s:g} s")
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._stopping.wait(), wait_s)

    def _give_up(self, child: Child) -> None:
        tries = f" {child.restarts + 1} times" if child.restarts else ""
        code = child.code if child.code in USELESS else 1
        self._failure = self._failure or GaveUpError(
            f"instance {child.name} {_ending(child)}{tries}: the others were stopped; nothing is lost", code or 1
        )
        self.stop()

    async def _run_once(self, child: Child) -> int:
        process = await asyncio.create_subprocess_exec(
            *child.command,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
            env=self._environment,
            start_new_session=True,
        )
        child.process = process
        if self.was_stopped:
            process.send_signal(signal.SIGTERM)
        assert process.stderr is not None
        child.last_words = ""
        while line := await process.stderr.readline():
            self._heard(child, line.decode(errors="replace").rstrip())
        return await process.wait()

    def _heard(self, child: Child, line: str) -> None:
        if line.startswith("crawler: "):
            child.last_words = line.removeprefix("crawler: ")
        elif line:
            self._say(f"[{child.name}] {line}")


def _ending(child: Child) -> str:
    """Like "was killed (SIGKILL)", "ended with exit code 3 (no answer from the engine)"."""
    assert child.code is not None
    if child.code < 0:
        return f"was killed ({signal.Signals(-child.code).name})"
    return f"ended with exit code {child.code}" + (f" ({child.last_words})" if child.last_words else "")
