"""Runs a program and measures it from outside: wall time, CPU of the client and of its engine, memory.

This process adopts orphans (prctl PR_SET_CHILD_SUBREAPER), so it also sees, counts and ends an engine that detaches
itself. The kernel's accounts of ended processes are exact; which processes run is sampled.
"""

import contextlib
import ctypes
import datetime as dt
import os
import platform
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Container, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from scripts.bench_lib.peer_clients import Client
from scripts.bench_lib.peer_environments import ROOT
from scripts.bench_lib.servers import RunningWeb, cpu_of, pinned, raise_file_limit
from scripts.bench_lib.summaries import Run

LOOK_EVERY_S = 0.05
END_S = 10.0  # processes that are left over get SIGKILL after this
_PR_SET_CHILD_SUBREAPER = 36


class FailedError(Exception):
    """A client failed; the message has the end of its output."""


@dataclass(frozen=True, kw_only=True)
class Cores:
    """The client's cores, and those of its engine, of the web and name servers and of this process."""

    client: set[int]
    servers: set[int]


@dataclass(frozen=True, kw_only=True)
class Sample:
    """CPU seconds since the start of each, and resident memory; `at_s` as time.monotonic()."""

    at_s: float
    crawler_cpu_s: float
    engine_cpu_s: float
    server_cpu_s: float
    crawler_mib: float
    engine_mib: float
    crawler_processes: int = 1


@dataclass(frozen=True, kw_only=True)
class Sampling:
    """What to sample during a run. `engine_pid`: an engine that was running before; 0 without one."""

    server_pid: int
    every_s: float = 0.2
    engine_pid: int = 0


@dataclass(frozen=True, kw_only=True)
class Usage:
    """What one run cost. Memory is the sum over processes of each one's own peak."""

    exit_code: int
    wall_s: float
    client_cpu_s: float
    engine_cpu_s: float
    client_mib: float
    engine_mib: float


def take_cores(*, share: bool = False) -> Cores:
    """Give the first core to clients and the last one to this process, the servers and engines; or all cores to both.

    From here on this process also adopts orphans and may open as many files as the system allows.
    """
    allowed = sorted(os.sched_getaffinity(0))
    if len(allowed) == 1 and not share:
        print("bench: client and servers share the only core; pages/s mean little", file=sys.stderr)
    cores = Cores(client={allowed[0]}, servers={allowed[-1]})
    if share:
        cores = Cores(client=set(allowed), servers=set(allowed))
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    raise_file_limit()
    os.sched_setaffinity(0, cores.servers)
    return cores


@dataclass
class _Process:
    is_engine: bool = False
    cpu_s: float = 0.0
    peak_mib: float = 0.0


@dataclass
class _Watch:
    """All descendants of this process except `others`, which were there before."""

    engine_cores: set[int]
    others: set[int]
    sampling: Sampling | None = None
    seen: dict[int, _Process] = field(default_factory=dict)
    samples: list[Sample] = field(default_factory=list)
    earlier_engine: _Process = field(default_factory=_Process)

    def look(self) -> None:
        at_s, resident_mib = time.monotonic(), dict[int, float]()
        for pid in below(os.getpid()) - self.others:
            with contextlib.suppress(OSError, ValueError, IndexError):
                resident_mib[pid] = self._look_at(pid)
        last_s = self.samples[-1].at_s if self.samples else 0.0
        if self.sampling and at_s - last_s >= self.sampling.every_s:
            self.samples.append(self._sample(self.sampling, at_s, resident_mib))

    def _look_at(self, pid: int) -> float:
        """Its resident memory."""
        process = self.seen.setdefault(pid, _Process())
        if not process.is_engine and Path(f"/proc/{pid}/comm").read_text().startswith(("valkey", "redis")):
            process.is_engine = True
            for thread in Path(f"/proc/{pid}/task").iterdir():
                os.sched_setaffinity(int(thread.name), self.engine_cores)
        process.cpu_s = cpu_of(pid)
        resident_mib, peak_mib = memory_of(pid)
        process.peak_mib = max(process.peak_mib, peak_mib)
        return resident_mib

    def _sample(self, sampling: Sampling, at_s: float, resident_mib: Mapping[int, float]) -> Sample:
        mib = {True: 0.0, False: 0.0}
        for pid, one in resident_mib.items():
            mib[self.seen[pid].is_engine] += one
        if sampling.engine_pid:
            with contextlib.suppress(OSError, IndexError):  # it may just have ended
                mib[True] += memory_of(sampling.engine_pid)[0]
                self.earlier_engine.cpu_s = cpu_of(sampling.engine_pid)
        return Sample(
            at_s=at_s,
            crawler_cpu_s=self.sum("cpu_s", engines=False),
            engine_cpu_s=self.sum("cpu_s", engines=True) + self.earlier_engine.cpu_s,
            server_cpu_s=cpu_of(sampling.server_pid),
            crawler_mib=mib[False],
            engine_mib=mib[True],
            crawler_processes=sum(not self.seen[pid].is_engine for pid in resident_mib),
        )

    def sum(self, what: str, *, engines: bool) -> float:
        return sum(getattr(process, what) for process in self.seen.values() if process.is_engine == engines)


def run(
    command: Sequence[str],
    environment: Mapping[str, str],
    log: Path,
    *,
    cores: set[int],
    engine_cores: set[int],
    timeout_s: float,
    sampling: Sampling | None = None,
) -> tuple[Usage, list[Sample]]:
    """Run a command until it and all that it started have ended. Its output goes to `log`, in whose folder it runs.

    Not in the current folder: Python would import the crawler of a checkout from there, whatever PYTHONPATH says.
    """
    watch = _Watch(engine_cores, below(os.getpid()), sampling)
    started = time.monotonic()
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, env=dict(environment), cwd=log.parent, stdin=subprocess.DEVNULL, stdout=output,
            stderr=subprocess.STDOUT, preexec_fn=pinned(*cores),  # noqa: PLW1509
        )  # fmt: skip
    status, client_cpu_s = _wait(process.pid, watch, started + timeout_s)
    wall_s = time.monotonic() - started
    process.returncode = os.waitstatus_to_exitcode(status)
    engines_left_s, others_left_s = _end_the_rest(watch)
    engine_cpu_s = watch.sum("cpu_s", engines=True)
    usage = Usage(
        exit_code=process.returncode,
        wall_s=wall_s,
        # Engines that the client waited for are in its account; those that it left to us are not.
        client_cpu_s=client_cpu_s + others_left_s - max(0.0, engine_cpu_s - engines_left_s),
        engine_cpu_s=engine_cpu_s,
        client_mib=watch.sum("peak_mib", engines=False),
        engine_mib=watch.sum("peak_mib", engines=True),
    )
    return usage, watch.samples


def _wait(pid: int, watch: _Watch, deadline: float) -> tuple[int, float]:
    """Exit status and CPU seconds of the client, including the children that it waited for."""
    while True:
        watch.look()
        done, status, usage = os.wait4(pid, os.WNOHANG)
        if done:
            return status, usage.ru_utime + usage.ru_stime
        if time.monotonic() > deadline:
            os.kill(pid, signal.SIGKILL)
        time.sleep(LOOK_EVERY_S)


def _end_the_rest(watch: _Watch) -> tuple[float, float]:
    """End what the client left running. CPU seconds of its engines, and of its other processes."""
    watch.look()
    engines_s = others_s = 0.0
    deadline = time.monotonic() + END_S
    while left := below(os.getpid()) - watch.others:
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM if time.monotonic() < deadline else signal.SIGKILL)
            with contextlib.suppress(ChildProcessError):
                done, _, usage = os.wait4(pid, os.WNOHANG)
                process = watch.seen.get(done)
                if process and process.is_engine:
                    process.cpu_s = usage.ru_utime + usage.ru_stime
                    engines_s += process.cpu_s
                elif process:
                    others_s += usage.ru_utime + usage.ru_stime
        time.sleep(0.01)
    return engines_s, others_s


def below(pid: int) -> set[int]:
    """Process ids of all descendants."""
    found: set[int] = set()
    todo = [pid]
    while todo:
        parent = todo.pop()
        with contextlib.suppress(OSError):
            for thread in Path(f"/proc/{parent}/task").iterdir():
                children = (thread / "children").read_text().split()
                new = [child for child in map(int, children) if child not in found]
                found.update(new)
                todo += new
    return found


def memory_of(pid: int) -> tuple[float, float]:
    """Resident memory of a running process now, and its peak, in MiB. Raises OSError or IndexError if it has ended."""
    status = Path(f"/proc/{pid}/status").read_text()
    now_mib, peak_mib = (int(status.partition(f"{name}:")[2].split()[0]) / 1024 for name in ("VmRSS", "VmHWM"))
    return now_mib, peak_mib


# --- runs of a client ---


def in_turn(clients: Sequence[Client], number: int) -> Sequence[Client]:
    """The clients of a round. Every second round is reversed: a run leaves the machine changed for the next one."""
    return clients if number % 2 == 0 else clients[::-1]


def run_once(client: Client, running: RunningWeb, cores: Cores, timeout_s: float, *, keep: Path | None = None) -> Run:
    """Raises FailedError. With `keep`, the run's files are copied to that folder."""
    with tempfile.TemporaryDirectory(prefix="bench-") as scratch:
        folder = Path(scratch)
        command = client.command(running, folder)
        sampling = Sampling(server_pid=running.processes[-1], every_s=0) if client.active else None
        requests, servers_cpu_s, handshakes = running.requests(), running.cpu_s(), running.handshakes()
        try:
            usage, _, samples = run_program(
                client.name, command, client.full_environment(running), folder, cores, timeout_s,
                exit_codes=client.exit_codes, sampling=sampling,
            )  # fmt: skip
            servers_cpu_s = running.cpu_s() - servers_cpu_s
            requests = running.requests() - requests - 1  # one is ours
            pages = _pages(client, folder, running)
            busy = _busy(samples, *client.active(folder)) if client.active else 0.0
        finally:
            if keep:
                shutil.copytree(folder, keep / client.name, dirs_exist_ok=True, ignore=_sockets)
    distinct = frozenset(unquote(page) for page in pages)
    cost = asdict(usage)
    del cost["exit_code"]
    duplicates = len(pages) - len(distinct)
    new, resumed = (now - before for now, before in zip(running.handshakes(), handshakes, strict=True))
    return Run(
        pages=distinct, duplicates=duplicates, requests=requests, servers_cpu_s=servers_cpu_s, busy=busy,
        handshakes=(new, resumed), **cost,
    )  # fmt: skip


def _busy(samples: Sequence[Sample], since_s: float, until_s: float) -> float:
    """CPU of client and engine between two wall-clock times, as a share of the time between them."""
    to_wall_s = time.time() - time.monotonic()
    inside = [one for one in samples if since_s <= one.at_s + to_wall_s <= until_s]
    if len(inside) < 2:
        return 0.0
    first, last = inside[0], inside[-1]
    cpu_s = last.crawler_cpu_s + last.engine_cpu_s - first.crawler_cpu_s - first.engine_cpu_s
    return cpu_s / (last.at_s - first.at_s)


def run_program(
    name: str,
    command: Sequence[str],
    environment: Mapping[str, str],
    folder: Path,
    cores: Cores,
    timeout_s: float,
    *,
    exit_codes: Container[int] = (0,),
    sampling: Sampling | None = None,
) -> tuple[Usage, str, list[Sample]]:
    """What it cost, and its output, which is also in `folder`. Raises FailedError at any other exit code."""
    log = folder / "output.log"
    usage, samples = run(
        command, environment, log, cores=cores.client, engine_cores=cores.servers, timeout_s=timeout_s,
        sampling=sampling,
    )  # fmt: skip
    output = log.read_text(errors="replace")
    if usage.exit_code not in exit_codes:
        raise FailedError(f"{name} failed with exit code {usage.exit_code}:\n{output[-2000:]}")
    return usage, output, samples


def _pages(client: Client, folder: Path, running: RunningWeb) -> list[str]:
    try:
        return client.pages(folder, running)
    except (OSError, subprocess.CalledProcessError, KeyError, ValueError) as error:
        reason = getattr(error, "stderr", None) or repr(error)
        raise FailedError(f"{client.name}: its list of pages can't be read: {reason}") from error


def header() -> dict[str, Any]:
    """Commit, date and machine: the first fields of each record."""
    git = ["git", "-C", str(ROOT)]
    found = subprocess.run([*git, "rev-parse", "--short=12", "HEAD"], capture_output=True, text=True, check=False)
    changed = subprocess.run([*git, "status", "--porcelain", "-uno"], capture_output=True, text=True, check=False)
    model = re.search(r"^model name\s*: (.*)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    return {
        "commit": (found.stdout.strip() or "unknown") + ("+" if changed.stdout else ""),
        "date": dt.datetime.now(dt.UTC).strftime("%Y-%m-%d %H:%M"),
        "machine": {
            "cpu": model[1] if model else platform.machine(),
            "cores": os.cpu_count(),
            "kernel": f"{platform.system()} {platform.release().split('-')[0]}",
            "python": platform.python_version(),
        },
    }


def _sockets(folder: str, names: list[str]) -> list[str]:
    """What can't be copied."""
    return [name for name in names if (Path(folder) / name).is_socket()]
