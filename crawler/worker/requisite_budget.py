"""How many bytes may be fetched of a queue to show pages (`requisites.bytes`), and were fetched by now.

The engine's record of a queue has the sum. An owner reads it once, and adds what it fetches. What is requested when the
budget is used up is beyond it. Also: how many robots.txt files were read for requisites alone.
"""

from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from crawler.model import Claim
from crawler.rules.urls import origin_of

QUEUES_MAX = 10_000

Records = Callable[[int, Sequence[str]], Awaitable[Mapping[str, Mapping[str, Any]]]]


class RequisiteBudget:
    """That of each queue; `bytes_max` 0: no limit."""

    def __init__(self, records: Records, bytes_max: int) -> None:
        self._records = records
        self._bytes_max = bytes_max
        self._used: OrderedDict[tuple[str, int], int] = OrderedDict()  # by queue, and the epoch of its owner
        self._robots: OrderedDict[str, int] = OrderedDict()  # files read for requisites of an origin, to be counted

    async def is_used_up(self, claim: Claim) -> bool:
        """Raises EngineError."""
        if not self._bytes_max:
            return False
        key = claim.queue, claim.epoch
        if key not in self._used:
            record = (await self._records(claim.partition, [claim.queue])).get(claim.queue, {})
            self._used.setdefault(key, record.get("requisite_bytes", 0))
            if len(self._used) > QUEUES_MAX:
                self._used.popitem(last=False)
        return self._used.get(key, 0) >= self._bytes_max

    def fetched(self, claim: Claim, body_bytes: int) -> None:
        """A requisite of the claim's queue was fetched; it counts before it is committed."""
        key = claim.queue, claim.epoch
        if key in self._used:
            self._used[key] += body_bytes

    def robots_read(self, claim: Claim) -> None:
        """A robots.txt was read in the turn of a requisite; the next commit of its origin counts it."""
        origin = origin_of(claim.url)
        self._robots[origin] = self._robots.get(origin, 0) + 1
        if len(self._robots) > QUEUES_MAX:
            self._robots.popitem(last=False)

    def take_robots(self, claim: Claim) -> int:
        """How many were read for the claim's origin, and are not counted yet."""
        return self._robots.pop(origin_of(claim.url), 0) if self._robots else 0
