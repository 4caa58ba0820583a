"""What does a page cost, counted instead of timed? The same on a busy machine, compared with the recorded values.

Counted are calls of functions, commands and bytes to the engine, operations in the engine, and memory: of 100 pages, of
an instance's start and end, and of a minute in which it waits for a delay of ten seconds. The crawls run on virtual
time, with fixed pages and a real engine (work_world.py). Where valgrind is installed, it counts the instructions of a
page, whole and by stage.

Exit code 0: nothing grew by more than 2 %; 1: something did, and is to be lowered or recorded; 2: not measured.
"""

import argparse
import contextlib
import datetime as dt
import json
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from scripts.bench_lib import arguments
from scripts.bench_lib.measure import FailedError, header
from scripts.bench_lib.peer_environments import ROOT, clean_environment
from tests.simulation.wire import OPTIONS
from tests.support.engine import running_engine

FILE = ROOT / "docs" / "internals" / "work.json"
GROWTH_MAX = 0.02
INSTRUCTIONS = "instructions"
OF_LIBRARIES = (INSTRUCTIONS, "calls of libraries", "KiB allocated at most")  # differ between versions of these
LIBRARIES = (
    "brotli", "can-ada", "google-re2", "hiredis", "httptools", "isal", "msgspec", "publicsuffixlist", "redis",
    "selectolax",
)  # fmt: skip
TIMEOUT_S = 3600.0  # it is no measure of time, and CI runs it behind everything else


def main(words: Sequence[str]) -> int:
    options = _options(words)
    try:
        known = read(options.file) if options.file.exists() else None
        values = counted(with_instructions=options.instructions)
    except (ValueError, FailedError) as error:
        print(f"bench: {error}", file=sys.stderr)
        return 2
    if options.record is not None:
        if known is not None and not options.instructions and has_instructions(known["values"]):
            print("bench: instructions can only be recorded where valgrind is (apt install valgrind)", file=sys.stderr)
            return 2
        write(options.file, values, options.record)
        print(f"recorded in {options.file}")
    print("\n".join(table(values, known["values"] if known else {})))
    if known is None or options.record is not None:
        return 0
    left_out = not_comparable(known["with"], platform_of())
    if left_out:
        print(f"instructions, calls of libraries and memory are not compared: {left_out}")
    elif not shutil.which("valgrind"):
        print("instructions are not compared: valgrind is not installed (apt install valgrind)")
    wrong = grown(values, known["values"], without=OF_LIBRARIES if left_out else ())
    for line in wrong:
        print(line)
    if wrong:
        print("Lower them, or record them with the reason in the same commit: scripts/bench work --record 'REASON'")
    return 1 if wrong else 0


def _options(words: Sequence[str]) -> argparse.Namespace:
    parser = arguments.parser("work", __doc__)
    parser.add_argument("--record", metavar="REASON", type=_reason, help="write the values, and why they changed")
    parser.add_argument("--file", type=Path, default=FILE, help="file of the recorded values")
    parser.add_argument(
        "--no-instructions", dest="instructions", action="store_false", default=shutil.which("valgrind") is not None,
        help="leave out what valgrind counts, which takes most of the time",
    )  # fmt: skip
    return parser.parse_args(words)


def _reason(text: str) -> str:
    if not text.strip():
        raise argparse.ArgumentTypeError("say in a few words why the values changed")
    return text.strip()


# --- to count ---


def counted(*, with_instructions: bool) -> dict[str, int]:
    """All values by their names. Raises FailedError."""
    with running_engine(*OPTIONS) as engine, tempfile.TemporaryDirectory(prefix="work-") as folder:
        path = engine.url.removeprefix("unix://")
        found = run("counts", [], path, folder)
        if with_instructions:
            below = [*_same_addresses(), "valgrind", "--tool=cachegrind", "--cache-sim=no"]
            below += [f"--cachegrind-out-file={folder}/%p.out", f"--log-file={folder}/%p.log"]
            found |= run(INSTRUCTIONS, below, path, folder)
    return found


def _same_addresses() -> list[str]:
    """The start of a command whose memory has the same addresses each time, where that is allowed: some containers
    forbid it. The values then differ a little more between runs.
    """
    command = ["setarch", "-R"]
    with contextlib.suppress(OSError):
        if not subprocess.run([*command, "true"], check=False, capture_output=True).returncode:
            return command
    return []


def run(what: str, below: list[str], path: str, folder: str) -> dict[str, int]:
    """What `work_counts` counts in a process of its own. `below`: the start of its command; `path`: the socket of an
    engine; `folder`: for its files. Raises FailedError.
    """
    command = [*below, sys.executable, "-P", "-m", "scripts.bench_lib.work_counts", what, path, folder]
    environment = clean_environment() | {"PYTHONHASHSEED": "0", "TMPDIR": folder}
    try:
        done = subprocess.run(
            command, env=environment, check=False, capture_output=True, text=True, timeout=TIMEOUT_S
        )  # fmt: skip
        found: dict[str, int] = json.loads(done.stdout.splitlines()[-1]) if not done.returncode else {}
    except (subprocess.TimeoutExpired, ValueError, IndexError) as error:
        raise FailedError(f"the {what} were not measured: {error}") from None
    if not found:
        raise FailedError(f"the {what} were not measured:\n{done.stderr[-2000:]}")
    return found


def platform_of() -> dict[str, str]:
    """What instructions and calls of libraries depend on: libraries choose their code by the processor, too."""
    libc = " ".join(platform.libc_ver())
    python = f"{platform.python_version()}, {platform.python_compiler()}, {libc}, {platform.machine()}"
    return {"python": python, "cpu": header()["machine"]["cpu"]} | {name: version(name) for name in LIBRARIES}


# --- the file ---


def read(file: Path) -> dict[str, Any]:
    """The recorded values, with their reason, commit, date and `platform_of`. Raises ValueError."""
    try:
        found = json.loads(file.read_text("utf-8"))
    except ValueError as error:
        raise ValueError(f"{file} is not JSON: {error}") from None
    if not isinstance(found, dict) or set(found) != {"reason", "commit", "date", "with", "values"}:
        raise ValueError(f"{file} does not have the fields reason, commit, date, with and values")
    return found


def write(file: Path, values: Mapping[str, int], reason: str) -> None:
    """`commit` is the one that was checked out; with a "+" it had changes."""
    record = {
        "reason": reason,
        "commit": header()["commit"],
        "date": dt.datetime.now(dt.UTC).strftime("%Y-%m-%d"),
        "with": platform_of(),
        "values": dict(sorted(values.items())),
    }
    file.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


# --- to compare ---


def has_instructions(values: Mapping[str, int]) -> bool:
    return any(name.endswith(INSTRUCTIONS) for name in values)


def not_comparable(recorded: Mapping[str, str], here: Mapping[str, str]) -> str:
    """What is another one here than where the values were recorded; "" if nothing is."""
    other = [name for name in here if here[name] != recorded.get(name)]
    return ", ".join(f"{name} is {here[name]}, and was {recorded.get(name, 'not there')}" for name in other)


def grown(values: Mapping[str, int], recorded: Mapping[str, int], *, without: Sequence[str] = ()) -> list[str]:
    """A line for each value that grew by more than GROWTH_MAX, or has no recorded one."""
    lines = []
    for name, value in sorted(values.items()):
        if name.endswith(tuple(without)):
            continue
        if name not in recorded:
            lines.append(f"NEW: {name}: {value:,} is not recorded")
        elif value > recorded[name] * (1 + GROWTH_MAX):
            lines.append(f"WORSE: {name}: {value:,}, recorded {recorded[name]:,} ({_change(value, recorded[name])})")
    return lines


def table(values: Mapping[str, int], recorded: Mapping[str, int]) -> list[str]:
    """The values, beside what was recorded."""
    width = max(map(len, values))
    lines = [f"{'':{width}} {'now':>12} {'recorded':>12}"]
    for name, value in sorted(values.items()):
        before = f"{recorded[name]:>12,} {_change(value, recorded[name]):>8}" if name in recorded else ""
        lines.append(f"{name:{width}} {value:>12,} {before}".rstrip())
    return lines


def _change(value: int, before: int) -> str:
    return f"{100 * (value / before - 1):+.1f} %" if before else "new"
