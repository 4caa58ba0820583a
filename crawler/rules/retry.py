"""What to do after a failed attempt. Pure."""

from dataclasses import dataclass

from crawler.model import FailureKind
from crawler.settings import RetrySettings

# No second attempt can change these.
PERMANENT = frozenset(
    {FailureKind.ADDRESS_REFUSED, FailureKind.HEADERS_TOO_LARGE, FailureKind.REDIRECT_LOOP, FailureKind.PARSE}
)
BUSY_STATUSES = frozenset({429, 503})


@dataclass(frozen=True, slots=True)
class RetryDecision:
    """Either another attempt after `wait_ms`, or none."""

    again: bool
    wait_ms: int = 0


def failure_of_status(status: int) -> FailureKind | None:
    """Server errors are failed attempts, every other status is a result."""
    if status in BUSY_STATUSES:
        return FailureKind.SERVER_BUSY
    return FailureKind.SERVER_ERROR if status >= 500 else None


def decide(kind: FailureKind, *, attempts: int, settings: RetrySettings, retry_after_ms: int = 0) -> RetryDecision:
    """`attempts` counts this one. Back-off grows by a factor with each attempt; a longer Retry-After wins."""
    if kind in PERMANENT or attempts >= settings.attempts:
        return RetryDecision(again=False)
    backoff_s = min(settings.backoff_s * settings.backoff_factor ** (attempts - 1), settings.backoff_max_s)
    return RetryDecision(again=True, wait_ms=max(int(backoff_s * 1000), retry_after_ms))
