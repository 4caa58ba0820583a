"""Runs a command of the crawler with a timer in its event loop, and writes how late each of its ticks was.

    python -P loop_probe.py FILE crawl URL ...      writes a line for each tick when the command ends

A line has the lateness in seconds, how long the loop's thread was computing since the last tick, and how long it waited
for a core. The rest of the lateness was spent waiting for something else: a file, or the interpreter's lock.
"""

import asyncio
import sys
import time
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, TypeVar

T = TypeVar("T")
EVERY_S = 0.01
Tick = tuple[float, float, float]


async def _probed(work: Coroutine[Any, Any, T], ticks: list[Tick]) -> T:
    probe = asyncio.create_task(_probe(ticks))
    try:
        return await work
    finally:
        probe.cancel()


async def _probe(ticks: list[Tick]) -> None:
    while True:
        due, (cpu_s, waited_s) = time.monotonic() + EVERY_S, _scheduled()
        await asyncio.sleep(EVERY_S)
        cpu_then_s, waited_then_s = _scheduled()
        ticks.append((max(0.0, time.monotonic() - due), cpu_then_s - cpu_s, waited_then_s - waited_s))


def _scheduled() -> tuple[float, float]:
    """Seconds that this thread had a core, and that it was ready without one."""
    cpu_ns, waited_ns, _ = Path("/proc/thread-self/schedstat").read_text(encoding="ascii").split()
    return int(cpu_ns) / 1e9, int(waited_ns) / 1e9


def main() -> int:
    from crawler.cli import run_async as module
    from crawler.cli.main import main as command

    file, ticks = Path(sys.argv[1]), list[Tick]()
    run_async = module.run_async
    module.run_async = lambda work, **how: run_async(_probed(work, ticks), **how)
    try:
        return command(sys.argv[2:])
    finally:
        file.write_text("".join(" ".join(f"{part:.6f}" for part in tick) + "\n" for tick in ticks), encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
