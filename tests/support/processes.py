"""Real crawler processes for tests: started, waited for, paused, killed; nothing of them is left at the end.

Every process of a `Nursery` carries a mark in its environment, and so do its children, however they detach
themselves: what still runs when the nursery closes is found by the mark and killed. Embedded engines write their title
over their environment; they are known by the crawl folder in which they run.
"""

import contextlib
import os
import re
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from typing import IO

from tests.support.patience import PATIENCE_S

ROOT = Path(__file__).parent.parent.parent
MARK = "TEST_NURSERY"
DRAIN_S = 0.2
QUIET_LOOKS = 3  # that find nothing: a process that is just being started has no environment to be known by


def is_running(pid: int) -> bool:
    """Is there such a process that has not ended?"""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


class Program:
    """One running program; its output is collected as it comes, line by line, with who said it."""

    def __init__(self, command: list[str], environment: Mapping[str, str], cwd: Path | None) -> None:
        pipe = subprocess.PIPE
        self._works_in_child = "crawl" in command[:5] and not {"-n", "--instances"} & set(command)
        self.process = subprocess.Popen(
            command, env=dict(environment), cwd=cwd, stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe, text=True
        )
        self._said = threading.Condition()
        self._lines: list[tuple[str, str]] = []
        streams = {"out": self.process.stdout, "err": self.process.stderr}
        self._readers = [threading.Thread(target=self._read, args=item, daemon=True) for item in streams.items()]
        for reader in self._readers:
            reader.start()

    def _read(self, name: str, stream: IO[str]) -> None:
        for line in stream:
            with self._said:
                self._lines.append((name, line.rstrip("\n")))
                self._said.notify_all()
        stream.close()

    @property
    def pid(self) -> int:
        """Of the process that does the work: `crawler crawl` does it in a child."""
        if self._works_in_child:
            with contextlib.suppress(OSError):
                children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
                return int(children[0]) if children else self.process.pid
        return self.process.pid

    @property
    def out(self) -> str:
        return self._text("out")

    @property
    def err(self) -> str:
        return self._text("err")

    def _text(self, name: str) -> str:
        with self._said:
            return "\n".join(line for said_by, line in self._lines if said_by == name)

    def wait_for(self, pattern: str, timeout_s: float = PATIENCE_S) -> re.Match[str]:
        """The first line on either stream that `pattern` is found in. Raises TimeoutError showing all that was said."""
        deadline = time.monotonic() + timeout_s
        while True:
            over = self._is_over() or time.monotonic() > deadline  # before the look: what was said by then counts
            with self._said:
                for _, line in self._lines:
                    if found := re.search(pattern, line):
                        return found
                if over:
                    raise TimeoutError(f"no line matches {pattern!r} in: {self._lines}")
                self._said.wait(0.05)

    def _is_over(self) -> bool:
        """Ended, and nothing more to read but perhaps from a child that holds the pipe."""
        if self.process.poll() is None:
            return False
        self._drain()
        return True

    def _drain(self) -> None:
        for reader in self._readers:
            reader.join(DRAIN_S)

    def wait(self, timeout_s: float = 2 * PATIENCE_S) -> int:
        """Exit code (negative: the signal), after all output has been read."""
        try:
            code = self.process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            raise TimeoutError(f"still running after {timeout_s} s; it said: {self._lines}") from None
        self._drain()
        return code

    def kill(self) -> int:
        """kill -9, as a power cut would; the exit code."""
        worker = self.pid
        self.process.kill()
        code = self.wait()
        while worker != self.process.pid and is_running(worker):
            time.sleep(0.002)  # the kernel ends it with its parent
        return code

    def interrupt(self) -> None:
        self.process.send_signal(signal.SIGINT)

    def terminate(self) -> None:
        self.process.terminate()

    def pause(self) -> None:
        """SIGSTOP: alive, holding its connections, doing nothing."""
        os.kill(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    def cpu_s(self) -> float:
        """CPU seconds so far, of all its threads."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class Nursery:
    """Starts programs with a clean environment: no CRAWLER_* settings but those given, in an empty folder."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._mark = secrets.token_hex(8)
        kept = {name: value for name, value in os.environ.items() if not name.startswith("CRAWLER_")}
        self.environment = kept | {"PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1", **environment, MARK: self._mark}
        self.folder = Path(tempfile.mkdtemp(prefix="nursery-"))  # where programs run that are given no other folder
        self._programs: list[Program] = []
        self._engines: set[str] = set()  # where an embedded engine may run

    def start(self, *command: str, cwd: Path | None = None, **environment: str) -> Program:
        cwd = cwd or self.folder
        folders = [folder for option, folder in pairwise(command) if option == "--dir"] or ["crawl-data"]
        self._engines |= {str((cwd / folder / "engine").resolve()) for folder in folders}
        program = Program(list(command), self.environment | environment, cwd)
        self._programs.append(program)
        return program

    def crawler(self, *arguments: str, cwd: Path | None = None, **environment: str) -> Program:
        """`crawler ARGUMENTS` of this checkout."""
        return self.start(sys.executable, "-P", "-m", "crawler", *arguments, cwd=cwd, **environment)

    def left(self) -> list[int]:
        """Process ids of everything of this nursery that runs now, detached engines too."""
        wanted = f"{MARK}={self._mark}".encode()
        found = []
        for folder in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                marked = wanted in (folder / "environ").read_bytes().split(b"\0")
                if marked or str((folder / "cwd").readlink()) in self._engines:
                    found.append(int(folder.name))
        return found

    def close(self) -> None:
        quiet = 0
        while quiet < QUIET_LOOKS:
            left = self.left()
            quiet = 0 if left else quiet + 1
            for pid in left:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.01)
            for program in self._programs:
                program.process.poll()
        for program in self._programs:
            program.wait()
        shutil.rmtree(self.folder, ignore_errors=True)


@contextlib.contextmanager
def nursery(environment: Mapping[str, str] | None = None) -> Iterator[Nursery]:
    """Programs started in it are gone when it ends. `environment` is added to each one's."""
    programs = Nursery(environment or {})
    try:
        yield programs
    finally:
        programs.close()
