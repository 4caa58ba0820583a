"""Whether an origin answers: a state of a few numbers, and what may be done with its URLs. Pure.

An origin is scheme, host and port. After several failures in a row, or at once when its robots.txt can't be read or
it answers that it is busy, its URLs are set aside: one of them probes it at growing intervals, and the others wait
without losing attempts. Any answer ends this at once. After too long a silence its URLs may be given up; it is still
probed. Nothing here concerns other origins of the same domain. Times are ms on the clock that the caller uses for the
state.
"""

from enum import Enum

import msgspec

from crawler.model import FailureKind
from crawler.rules.health import Policy, policy_of
from crawler.settings import HostsSettings, RetrySettings

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
