"""How much longer than its delay a queue waits between two requests: the smallest of late, for people and alerts.

Measured where requests are sent, and not by the scheduler's times: so it is below 0 if those are wrong.
"""

from crawler.worker.schedule import QueueSlot
from crawler.worker.vitals import Recent


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
