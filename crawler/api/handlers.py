"""What the API answers and does, but for jobs: each handler's annotations are the types of query, body and answer."""

from collections.abc import Sequence
from http import HTTPStatus
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from crawler.api.call import Call, NoBody, NoQuery
from crawler.api.jobs import own_run
from crawler.api.problem import ProblemError
from crawler.frontier.leases import TAKEOVERS_MAX
from crawler.frontier.operator_log import LogEntry
from crawler.rules.urls import canonicalize
from crawler.version import program_version
from crawler.views import domain_reads, owners, shares, whole
from crawler.views.attempts import recent_attempts
from crawler.views.crawl_list import CrawlRow, crawl_rows
from crawler.views.domains import DomainDetail
from crawler.views.explain import ShownAttempt
from crawler.views.facts import explain as explain_url
from crawler.views.instances import MembersView, member_views
from crawler.views.instances import alive as alive_instances
from crawler.views.owners import PartitionOwners, TakeoversView
from crawler.views.reasons import Explanation, record_of
from crawler.views.ring import RingMembers, UrlPlace
from crawler.views.snapshot import DomainRows, Overview, SeriesView, TotalsView
from crawler.views.values import domain_of


class TakeoversQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How many of the last."""

    limit: Annotated[int, Meta(ge=1, le=TAKEOVERS_MAX)] = 50


async def partitions(call: Call[NoQuery, NoBody]) -> PartitionOwners:
    """Who owns each partition, and whom the ring suggests."""
    return await owners.partition_owners(await call.crawl())


async def takeovers(call: Call[TakeoversQuery, NoBody]) -> TakeoversView:
    """Partitions of dead instances that others took over."""
    return await owners.takeovers(await call.crawl(), call.query.limit)


# What can be read of a crawl.

LIMIT = 50
LIMIT_MAX = 1_000
PLACE_DIGITS = 4  # of a place in a ranked list: beyond some thousands there are only names
NAME_MAX = 8_192  # characters of a domain, host or URL
Sort = Literal["pages", "rate", "queue", "errors", "bytes", "due"]
Limit = Annotated[int, Meta(ge=1, le=LIMIT_MAX)]
Name = Annotated[str, Meta(max_length=NAME_MAX)]


class Crawls(msgspec.Struct, frozen=True, kw_only=True):
    """The crawls of the engine, and the one that is served."""

    served: str
    crawls: list[CrawlRow]


class DomainsQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which domains: by `sort` among the busiest, or `by_name` all; or with a `match` in their names.

    `after` is `next` of the page before, or with `by_name` any name.
    """

    sort: Sort = "pages"
    limit: Limit = LIMIT
    by_name: bool = False
    after: Name = ""
    match: Name = ""


class PlaceQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A URL, a host or a domain."""

    url: Name


class UrlQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A URL with its scheme. `run`: an active run of a job, for which it is looked at."""

    url: Name
    run: Name = ""


class HistoryQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Attempts at a URL with its scheme, or at the URLs of a domain."""

    url: Name = ""
    domain: Name = ""
    limit: Limit = LIMIT


class Attempts(msgspec.Struct, frozen=True, kw_only=True):
    """Attempts that the crawl folder of this server has, the newest first."""

    attempts: Sequence[ShownAttempt]


class LogQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which entries: the newest, or those that came after one."""

    after: Annotated[int, Meta(ge=0, le=2**53)] | None = None
    limit: Limit = 100


class LogEntries(msgspec.Struct, frozen=True, kw_only=True):
    """Entries of the operator log, oldest first. `next`: `after` of the next page, "" when there is none."""

    entries: list[LogEntry]
    next: str


class SessionView(msgspec.Struct, frozen=True, kw_only=True):
    """Who the sender is to this server."""

    crawl: str
    user: str  # "" for a reader without a token
    role: str  # read or write
    csrf_token: str  # what a browser sends in X-CSRF-Token with each change; "" without a browser's session
    version: str


class Health(msgspec.Struct, frozen=True, kw_only=True):
    """The engine behind the crawl, as it is now."""

    engine: str  # like "valkey 9.1.2"
    engine_used_bytes: int
    engine_max_bytes: int  # 0: no limit
    is_persistent: bool  # does it keep its data over a restart?
    instances: int
    full: bool  # does an instance wait for memory of the engine?
    disk_full: bool  # does one wait for free space on the disk of its crawl folder?


async def crawls(call: Call[NoQuery, NoBody]) -> Crawls:
    """The crawls of the engine. All other requests are about the one that is served."""
    crawl = await call.crawl()
    return Crawls(served=crawl.settings.crawl.name, crawls=await crawl_rows(crawl.engine))


async def overview(call: Call[NoQuery, NoBody]) -> Overview:
    """The headline: state, counts, rates, and what is missing in the results."""
    return await whole.overview_with_losses(await call.crawl())


async def totals(call: Call[NoQuery, NoBody]) -> TotalsView:
    """All totals."""
    return await whole.totals(await call.crawl())


async def series(call: Call[NoQuery, NoBody]) -> SeriesView:
    """Rates of the last 15 minutes and of the last day."""
    return await whole.crawl_series(await call.crawl())


async def domains(call: Call[DomainsQuery, NoBody]) -> DomainRows:
    """The first domains by an order, or all by name, page by page."""
    query = call.query
    if query.match:
        return await domain_reads.domains_matching(await call.crawl(), query.match, query.limit)
    if query.by_name:
        return await domain_reads.domain_page(await call.crawl(), query.after, query.limit)
    return await domain_reads.domain_rows(await call.crawl(), query.sort, query.limit, start=_place(query.after))


def _place(after: str) -> int:
    """The place after which a page of ranked domains begins."""
    is_place = not after or (after.isascii() and after.isdigit() and len(after) <= PLACE_DIGITS)
    if not is_place:
        raise ProblemError(HTTPStatus.UNPROCESSABLE_ENTITY, "after: expected 'next' of the page before, or by_name")
    return int(after or 0)


async def domain(call: Call[NoQuery, NoBody]) -> DomainDetail:
    """One domain in full, named by itself, a host or a URL."""
    return await domain_reads.domain_detail(await call.crawl(), call.name)


async def members(call: Call[NoQuery, NoBody]) -> MembersView:
    """The instances by their own word."""
    return await member_views(await call.crawl())


async def read_ring(call: Call[NoQuery, NoBody]) -> RingMembers:
    """The instances, how each is, its share of the ring and what it holds; takes a second and a half."""

    async def read() -> RingMembers:
        return await shares.members(await call.crawl())

    return await call.context.rings.get((), read)


async def place(call: Call[PlaceQuery, NoBody]) -> UrlPlace:
    """Where a URL belongs, who owns it now, and who should."""
    return await shares.place(await call.crawl(), call.query.url)


async def explain(call: Call[UrlQuery, NoBody]) -> Explanation:
    """Why a URL is, is not or will be crawled. Nothing is fetched for it."""
    crawl, query = await call.crawl(), call.query
    if query.run:
        await own_run(call, query.run)
    return record_of(await explain_url(crawl, canonicalize(query.url), given=query.url, run=query.run))


async def history(call: Call[HistoryQuery, NoBody]) -> Attempts:
    """What became of the last attempts at a URL or a domain."""
    query = call.query
    if bool(query.url) == bool(query.domain):
        raise ProblemError(HTTPStatus.UNPROCESSABLE_ENTITY, "name one URL or one domain: ?url=... or ?domain=...")
    url = canonicalize(query.url) if query.url else ""
    domain = domain_of(query.domain) if query.domain else ""
    return Attempts(attempts=await recent_attempts(await call.crawl(), url=url, domain=domain, limit=query.limit))


async def operator_log(call: Call[LogQuery, NoBody]) -> LogEntries:
    """Who changed what, and when; with a token without the names and the jobs of other users."""
    query = call.query
    entries = [entry for one in await (await call.crawl()).operator_log.read() if (entry := call.identity.shown(one))]
    if query.after is None:
        return LogEntries(entries=entries[-query.limit :], next="")
    later = [entry for entry in entries if entry.id > query.after]
    page = later[: query.limit]
    return LogEntries(entries=page, next=str(page[-1].id) if len(later) > len(page) else "")


async def session(call: Call[NoQuery, NoBody]) -> SessionView:
    """Who the sender is, and what a browser needs for changes."""
    crawl, identity = await call.crawl(), call.identity
    return SessionView(
        crawl=crawl.settings.crawl.name,
        user=identity.who,
        role=identity.role,
        csrf_token=identity.session.csrf_token if identity.session else "",
        version=program_version(),
    )


async def health(call: Call[NoQuery, NoBody]) -> Health:
    """The engine and the instances."""
    crawl = await call.crawl()
    info, alive = await crawl.engine.info(), await alive_instances(crawl)
    return Health(
        engine=f"{info.product} {'.'.join(map(str, info.version))}",
        engine_used_bytes=info.used_bytes,
        engine_max_bytes=info.max_bytes,
        is_persistent=info.persistent,
        instances=len(alive),
        full=any(member.waits_for == "memory" for member in alive),
        disk_full=any(member.waits_for == "disk" for member in alive),
    )
