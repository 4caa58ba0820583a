"""What an instance knows of its own health: memory, delay of its event loop, disk; told with its heartbeat."""

import asyncio
import contextlib
import os
from collections.abc import Callable
from pathlib import Path

from crawler.archive.folder import UNKNOWN, free_bytes
from crawler.runtime.clocks import process_cpu_s
from crawler.runtime.ticks import tick, until_tick
from crawler.worker.lateness import Recent

LOOP_EVERY_S = 0.2
LOOP_RESTING_S = 1.0  # without claims: who waits is not to wake for it
DISK_RESTING_S = 5.0
DISK_EVERY_S = 1.0  # a second of fetching fits into `archive.disk_free_bytes_min`


class Vitals:
    """Delay of the event loop, free disk of a folder, CPU time and memory of this process without its children."""

    def __init__(
        self,
        folder: Path,
        on_disk_free: Callable[[int], None] = lambda _: None,
        usable: Callable[[int], int] = lambda free: free,
        *,
        at_work: asyncio.Event | None = None,
        is_scarce: Callable[[], bool] = lambda: False,
    ) -> None:
        """`on_disk_free` is called with the free bytes of the folder's disk after each look, if they are known.
        `usable`: how many of these can be written, by a trial in a thread. `at_work`: set while there are claims;
        `is_scarce`: is somebody waiting for room on the disk?
        """
        self._folder = folder
        self._usable = usable
        self._on_disk_free = on_disk_free
        self._at_work = at_work or asyncio.Event()
        if at_work is None:
            self._at_work.set()
        self._is_scarce = is_scarce
        self._loop_delay_s = Recent()
        self._disk_free = UNKNOWN

    async def watch_loop(self) -> None:
        """Measure by how much timers are late, until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            wait_s = until_tick(LOOP_EVERY_S if self._at_work.is_set() else LOOP_RESTING_S)
            due_s = loop.time() + wait_s
            await asyncio.sleep(wait_s)
            self._loop_delay_s.note(loop.time() - due_s)

    async def watch_disk(self) -> None:
        """Look at the disk until cancelled, in a thread: a network disk may not answer."""
        while True:
            await self.look_at_disk()
            await tick(DISK_EVERY_S)
            if not (self._at_work.is_set() or self._is_scarce()):
                await tick(DISK_RESTING_S, self._at_work)

    async def look_at_disk(self) -> None:
        """Measure its free bytes once."""
        self._disk_free = await asyncio.to_thread(self._measure)
        if self._disk_free != UNKNOWN:
            self._on_disk_free(self._disk_free)

    def _measure(self) -> int:
        return self._usable(free_bytes(self._folder))

    def description(self) -> dict[str, float | int]:
        """Fields of `Member` by name."""
        return {
            "loop_delay_s": round(max(0.0, self._loop_delay_s.value or 0.0), 3), "disk_free": self._disk_free,
            "cpu_s": round(process_cpu_s(), 1), "resident": _resident_bytes(),
        }  # fmt: skip


def _resident_bytes() -> int:
    """Of this process, as Linux counts it."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        return int(Path("/proc/self/statm").read_text("ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return UNKNOWN
