"""Response policy: what the end of a request means for its queue (wait, health, delay) and its URL (retry or end).

The rules decide; the queue slot keeps their state. Sends nothing.
"""

import logging

from crawler.frontier.frontier import Settlement
from crawler.model import Claim, FailureKind, FetchResult, Response
from crawler.pipeline.outcome import Failed
from crawler.pipeline.schedule import QueueSlot
from crawler.robots.reader import RobotsResult
from crawler.rules.host_health import AGAINST, GOOD, HostAction, HostHealthRules
from crawler.rules.politeness import adapt, wait_ms
from crawler.rules.retry import decide, failure_of, jitter_of
from crawler.runtime.clock import monotonic_ms
from crawler.settings import Settings

log = logging.getLogger(__name__)

# A URL waits this many times as long as its queue: another one is next then, and shows whether the URL was at fault.
BEHIND = 1.25
OVERLOADED = frozenset({FailureKind.SERVER_BUSY, FailureKind.TIMEOUT})


class ResponsePolicy:
    """The policy of one instance. All times are monotonic ms."""

    def __init__(self, settings: Settings) -> None:
        self._retry = settings.retry
        self._hosts = HostHealthRules(settings.retry, settings.hosts)
        self._politeness = settings.politeness

    def host_action(self, slot: QueueSlot) -> HostAction:
        """What this turn of a queue may be used for."""
        return self._hosts.action_for(slot.health, now_ms=monotonic_ms())

    def of_page(self, slot: QueueSlot, result: FetchResult) -> int:
        """Note the end of a page's request; how long its queue waits, ms."""
        kind = _kind_of(result)
        # A stale connection is not a failure of the host.
        backoff_ms = 0 if result.stale_connection else self._note_health(slot, kind, result.retry_after_ms)
        if self._politeness.adaptive:
            self._adapt(slot, kind, result)
        return wait_ms(
            delay_ms=max(slot.delay_ms, slot.adaptive_delay.delay_ms, 0),
            factor=self._politeness.factor,
            fetch_ms=result.fetch_ms,
            retry_after_ms=result.retry_after_ms,
            backoff_ms=backoff_ms,
        )

    def of_robots(self, slot: QueueSlot, result: RobotsResult, *, delay_ms: int) -> int:
        """As `of_page`, for a turn spent on robots.txt. A request on another queue leaves its health unchanged."""
        entry, kind, retry_after_ms, backoff_ms = result.entry, None, 0, 0
        if entry is not None and entry.rules is None:
            kind, retry_after_ms = entry.failure or FailureKind.ROBOTS_UNREACHABLE, entry.retry_after_ms
            backoff_ms = entry.expires_ms - monotonic_ms()  # until then, each URL of the queue would fail by this entry
        if result.is_requested:
            backoff_ms = max(backoff_ms, self._note_health(slot, kind, retry_after_ms))
        return wait_ms(
            delay_ms=delay_ms,
            factor=self._politeness.factor,
            fetch_ms=result.fetch_ms,
            retry_after_ms=retry_after_ms,
            backoff_ms=backoff_ms,
        )

    def _note_health(self, slot: QueueSlot, kind: FailureKind | None, retry_after_ms: int) -> int:
        """Note the host's health after this request; the back-off of its queue, ms."""
        before, now_ms = slot.health, monotonic_ms()
        if kind is None and before is GOOD:  # the common case
            return 0
        jitter = jitter_of(slot.queue, before.failures)
        slot.health = self._hosts.after(before, kind, now_ms=now_ms, retry_after_ms=retry_after_ms, jitter=jitter)
        if slot.health.is_set_aside != before.is_set_aside:
            event = "queue.set_aside" if slot.health.is_set_aside else "queue.back"
            failures = max(slot.health.failures, before.failures)
            log.info(event, extra={"queue": slot.queue, "failures": failures, "kind": kind})
        if kind not in AGAINST or self._hosts.is_given_up(slot.health, now_ms=now_ms):
            return 0  # URLs of a host that is given up end without a wait
        return self._hosts.backoff_ms(slot.health, kind, jitter=jitter)

    def _adapt(self, slot: QueueSlot, kind: FailureKind | None, result: FetchResult) -> None:
        if result.response is None and kind not in OVERLOADED:
            return
        slow = result.response is not None and result.response.truncated == "time"
        slot.adaptive_delay = adapt(
            slot.adaptive_delay,
            latency_ms=None if slow or kind in OVERLOADED else result.fetch_ms,
            floor_ms=max(slot.delay_ms, 0),
            ceiling_ms=int(self._politeness.delay_max_s * 1000),
        )

    def judged(self, slot: QueueSlot, claim: Claim, result: FetchResult, settled: Settlement) -> Failed | None:
        """The failure of a page request; None when it gave a result. An incomplete body is a failure as long as there
        are attempts left.
        """
        kind = _kind_of(result)
        if kind is None:
            return None
        detail = result.failure.detail if result.failure else _detail_of(result.response)
        failed = self.failed(slot, claim, kind, detail, settled, retry_after_ms=result.retry_after_ms)
        return None if kind is FailureKind.BODY and failed.retry_in_ms < 0 else failed

    def failed(
        self,
        slot: QueueSlot,
        claim: Claim,
        kind: FailureKind,
        detail: str,
        settled: Settlement,
        *,
        retry_after_ms: int = 0,
    ) -> Failed:
        """A failed attempt: its URL is retried later, or given up."""
        attempts = claim.attempts + 1
        decision = decide(
            kind,
            attempts=attempts,
            settings=self._retry,
            retry_after_ms=retry_after_ms,
            jitter=jitter_of(claim.fingerprint, attempts),
        )
        again, retry_in_ms = decision.again, decision.wait_ms
        if kind in AGAINST:
            again = again and not self._hosts.is_given_up(slot.health, now_ms=monotonic_ms())
            retry_in_ms = max(retry_in_ms, int(BEHIND * self._hosts.backoff_ms(slot.health, kind)))
        return Failed(
            claim=claim, kind=kind, detail=detail, settlement=settled, retry_in_ms=retry_in_ms if again else -1
        )

    def abandoned(self, slot: QueueSlot, claim: Claim) -> Failed:
        """The end of a URL that is not requested because its host has been silent for too long."""
        silent_s = (monotonic_ms() - slot.health.since_ms) // 1000
        detail = f"no answer from its host in {slot.health.failures} attempts over {silent_s} s"
        return Failed.finally_(claim, FailureKind.HOST_DEAD, detail)


def _detail_of(response: Response | None) -> str:
    assert response is not None
    if failure_of(response) is FailureKind.BODY:
        return response.decode_error or f"the body was cut off by {response.truncated}"
    return f"status {response.status}"


def _kind_of(result: FetchResult) -> FailureKind | None:
    if result.response is not None:
        return failure_of(result.response)
    assert result.failure is not None
    return result.failure.kind
