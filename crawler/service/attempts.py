"""Reads the last attempts at a domain from the history of the crawl's folder on this machine."""

import asyncio
from collections.abc import Sequence

import msgspec

from crawler.app.crawl import OpenCrawl
from crawler.archive.history import Attempt, newest_attempts
from crawler.reports.history_view import result_text
from crawler.seeding.url_input import url_of_site


class AttemptView(msgspec.Struct, frozen=True, kw_only=True):
    """One attempt at a URL."""

    url: str
    at: float  # when it ended, s since 1970
    attempt: int  # earlier failed ones and this one; 0 without a request
    became: str  # committed, retry, dead, refused, lost
    status: int  # of HTTP; 0 without a response
    result: str  # the same for people
    took_s: float  # from the request to its end; 0 without a request
    node: str


class AttemptsView(msgspec.Struct, frozen=True, kw_only=True):
    """Attempts, the newest first."""

    attempts: Sequence[AttemptView]


async def recent_attempts(crawl: OpenCrawl, name: str, limit: int) -> AttemptsView:
    """The last attempts at a domain, named by itself, a host or any of its URLs. Raises UsageError."""
    domain, _, _ = crawl.placement.of(url_of_site(name))
    found = await asyncio.to_thread(newest_attempts, crawl.folder, domain, limit)
    return AttemptsView(attempts=[_view(one) for one in found])


def _view(a: Attempt) -> AttemptView:
    ended = a.finished or a.failed or a.lost
    return AttemptView(
        url=a.url,
        at=a.last_at,
        attempt=a.attempt,
        became=a.became.value,
        status=a.http_status,
        result=result_text(a),
        took_s=round(max(0.0, ended - a.started), 3) if a.started and ended else 0.0,
        node=a.node,
    )
