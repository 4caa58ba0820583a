"""One run of one client on its core, and what is to be said of the machine beside its figures."""

import datetime as dt
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Container, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import measure
import servers
from clients import Client
from environments import ROOT
from figures import Run
from servers import Lab


class FailedError(Exception):
    """A client did not end well; the message has the end of its output."""


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where a run takes place, for how long at most, and where its files are kept, if they are."""

    client_cores: set[int]
    server_cores: set[int]
    timeout_s: float
    keep: Path | None = None


def take_place(timeout_s: float, *, keep: Path | None = None, share: bool = False) -> Place:
    """The first core is the clients', the last one this process's, its servers' and the engines'; or all are both's."""
    allowed = sorted(os.sched_getaffinity(0))
    if len(allowed) == 1 and not share:
        print("bench: only one core: client and servers share it, pages/s mean little", file=sys.stderr)
    clients, server = (set(allowed), set(allowed)) if share else ({allowed[0]}, {allowed[-1]})
    measure.adopt_orphans()
    servers.raise_file_limit()
    os.sched_setaffinity(0, server)
    return Place(client_cores=clients, server_cores=server, timeout_s=timeout_s, keep=keep)


def in_order(clients: Sequence[Client], number: int) -> Sequence[Client]:
    """Of a round: the other way round in every second one, for each finds the machine as the one before has left it."""
    return clients if number % 2 == 0 else clients[::-1]


def run_once(client: Client, lab: Lab, place: Place) -> Run:
    """Raises FailedError."""
    with tempfile.TemporaryDirectory(prefix="bench-") as scratch:
        folder = Path(scratch)
        command = client.command(lab, folder)
        asked, spent = lab.requests(), lab.cpu_s()
        try:
            usage, _ = run_program(
                client.name, command, client.full_environment(lab), folder, place, exit_codes=client.exit_codes
            )
            spent = lab.cpu_s() - spent
            asked = lab.requests() - asked - 1  # the lab's own question
            pages = _listed(client, folder, lab)
        finally:
            if place.keep:
                shutil.copytree(folder, place.keep / client.name, dirs_exist_ok=True, ignore=_sockets)
    distinct = frozenset(unquote(page) for page in pages)
    return Run(
        pages=distinct,
        duplicates=len(pages) - len(distinct),
        requests=asked,
        wall_s=usage.wall_s,
        client_cpu_s=usage.client_cpu_s,
        engine_cpu_s=usage.engine_cpu_s,
        client_mib=usage.client_mib,
        engine_mib=usage.engine_mib,
        servers_cpu_s=spent,
    )


def run_program(
    name: str,
    command: list[str],
    environment: dict[str, str],
    folder: Path,
    place: Place,
    *,
    exit_codes: Container[int] = (0,),
) -> tuple[measure.Usage, str]:
    """What it cost, and what it printed, which stays in `folder`. Raises FailedError at any other exit code."""
    log = folder / "output.log"
    usage = measure.run(
        command,
        environment,
        log,
        cores=place.client_cores,
        engine_cores=place.server_cores,
        timeout_s=place.timeout_s,
    )
    output = log.read_text(errors="replace")
    if usage.exit_code not in exit_codes:
        raise FailedError(f"{name} ended with {usage.exit_code}:\n{output[-2000:]}")
    return usage, output


def _listed(client: Client, folder: Path, lab: Lab) -> list[str]:
    try:
        return client.pages(folder, lab)
    except (OSError, subprocess.CalledProcessError, KeyError, ValueError) as error:
        raise FailedError(f"{client.name}: no list of pages: {error!r}") from error


def header() -> dict[str, Any]:
    """Commit, date and machine, as records begin."""
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
