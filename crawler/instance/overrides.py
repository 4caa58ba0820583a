"""Applies an operator's overrides in this instance: returns stopped claims, takes over delays and boosts.

Reads overrides only when their version has changed. The stops themselves are in the engine; this covers what they
leave open: claims that are in memory, and queues that the operator's command did not know.
"""

import contextlib
import logging

from crawler.errors import EngineError
from crawler.frontier.operator import OperatorCommands, Overrides
from crawler.instance.rebalance import PartitionRebalance
from crawler.model import Claim
from crawler.rules.places import registrable_domain
from crawler.worker.work import Work

log = logging.getLogger(__name__)


class OverrideFollower:
    """Updates `counters.overrides`, which the stages check before they start anything."""

    def __init__(
        self,
        operator: OperatorCommands,
        work: Work,
        rebalance: PartitionRebalance,
        *,
        default_delay_ms: int,
    ) -> None:
        self._operator = operator
        self._work = work
        self._rebalance = rebalance
        self._default_delay_ms = default_delay_ms
        self._delays_changed: list[str] = []  # domains whose delay is not stored in the engine yet

    async def follow(self, version: int = -1) -> None:
        """Take over the overrides, unless this version is known. Raises EngineError."""
        if version != self._work.counters.overrides.version:
            await self._take_over()
        while self._delays_changed:
            await self._set_delay(self._delays_changed[-1])
            self._delays_changed.pop()

    async def _take_over(self) -> None:
        before, overrides = self._work.counters.overrides, await self._operator.overrides()
        self._work.counters.overrides = overrides
        log.info("overrides.changed", extra={"paused": overrides.is_paused, "overrides_version": overrides.version})
        self._take_over_delays(before, overrides)
        self._take_over_boosts(before, overrides)
        stopped = self._work.scheduler.take_out(lambda claim: overrides.holds_back(claim.domain))
        await self._rebalance.return_claims(stopped)
        self._work.due.room_changed()

    def _take_over_delays(self, before: Overrides, overrides: Overrides) -> None:
        """A shorter delay applies at once; a longer one with the next turn of each queue, and so does the Crawl-delay
        when an override is removed.
        """
        taken_back = before.delays_ms.keys() - overrides.delays_ms.keys()
        wanted = dict.fromkeys(taken_back, self._default_delay_ms) | dict(overrides.delays_ms)
        changed = {domain: ms for domain, ms in wanted.items() if before.delays_ms.get(domain) != ms}
        self._delays_changed += changed
        for slot in self._work.scheduler.slots() if changed else ():
            delay_ms = changed.get(registrable_domain(slot.queue))
            if delay_ms is not None:
                self._work.scheduler.shorten_delay(slot, delay_ms)

    def _take_over_boosts(self, before: Overrides, overrides: Overrides) -> None:
        changed = {domain for domain, _ in before.boosts.items() ^ overrides.boosts.items()}
        if changed:
            self._work.scheduler.set_boosts(overrides.boosts)
        for domain in changed:
            self._work.due.hint(self._operator.partition_of(domain))

    async def _set_delay(self, domain: str) -> None:
        """Store the delay again for queues in memory: turns from before the override was known stored another one."""
        partition = self._operator.partition_of(domain)
        fence = self._work.held.fence_of(partition)
        queues = [slot.queue for slot in self._work.scheduler.slots() if registrable_domain(slot.queue) == domain]
        if fence is not None and queues:
            due_ms = {queue: fence.now_ms + self._work.scheduler.wait_of(queue) for queue in queues}
            await self._operator.set_delay(partition, due_ms, self._work.counters.overrides.delays_ms.get(domain))
            self._work.due.hint(partition)

    async def return_stopped(self, claim: Claim) -> None:
        """Return a claim of a stopped domain, and stop its queue if it is not stopped."""
        if self._work.counters.overrides.stop_of(claim.domain):
            with contextlib.suppress(EngineError):  # otherwise the next claim of the queue does it
                await self._operator.carry_out(claim.domain, [claim.queue])
        await self._rebalance.return_claims([claim])
