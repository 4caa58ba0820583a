"""Whether a queue's host answers: a state of three numbers, and what may be done with the queue. Pure.

After several failures in a row that point to the host, its whole queue is set aside: one URL probes it at growing
intervals, and the others wait without losing attempts. Any answer ends this at once. After too long a silence its URLs
may be given up; it is still probed. Times are ms on the clock that the caller uses for the state.
"""

from enum import Enum

import msgspec

from crawler.model import FailureKind
from crawler.rules.retry import Policy, policy_of
from crawler.settings import HostsSettings, RetrySettings

# The host does not answer, or refuses every request for now. A 404, or a 500 for one page, only shows that it is up.
AGAINST = frozenset(
    {
        FailureKind.DNS_NOT_FOUND,
        FailureKind.DNS_ERROR,
        FailureKind.CONNECT,
        FailureKind.TLS,
        FailureKind.TIMEOUT,
        FailureKind.DISCONNECTED,
        FailureKind.SERVER_BUSY,
        FailureKind.ROBOTS_UNREACHABLE,
    }
)
# Known without a request to the host.
SILENT = frozenset({FailureKind.ADDRESS_REFUSED})


class HostHealth(msgspec.Struct, frozen=True, array_like=True):
    """State of a queue: failures in a row, time of the first of them, time of the next probe (0: not set aside)."""

    failures: int = 0
    since_ms: int = 0
    probe_ms: int = 0

    @property
    def is_set_aside(self) -> bool:
        return self.probe_ms > 0


GOOD = HostHealth()


class HostAction(Enum):
    """What may be done with a queue's next URL."""

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
        """Has the host been silent for too long?"""
        return health.is_set_aside and now_ms - health.since_ms >= self.hosts.give_up_s * 1000

    def after(
        self,
        health: HostHealth,
        kind: FailureKind | None,
        *,
        now_ms: int,
        retry_after_ms: int = 0,
        jitter: float = 0.0,
    ) -> HostHealth:
        """The health after a request that ended with this failure (None: with a result)."""
        if kind in SILENT:
            return health
        if kind is None or kind not in AGAINST:
            return GOOD
        if now_ms < health.probe_ms:
            return health  # not a probe: the request was open when the queue was set aside
        since_ms = health.since_ms if health.failures else now_ms
        counted = HostHealth(health.failures + 1, since_ms)
        if counted.failures < self.hosts.failures:
            return counted
        wait_ms = max(self.backoff_ms(counted, kind, jitter=jitter), retry_after_ms, 1)
        return HostHealth(counted.failures, since_ms, now_ms + wait_ms)

    def backoff_ms(self, health: HostHealth, kind: FailureKind, *, jitter: float = 0.0) -> int:
        """How long the whole queue waits after its last failure, of this kind; grows with each failure in a row."""
        if not health.failures:
            return 0
        beyond = health.failures - self.hosts.failures
        if beyond >= 0:
            h = self.hosts
            return Policy(1, h.probe_s, h.probe_factor, h.probe_max_s).backoff_ms(beyond + 1, jitter)
        return min(policy_of(kind, self.retry).backoff_ms(health.failures, jitter), int(self.hosts.probe_s * 1000))
