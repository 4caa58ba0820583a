"""Time as instances read it. Safety runs on a clock that never steps and that counts a suspended machine's sleep."""

import time

ENGINE_PAUSE_S = 0.2  # before a call that the engine did not answer is repeated

_BOOTTIME = getattr(time, "CLOCK_BOOTTIME", None)


def monotonic_ms() -> int:
    """Milliseconds on the monotonic clock; only differences mean something."""
    if _BOOTTIME is not None:
        return time.clock_gettime_ns(_BOOTTIME) // 1_000_000
    return time.monotonic_ns() // 1_000_000


def wall_s() -> float:
    """Wall clock, seconds since the epoch: for dates that people read, never for safety."""
    return time.time()


def cpu_ms() -> int:
    """CPU time of this thread, ms."""
    return time.thread_time_ns() // 1_000_000
