"""Small disks of a test's own, which can be full: a file system in memory."""

import contextlib
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

PAGE_BYTES = 4096  # what a file system in memory gives at a time


@contextlib.contextmanager
def small_disk(place: Path, size: str) -> Iterator[Path]:
    """A disk of this size, as `mount` reads it, at an empty folder. Skips the test where none can be mounted."""
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size}", "none", str(place)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("a small disk needs the right to mount a tmpfs")
    try:
        yield place
    finally:
        subprocess.run(["umount", "--lazy", str(place)], check=True)


def resize(disk: Path, size: str) -> None:
    subprocess.run(["mount", "-o", f"remount,size={size}", str(disk)], check=True)


def fill(disk: Path, *, pages_left: int = 0) -> Path:
    """Write a file that leaves this many pages free; give room back by removing it."""
    ballast = disk / "ballast"
    with ballast.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while os.statvfs(disk).f_bavail > pages_left:
            file.write(bytes(PAGE_BYTES))
    return ballast
