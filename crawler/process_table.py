"""What the system tells of another process: from /proc, or from `ps` where there is none (macOS)."""

import contextlib
import os
import subprocess
from functools import cache
from pathlib import Path

PS_TIMEOUT_S = 5.0


@cache
def _has_proc() -> bool:
    return Path("/proc/self/stat").exists()


def runs_in(pid: int, folder: Path, names: tuple[bytes, ...], *, argument: str) -> bool:
    """Does a process of one of these names run in this folder? The id may have been reused. Without /proc its folder
    is not known: then the command line must have the argument. A zombie does not run.
    """
    try:
        if _has_proc():
            command = Path(f"/proc/{pid}/cmdline").read_bytes()
            is_there = Path(f"/proc/{pid}/cwd").resolve(strict=True) == folder
        else:
            command = _ps(pid, "args")
            is_there = os.fsencode(argument) in command
    except OSError:
        return False
    return is_there and any(name in command for name in names)


def is_stopped(pid: int) -> bool:
    """Was it stopped by a signal or a debugger?"""
    with contextlib.suppress(OSError, IndexError):
        if _has_proc():
            return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "Tt"
        return _ps(pid, "state").startswith((b"T", b"t"))
    return False


def _ps(pid: int, column: str) -> bytes:
    """Raises OSError when it can't be asked; b"" when there is no such process."""
    try:
        asked = subprocess.run(
            ["/bin/ps", "-p", str(pid), "-o", f"{column}="], stdin=subprocess.DEVNULL, capture_output=True, check=False,
            timeout=PS_TIMEOUT_S,
        )  # fmt: skip
    except subprocess.TimeoutExpired as error:
        raise OSError(str(error)) from None
    return asked.stdout.strip()
