"""Dead letters by HTTP: pages of them, how many for each reason, retry and purge."""

from http import HTTPStatus
from typing import Annotated

import msgspec
from msgspec import Meta

from crawler.api.call import Call, NoBody, NoQuery
from crawler.api.handlers import LIMIT, Limit, Name
from crawler.api.problem import ProblemError
from crawler.model import FailureKind
from crawler.rules.job_runs import ID_MAX
from crawler.rules.urls import canonicalize
from crawler.views import dead_letter_changes
from crawler.views.dead_letter_changes import LetterChange, LetterFilter, LetterList, LetterPage
from crawler.views.values import domain_of

URLS_MAX = 1_000


class LettersQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which dead letters; `cursor` is `next` of the page before."""

    domain: Name = ""
    reason: FailureKind | None = None
    run: Annotated[str, Meta(max_length=ID_MAX)] = ""  # of a job
    cursor: Annotated[str, Meta(max_length=100)] = ""
    limit: Limit = LIMIT


class SummaryQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Of a domain, or of the crawl; `limit`: how many of the newest."""

    domain: Name = ""
    limit: Limit = LIMIT


class LettersBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which dead letters: URLs alone, or a domain, a reason or both, or all there are."""

    urls: Annotated[list[Name], Meta(max_length=URLS_MAX)] = []
    domain: Name = ""
    reason: FailureKind | None = None
    all: bool = False


async def page(call: Call[LettersQuery, NoBody]) -> LetterPage:
    """Dead letters, page by page, in no order."""
    query = call.query
    domain = domain_of(query.domain) if query.domain else ""
    wanted = LetterFilter(domain=domain, reason=query.reason or "", run=query.run)
    return await dead_letter_changes.dead_letter_page(
        await call.crawl(), wanted, cursor=query.cursor, limit=query.limit
    )


async def summary(call: Call[SummaryQuery, NoBody]) -> LetterList:
    """How many dead letters there are for each reason, and the newest; reads all of them."""
    query = call.query
    wanted = LetterFilter(domain=domain_of(query.domain) if query.domain else "")

    async def read() -> LetterList:
        return await dead_letter_changes.dead_letter_list(await call.crawl(), wanted, query.limit)

    return await call.context.letter_sums.get((wanted.domain, query.limit), read)


async def retry(call: Call[NoQuery, LettersBody]) -> LetterChange:
    """Put dead letters back into their queues, with all their attempts."""
    try:
        return await dead_letter_changes.retry(await call.crawl(), _wanted(call.body), actor=call.actor)
    finally:
        call.context.letter_sums.forget()


async def purge_dead_letters(call: Call[NoQuery, LettersBody]) -> LetterChange:
    """Drop dead letters; their URLs stay seen."""
    try:
        return await dead_letter_changes.purge(await call.crawl(), _wanted(call.body), actor=call.actor)
    finally:
        call.context.letter_sums.forget()


def _wanted(body: LettersBody) -> LetterFilter:
    choices = [bool(body.urls), bool(body.domain or body.reason), body.all]
    if sum(choices) != 1:
        raise ProblemError(
            HTTPStatus.UNPROCESSABLE_ENTITY, 'choose which: "urls", or "domain" and "reason", or "all": true'
        )
    return LetterFilter(
        domain=domain_of(body.domain) if body.domain else "",
        reason=body.reason or "",
        urls=[canonicalize(url) for url in body.urls],
    )
