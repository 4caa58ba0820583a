"""When the next request of a queue may start, and a delay that adapts to the site. Pure; all times in ms.

The adaptive delay follows the site's latency: additive decrease, multiplicative increase. It is never below the floor
(our own delay or the Crawl-delay, whichever is longer) and never above the ceiling.
"""

import msgspec

TICK_MS = 1

STEP_MS = 50  # decrease after a normal answer: the larger of this and this share of the floor:
STEP_SHARE = 0.1
INCREASE = 2.0
RECOVERED_SHARE = 0.25  # of what a delay is above its floor, at each answer: 32 s are 2 s again after ten
AVERAGE_SHARE = 0.125  # weight of a new latency in the moving average, as in RFC 6298 2.3
SLOW_FACTOR = 3.0  # an answer is slow if it takes more than this many times the average,
SLOW_MS_MIN = 250  # and more than this: 30 ms instead of 8 means nothing


def delay_ms(*, min_delay_ms: int, crawl_delay_s: float | None, delay_max_ms: int) -> int:
    """The delay of a queue: ours, or the Crawl-delay of robots.txt up to a cap, whichever is longer."""
    asked = 0 if crawl_delay_s is None else min(int(crawl_delay_s * 1000), delay_max_ms)
    return max(min_delay_ms, asked)


def wait_ms(*, delay_ms: int, factor: float, fetch_ms: int, retry_after_ms: int = 0, backoff_ms: int = 0) -> int:
    """How long to wait after a request has ended; one tick more, because clocks count whole milliseconds."""
    wait = max(delay_ms, int(factor * fetch_ms), retry_after_ms, backoff_ms)
    return wait + TICK_MS if wait else 0


class AdaptiveDelay(msgspec.Struct, frozen=True):
    """The delay in force, and the moving average of the site's latency (0: nothing measured yet)."""

    delay_ms: int = 0
    latency_ms: float = 0.0


UNMEASURED = AdaptiveDelay()


def adapt(before: AdaptiveDelay, *, latency_ms: int | None, floor_ms: int, ceiling_ms: int) -> AdaptiveDelay:
    """The delay after a request. `latency_ms`: how long a normal answer took; None: 429, 503 or a timeout."""
    step_ms = max(STEP_MS, int(STEP_SHARE * floor_ms))
    delay_ms = max(before.delay_ms, floor_ms)
    if latency_ms is None or is_slow(latency_ms, before.latency_ms):
        delay_ms = int(INCREASE * max(delay_ms, step_ms))
    else:
        delay_ms -= step_ms
    average_ms = before.latency_ms
    if latency_ms is not None:
        average_ms += (latency_ms - average_ms) * (AVERAGE_SHARE if average_ms else 1.0)
    return AdaptiveDelay(max(floor_ms, min(delay_ms, ceiling_ms)), average_ms)


def slowed(before: AdaptiveDelay, *, floor_ms: int, ceiling_ms: int) -> AdaptiveDelay:
    """The delay of a domain that asked to be left alone (429): twice what it was, up to the ceiling. Never a stop."""
    delay_ms = int(INCREASE * max(before.delay_ms, floor_ms, STEP_MS))
    return AdaptiveDelay(max(floor_ms, min(delay_ms, ceiling_ms)), before.latency_ms)


def recovered(before: AdaptiveDelay, *, floor_ms: int) -> AdaptiveDelay:
    """The same after a normal answer: closer to the floor by a share of what it is above it, and then there."""
    above_ms = int((before.delay_ms - floor_ms) * (1 - RECOVERED_SHARE))
    return AdaptiveDelay(floor_ms + above_ms, before.latency_ms) if above_ms >= STEP_MS else UNMEASURED


def is_slow(latency_ms: int, average_ms: float) -> bool:
    """Did this answer take much longer than the average?"""
    return average_ms > 0 and latency_ms > max(SLOW_FACTOR * average_ms, SLOW_MS_MIN)
