"""Response policy: what the end of a request means for its URL (retry or end), its origin (health), its queue (delay).

What a name, a connection, TLS, a robots.txt or a status says holds for its origin alone. Of a queue, which may have
many origins, only the delay changes, when sites that did answer ask for fewer requests. The rules decide; this keeps
their state. Sends nothing. All times are monotonic ms.
"""

import logging
from collections import OrderedDict
from collections.abc import Callable, Sequence

import msgspec

from crawler.frontier.owner import Settlement
from crawler.hosts.robots_reader import RobotsResult
from crawler.model import UNANSWERED, UNSENT, Claim, Decoded, FailureKind, FetchResult, Request
from crawler.rules.challenges import sentence_of
from crawler.rules.conditional import is_unasked
from crawler.rules.health import decide, failure_of, is_unreadable, jitter_of
from crawler.rules.origin_health import AGAINST, GOOD, HostAction, HostHealth, HostHealthRules
from crawler.rules.pace import UNMEASURED, adapt, recovered, slowed, wait_ms
from crawler.rules.urls import origin_of
from crawler.runtime.clocks import monotonic_ms
from crawler.settings import Settings
from crawler.worker.outcomes import Failed
from crawler.worker.schedule import DOUBTS, QueueSlot
from crawler.worker.turn import SetAside

log = logging.getLogger(__name__)

# A URL waits this many times as long as its origin rests: another one is next then, and shows whether the URL was at
# fault.
BEHIND = 1.25
OVERLOADED = frozenset({FailureKind.SERVER_BUSY, FailureKind.CHALLENGED, FailureKind.TIMEOUT})
TOO_MANY_REQUESTS = 429
WANT_FEWER = frozenset({FailureKind.SERVER_BUSY, FailureKind.CHALLENGED})
ORIGINS_MAX = 50_000  # that did not answer; the one that has been quiet for longest begins at zero then
RECALLED_MAX = 1_000  # origins of a queue
PROBE_MS = 120_000  # how long a probe may take, from its claim: then another URL is the probe


class SilentOrigin(msgspec.Struct):
    """What is known of an origin that failed, or whose URLs are set aside.

    `probe`: the fingerprint of the URL that probes it, until `probe_until_ms`. `promised_ms`: when it may be tried, as
    one of several of its queue that may not answer (0: nothing was said). `is_in_row`: URLs of it are set aside in the
    engine. `is_busy`: it answered 429 or 503, or by a challenge (of the product `challenge`). `is_given_up`: its URLs
    end without a request.
    """

    health: HostHealth
    probe: str = ""
    probe_until_ms: int = 0
    promised_ms: int = 0
    is_in_row: bool = False
    is_busy: bool = False
    is_given_up: bool = False
    challenge: str = ""


class Recall(msgspec.Struct, frozen=True):
    """The URLs of an origin that are set aside go back: it answers (`is_good`), or they are given up. With `due_ms`
    (monotonic), only one of them does, at that time, as the next probe.
    """

    origin: str
    is_good: bool = False
    due_ms: int = 0


def _nobody_listens(_url: str, _domain: str, _delay_ms: int) -> None:
    """Where it does not matter who answers."""


class ResponsePolicy:
    """The policy of one instance. Origins that answer have no state."""

    def __init__(self, settings: Settings, *, on_answer: Callable[[str, str, int], None] = _nobody_listens) -> None:
        """`on_answer`: called with URL, domain and delay (ms) when a host has answered."""
        self._on_answer = on_answer
        self._retry = settings.retry
        self._hosts = HostHealthRules(settings.retry, settings.hosts)
        self._politeness = settings.politeness
        self._pause_max_ms = int(settings.hosts.probe_s * 1000)
        self._ceiling_ms = int(settings.politeness.delay_max_s * 1000)
        self._silent: OrderedDict[str, SilentOrigin] = OrderedDict()

    # --- origins ---

    def action_for(self, claim: Claim) -> HostAction:
        """What this turn of a claim may be used for. A probe is one until its request has ended."""
        known = self._silent.get(origin_of(claim.url)) if self._silent else None
        if known is None or not known.health.is_set_aside:
            return HostAction.FETCH
        now_ms = monotonic_ms()
        if known.probe == claim.fingerprint:
            return HostAction.PROBE
        action = self._hosts.action_for(known.health, now_ms=now_ms)
        if action is not HostAction.PROBE:
            return action
        if known.probe and now_ms < known.probe_until_ms:
            return HostAction.GIVE_UP if known.is_given_up else HostAction.WAIT
        known.probe, known.probe_until_ms = claim.fingerprint, now_ms + PROBE_MS
        return HostAction.PROBE

    def set_aside(self, claim: Claim, until_ms: int = 0) -> SetAside:
        """URLs of the claim's origin go into its row, until it is probed or, if it is not silent, until then."""
        origin = origin_of(claim.url)
        known = self._silent.get(origin) or self._keep(origin, SilentOrigin(GOOD))
        known.is_in_row = True
        if not known.health.is_set_aside:
            return SetAside(origin, until_ms, known.health.since_ms if known.health.failures else None)
        if known.probe == claim.fingerprint:
            known.probe = ""  # it had to wait, too
        due_ms = max(known.health.probe_ms, known.probe_until_ms if known.probe else until_ms)
        return SetAside(origin, due_ms, known.health.since_ms)

    def overtaken(self, claims: Sequence[Claim], end: SetAside) -> Recall | None:
        """What has happened while these claims were on their way into the row of their origin, which then gets no other
        word of it: the origin answered, was given up, or the request of its probe failed; or its probe is one of them.
        """
        known, now_ms = self._silent.get(end.origin), monotonic_ms()
        if known is None:
            return Recall(end.origin, is_good=True)
        if not known.is_in_row:
            return Recall(end.origin)
        if any(claim.fingerprint == known.probe for claim in claims):
            known.probe = ""
            return Recall(end.origin, due_ms=now_ms)
        if now_ms < known.health.probe_ms < end.due_ms:
            return Recall(end.origin, due_ms=known.health.probe_ms)
        return None

    def promise(self, claim: Claim, at_ms: int) -> SetAside:
        """As `set_aside`, for a claim whose origin may be tried at that time, and others of its queue before it."""
        end = self.set_aside(claim, at_ms)
        self._silent[end.origin].promised_ms = at_ms
        return end

    def promised_ms(self, claim: Claim) -> int:
        """What was promised to the claim's origin; 0 for nothing, or if it has been tried since."""
        known = self._silent.get(origin_of(claim.url))
        return known.promised_ms if known else 0

    def unrequested(self, claim: Claim) -> Recall | None:
        """A claim ended without a request. If it was to probe its origin, another one is."""
        known = self._silent.get(origin_of(claim.url)) if self._silent else None
        if known is None or not known.is_in_row or (known.probe != claim.fingerprint and known.health.is_set_aside):
            return None
        known.probe = ""
        return Recall(origin_of(claim.url), due_ms=monotonic_ms())

    def has_failed(self, origin: str) -> bool:
        """Did the last request to this origin, or attempt to connect, fail?"""
        return origin in self._silent and self._silent[origin].health.failures > 0

    def silent(self) -> list[tuple[str, SilentOrigin]]:
        """The origins that are set aside."""
        return [(origin, one) for origin, one in self._silent.items() if one.health.is_set_aside]

    def learn(self, origin: str, since_ms: int | None) -> None:
        """URLs of this origin are set aside in the engine, and one went back into its queue: as its last owner knew."""
        known = self._silent.get(origin) or self._keep(origin, SilentOrigin(GOOD))
        if since_ms is not None and not known.health.is_set_aside:
            known.health = HostHealth(self._hosts.hosts.failures, since_ms, max(1, monotonic_ms()))
        known.is_in_row = True

    def _keep(self, origin: str, one: SilentOrigin) -> SilentOrigin:
        self._silent[origin] = one
        self._silent.move_to_end(origin)
        while len(self._silent) > ORIGINS_MAX:
            self._silent.popitem(last=False)
        return one

    def _note_health(
        self, claim: Claim, kind: FailureKind | None, wait_min_ms: int = 0, *, challenge: str = ""
    ) -> Recall | None:
        """Note the health of the claim's origin after a request; what becomes of its URLs that are set aside."""
        if kind is None and not self._silent:  # the common case
            return None
        origin, now_ms = origin_of(claim.url), monotonic_ms()
        known = self._silent.get(origin)
        before = known.health if known else GOOD
        health = self._hosts.after(
            before, kind, now_ms=now_ms, is_probe=known is not None and known.probe == claim.fingerprint,
            wait_min_ms=wait_min_ms, jitter=jitter_of(origin, before.failures),
        )  # fmt: skip
        if health is before and health is not GOOD:
            return None
        if health.is_set_aside != before.is_set_aside:
            event = "origin.set_aside" if health.is_set_aside else "origin.back"
            failures = max(health.failures, before.failures)
            log.info(event, extra={"origin": origin, "failures": failures, "kind": kind})
        is_in_row = known is not None and known.is_in_row
        if health == GOOD:
            self._silent.pop(origin, None)
            return Recall(origin, is_good=True) if is_in_row else None
        one = self._keep(origin, SilentOrigin(health, is_in_row=is_in_row))
        one.is_busy, one.challenge = kind in WANT_FEWER, challenge
        one.is_given_up = self._hosts.is_given_up(health, now_ms=now_ms)
        if not is_in_row or not health.is_set_aside:
            return None
        if one.is_given_up:
            one.is_in_row = False
            return Recall(origin)
        return Recall(origin, due_ms=health.probe_ms)  # another URL is the next probe: the one that failed waits longer

    # --- requests ---

    def _note_answer(self, slot: QueueSlot, claim: Claim, kind: FailureKind | None) -> None:
        """Which origins of a queue answer."""
        origin = origin_of(claim.url)
        if kind not in UNANSWERED:
            slot.answered = origin
            self._on_answer(claim.url, claim.domain, max(slot.delay_ms, slot.adaptive_delay.delay_ms, 0))
        elif kind not in UNSENT:
            slot.doubts = DOUBTS
            if slot.reached == origin:
                slot.reached = ""

    def of_page(self, slot: QueueSlot, claim: Claim, result: FetchResult) -> tuple[int, Recall | None]:
        """Note the end of a page's request; how long its queue waits, ms, and what becomes of its origin's URLs."""
        kind = _kind_of(result)
        self._note_answer(slot, claim, kind)
        was_busy = kind in WANT_FEWER and self._is_busy(claim.url)
        recall = None
        if not result.stale_connection:  # not a failure of the host
            pause_ms = min(result.retry_after_ms, self._pause_max_ms) if kind in WANT_FEWER else 0
            recall = self._note_health(claim, kind, pause_ms, challenge=result.challenge)
            recall = recall or _recall_of(slot, claim, kind)
        if self._politeness.adaptive:
            self._adapt(slot, kind, result)
        elif kind in WANT_FEWER:
            is_asked = kind is FailureKind.CHALLENGED or _status_of(result) == TOO_MANY_REQUESTS
            if not was_busy and (is_asked or self._is_another_busy(slot, claim)):
                slot.adaptive_delay = slowed(
                    slot.adaptive_delay, floor_ms=max(slot.delay_ms, 0), ceiling_ms=self._ceiling_ms
                )
        elif slot.adaptive_delay is not UNMEASURED and result.response is not None:
            slot.adaptive_delay = recovered(slot.adaptive_delay, floor_ms=max(slot.delay_ms, 0))
        wait = wait_ms(
            delay_ms=max(slot.delay_ms, slot.adaptive_delay.delay_ms, 0),
            factor=self._politeness.factor,
            fetch_ms=result.fetch_ms,
        )
        return wait, recall

    def _is_busy(self, url: str) -> bool:
        known = self._silent.get(origin_of(url))
        return known is not None and known.is_busy

    def _is_another_busy(self, slot: QueueSlot, claim: Claim) -> bool:
        """Has another origin of the queue answered 503, and not well since? Then they may share what is overloaded."""
        before, slot.busy_origin = slot.busy_origin, origin_of(claim.url)
        return bool(before) and before != slot.busy_origin and self._is_busy(before + "/")

    def of_robots(
        self, slot: QueueSlot, claim: Claim, result: RobotsResult, *, delay_ms: int
    ) -> tuple[int, Recall | None]:
        """As `of_page`, for a turn spent on robots.txt. If it can't be read, its origin is set aside: none of its URLs
        may be fetched. A request on another queue leaves the health of this one's origin unchanged.
        """
        entry, recall = result.entry, None
        if entry is not None and entry.rules is None:
            until_ms = max(1, entry.expires_ms - monotonic_ms())  # until then, each URL would fail by this entry
            kind = entry.failure or FailureKind.ROBOTS_UNREACHABLE
            self._note_answer(slot, claim, kind)
            recall = self._note_health(claim, kind, until_ms)
        elif entry is not None and result.is_requested:
            self._note_answer(slot, claim, None)
            recall = self._note_health(claim, None) or _recall_of(slot, claim, None)
        return wait_ms(delay_ms=delay_ms, factor=self._politeness.factor, fetch_ms=result.fetch_ms), recall

    def _adapt(self, slot: QueueSlot, kind: FailureKind | None, result: FetchResult) -> None:
        if result.response is None and kind not in OVERLOADED:
            return
        slow = result.response is not None and result.response.truncated == "time"
        slot.adaptive_delay = adapt(
            slot.adaptive_delay,
            latency_ms=None if slow or kind in OVERLOADED else result.fetch_ms,
            floor_ms=max(slot.delay_ms, 0),
            ceiling_ms=self._ceiling_ms,
        )

    # --- URLs ---

    def judged(self, claim: Claim, result: FetchResult, settled: Settlement, *, is_sent: bool = False) -> Failed | None:
        """The failure of a page request; None when it gave a result. An incomplete body is a failure as long as there
        are attempts left, one of which nothing can be decoded is one in the end, too.

        A request that must not be repeated, and `is_sent`, is only repeated for a server that says it did nothing.
        """
        kind = _kind_of(result)
        if kind is None:
            return None
        detail = result.failure.detail if result.failure else _detail_of(result)
        failed = self.failed(claim, kind, detail, settled, retry_after_ms=result.retry_after_ms)
        is_last = is_sent and is_once(claim) and kind not in WANT_FEWER
        is_result = kind is FailureKind.BODY and (is_last or failed.retry_in_ms < 0)
        if is_result and not (result.response and is_unreadable(result.response)):
            return None
        if is_last:
            unknown, detail = FailureKind.OUTCOME_UNKNOWN, f"{kind}: {detail}"
            return msgspec.structs.replace(failed, kind=unknown, detail=detail, retry_in_ms=-1)
        return failed

    def failed(
        self, claim: Claim, kind: FailureKind, detail: str, settled: Settlement, *, retry_after_ms: int = 0
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
            known = self._silent.get(origin_of(claim.url))
            health = known.health if known else GOOD
            again = again and not self._hosts.is_given_up(health, now_ms=monotonic_ms())
            retry_in_ms = max(retry_in_ms, int(BEHIND * self._hosts.backoff_ms(health, kind)))
        return Failed(
            claim=claim, kind=kind, detail=detail, settlement=settled, retry_in_ms=retry_in_ms if again else -1
        )

    def abandoned(self, claim: Claim) -> Failed:
        """The end of a URL that is not requested because its origin has been silent for too long."""
        origin = origin_of(claim.url)
        known = self._silent.get(origin) or SilentOrigin(GOOD)
        silent_s = (monotonic_ms() - known.health.since_ms) // 1000
        what = sentence_of(known.challenge) if known.challenge else f"no answer from {origin}"
        detail = f"{what} in {known.health.failures} attempts over {silent_s} s"
        return Failed.finally_(claim, FailureKind.HOST_DEAD, detail)


def is_once(claim: Claim) -> bool:
    """Must its request not be sent again, once it may have been served (RFC 9110 9.2.2)?"""
    return claim.request is not None and not claim.request.may_repeat


def why_not_sent(request: Request) -> str:
    """Why a request that was claimed is not sent; "" for most."""
    if request.is_sent and not request.may_repeat:
        return f"the {request.method} may have been sent, and nobody saw an answer"
    return "its body was not kept" if request.is_withheld else ""


def _recall_of(slot: QueueSlot, claim: Claim, kind: FailureKind | None) -> Recall | None:
    """An origin answers whose URLs an earlier owner may have set aside: once for each, where there are any."""
    if not slot.has_aside or kind in AGAINST:
        return None
    origin = origin_of(claim.url)
    if origin in slot.recalled:
        return None
    slot.recalled = slot.recalled.union([origin]) if len(slot.recalled) < RECALLED_MAX else frozenset([origin])
    return Recall(origin, is_good=True)


def _detail_of(result: FetchResult) -> str:
    response = result.response
    assert response is not None
    if result.challenge:
        return sentence_of(result.challenge)
    if failure_of(response) is FailureKind.BODY:
        is_coding = response.decoded >= Decoded.PART
        return (
            f"Content-Encoding: {response.decode_error}"
            if is_coding
            else f"the body was cut off by {response.truncated}"
        )
    if is_unasked(response.status, response.request_head):
        return f"status {response.status} to a request that did not ask for it"
    return f"status {response.status}"


def _kind_of(result: FetchResult) -> FailureKind | None:
    if result.challenge:
        return FailureKind.CHALLENGED
    if result.response is not None:
        return failure_of(result.response)
    assert result.failure is not None
    return result.failure.kind


def _status_of(result: FetchResult) -> int:
    return result.response.status if result.response is not None else 0
