"""Whether a proxy works, and whose fault it is when a request through one brings no answer. Pure.

A proxy that takes no connections shows by itself that it is at fault. All else looks the same when a target is: a
refused tunnel, an answer that makes no sense, silence, a connection that breaks. Then the others are witnesses. Where
the proxy has served another target since it first failed for this one, and before it was asked again, the target is
at fault, and the rules for hosts apply. Until then its URLs wait, for pauses that grow, and no attempt counts.

Two bounds end this where there is no witness. A target that never answered is at fault after some attempts, if
nothing that answered before fails: because it is the only one, like a misspelt seed, or because the proxy has served
others. Where many fail, this takes some minutes. Any target is at fault after `hosts.give_up_s`, as a host that does
not answer, but not for an answer that is as a rule the proxy's.

What takes no connections some times in a row is closed to all but one target, which tries it. What fails for many
domains in a row is closed so to targets that never answered, because links may lead to any number of those: others
go on, and each new one may try once. Domains count, because a site can have any number of hosts; and many, because
many of the web are dead.
"""

from collections import OrderedDict
from enum import Enum

import msgspec

from crawler.model import FailureKind
from crawler.rules.health import Policy
from crawler.rules.origin_health import GOOD, PROBE_FACTOR, HostHealth, HostHealthRules
from crawler.settings import HostsSettings, RetrySettings


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
