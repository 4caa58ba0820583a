"""Measures a program from outside: wall time, CPU of the client and of a server engine that it started, peak memory.

This process adopts orphans (prctl PR_SET_CHILD_SUBREAPER), so a server that detaches itself is still seen, still
counted, and still ended. The kernel's accounts of ended processes are exact; who was running is sampled.
"""

import contextlib
import ctypes
import os
import signal
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from servers import cpu_of, pinned

SAMPLE_S = 0.05
_PR_SET_CHILD_SUBREAPER = 36


@dataclass(frozen=True, kw_only=True)
class Usage:
    """What one run cost. Memory is the sum over processes of each one's own peak, in MiB."""

    exit_code: int
    wall_s: float
    client_cpu_s: float
    engine_cpu_s: float
    client_mib: float
    engine_mib: float


@dataclass
class _Process:
    is_engine: bool
    cpu_s: float = 0.0
    peak_mib: float = 0.0


@dataclass
class _Watch:
    """Everything below this process but for what was there before (the lab's servers)."""

    engine_cores: set[int]
    others: set[int]
    seen: dict[int, _Process] = field(default_factory=dict)

    def look(self) -> None:
        for pid in below(os.getpid()) - self.others:
            with contextlib.suppress(OSError, ValueError, IndexError):
                self._look_at(pid)

    def _look_at(self, pid: int) -> None:
        name = Path(f"/proc/{pid}/comm").read_text().strip()
        process = self.seen.setdefault(pid, _Process(is_engine=False))
        if name.startswith(("valkey", "redis")) and not process.is_engine:
            process.is_engine = True
            for thread in Path(f"/proc/{pid}/task").iterdir():
                os.sched_setaffinity(int(thread.name), self.engine_cores)
        process.cpu_s = cpu_of(pid)
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                process.peak_mib = max(process.peak_mib, int(line.split()[1]) / 1024)

    def sum(self, what: str, *, engines: bool) -> float:
        return sum(getattr(process, what) for process in self.seen.values() if process.is_engine == engines)


def adopt_orphans() -> None:
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def run(
    command: list[str],
    environment: Mapping[str, str],
    log: Path,
    *,
    cores: set[int],
    engine_cores: set[int],
    timeout_s: float,
) -> Usage:
    """Run to the end, everything that it started included. Its output goes to `log`."""
    watch = _Watch(engine_cores, below(os.getpid()))
    started = time.monotonic()
    with log.open("wb") as output:
        process = subprocess.Popen(
            command,
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            preexec_fn=pinned(*cores),  # noqa: PLW1509
        )
    status, usage = _wait(process.pid, watch, started + timeout_s)
    wall_s = time.monotonic() - started
    process.returncode = os.waitstatus_to_exitcode(status)
    engines_left, others_left = _end_the_rest(watch)
    engine_cpu_s = watch.sum("cpu_s", engines=True)
    # Engines that the client waited for are in its account; those that it left to us are not.
    client_cpu_s = usage + others_left - max(0.0, engine_cpu_s - engines_left)
    return Usage(
        exit_code=process.returncode,
        wall_s=wall_s,
        client_cpu_s=client_cpu_s,
        engine_cpu_s=engine_cpu_s,
        client_mib=watch.sum("peak_mib", engines=False),
        engine_mib=watch.sum("peak_mib", engines=True),
    )


def _wait(pid: int, watch: _Watch, deadline: float) -> tuple[int, float]:
    """Exit status and CPU seconds of the client, its waited-for children included."""
    while True:
        watch.look()
        done, status, usage = os.wait4(pid, os.WNOHANG)
        if done:
            return status, usage.ru_utime + usage.ru_stime
        if time.monotonic() > deadline:
            os.kill(pid, signal.SIGKILL)
        time.sleep(SAMPLE_S)


def _end_the_rest(watch: _Watch) -> tuple[float, float]:
    """End what the client left behind; CPU seconds of the engines and of the rest of it."""
    watch.look()
    engines = others = 0.0
    patience = time.monotonic() + 10
    while left := below(os.getpid()) - watch.others:
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM if time.monotonic() < patience else signal.SIGKILL)
            with contextlib.suppress(ChildProcessError):
                done, _, usage = os.wait4(pid, os.WNOHANG)
                process = watch.seen.get(done)
                if process and process.is_engine:
                    process.cpu_s = usage.ru_utime + usage.ru_stime
                    engines += process.cpu_s
                elif process:
                    others += usage.ru_utime + usage.ru_stime
        time.sleep(0.01)
    return engines, others


def below(pid: int) -> set[int]:
    """Process ids of all descendants."""
    found: set[int] = set()
    todo = [pid]
    while todo:
        parent = todo.pop()
        with contextlib.suppress(OSError):
            for thread in Path(f"/proc/{parent}/task").iterdir():
                children = (thread / "children").read_text().split()
                fresh = [child for child in map(int, children) if child not in found]
                found.update(fresh)
                todo += fresh
    return found
