"""Whether a queue's host answers: a state of three numbers, and what follows from it. Pure.

After some failures in a row that speak against the host, its queue is set aside as a whole: one URL probes it at
growing intervals, and the others wait without losing attempts. Any answer brings it back at once. After too long a
silence its URLs may be given up; it is still probed. Times are ms on whatever clock the caller keeps the state by.
"""

from enum import Enum

import msgspec

from crawler.model import FailureKind
from crawler.rules.retry import Policy, policy_of
from crawler.settings import HostsSettings, RetrySettings

# No answer at all, or "not now" for whatever is asked. A 404, or a 500 for one page, says nothing of the host but that
# it lives.
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
# Known without asking anybody.
SILENT = frozenset({FailureKind.ADDRESS_REFUSED})


class HostHealth(msgspec.Struct, frozen=True, array_like=True):
    """What is kept for a queue: failures in a row, when the first of them was, and when the next probe is due (0: the
    queue is not set aside).
    """

    failures: int = 0
    since_ms: int = 0
    probe_ms: int = 0

    @property
    def is_set_aside(self) -> bool:
        return self.probe_ms > 0


GOOD = HostHealth()


class HostAction(Enum):
    """What a queue's turn may be used for."""

    FETCH = "fetch"
    PROBE = "probe"  # one URL, and nothing else before its end
    WAIT = "wait"
    GIVE_UP = "give_up"  # end the URL without asking


class HostHealthRules(msgspec.Struct, frozen=True):
    """The settings that these rules go by."""

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
            return health  # no probe, but a request that was under way when the queue was set aside
        since_ms = health.since_ms if health.failures else now_ms
        counted = HostHealth(health.failures + 1, since_ms)
        if counted.failures < self.hosts.failures:
            return counted
        wait_ms = max(self.backoff_ms(counted, kind, jitter=jitter), retry_after_ms, 1)
        return HostHealth(counted.failures, since_ms, now_ms + wait_ms)

    def backoff_ms(self, health: HostHealth, kind: FailureKind, *, jitter: float = 0.0) -> int:
        """How long the whole queue waits after its last failure, which was of this kind; grows with each in a row."""
        if not health.failures:
            return 0
        beyond = health.failures - self.hosts.failures
        if beyond >= 0:
            h = self.hosts
            return Policy(1, h.probe_s, h.probe_factor, h.probe_max_s).backoff_ms(beyond + 1, jitter)
        return min(policy_of(kind, self.retry).backoff_ms(health.failures, jitter), int(self.hosts.probe_s * 1000))
