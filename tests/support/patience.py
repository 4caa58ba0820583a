"""Waiting for what happens at a time of its own: tests share their machine, so only a hang may end a wait."""

import asyncio
import time
from collections.abc import Callable

PATIENCE_S = 50.0  # only a hang takes that long, under any load; below the 60 s that some tests must not wait for
_LOOK_S = 0.01


def wait_until(holds: Callable[[], object]) -> None:
    """Look again and again, until it holds; fails when it hangs."""
    deadline = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < deadline, "it never came"
        time.sleep(_LOOK_S)


async def until(holds: Callable[[], object]) -> None:
    """The same while the event loop runs."""
    deadline = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < deadline, "it never came"
        await asyncio.sleep(_LOOK_S)


async def others_run() -> None:
    """All other tasks of the event loop go as far as they can without waiting for time, threads or sockets."""
    for _ in range(100):
        await asyncio.sleep(0)
