"""A crawl as Prometheus metrics: what a scrape of `/metrics` gets.

Counters are those of the engine and of the instances, so they go on when whoever serves them is restarted.
"""

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import msgspec
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric

from crawler.crawl.opening import OpenCrawl
from crawler.engine.client import EngineInfo
from crawler.errors import EngineError
from crawler.frontier.busy import BusyQueue
from crawler.frontier.lookup import Progress
from crawler.frontier.members import Member
from crawler.frontier.series import Rates, Sample
from crawler.frontier.stats import DomainStats, Totals
from crawler.membership.node_names import is_lock_free
from crawler.model import ITEMS_DROPPED, FailureKind, RefusalReason
from crawler.rules.membership import COMMANDS, DeclaredState, declared
from crawler.runtime.clocks import wall_s
from crawler.views.instances import running_since

# All numbers of a crawl that are metrics, read from its engine in one go. Nothing is kept between two calls.

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
    logins: int
    states: Mapping[str, int]
    instances: Sequence[Member]
    engine: EngineInfo
    top: Sequence[TopDomain] | None = None


async def read_crawl(crawl: OpenCrawl, top_domains: int) -> Reading:
    """Read a crawl. `top_domains`: how many domains with most pages, and how many with most pages per second; 0: none.

    Raises EngineError.
    """
    now_s = wall_s()
    totals, overrides = await crawl.stats.totals(), await crawl.operator.overrides()
    members = await crawl.members.read()
    began_s = running_since((m for m in members.values() if m.is_at_work), now_s)
    samples = (await crawl.series.read(Sample.of(now_s, _progress(totals)))).since(began_s)
    dead = {session for session, member in members.items() if is_lock_free(member)}
    leases = await crawl.leases.read(range(crawl.record.partitions))
    fetching = [m for s, m in members.items() if s not in dead and declared(m.state) not in COMMANDS]
    return Reading(
        totals=totals, rates=samples.rates or Rates(0.0), domains=await crawl.stats.domain_count(),
        partitions=crawl.record.partitions,
        unowned=sum(lease.session not in members or lease.session in dead for lease in leases),
        overdue_s=await crawl.lists.overdue_ms() / 1000, jobs=await _jobs(crawl, now_s),
        is_paused=overrides.is_paused, logins=sum(one.logins for one in overrides.logins.values()),
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


Kind = type[CounterMetricFamily] | type[GaugeMetricFamily]
COUNTER, GAUGE = CounterMetricFamily, GaugeMetricFamily
STATUSES = {f"{n}xx": str(n) for n in range(1, 6)}


class _OfCrawl(NamedTuple):
    """A metric of a crawl: `of` gives its value, or its values by `label`."""

    kind: Kind
    name: str
    meaning: str
    of: Callable[[Reading], float | Mapping[str, float]]
    label: str = ""


class _OfInstance(NamedTuple):
    """A metric of each instance; no value where it is None."""

    kind: Kind
    name: str
    meaning: str
    of: Callable[[Member], float | None]


class _OfDomain(NamedTuple):
    """A metric of the domains that are shown."""

    kind: Kind
    name: str
    meaning: str
    of: Callable[[TopDomain], float | None]


OF_CRAWL: Sequence[_OfCrawl] = (
    _OfCrawl(
        COUNTER, "crawler_pages_total", "Responses that were committed, by class of status.",
        lambda r: {status: r.totals.status.get(digit, 0) for status, digit in STATUSES.items()}, "status",
    ),
    _OfCrawl(
        COUNTER, "crawler_pages_unchanged_total", "Pages of jobs that are as an earlier run archived them.",
        lambda r: r.totals.unchanged,
    ),
    _OfCrawl(
        COUNTER, "crawler_pages_duplicate_total", "Pages whose body is in the archive once.",
        lambda r: r.totals.duplicates,
    ),
    _OfCrawl(
        COUNTER, "crawler_duplicate_bytes_total", "Bytes of bodies that were not archived again.",
        lambda r: r.totals.duplicate_bytes,
    ),
    _OfCrawl(COUNTER, "crawler_bytes_total", "Bytes of their bodies.", lambda r: r.totals.bytes),
    _OfCrawl(
        COUNTER, "crawler_requisites_total", "Committed responses that pages need to be shown, and that are no pages.",
        lambda r: r.totals.requisites,
    ),
    _OfCrawl(
        COUNTER, "crawler_requisite_bytes_total", "Bytes of their bodies.", lambda r: r.totals.requisite_bytes
    ),
    _OfCrawl(
        COUNTER, "crawler_failed_attempts_total", "Attempts that failed, by reason.",
        lambda r: dict.fromkeys(FailureKind, 0) | dict(r.totals.errors), "reason",
    ),
    _OfCrawl(COUNTER, "crawler_retries_total", "Failed attempts that are repeated.", lambda r: r.totals.retries),
    _OfCrawl(
        COUNTER, "crawler_refused_total", "URLs that must not be fetched, by reason.",
        lambda r: dict.fromkeys(RefusalReason, 0) | dict(r.totals.refused), "reason",
    ),
    _OfCrawl(COUNTER, "crawler_items_total", "Items that handlers yielded.", lambda r: r.totals.items),
    _OfCrawl(
        COUNTER, "crawler_items_invalid_total", "Items that were left out as invalid.",
        lambda r: r.totals.items_invalid,
    ),
    _OfCrawl(
        COUNTER, "crawler_items_dropped_total", "Items that functions of @app.item dropped.",
        lambda r: r.totals.lost.get(ITEMS_DROPPED, 0),
    ),
    _OfCrawl(COUNTER, "crawler_urls_added_total", "URLs that were added to the frontier.", lambda r: r.totals.added),
    _OfCrawl(COUNTER, "crawler_urls_done_total", "URLs that have ended, in whichever way.", lambda r: r.totals.done),
    _OfCrawl(GAUGE, "crawler_urls_pending", "URLs that have not ended and are not deferred.",
             lambda r: r.totals.pending),
    _OfCrawl(GAUGE, "crawler_urls_spilled", "Pending URLs that are in files.", lambda r: r.totals.spilled),
    _OfCrawl(GAUGE, "crawler_urls_scheduled", "Pending URLs that become visible later.", lambda r: r.totals.scheduled),
    _OfCrawl(GAUGE, "crawler_urls_deferred", "URLs that are kept and not fetched.", lambda r: r.totals.deferred),
    _OfCrawl(GAUGE, "crawler_dead_letters", "URLs that ran out of attempts and are kept.", lambda r: r.totals.dead),
    _OfCrawl(COUNTER, "crawler_logins_total", "Logins: forms with a password that were sent.", lambda r: r.logins),
    _OfCrawl(GAUGE, "crawler_domains", "Domains that were found.", lambda r: r.domains),
    _OfCrawl(GAUGE, "crawler_pages_per_second", "Pages per second over the last 10 s.", lambda r: r.rates.pages),
    _OfCrawl(GAUGE, "crawler_bytes_per_second", "Bytes per second over the last 10 s.", lambda r: r.rates.bytes),
    _OfCrawl(
        GAUGE, "crawler_oldest_due_seconds", "For how long the most overdue queue could be fetched from; 0: none is.",
        lambda r: r.overdue_s,
    ),
    _OfCrawl(GAUGE, "crawler_jobs", "Jobs of all users.", lambda r: r.jobs.jobs),
    _OfCrawl(GAUGE, "crawler_runs_active", "Runs of jobs that have not ended.", lambda r: r.jobs.runs),
    _OfCrawl(
        GAUGE, "crawler_jobs_oldest_due_seconds", "For how long the most overdue job could be triggered; 0: none is.",
        lambda r: r.jobs.overdue_s,
    ),
    _OfCrawl(GAUGE, "crawler_paused", "1 while an operator has paused the crawl.", lambda r: r.is_paused),
    _OfCrawl(
        GAUGE, "crawler_instances", "Instances and seeding commands by state; dead: proven on this machine.",
        lambda r: {state: r.states.get(state, 0) for state in (*STATES, *r.states)}, "state",
    ),
    _OfCrawl(GAUGE, "crawler_partitions", "Partitions of the crawl.", lambda r: r.partitions),
    _OfCrawl(GAUGE, "crawler_partitions_unowned", "Partitions that no listed instance owns.", lambda r: r.unowned),
    _OfCrawl(GAUGE, "crawler_engine_memory_bytes", "Memory that the engine uses.", lambda r: r.engine.used_bytes),
    _OfCrawl(
        GAUGE, "crawler_engine_memory_max_bytes", "Memory that the engine may use; 0: no limit.",
        lambda r: r.engine.max_bytes,
    ),
    _OfCrawl(COUNTER, "crawler_engine_cpu_seconds_total", "CPU time of the engine.", lambda r: r.engine.cpu_s),
)  # fmt: skip
OF_INSTANCE: Sequence[_OfInstance] = (
    _OfInstance(COUNTER, "crawler_instance_heartbeats_total", "Heartbeats of its session.", lambda m: m.counter),
    _OfInstance(
        GAUGE, "crawler_instance_start_time_seconds", "When it started, in seconds since 1970.",
        lambda m: m.started_at or None,
    ),
    _OfInstance(GAUGE, "crawler_instance_in_flight", "URLs that it works on.", lambda m: m.in_flight),
    _OfInstance(GAUGE, "crawler_instance_partitions", "Partitions that it owns.", lambda m: m.partitions),
    _OfInstance(
        COUNTER, "crawler_instance_taken_over_total", "Partitions that it acquired from dead instances.",
        lambda m: m.taken_over,
    ),
    _OfInstance(
        COUNTER, "crawler_instance_lease_losses_total", "How often it lost all leases after a silence.",
        lambda m: m.lease_losses,
    ),
    _OfInstance(
        COUNTER, "crawler_instance_fenced_total", "Its results that were refused, as another instance had the lease.",
        lambda m: m.fenced,
    ),
    _OfInstance(
        COUNTER, "crawler_instance_late_total", "Its requests that were open when it lost the lease.", lambda m: m.late
    ),
    _OfInstance(
        GAUGE, "crawler_instance_event_loop_delay_seconds", "By how much its event loop was late, at most, lately.",
        lambda m: m.loop_delay_s,
    ),
    _OfInstance(
        GAUGE, "crawler_instance_politeness_margin_seconds",
        "Shortest wait between two requests of a queue lately, less its delay; below 0: too early.",
        lambda m: m.margin_s,
    ),
    _OfInstance(
        GAUGE, "crawler_instance_disk_free_bytes", "Free disk where its crawl folder is.",
        lambda m: None if m.disk_free < 0 else m.disk_free,
    ),
    _OfInstance(
        COUNTER, "crawler_instance_cpu_seconds_total", "CPU time of its process without child processes.",
        lambda m: m.cpu_s,
    ),
    _OfInstance(
        GAUGE, "crawler_instance_resident_memory_bytes", "Memory of its process without child processes.",
        lambda m: None if m.resident < 0 else m.resident,
    ),
)  # fmt: skip
OF_DOMAIN: Sequence[_OfDomain] = (
    _OfDomain(
        COUNTER, "crawler_domain_pages_total", "Responses of a domain that were committed.", lambda d: d.stats.fetched
    ),
    _OfDomain(COUNTER, "crawler_domain_bytes_total", "Bytes of their bodies.", lambda d: d.stats.bytes),
    _OfDomain(GAUGE, "crawler_domain_urls_pending", "Pending URLs of a domain.", lambda d: d.stats.pending),
    _OfDomain(
        GAUGE, "crawler_domain_pages_per_second", "Pages per second of a domain that is busy, over the last 10 s.",
        lambda d: d.rate,
    ),
)  # fmt: skip


async def metrics_text(crawl: OpenCrawl, *, top_domains: int = 0) -> tuple[bytes, str]:
    """The metrics of a crawl in Prometheus' text format, and its content type.

    `top_domains`: also those of so many domains with most pages, and of so many with most pages per second. An engine
    that does not answer is no error: then `crawler_engine_up` is 0, and most other metrics are absent.
    """
    began_s = time.perf_counter()
    try:
        reading = await read_crawl(crawl, top_domains)
    except EngineError:
        reading = None
    registry = CollectorRegistry()
    registry.register(_Collected(crawl.settings.crawl.name, reading, time.perf_counter() - began_s))
    return generate_latest(registry), CONTENT_TYPE_PLAIN_0_0_4


class _Collected:
    """What the registry collects from: one reading of one crawl."""

    def __init__(self, crawl: str, reading: Reading | None, took_s: float) -> None:
        self._crawl = crawl
        self._reading = reading
        self._took_s = took_s

    def collect(self) -> Iterator[Metric]:
        """All metrics, without repeating a name."""
        reading, crawl = self._reading, self._crawl
        up = "1 when the engine answered."
        yield _metric(GAUGE, "crawler_engine_up", up, ["crawl"], [((crawl,), float(reading is not None))])
        took = "How long it took to read these metrics from the engine."
        yield _metric(GAUGE, "crawler_engine_read_seconds", took, ["crawl"], [((crawl,), self._took_s)])
        if reading is None:
            return
        for one in OF_CRAWL:
            found = one.of(reading)
            if isinstance(found, Mapping):
                values = [((crawl, name), value) for name, value in found.items()]
                yield _metric(one.kind, one.name, one.meaning, ["crawl", one.label], values)
            else:
                yield _metric(one.kind, one.name, one.meaning, ["crawl"], [((crawl,), found)])
        for of_instance in OF_INSTANCE:
            each = [((crawl, m.node), of_instance.of(m)) for m in reading.instances]
            yield _metric(of_instance.kind, of_instance.name, of_instance.meaning, ["crawl", "node"], each)
        if reading.top is not None:
            yield from self._domains(reading, reading.top)

    def _domains(self, reading: Reading, top: Sequence[TopDomain]) -> Iterator[Metric]:
        crawl = self._crawl
        for one in OF_DOMAIN:
            each = [((crawl, domain.stats.domain), one.of(domain)) for domain in top]
            yield _metric(one.kind, one.name, one.meaning, ["crawl", "domain"], each)
        truncated = "1 when there are more domains than those with metrics of their own."
        is_truncated = float(reading.domains > len(top))
        yield _metric(GAUGE, "crawler_domains_truncated", truncated, ["crawl"], [((crawl,), is_truncated)])


def _metric(
    kind: Kind,
    name: str,
    meaning: str,
    labels: Sequence[str],
    values: Iterable[tuple[Sequence[str], float | None]],
) -> Metric:
    metric = kind(name, meaning, labels=labels)
    for of, value in values:
        if value is not None:
            metric.add_metric(of, value)
    return metric
