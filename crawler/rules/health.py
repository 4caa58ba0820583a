"""Attempts that fail: retries, origins that do not answer, poison URLs, and the pace that a site can bear. Pure."""

from hashlib import blake2b
from typing import TypeVar

import msgspec

from crawler.model import REDIRECTS, Decoded, FailureKind, Response
from crawler.rules.conditional import http_date_s, is_unasked
from crawler.settings import RetryKind, RetrySettings

# No second attempt can change these.
PERMANENT = frozenset(
    {
        FailureKind.ADDRESS_REFUSED,
        FailureKind.PORT_REFUSED,
        FailureKind.HEADERS_TOO_LARGE,
        FailureKind.PARSE,
        FailureKind.NO_SITEMAP,
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
