"""Starts a program that dies with its parent, however that ends: `tied.py [--host NAME] COMMAND...`.

With --host the command is `crawler`, and it believes to be on another machine: locks of sessions elsewhere then prove
nothing to it, and a death has to be seen by its silence. Standard library only, until the program begins.
"""

import ctypes
import os
import signal
import socket
import sys

PR_SET_PDEATHSIG = 1


def main(arguments: list[str]) -> int:
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if arguments[0] != "--host":
        os.execvp(arguments[0], arguments)
    name = arguments[1]
    socket.gethostname = lambda: name
    from crawler.cli.main import main as crawler

    return crawler(arguments[3:])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
