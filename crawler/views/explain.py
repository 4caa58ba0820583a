"""One URL: why it is, is not or will be crawled, and its attempts."""

from collections.abc import Sequence
from typing import Self

import msgspec

from crawler.archive.history import Attempt, Became, status_of
from crawler.terminal.tables import NOTHING, table
from crawler.terminal.words import duration, failure_text, moment


class ShownAttempt(Attempt, frozen=True, kw_only=True, omit_defaults=True):
    """All that is known of an attempt, with its status; times in s since 1970."""

    status: str  # how far it came, like "finished"
    result: str  # for people: what became of it

    @classmethod
    def of(cls, attempt: Attempt) -> Self:
        """The same, with its status and result."""
        return cls(**msgspec.structs.asdict(attempt), status=status_of(attempt.times), result=_result(attempt))


HEADERS = ("at", "try", "status", "result", "in queue", "claimed", "took", "by", "epoch")


def history_table(attempts: Sequence[Attempt], *, with_urls: bool) -> str:
    """One row each, in the order given. Durations: in the queue, claimed until its turn came, of the request."""
    headers = (*HEADERS, "URL") if with_urls else HEADERS
    rows = [(*_row(one), one.url) if with_urls else _row(one) for one in attempts]
    return table(headers, rows, left=len(headers))


def _row(a: Attempt) -> tuple[str, ...]:
    begun = a.started or a.failed or a.refused or a.lost
    return (
        moment(next(iter(a.times.values()), 0.0)) if not a.claimed else moment(a.claimed),
        str(a.attempt) if a.attempt else NOTHING,
        status_of(a.times),
        _result(a),
        _between(a.queued, a.claimed),
        _between(a.claimed, begun),
        _between(a.started, a.finished or a.failed or a.lost),
        a.node,
        str(a.epoch),
    )


def _result(a: Attempt) -> str:
    failure = failure_text(a.kind, a.detail)
    if a.became is Became.RETRY:
        return f"{failure}; to be retried"
    if a.became is Became.DEAD:
        return f"{failure}; dead letter"
    if a.became is Became.LOST:
        return f"does not count ({failure or a.http_status or 'cut off'})"
    return failure or str(a.http_status)


def _between(begin: float, end: float) -> str:
    return duration(max(0.0, end - begin)) if begin and end else NOTHING
