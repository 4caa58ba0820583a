"""What an instance measures of its own process: told with its heartbeat, for people and alerts."""

import asyncio
import contextlib
import os
import shutil
from collections.abc import Callable
from pathlib import Path

from crawler.runtime.clock import monotonic_ms, process_cpu_s

WINDOW_MS = 30_000  # scrapes are 15 or 30 s apart: each sees what happened since the last one
LOOP_EVERY_S = 0.2
DISK_EVERY_S = 1.0  # a second of fetching fits into `archive.disk_free_bytes_min`
UNKNOWN = -1  # bytes


class Recent:
    """The largest (or, with `min`, the smallest) value that was noted lately: for at least 30 s, and at most 60."""

    def __init__(
        self, pick: Callable[[float, float], float] = max, *, clock_ms: Callable[[], int] = monotonic_ms
    ) -> None:
        self._pick = pick
        self._clock_ms = clock_ms
        self._began_ms = clock_ms()
        self._current: float | None = None
        self._before: float | None = None

    def note(self, value: float) -> None:
        """A new value."""
        self._turn()
        self._current = value if self._current is None else self._pick(self._current, value)

    @property
    def value(self) -> float | None:
        """None when nothing was noted lately."""
        self._turn()
        if self._current is None or self._before is None:
            return self._current if self._before is None else self._before
        return self._pick(self._before, self._current)

    def _turn(self) -> None:
        now_ms = self._clock_ms()
        age_ms = now_ms - self._began_ms
        if age_ms >= WINDOW_MS:
            self._before = self._current if age_ms < 2 * WINDOW_MS else None
            self._began_ms, self._current = now_ms, None


class Vitals:
    """Delay of the event loop, free disk of a folder, CPU time and memory of this process without its children."""

    def __init__(self, folder: Path, on_disk_free: Callable[[int], None] = lambda _: None) -> None:
        """`on_disk_free` is called with the free bytes of the folder's disk after each look, if they are known."""
        self._folder = folder
        self._on_disk_free = on_disk_free
        self._loop_delay_s = Recent()
        self._disk_free = UNKNOWN

    async def watch_loop(self) -> None:
        """Measure by how much timers are late, until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            due_s = loop.time() + LOOP_EVERY_S
            await asyncio.sleep(LOOP_EVERY_S)
            self._loop_delay_s.note(loop.time() - due_s)

    async def watch_disk(self) -> None:
        """Look at the disk until cancelled, in a thread: a network disk may not answer."""
        while True:
            await self.look_at_disk()
            await asyncio.sleep(DISK_EVERY_S)

    async def look_at_disk(self) -> None:
        """Measure its free bytes once."""
        self._disk_free = await asyncio.to_thread(free_bytes, self._folder)
        if self._disk_free != UNKNOWN:
            self._on_disk_free(self._disk_free)

    def description(self) -> dict[str, float | int]:
        """Fields of `Member` by name."""
        return {
            "loop_delay_s": round(max(0.0, self._loop_delay_s.value or 0.0), 3), "disk_free": self._disk_free,
            "cpu_s": round(process_cpu_s(), 1), "resident": _resident_bytes(),
        }  # fmt: skip


def free_bytes(folder: Path) -> int:
    """What the disk of a folder has left for us; `UNKNOWN` when it can't be read."""
    with contextlib.suppress(OSError):
        return shutil.disk_usage(folder).free
    return UNKNOWN


def _resident_bytes() -> int:
    """Of this process, as Linux counts it."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        return int(Path("/proc/self/statm").read_text("ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return UNKNOWN
