"""Runs this crawler on a disk whose every sync takes some milliseconds longer: `slow_disk.py MS COMMAND ...`."""

import os
import sys
import time
from collections.abc import Callable

from crawler.cli.main import program


def slowed(sync: Callable[[int], None], extra_s: float) -> Callable[[int], None]:
    def slow(file: int) -> None:
        sync(file)
        time.sleep(extra_s)

    return slow


if __name__ == "__main__":
    extra = float(sys.argv.pop(1)) / 1000
    os.fsync, os.fdatasync = slowed(os.fsync, extra), slowed(os.fdatasync, extra)
    program()
