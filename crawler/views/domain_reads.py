"""Reads the domains of a crawl: lists, pages by name, one in full. Bounded by what is shown, never by their number."""

from collections import Counter
from collections.abc import Iterable, Sequence

from crawler.crawl.opening import OpenCrawl
from crawler.crawl.url_input import url_of_site
from crawler.errors import NotMetError, UsageError
from crawler.frontier.busy import Slot
from crawler.frontier.domain_lists import SORTS, DomainRow
from crawler.frontier.members import Member
from crawler.frontier.series import COARSE, FINE, Rates, Resolution
from crawler.rules.robots import SharedRobots
from crawler.runtime.clocks import wall_s
from crawler.views.domains import FULL, DomainDetail, RobotsView, sentence, with_facts
from crawler.views.figures import DomainView, domain_view
from crawler.views.instances import alive, running_since
from crawler.views.known_robots import known_robots
from crawler.views.report import (
    OURS,
    stop_text,
)
from crawler.views.snapshot import DomainRows, Point, SeriesView


async def domain_rows(crawl: OpenCrawl, sort: str, limit: int, *, start: int = 0) -> DomainRows:
    """The first domains by one of SORTS, from the place `start` on, as they are ranked now.

    Raises UsageError, and EngineError as all functions here do.
    """
    if sort not in SORTS:
        raise UsageError(f"unknown order {sort!r} (use {', '.join(SORTS)})")
    found = await crawl.lists.top(sort, start + limit + 1, wall_s()) if limit > 0 else []
    rows, total = await _views(crawl, found[start : start + limit]), await crawl.stats.domain_count()
    return DomainRows(sort=sort, rows=rows, total=total, next=str(start + limit) if found[start + limit :] else "")


async def domain_page(crawl: OpenCrawl, after: str, limit: int) -> DomainRows:
    """The domains whose names follow `after` in the order of their bytes."""
    names = await crawl.stats.domains_by_name(after.lower(), limit + 1)
    following = names[limit - 1][0] if len(names) > limit > 0 else ""
    rows = await _views(crawl, await crawl.lists.rows(names[:limit]))
    return DomainRows(sort="name", rows=rows, total=await crawl.stats.domain_count(), next=following)


async def domains_matching(crawl: OpenCrawl, text: str, limit: int) -> DomainRows:
    """Domains whose names begin with a text, and those among the busiest and largest whose names contain it."""
    places = await crawl.lists.containing(text.lower(), limit)
    rows = await _views(crawl, await crawl.lists.rows(places))
    return DomainRows(sort="match", rows=rows, total=await crawl.stats.domain_count())


def _may_hold_up(member: Member, owner: str) -> bool:
    """Does this instance claim nothing, or few, of a domain with that owner, for want of something? Each has a disk of
    its own; the rest is that of all.
    """
    return member.waits_for in (*FULL, *OURS) and (member.waits_for != "disk" or member.node == owner)


async def domain_detail(crawl: OpenCrawl, name: str) -> DomainDetail:
    """One domain, named by itself, a host or any of its URLs. NotMetError when the crawl has not met it."""
    domain, queue, partition = crawl.placement.of(url_of_site(name))
    (row,) = await crawl.lists.rows([(queue, partition)])
    operator = crawl.operator
    deferred = Counter[str]()
    for one in await operator.deferred_urls.of_queue(partition, queue):
        deferred[one.kind] += one.urls
    overrides, budget_reached = await operator.overrides(), await crawl.crawls.budget_reached()
    now_s, members, ordered_ms = wall_s(), await alive(crawl), overrides.delays_ms.get(domain)
    view = domain_view(row.stats, row.busy, overrides, now_s, began_s=running_since(members, now_s))
    is_known = view.pending or view.fetched or view.dead or view.refused
    if not (is_known or deferred or view.stop or ordered_ms is not None or view.boost):
        raise NotMetError(f"this crawl has not met the domain {queue}")
    detail = DomainDetail(
        domain=view,
        sentence=sentence(
            view,
            deferred,
            instances=len(members),
            crawl_stop=stop_text("", is_crawl_paused=overrides.is_paused, budget_reached=budget_reached),
            waits_for=next((m.waits_for for m in members if _may_hold_up(m, view.owner)), ""),
        ),
        instances=len(members),
        deferred=deferred,
        ordered_delay_ms=ordered_ms,
        crawl_paused=overrides.is_paused,
        crawl_spent=budget_reached.reason if budget_reached else "",
        robots=[_robots_view(*one) for one in await known_robots(crawl, partition, queue)],
        series=await _series(crawl, queue, partition),
    )
    return with_facts(detail)


async def _views(crawl: OpenCrawl, rows: Sequence[DomainRow]) -> list[DomainView]:
    overrides, now_s = await crawl.operator.overrides(), wall_s()
    began_s = running_since(await alive(crawl), now_s)
    return [domain_view(row.stats, row.busy, overrides, now_s, began_s=began_s) for row in rows]


def _robots_view(origin: str, stored: SharedRobots) -> RobotsView:
    rules = stored.rules
    return RobotsView(
        origin=origin,
        read_at=stored.read_at,
        rules=len(rules.rules),
        crawl_delay_s=rules.crawl_delay_s,
        allows_front_page=rules.allows(f"{origin}/"),
    )


async def _series(crawl: OpenCrawl, queue: str, partition: int) -> SeriesView:
    fine, coarse = await crawl.lists.busy.slots(partition, queue, wall_s())
    return SeriesView(fine=_points(fine, FINE), coarse=_points(coarse, COARSE))


def _points(slots: Iterable[Slot], resolution: Resolution) -> list[Point]:
    seconds = resolution.slot_s
    return [
        Point(at=slot.number * seconds, rates=Rates(seconds, *(count / seconds for count in slot[1:])))
        for slot in slots
    ]
