"""Periodic work of an instance: what is done each second is done at the same moment, so that a process with nothing to
do wakes once for all of it. A wake-up of its own for each loop would cost more than what the loops do.
"""

import asyncio
import contextlib
import math
import time
from contextvars import ContextVar

_SOONEST = 0.25  # of an interval: a tick that is nearer is left out


PHASE: ContextVar[float] = ContextVar("phase", default=time.monotonic() % 1)  # processes are not to tick together


def until_tick(every_s: float) -> float:
    """Seconds until the next tick of this interval: ticks of all loops that have it are at the same times."""
    ticks = (asyncio.get_running_loop().time() - PHASE.get()) / every_s
    return (math.floor(ticks + _SOONEST) + 1 - ticks) * every_s


async def tick(every_s: float, wake: asyncio.Event | None = None) -> None:
    """Sleep until the next tick of this interval, or until the event is set."""
    if wake is None:
        await asyncio.sleep(until_tick(every_s))
    else:
        await until_set(wake, until_tick(every_s))


async def until_set(event: asyncio.Event, seconds: float | None) -> None:
    """Wait for the event, at most so long; None: however long it takes."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()
