"""Runs whose queues lie in files: blocks are full with two URLs, and the engine always has a little too much.

All machines share the folder of these files.
"""

import contextlib
from collections.abc import Iterator
from pathlib import Path

from crawler.archive.spill_files import SpillFiles
from crawler.engine.client import Memory
from crawler.errors import ArchiveError
from crawler.frontier.spilling import Stub, urls_of
from crawler.instance import spiller
from crawler.settings import Settings
from tests.frontier.small_blocks import small_blocks
from tests.simulation.machines import replaced

BUDGET = 1000
USED = Memory(950, 0.0)
SWEEP_MS, KEEP_MS = 2000, 20_000  # the engine falls back by a second at most
FOLDER = "spill"


@contextlib.contextmanager
def overflowing() -> Iterator[None]:
    """Scripts and times as such a run needs them."""
    before = spiller.SWEEP_MS, spiller.KEEP_MS
    spiller.SWEEP_MS, spiller.KEEP_MS = SWEEP_MS, KEEP_MS
    try:
        with small_blocks():
            yield
    finally:
        spiller.SWEEP_MS, spiller.KEEP_MS = before


def with_files(settings: Settings, folder: Path) -> Settings:
    return replaced(settings, frontier={"memory": BUDGET, "spill_folder": str(folder / FOLDER)})


class Files:
    """What lies in the files of a run, as the engine's stubs name it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder / FOLDER

    def members(self, partition: int, stub: Stub) -> list[str]:
        """Raises ArchiveError."""
        places = [*self._folder.glob("*")]
        if len(places) != 1:
            raise ArchiveError(f"{len(places)} folders of spilled URLs")
        (packed,) = SpillFiles(places[0], "census").read(partition, [stub.place])
        return [member for member, _ in urls_of(packed)]

    def of(self, sessions: set[str]) -> list[Path]:
        """Files that these sessions wrote."""
        paths = (path for path in self._folder.rglob("*-*-*") if path.is_file())
        return sorted(path for path in paths if path.name.split("-")[1] in sessions)
