"""Takes from a Python process what only Linux has, before anything of ours is imported: how a Mac lacks it, so far as
that can be imitated. On PYTHONPATH it does so in each process that a test starts; `pytest --without-linux` does so in
the tests' own, where only the crawler's files are denied /proc.
"""

import ctypes
import os
import resource
import socket
import sys
import termios
import time
from typing import Any, Final

HERE: Final = os.path.dirname(os.path.abspath(__file__))  # noqa: PTH100, PTH120 - nothing more is imported yet
ROOT: Final = HERE.removesuffix("/tests/support/without_linux")
OURS: Final = f"{ROOT}/crawler/"
SOCKET_PATH_MAX = 103  # of 104 with the zero
C_FUNCTIONS = ("mallopt", "prctl")
MISSING = (
    *((os, name) for name in ("posix_fallocate", "posix_fadvise", "fdatasync", "pipe2", "sched_getaffinity", "O_PATH")),
    *((socket, name) for name in ("SO_PEERCRED", "SOCK_CLOEXEC", "SOCK_NONBLOCK", "TCP_KEEPIDLE", "TCP_USER_TIMEOUT")),
    (time, "CLOCK_BOOTTIME"),
)


def take_away() -> None:
    """Once for each process."""
    for module, name in MISSING:
        if hasattr(module, name):
            delattr(module, name)
    termios.TIOCOUTQ = -1  # type: ignore[misc]
    sys.addaudithook(_deny_proc)
    stat, setrlimit, library = os.stat, resource.setrlimit, ctypes.CDLL

    def stat_elsewhere(path: Any, *args: Any, **options: Any) -> os.stat_result:
        _deny_proc("stat", (path,))
        return stat(path, *args, **options)

    def setrlimit_elsewhere(what: int, limits: tuple[int, int]) -> None:
        if what == resource.RLIMIT_AS:
            raise ValueError("current limit exceeds maximum limit")
        setrlimit(what, limits)

    class LibraryElsewhere(library):  # type: ignore[misc, valid-type]
        def __getattr__(self, name: str) -> Any:
            if name in C_FUNCTIONS:
                raise AttributeError(name)
            return super().__getattr__(name)

    os.stat, resource.setrlimit, ctypes.CDLL = stat_elsewhere, setrlimit_elsewhere, LibraryElsewhere  # type: ignore[assignment, misc]


def _deny_proc(event: str, details: tuple[Any, ...]) -> None:
    if event in ("open", "stat") and isinstance(details[0], str) and details[0].startswith("/proc/") and _is_for_us():
        raise FileNotFoundError(2, "No such file or directory", details[0])
    if event == "socket.bind" and isinstance(details[1], str) and len(os.fsencode(details[1])) > SOCKET_PATH_MAX:
        raise OSError("AF_UNIX path too long")


def _is_for_us() -> bool:
    """Whether the call comes from the crawler, by the nearest file of this project."""
    frame = sys._getframe(1)
    while frame is not None:
        name = frame.f_code.co_filename
        if name.startswith(ROOT) and not name.startswith((HERE, f"{ROOT}/.venv")):
            return name.startswith(OURS)
        frame = frame.f_back
    return False


take_away()
