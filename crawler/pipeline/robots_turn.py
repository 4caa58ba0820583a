"""Turns spent on robots.txt and on the delay of a queue, before a page of the queue is fetched."""

import asyncio
import logging
from collections.abc import Awaitable, Callable

from crawler.errors import EngineError
from crawler.model import Claim
from crawler.pipeline import url_lines
from crawler.pipeline.outcome import NotEntitledError
from crawler.pipeline.page_request import OpenRequests
from crawler.pipeline.response_policy import Recall, ResponsePolicy
from crawler.pipeline.schedule import QueueSlot
from crawler.pipeline.turn import Requeue, Turn
from crawler.robots.cache import RobotsEntry
from crawler.robots.gate import RobotsGate
from crawler.rules.health import TICK_MS
from crawler.rules.urls import origin_of
from crawler.runtime.clock import ENGINE_PAUSE_S, monotonic_ms
from crawler.runtime.crash_points import reached

log = logging.getLogger(__name__)

PAUSE_MS = int(ENGINE_PAUSE_S * 1000)


class RobotsTurns:
    """Decides how such turns end. `before_send(claim, url)` is called just before a request, `on_sent` afterwards, with
    the time (monotonic ms), if it was one on the queue of the turn.
    """

    def __init__(
        self,
        gate: RobotsGate,
        policy: ResponsePolicy,
        *,
        before_send: Callable[[Claim, str], None],
        on_sent: Callable[[QueueSlot, int], None],
        recall: Callable[[Claim, Recall], Awaitable[None]],
    ) -> None:
        self._gate = gate
        self._policy = policy
        self._before_send = before_send
        self._on_sent = on_sent
        self._recall = recall
        self.requests = OpenRequests()

    async def read(self, turn: Turn) -> RobotsEntry | Requeue:
        """Use this turn for robots.txt: the entry, or how the turn ends when another one is needed."""
        slot, claim = turn.slot, turn.claim
        origin, sent = origin_of(claim.url), list[int]()

        def before_send() -> None:
            self._before_send(claim, origin)
            sent.append(monotonic_ms())
            turn.sent()

        worker = self.requests.add(claim, is_quick=turn.is_quick)
        try:
            result = await self._gate.read(claim, before_send, working=turn.mark)
        except (NotEntitledError, EngineError, asyncio.CancelledError) as error:
            if isinstance(error, asyncio.CancelledError) and not self.requests.is_only_cut_off(worker):
                raise
            if not self.requests.has_made_way(worker):
                log.warning("robots.not_read", extra={"origin": origin, "error": str(error)})
            # A request may have been sent, also on another queue.
            wait_ms = max(self._gate.min_delay_ms, slot.delay_ms, PAUSE_MS) if sent else 0
            return Requeue(wait_ms=wait_ms, started=bool(sent), at_tail=True)
        finally:
            self.requests.remove(worker)
        entry = result.entry
        if entry is None and not result.is_requested:  # no slot yet for the target of its redirect
            return Requeue(wait_ms=result.wait_ms, at_tail=True)
        reached("robots.answered", origin)
        if result.is_requested and sent:
            self._on_sent(slot, sent[-1])
        learned_ms = -1
        delay_ms = max(self._gate.min_delay_ms, slot.delay_ms)  # another origin of the queue may have a longer one
        if entry is not None and entry.rules is not None:
            learned_ms = delay_ms = slot.delay_ms = self._gate.delay_of(claim, entry)
        url_lines.robots_read(origin, result, delay_ms=delay_ms)
        wait_ms, recall = self._policy.of_robots(slot, claim, result, delay_ms=delay_ms)
        # Without a delay the queue keeps its place, so its page goes over the same connection.
        turn.request_over(wait_ms=wait_ms, started=wait_ms > 0)
        if recall is not None:
            await self._recall(claim, recall)
        if not await self._gate.share(claim, result, wait_ms=wait_ms, delay_ms=learned_ms):
            slot.delay_ms = -1  # not stored: the next turn stores it before any page is fetched
        return (
            Requeue(at_tail=True) if entry is None else entry
        )  # at the tail: other origins of the queue need not wait

    async def learn_delay(self, turn: Turn, entry: RobotsEntry | None) -> Requeue | None:
        """Store the queue's delay before its first page request.

        A Requeue when it is longer than the one that this turn waited for: a request for another origin's robots.txt
        may have been sent recently in a borrowed slot.
        """
        slot, claim = turn.slot, turn.claim
        delay_ms, known_ms = self._gate.delay_of(claim, entry), slot.delay_ms
        if known_ms == delay_ms:
            return None
        wait_ms = delay_ms + TICK_MS if delay_ms > max(known_ms, self._gate.min_delay_ms) else 0
        await self._gate.store_delay(claim, delay_ms, wait_ms=wait_ms)
        slot.delay_ms = delay_ms
        if wait_ms:
            return Requeue(wait_ms=wait_ms, started=True)
        if delay_ms > 0:  # with several requests at a time the next may be near
            slot.next_ms = max(slot.next_ms, monotonic_ms() + delay_ms + TICK_MS)
        return None
