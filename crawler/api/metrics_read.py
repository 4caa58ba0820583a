"""All numbers of a crawl that are metrics, read from its engine in one go. Nothing is kept between two calls."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec

from crawler.crawl.opening import OpenCrawl
from crawler.engine.client import EngineInfo
from crawler.frontier.lists import BusyQueue, Rates, Sample
from crawler.frontier.members import Member
from crawler.frontier.reads import DomainStats, Progress, Totals
from crawler.membership.peers import is_lock_free
from crawler.rules.membership import DeclaredState
from crawler.runtime.process import wall_s
from crawler.views.ring import running_since

DEAD = "dead"  # proven: its lock file, which is on this machine, is free
STATES = (*(state.value for state in DeclaredState), DEAD)


class TopDomain(NamedTuple):
    """A domain and its pages per second; None when it is not among the busiest, for which rates are kept."""

    stats: DomainStats
    rate: float | None


class JobNumbers(NamedTuple):
    """Of all jobs. `overdue_s`: for how long the most overdue one could be triggered; 0: none could."""

    jobs: int = 0
    runs: int = 0
    overdue_s: float = 0.0


class Reading(msgspec.Struct, frozen=True, kw_only=True):
    """A crawl at one time. `states`: how many instances are in each; `instances`: those that fetch, by node.

    `unowned`: partitions whose lease nobody on the member list has. `top`: some domains, if they were asked for.
    """

    totals: Totals
    rates: Rates
    domains: int
    partitions: int
    unowned: int
    overdue_s: float
    jobs: JobNumbers
    is_paused: bool
    states: Mapping[str, int]
    instances: Sequence[Member]
    engine: EngineInfo
    top: Sequence[TopDomain] | None = None


async def read_crawl(crawl: OpenCrawl, top_domains: int) -> Reading:
    """Read a crawl. `top_domains`: how many domains with most pages, and how many with most pages per second; 0: none.

    Raises EngineError.
    """
    now_s = wall_s()
    totals = await crawl.stats.totals()
    members = await crawl.members.read()
    began_s = running_since((m for m in members.values() if m.state == "alive"), now_s)
    samples = (await crawl.series.read(Sample.of(now_s, _progress(totals)))).since(began_s)
    dead = {session for session, member in members.items() if is_lock_free(member)}
    leases = await crawl.leases.read(range(crawl.record.partitions))
    fetching = [m for s, m in members.items() if s not in dead and m.state != DeclaredState.SEEDING]
    return Reading(
        totals=totals, rates=samples.rates or Rates(0.0), domains=await crawl.stats.domain_count(),
        partitions=crawl.record.partitions,
        unowned=sum(lease.session not in members or lease.session in dead for lease in leases),
        overdue_s=await crawl.lists.overdue_ms() / 1000, jobs=await _jobs(crawl, now_s),
        is_paused=(await crawl.operator.overrides()).is_paused,
        states=Counter(DEAD if s in dead else m.state for s, m in members.items()),
        instances=_one_each(fetching), engine=await crawl.engine.info(),
        top=await _top(crawl, top_domains, now_s, began_s) if top_domains else None,
    )  # fmt: skip


async def _jobs(crawl: OpenCrawl, now_s: float) -> JobNumbers:
    """A crawl without jobs costs one command."""
    jobs = await crawl.jobs.count()
    if not jobs:
        return JobNumbers()
    partitions = crawl.record.partitions
    runs = await crawl.runs.active_count()
    due = await crawl.jobs.first_due(range(partitions))
    return JobNumbers(jobs, runs, max(0.0, now_s - min(due.values(), default=now_s)))


def _progress(totals: Totals) -> Progress:
    """The totals as samples have them."""
    by = totals.status
    return Progress(
        added=totals.added, done=totals.done, fetched=totals.fetched, redirected=by.get("3", 0),
        client_errors=by.get("4", 0), server_errors=by.get("5", 0), bytes=totals.bytes, retries=totals.retries,
        dead=totals.dead,
    )  # fmt: skip


def _one_each(members: Sequence[Member]) -> list[Member]:
    """The last session of each node: a dead one may still be listed under the same name."""
    by_node = {member.node: member for member in sorted(members, key=lambda m: m.started_at)}
    return [by_node[node] for node in sorted(by_node)]


async def _top(crawl: OpenCrawl, limit: int, now_s: float, began_s: float) -> list[TopDomain]:
    rows = [*await crawl.lists.top("pages", limit, now_s), *await crawl.lists.top("rate", limit, now_s)]
    top = (TopDomain(row.stats, _pages_per_s(row.busy, now_s, began_s)) for row in rows)
    return list({one.stats.domain: one for one in top}.values())


def _pages_per_s(busy: BusyQueue | None, now_s: float, began_s: float) -> float | None:
    """Of a domain; 0 while it is not known, so that a chart has no gaps. None for one that is not among the busiest."""
    rates = busy.rates(now_s, began_s) if busy else None
    return rates.pages if rates else 0.0 if busy else None
