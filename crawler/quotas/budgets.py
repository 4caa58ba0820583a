"""Budgets that were raised since they stopped queues: looked at when an instance begins, and where it acquires."""

import asyncio
import contextlib
from collections.abc import Callable

from crawler.errors import EngineError
from crawler.frontier.budgets import FetchQuota
from crawler.frontier.deferred import DeferredUrls
from crawler.frontier.frontier import Frontier
from crawler.membership.held_partitions import HeldPartitions
from crawler.quotas.raise_limits import RaisedQuotas
from crawler.runtime.clock import monotonic_ms
from crawler.settings import BudgetSettings

EVERY_S = 1.0
GROWN_EVERY_MS = 10_000  # where budgets grow while the crawl runs


class RaisedQuotasWatcher:
    """Beside the pipeline; a crawl that had ended goes on with what `begin` has released."""

    def __init__(
        self,
        frontier: Frontier,
        deferred_urls: DeferredUrls,
        held: HeldPartitions,
        settings: BudgetSettings,
        *,
        wake: Callable[[int], None],
    ) -> None:
        """`wake`: queues of this partition may be claimed from now."""
        self._raised = RaisedQuotas(
            frontier, deferred_urls, FetchQuota(pages=settings.pages, bytes=settings.bytes, depth=settings.depth)
        )
        self._held = held
        self._wake = wake
        self._seen: dict[int, int] = {}  # partition -> the epoch under which it was looked at
        self._grows = settings.urls_per_linking_domain > 0
        self._all_at_ms = 0

    async def prepare(self, partitions: int) -> None:
        """Look at the whole crawl, before anybody asks whether it is finished. Raises EngineError."""
        await self._raised.release(range(partitions))

    async def run(self) -> None:
        """Look at what is acquired: its last owner may have had smaller budgets.

        And where budgets grow with links, at all that is held: the engine releases by itself what they take in, but
        not from the middle of a block that is in a file.
        """
        while True:
            await asyncio.sleep(EVERY_S)
            fresh = {p: h.epoch for p, h in self._held.items() if self._seen.get(p) != h.epoch}
            if self._grows and monotonic_ms() - self._all_at_ms >= GROWN_EVERY_MS:
                self._all_at_ms, fresh = monotonic_ms(), {p: h.epoch for p, h in self._held.items()}
            with contextlib.suppress(EngineError):
                if await self._raised.release(list(fresh)):
                    for partition in fresh:  # no hint tells an owner what it released itself
                        self._wake(partition)
                self._seen.update(fresh)
