"""One place for an instance and the process that has it now: started, listened to, started again or given up.

The child's standard input is a pipe that nobody writes to: it ends when the parent is gone, however it went, and the
child then stops in order. Children are in a session of their own, so a terminal's Ctrl-C reaches only the parent.
Knows commands and exit codes; nothing of crawls, nor of the other children.
"""

import asyncio
import contextlib
import enum
import logging
import os
import signal
import time
from collections.abc import Callable, Mapping, Sequence

import msgspec

from crawler import process_table
from crawler.errors import ArchiveError, ConflictError, EngineError, Killed, OutageError, Stopped, UsageError

log = logging.getLogger(__name__)

# A page that kills the process costs three deaths until it is given up, and there may be two of them at once.
RESTARTS_MAX = 8
BACKOFF_S = 1.0  # before the first restart; doubled for each further one
BACKOFF_MAX_S = 15.0
ENGINE_PAUSES = 5  # times BACKOFF_S: between two tries while the engine does not serve
STEADY_S = 60.0  # a child that ran this long has its count of restarts reset
LAST_WORDS_S = 0.5  # a helper of a dead child may hold its pipe open: do not wait for that one's end
CHUNK = 65_536

# The same again would end the same.
USELESS = frozenset({UsageError.exit_code, ArchiveError.exit_code, OutageError.exit_code})
ASIDE = frozenset({Stopped.exit_code, Killed.exit_code})  # somebody stopped it on purpose


class ChildState(enum.StrEnum):
    """What people see of a child."""

    STARTING = "starting"  # the process runs, its instance has not joined the crawl yet
    QUARANTINED = "quarantined"  # it came back so often lately that it has to wait for a share
    RUNNING = "running"
    RESTARTING = "restarting"  # it died, and waits for its next start
    STOPPING = "stopping"
    GAVE_UP = "gave up"


class End(enum.Enum):
    """How a child ended permanently."""

    DONE = "done"  # nothing is left to crawl, or a limit is reached
    STOPPED = "stopped"  # as we asked
    LEFT = "left"  # somebody else stopped it on purpose, or put it off the crawl
    CONFLICT = "conflict"  # somebody has its name, or its folder
    GAVE_UP = "gave up"


class Deaths(msgspec.Struct):
    """Deaths without a steady life in between, and what follows from them."""

    backoff_s: float
    count: int = 0

    def pause_after(self, lived_s: float, code: int) -> float | None:
        """Seconds until the next start; None: not again. An engine that is down is waited for as long as it takes."""
        if lived_s >= STEADY_S:
            self.count = 0
        if code == EngineError.exit_code:
            return self.backoff_s * ENGINE_PAUSES
        if code in USELESS or self.count >= RESTARTS_MAX:
            return None
        self.count += 1
        return min(self.backoff_s * 2.0 ** (self.count - 1), BACKOFF_MAX_S)


class Child:
    """`live` is its whole life; `say` gets its messages, `warn` its failures, a line each."""

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        *,
        environment: Mapping[str, str],
        say: Callable[[str], None],
        warn: Callable[[str], None],
        backoff_s: float = BACKOFF_S,
    ) -> None:
        self.name = name
        self.restarts = 0
        self.said = ""  # its last message
        self.how = ""  # how it ended last
        self.code = 0
        self.state = ChildState.STARTING
        self.since_s = time.monotonic()
        self.due_s = 0.0  # monotonic: when it is started again
        self._command = command
        self._environment = environment
        self._say = say
        self._warn = warn
        self._deaths = Deaths(backoff_s)
        self._process: asyncio.subprocess.Process | None = None
        self._asked = asyncio.Event()
        self._why = ""

    @property
    def last_words(self) -> str:
        """For people: how it ended last, or its last message."""
        return self.how or self.said

    @property
    def deaths(self) -> int:
        """Those in a row."""
        return self._deaths.count + 1

    @property
    def pid(self) -> int:
        """Of the process that runs now, or 0."""
        return self._process.pid if self._process is not None and self._process.returncode is None else 0

    @property
    def is_asked_to_stop(self) -> bool:
        return self._asked.is_set()

    @property
    def was_evicted(self) -> bool:
        return "evicted" in self.said

    def is_paused(self) -> bool:
        """Stopped by a signal or a debugger: somebody wants it so."""
        return process_table.is_stopped(self.pid)

    def is_seen(self, state: ChildState) -> None:
        """Its instance is on the member list: it takes part, or is quarantined."""
        if self.state in (ChildState.STARTING, ChildState.QUARANTINED, ChildState.RUNNING) and state is not self.state:
            self._be(state)

    def stop(self) -> None:
        """Ask it to stop in order; it is not started again."""
        if not self._asked.is_set() and self.state is not ChildState.GAVE_UP:
            self._asked.set()
            self._be(ChildState.STOPPING)
            self._signal(signal.SIGTERM)

    def kill(self, *, hung: str = "") -> None:
        """End its process at once. `hung` says why: then it is started again."""
        self._why = f"hung ({hung}) and was killed" if hung else ""
        self._signal(signal.SIGKILL)

    def wait_dead(self, timeout_s: float) -> None:
        """Block until a killed process is dead, and its locks are free. Does not use the event loop."""
        deadline = time.monotonic() + timeout_s
        with contextlib.suppress(ChildProcessError):
            while self.pid and time.monotonic() < deadline:
                if os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT | os.WNOHANG) is not None:
                    return
                time.sleep(0.005)

    def _signal(self, number: signal.Signals) -> None:
        if self._process is not None and self.pid:
            with contextlib.suppress(ProcessLookupError):
                self._process.send_signal(number)

    def _be(self, state: ChildState) -> None:
        self.state, self.since_s = state, time.monotonic()

    # --- life ---

    async def live(self) -> End:
        """Until it ends as it should, or too often as it should not."""
        while not self._asked.is_set():
            self._be(ChildState.STARTING)
            began_s = time.monotonic()
            self.code = await self._run_once()
            log.info("instance.ended", extra={"node": self.name, "code": self.code, "said": self.said})
            end = self._end_by(self.code)
            if end is not None:
                return end
            self.how = self._ending(self.code)
            pause_s = self._deaths.pause_after(time.monotonic() - began_s, self.code)
            if pause_s is None:
                return End.GAVE_UP
            await self._pause(pause_s)
        return End.STOPPED

    def give_up(self) -> None:
        """It is not tried again; it stays to be looked at."""
        self.how = self.how or self._ending(self.code)
        self._be(ChildState.GAVE_UP)

    def _end_by(self, code: int) -> End | None:
        """What an exit code means; None for a death."""
        if code == 0:
            return End.DONE
        if self._asked.is_set():
            if code not in ASIDE and code != -signal.SIGTERM:  # the signal alone: it had not even begun
                self._warn(f"instance {self.name} {self._ending(code)}")
            return End.STOPPED
        if code in ASIDE or (code == ConflictError.exit_code and self.was_evicted):
            return End.LEFT
        return End.CONFLICT if code == ConflictError.exit_code else None

    async def _pause(self, pause_s: float) -> None:
        self.restarts += 1
        self.due_s = time.monotonic() + pause_s
        self._be(ChildState.RESTARTING)
        log.warning("instance.died", extra={"node": self.name, "how": self.how, "restarts": self.restarts})
        self._warn(f"instance {self.name} {self.how}; starting it again in {pause_s:g} s")
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._asked.wait(), pause_s)

    async def _run_once(self) -> int:
        """The exit code of one process; negative: the signal that ended it."""
        self.said = self._why = ""
        # A pipe of our own: asyncio would wait for all processes that hold it, helpers of the child included.
        reading, writing = os.pipe()
        try:
            self._process = await asyncio.create_subprocess_exec(
                *self._command,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.DEVNULL,
                stderr=writing,
                env=self._environment,
                start_new_session=True,
            )
        except OSError as error:  # no memory, no process to be had: that may pass
            os.close(reading)
            self._why = f"can't be started ({error.strerror})"
            return os.EX_OSERR
        finally:
            os.close(writing)
        log.info("instance.started", extra={"node": self.name, "pid": self._process.pid})
        listening = asyncio.create_task(self._listen(reading))
        try:
            if self._asked.is_set():
                self._signal(signal.SIGTERM)
            code = await self._process.wait()
            await asyncio.wait({listening}, timeout=LAST_WORDS_S)
        finally:
            listening.cancel()
            (failed,) = await asyncio.gather(listening, return_exceptions=True)
            if isinstance(failed, Exception):
                raise failed
        return code

    async def _listen(self, descriptor: int) -> None:
        reader = asyncio.StreamReader()
        pipe = os.fdopen(descriptor, "rb", buffering=0)
        loop = asyncio.get_running_loop()
        transport, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), pipe)
        begun = b""
        try:
            while chunk := await reader.read(CHUNK):
                *lines, begun = (begun + chunk).split(b"\n")
                begun = begun[-CHUNK:]
                for line in lines:
                    self._heard(line.decode(errors="replace").rstrip())
        finally:
            self._heard(begun.decode(errors="replace").rstrip())
            transport.close()

    def _heard(self, line: str) -> None:
        """Its latest message is kept back: if it is the last one, it is printed with the end."""
        if line.startswith("crawler: "):
            if self.said:
                self._say(f"[{self.name}] {self.said}")
            self.said = line.removeprefix("crawler: ")
        elif line:
            self._say(f"[{self.name}] {line}")

    def _ending(self, code: int) -> str:
        """Like "was killed (SIGKILL)", "ended with exit code 3 (no answer from the engine)"."""
        if self._why:
            return self._why
        if code == -signal.SIGPROF:
            return "stalled on a page and ended itself"
        if code < 0:
            return f"was killed ({signal.Signals(-code).name})"
        return f"ended with exit code {code}" + (f" ({self.said})" if self.said else "")
