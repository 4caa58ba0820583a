"""Attempts that fail: retries, origins that do not answer, poison URLs, and the pace that a site can bear. Pure."""

from collections import OrderedDict
from enum import Enum
from hashlib import blake2b
from typing import TypeVar

import msgspec

from crawler.model import REDIRECTS, Decoded, FailureKind, Response
from crawler.rules.requests import http_date_s, is_unasked
from crawler.settings import HostsSettings, RetryKind, RetrySettings

# No second attempt can change these.
PERMANENT = frozenset(
    {
        FailureKind.ADDRESS_REFUSED,
        FailureKind.PORT_REFUSED,
        FailureKind.HEADERS_TOO_LARGE,
        FailureKind.PARSE,
        FailureKind.INTERNAL,
        FailureKind.OUTCOME_UNKNOWN,
        FailureKind.REDIRECT_WITH_BODY,
        FailureKind.LOGIN_REQUIRED,
        FailureKind.ENDS_SESSION,
        FailureKind.POISON_URL,
        FailureKind.HOST_DEAD,
    }
)
_HOST = RetryKind(backoff_s=5.0)  # a host or a name server that does not answer needs a while
_ONCE = RetryKind(attempts=2)  # what comes again in the same way is as a rule not going to change
TABLE = {
    FailureKind.DNS_NOT_FOUND: RetryKind(attempts=1),  # the name servers are sure
    FailureKind.DNS_ERROR: _HOST,
    FailureKind.CONNECT: _HOST,
    FailureKind.TLS: _ONCE,
    FailureKind.TIMEOUT: _HOST,
    FailureKind.PROTOCOL: _ONCE,
    FailureKind.SERVER_BUSY: RetryKind(attempts=5, backoff_s=10.0),  # it asks for patience
    FailureKind.CHALLENGED: RetryKind(backoff_s=60.0),  # some end by themselves, when fewer requests come
    FailureKind.BODY: _ONCE,
    FailureKind.HANDLER: _ONCE,
}
_COMMON = RetryKind()
BUSY_STATUSES = frozenset({429, 503})
INTERRUPTED = frozenset({"time", "disconnect"})  # "length" is our own limit: a retry would not bring more
_T = TypeVar("_T")
JITTER = 0.25  # of a pause: spreads what failed together, and keeps the order of magnitude
RETRY_AFTER_DIGITS_MAX = 12  # more seconds than any cap


class Policy(msgspec.Struct, frozen=True):
    """The row of the table for one kind of failure."""

    attempts: int
    backoff_s: float
    factor: float
    max_s: float

    def backoff_ms(self, nth: int, jitter: float = 0.0) -> int:
        """The pause after the nth failure (from 1); `jitter` (0 to 1) shortens it by up to a quarter."""
        try:
            grown_s = self.backoff_s * self.factor ** (nth - 1)
        except OverflowError:
            grown_s = self.max_s
        return int(1000 * min(grown_s, self.max_s) * (1 - JITTER * jitter))


class RetryDecision(msgspec.Struct, frozen=True):
    """Either another attempt after `wait_ms`, or none."""

    again: bool
    wait_ms: int = 0


def policy_of(kind: FailureKind, settings: RetrySettings) -> Policy:
    """The row for this kind: its own values where they are set, else those of the table, else the common ones."""
    own, usual = getattr(settings, kind, _COMMON), TABLE.get(kind, _COMMON)
    return Policy(
        attempts=1 if kind in PERMANENT else _first(own.attempts, usual.attempts, settings.attempts),
        backoff_s=_first(own.backoff_s, usual.backoff_s, settings.backoff_s),
        factor=settings.backoff_factor,
        max_s=settings.backoff_max_s,
    )


def _first(own: _T | None, usual: _T | None, common: _T) -> _T:
    if own is not None:
        return own
    return common if usual is None else usual


def failure_of_status(status: int) -> FailureKind | None:
    """Server errors are failed attempts, every other status is a result."""
    if status in BUSY_STATUSES:
        return FailureKind.SERVER_BUSY
    return FailureKind.SERVER_ERROR if status >= 500 else None


def failure_of(response: Response) -> FailureKind | None:
    """The failure that a response counts as, if any. An incomplete body is one, and is kept if retries fail, too.

    A content coding that is only odd is none: the next attempt would bring the same. Nor is that of a redirect's body.
    An answer to conditions that nobody sent is none to the request.
    """
    if is_unasked(response.status, response.request_head):
        return FailureKind.PROTOCOL
    kind = failure_of_status(response.status)
    is_damaged = response.decoded >= Decoded.PART and response.status not in REDIRECTS
    if kind is None and (response.truncated in INTERRUPTED or is_damaged):
        return FailureKind.BODY
    return kind


def is_unreadable(response: Response) -> bool:
    """Is it a page of which nothing can be decoded? Then it is not a result. Other statuses are, without a body."""
    return response.decoded is Decoded.NOTHING and 200 <= response.status < 300


def jitter_of(key: str, nth: int) -> float:
    """A number from 0 to 1: pseudorandom, and the same each time."""
    digest = blake2b(f"{key} {nth}".encode(), digest_size=4, person=b"jitter").digest()
    return int.from_bytes(digest, "big") / 0xFFFFFFFF


def decide(
    kind: FailureKind, *, attempts: int, settings: RetrySettings, retry_after_ms: int = 0, jitter: float = 0.0
) -> RetryDecision:
    """`attempts` includes this one and earlier ones of any kind. A Retry-After longer than the pause wins."""
    policy = policy_of(kind, settings)
    if attempts >= policy.attempts:
        return RetryDecision(again=False)
    return RetryDecision(again=True, wait_ms=max(policy.backoff_ms(attempts, jitter), retry_after_ms))


def retry_after_ms(value: str | None, *, date: str | None, now_s: float, max_s: float) -> int:
    """Milliseconds to wait by a Retry-After header (RFC 9110 10.2.3), at most `max_s`; 0 if past, invalid or absent.

    Takes seconds or an HTTP-date. A date is on the server's clock: it is measured from the `date` header of the same
    response, and from `now_s` (wall clock) only if that header is absent.
    """
    text = (value or "").strip()
    if text.isascii() and text.isdigit():
        seconds = float(text[:RETRY_AFTER_DIGITS_MAX])
    else:
        until_s = http_date_s(text)
        if until_s is None:
            return 0
        seconds = until_s - _sent_at(date, now_s)
    return int(1000 * min(max(seconds, 0.0), max_s))


def _sent_at(date: str | None, now_s: float) -> float:
    sent_s = http_date_s(date or "")
    return now_s if sent_s is None else sent_s


# Whether an origin answers: a state of a few numbers, and what may be done with its URLs. Pure.
#
# An origin is scheme, host and port. After several failures in a row, or at once when its robots.txt can't be read or
# it answers that it is busy, its URLs are set aside: one of them probes it at growing intervals, and the others wait
# without losing attempts. Any answer ends this at once. After too long a silence its URLs may be given up; it is still
# probed. Nothing here concerns other origins of the same domain. Times are ms on the clock that the caller uses for the
# state.


# The host does not answer, or refuses every request for now. A 404, or a 500 for one page, only shows that it is up. A
# name that does not exist, or an address that may not be connected to, is known at once: each URL is judged by itself.
AGAINST = frozenset(
    {
        FailureKind.DNS_ERROR,
        FailureKind.CONNECT,
        FailureKind.TLS,
        FailureKind.TIMEOUT,
        FailureKind.DISCONNECTED,
        FailureKind.SERVER_BUSY,
        FailureKind.ROBOTS_UNREACHABLE,
        FailureKind.CHALLENGED,
    }
)
# The first one sets the origin aside: what it answered holds for more than one URL.
AT_ONCE = frozenset({FailureKind.SERVER_BUSY, FailureKind.ROBOTS_UNREACHABLE})
PROBE_FACTOR = 2.0  # each further probe comes after a time this many times longer


class HostHealth(msgspec.Struct, frozen=True, array_like=True):
    """State of an origin: failures in a row, time of the first of them, time of the next probe (0: not set aside)."""

    failures: int = 0
    since_ms: int = 0
    probe_ms: int = 0

    @property
    def is_set_aside(self) -> bool:
        return self.probe_ms > 0


GOOD = HostHealth()


class HostAction(Enum):
    """What may be done with an origin's next URL."""

    FETCH = "fetch"
    PROBE = "probe"  # fetch one URL, and no other until it has ended
    WAIT = "wait"
    GIVE_UP = "give_up"  # end the URL without a request


class HostHealthRules(msgspec.Struct, frozen=True):
    """The rules under given settings."""

    retry: RetrySettings
    hosts: HostsSettings

    def action_for(self, health: HostHealth, *, now_ms: int) -> HostAction:
        """What to do with a URL whose turn it is."""
        if not health.is_set_aside:
            return HostAction.FETCH
        if now_ms >= health.probe_ms:
            return HostAction.PROBE
        return HostAction.GIVE_UP if self.is_given_up(health, now_ms=now_ms) else HostAction.WAIT

    def is_given_up(self, health: HostHealth, *, now_ms: int) -> bool:
        """Has the origin been silent for too long?"""
        return health.is_set_aside and now_ms - health.since_ms >= self.hosts.give_up_s * 1000

    def after(
        self,
        health: HostHealth,
        kind: FailureKind | None,
        *,
        now_ms: int,
        is_probe: bool = False,
        wait_min_ms: int = 0,
        jitter: float = 0.0,
    ) -> HostHealth:
        """The health after a request that ended with this failure (None: with a result).

        `is_probe`: it was the request that the origin was probed with. `wait_min_ms`: its URLs can't be fetched before,
        whatever the kind (its robots.txt could not be read).
        """
        if kind is None or kind not in AGAINST:
            return GOOD
        if health.is_set_aside and now_ms < health.probe_ms and not is_probe:
            return health  # the request was open when the origin was set aside
        since_ms = health.since_ms if health.failures else now_ms
        counted = HostHealth(health.failures + 1, since_ms)
        is_at_once = health.is_set_aside or kind in AT_ONCE or wait_min_ms > 0
        if counted.failures < self.hosts.failures and not is_at_once:
            return counted
        wait_ms = max(self.backoff_ms(counted, kind, jitter=jitter), wait_min_ms, 1)
        return HostHealth(counted.failures, since_ms, now_ms + wait_ms)

    def backoff_ms(self, health: HostHealth, kind: FailureKind, *, jitter: float = 0.0) -> int:
        """How long the origin rests after its last failure, of this kind; grows with each failure in a row."""
        if not health.failures:
            return 0
        beyond = health.failures - self.hosts.failures
        if beyond >= 0:
            h = self.hosts
            return Policy(1, h.probe_s, PROBE_FACTOR, h.probe_max_s).backoff_ms(beyond + 1, jitter)
        return min(policy_of(kind, self.retry).backoff_ms(health.failures, jitter), int(self.hosts.probe_s * 1000))


# Whether a proxy works, and whose fault it is when a request through one brings no answer. Pure.
#
# A proxy that takes no connections shows by itself that it is at fault. All else looks the same when a target is: a
# refused tunnel, an answer that makes no sense, silence, a connection that breaks. Then the others are witnesses. Where
# the proxy has served another target since it first failed for this one, and before it was asked again, the target is
# at fault, and the rules for hosts apply. Until then its URLs wait, for pauses that grow, and no attempt counts.
#
# Two bounds end this where there is no witness. A target that never answered is at fault after some attempts, if
# nothing that answered before fails: because it is the only one, like a misspelt seed, or because the proxy has served
# others. Where many fail, this takes some minutes. Any target is at fault after `hosts.give_up_s`, as a host that does
# not answer, but not for an answer that is as a rule the proxy's.
#
# What takes no connections some times in a row is closed to all but one target, which tries it. What fails for many
# domains in a row is closed so to targets that never answered, because links may lead to any number of those: others
# go on, and each new one may try once. Domains count, because a site can have any number of hosts; and many, because
# many of the web are dead.


class Fault(Enum):
    """Whose fault a failure may be, as far as it tells by itself."""

    PROXY = "proxy"  # no target was named to it yet
    LIKELY = "likely"  # as a rule the proxy's, whatever the target: another protocol, 407 (any site can send it, too)
    BUSY = "busy"  # 429: as a rule because of all that it was asked lately
    REFUSED = "refused"  # by a rule of the proxy: for this target, or for all
    EITHER = "either"
    TARGET = "target"


class _Troubled(msgspec.Struct):
    """A target for which the proxy failed. `served`, `begun`: how many answers there had been when it first failed, and
    when its last request began.
    """

    since_ms: int
    served: int
    begun: int
    count: int = 0
    failed_ms: int = 0


ALONE_MAX = 6  # times in a row, over half a minute
DOMAINS_MAX = (
    10  # in a row that fail by whoever's fault: of a web in which half of all hosts are dead, one in a thousand
)
MANY_MS = 300_000  # how long many targets that never answered wait for a witness, while nothing else fails
FIRST_MS = 250  # between first attempts of targets while it fails for many domains
DOUBT_MS = 2_000
TARGETS_MAX = 10_000  # that failed, and that answered; the first one is forgotten, and begins again
PROXY_PAUSES = HostsSettings(
    failures=3, probe_s=1.0, probe_max_s=30.0
)  # of a proxy, where those of origins are minutes


class ProxyHealth:
    """The state of one proxy. A target is an origin; `domain` is its registrable domain."""

    def __init__(self, *, give_up_ms: int) -> None:
        self._give_up_ms = give_up_ms
        self._rules = HostHealthRules(RetrySettings(), PROXY_PAUSES)
        self._health = GOOD
        self._plain = 0  # times since it served any that it failed by itself
        self._probe = ""  # the target that tries it
        self._first: OrderedDict[str, int] = OrderedDict()  # when targets that never failed may try it
        self._first_ms = 0  # the last of these times
        self._served = 0
        self._served_before = 0  # when it came back last
        self._back_ms = 0  # when that was
        self._streak: set[str] = set()  # domains for which it failed since it served any
        self._is_missed = False  # did it fail since then for a target that answered before?
        self._doubt_ms = 0  # since when
        self._answered: OrderedDict[str, None] = OrderedDict()  # targets: they exist
        self._troubled: OrderedDict[str, _Troubled] = OrderedDict()
        self.detail = ""  # of the last failure

    def is_in_doubt(self, *, now_ms: int) -> bool:
        """Has nothing come through it since it failed, which was not just now for one target?"""
        return bool(self._streak) and (self._health.is_set_aside or now_ms - self._doubt_ms >= DOUBT_MS)

    def wait_ms(self, target: str, *, now_ms: int) -> int:
        """How long a request to this target waits; 0: it may be sent now, and tries the proxy if it has failed."""
        known, until_ms = self._troubled.get(target), 0
        if known is not None and known.failed_ms > self._back_ms:
            until_ms = known.failed_ms + pause_ms(known.count)
        is_closed = self._health.is_set_aside and target != self._probe
        if is_closed and self._plain < PROXY_PAUSES.failures:
            if known is None:
                until_ms, is_closed = self._first_of(target, now_ms), False
            is_closed = is_closed and target not in self._answered
        if is_closed:
            until_ms = max(until_ms, self._health.probe_ms)
        if until_ms > now_ms:
            return until_ms - now_ms
        if is_closed:
            self._probe = target  # others wait until it has an answer, or has had the time for one
            wait_ms = self._rules.backoff_ms(self._health, FailureKind.CONNECT)
            self._health = HostHealth(self._health.failures, self._health.since_ms, now_ms + wait_ms)
        return 0

    def _first_of(self, target: str, now_ms: int) -> int:
        """When a target that never failed may try a proxy that fails for many domains: one after the other."""
        if target in self._answered:
            return 0
        at_ms = self._first.get(target)
        if at_ms is None:
            at_ms = self._first[target] = self._first_ms = max(self._first_ms, now_ms) + FIRST_MS
            if len(self._first) > TARGETS_MAX:
                self._first.popitem(last=False)
        return at_ms

    def begins(self, target: str) -> None:
        """A request to this target begins."""
        known = self._troubled.get(target) if self._troubled else None
        if known is not None:
            known.begun = self._served

    def served(self, target: str, *, now_ms: int) -> None:
        """An answer of this target has come through."""
        self._served += 1
        self._answered[target] = None
        if len(self._answered) > TARGETS_MAX:
            self._answered.popitem(last=False)
        if self._health.is_set_aside:  # the others may have failed because of it: they are asked at once
            self._served_before, self._back_ms = self._served, now_ms
        if self._streak or self._health.failures:
            self._opens()
            self._streak.clear()
            self._plain = 0
        if self._troubled:
            self._troubled.pop(target, None)

    def _opens(self) -> None:
        self._health, self._probe, self._is_missed = GOOD, "", False
        self._first.clear()

    def failed(self, target: str, domain: str, fault: Fault, detail: str, *, now_ms: int) -> bool:
        """Note that nothing came of a request; is that the target's own fault?"""
        known = self._troubled.get(target)
        if known is None:
            known = self._troubled[target] = _Troubled(now_ms, self._served, self._served)
            if len(self._troubled) > TARGETS_MAX:
                self._troubled.popitem(last=False)
        known.count += 1
        if self._is_of_target(known, target, domain, fault, now_ms):
            known.failed_ms = 0  # the rules for hosts say when it is asked again
            self._streak.discard(domain)
            if self._plain < PROXY_PAUSES.failures:
                self._opens()
            return True
        if not self._streak:
            self._doubt_ms = now_ms
        if len(self._streak) < DOMAINS_MAX:
            self._streak.add(domain)
        self._is_missed = self._is_missed or target in self._answered
        self._plain += fault is Fault.PROXY
        self._note(fault, now_ms, is_probe=target == self._probe)
        known.failed_ms, self.detail = now_ms, detail
        return False

    def _note(self, fault: Fault, now_ms: int, *, is_probe: bool) -> None:
        before = self._health
        if fault is not Fault.PROXY and not is_probe:
            if before.is_set_aside or len(self._streak) < DOMAINS_MAX:
                return
            before = HostHealth(PROXY_PAUSES.failures - 1, now_ms)
        self._health = self._rules.after(before, FailureKind.CONNECT, now_ms=now_ms, is_probe=is_probe)
        if is_probe:
            self._probe = ""

    def _is_of_target(self, known: _Troubled, target: str, domain: str, fault: Fault, now_ms: int) -> bool:
        if fault in (Fault.PROXY, Fault.TARGET):
            return fault is Fault.TARGET
        is_long = now_ms - known.since_ms >= MANY_MS
        is_lasting = known.count >= ALONE_MAX or is_long
        if known.begun > max(known.served, self._served_before) and (is_lasting or fault is not Fault.BUSY):
            return True
        if fault is not Fault.LIKELY and now_ms - known.since_ms >= self._give_up_ms:
            return True
        if not is_lasting or self._is_missed or target in self._answered:
            return False
        is_one_of_few = len(self._streak) < DOMAINS_MAX
        return (self._served > 0 and (is_one_of_few or is_long)) or (fault is Fault.EITHER and self._streak <= {domain})


def pause_ms(nth: int) -> int:
    """How long a target waits after the proxy failed for it for the nth time in a row."""
    return Policy(1, PROXY_PAUSES.probe_s, PROBE_FACTOR, PROXY_PAUSES.probe_max_s).backoff_ms(nth)


# Poison URLs, which crash the process that works on them: suspected, isolated, given up. Pure.
#
# A URL that was being processed when its process died is a suspect. After two such deaths it is fetched alone, which
# clears the other suspects; if the process dies again, this URL was the cause. URLs that only waited are never blamed.

ALONE_AT = 2
GIVEN_UP_AT = 3
# Nobody may be able to read what the dead process worked on (it ran on another machine). A URL that was handed out
# this often without a result is then parsed in a process that can be killed. More would blame URLs that only waited.
GUARDED_AT_DELIVERIES = 3


class CrashAction(Enum):
    """How a claim is to be handled."""

    NORMAL = "normal"
    GUARDED = "guarded"  # parsed in a process that can be killed
    ALONE = "alone"
    GIVEN_UP = "given_up"


def crash_action_of(deaths: int, deliveries: int) -> CrashAction:
    """By the recorded deaths, and the deliveries whose owner vanished."""
    if deaths >= GIVEN_UP_AT:
        return CrashAction.GIVEN_UP
    if deaths >= ALONE_AT:
        return CrashAction.ALONE
    return CrashAction.GUARDED if deaths or deliveries >= GUARDED_AT_DELIVERIES else CrashAction.NORMAL


# When the next request of a queue may start, and a delay that adapts to the site. Pure; all times in ms.
#
# The adaptive delay follows the site's latency: additive decrease, multiplicative increase. It is never below the floor
# (our own delay or the Crawl-delay, whichever is longer) and never above the ceiling.

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


def share_of(limit: int, sharers: int) -> int:
    """One instance's share of the requests that may be open to an address; at least one, whatever the number."""
    return max(1, limit // max(1, sharers))


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
