"""How much longer than its delay a queue waits between two requests: the smallest of late, for people and alerts.

Measured where requests are sent, and not by the scheduler's times: so it is below 0 if those are wrong.
"""

from collections.abc import Callable

from crawler.runtime.clocks import monotonic_ms
from crawler.worker.schedule import QueueSlot

WINDOW_MS = 30_000  # scrapes are 15 or 30 s apart: each sees what happened since the last one


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


class PolitenessMargin:
    """Of one instance, over all its queues that have a delay. Requests in borrowed slots are not seen here."""

    def __init__(self) -> None:
        self._ms = Recent(min)

    def sent(self, slot: QueueSlot, at_ms: int) -> None:
        """A request on this queue was sent at a time (monotonic ms). Where a delay has changed, the shorter counts."""
        before_ms, slot.sent_ms = slot.sent_ms, at_ms
        before_delay_ms, slot.sent_delay_ms = slot.sent_delay_ms, slot.delay_ms
        delay_ms = slot.delay_ms if before_delay_ms < 0 else min(slot.delay_ms, before_delay_ms)
        if before_ms is not None and delay_ms > 0:
            self._ms.note(at_ms - before_ms - delay_ms)

    @property
    def seconds(self) -> float | None:
        """The smallest lately; None without two requests on one queue."""
        return None if self._ms.value is None else self._ms.value / 1000
