"""What a Retry-After header asks for (RFC 9110 10.2.3). Pure."""

from datetime import UTC
from email.utils import parsedate_to_datetime

_DIGITS_MAX = 12  # more seconds than any cap
_DATE_CHARS_MAX = 64  # the longest form has 33


def retry_after_ms(value: str | None, *, date: str | None, now_s: float, max_s: float) -> int:
    """Milliseconds to wait, at most `max_s`; 0 for a time that is over, nonsense, or no header at all.

    Delta-seconds, or an HTTP-date. A date is by the server's clock: it is measured from the `date` header of the same
    response where there is one, and from `now_s` (wall clock) only where there is none.
    """
    text = (value or "").strip()
    if text.isascii() and text.isdigit():
        seconds = float(text[:_DIGITS_MAX])
    else:
        until_s = _timestamp(text)
        if until_s is None:
            return 0
        seconds = until_s - _sent_at(date, now_s)
    return int(1000 * min(max(seconds, 0.0), max_s))


def _sent_at(date: str | None, now_s: float) -> float:
    sent_s = _timestamp(date or "")
    return now_s if sent_s is None else sent_s


def _timestamp(text: str) -> float | None:
    """Seconds since the epoch of an HTTP-date in any of its three forms (RFC 9110 5.6.7)."""
    if len(text) > _DATE_CHARS_MAX:
        return None
    try:
        parsed = parsedate_to_datetime(text)
        return parsed.replace(tzinfo=parsed.tzinfo or UTC).timestamp()
    except (ValueError, OverflowError, TypeError, IndexError):  # its parser raises them for odd texts
        return None
