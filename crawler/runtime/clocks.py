"""Clocks of an instance. Safety rests on one that never steps and that includes the time a machine is suspended."""

import time

ENGINE_PAUSE_S = 0.2  # before a retry of a call that the engine did not answer


_CLOCK: int = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)  # macOS's monotonic one has that time, too


def monotonic_ms() -> int:
    """Milliseconds on the monotonic clock; only differences have a meaning."""
    return time.clock_gettime_ns(_CLOCK) // 1_000_000


def wall_s() -> float:
    """Wall clock, seconds since the epoch: for dates, never for safety."""
    return time.time()


def process_cpu_s() -> float:
    """CPU time of this process without its children, s."""
    return time.process_time()


def cpu_ms() -> int:
    """CPU time of this thread, ms."""
    return time.thread_time_ns() // 1_000_000
