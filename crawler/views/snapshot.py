"""A crawl at one moment, as all viewers show it: the headline of tables, and what `/v1/overview` answers."""

from collections.abc import Iterable, Sequence
from enum import StrEnum
from itertools import pairwise

import msgspec

from crawler.frontier.members import Awaited, Member
from crawler.frontier.series import Rates, Sample, Samples
from crawler.frontier.stats import Totals
from crawler.views.figures import DomainView
from crawler.views.losses import Loss


class CrawlState(StrEnum):
    """What a crawl does, in one word."""

    RUNNING = "running"
    PAUSED = "paused"  # by an operator
    SPENT = "spent"  # a budget of the whole crawl is used up
    IDLE = "idle"  # URLs are pending, but no instance runs
    WAITING = "waiting"  # for the next time of a job: nothing is pending
    FINISHED = "finished"  # nothing is pending, and no job is due later


class JobsAhead(msgspec.Struct, frozen=True, kw_only=True):
    """What instances tell of jobs: when the next one is due, and whose clock is too wrong to trigger any."""

    next_at: float = 0.0  # s since 1970; 0: none is due
    clock_off: str = ""  # the node
    clock_off_s: float = 0.0  # the engine's clock minus that of the node


class Overview(msgspec.Struct, frozen=True, kw_only=True):
    """A crawl in one read of its counters. Counts are totals; `rates` are per second, of the last 10 s."""

    crawl: str  # its name
    at: float  # when it was read, s since 1970
    began_at: float  # when the crawl was created
    state: CrawlState
    instances: int  # that are alive
    pages: int  # responses with any status
    redirected: int  # of them, 3xx
    client_errors: int  # of them, 4xx
    server_errors: int  # of them, 5xx
    added: int  # URLs, each once
    pending: int  # queued, claimed, retrying and scheduled
    scheduled: int = 0  # of them, URLs that become visible later
    first_visible_at: float | None = None  # the first of these; s since 1970
    in_flight: int  # being fetched or parsed
    retries: int
    dead: int
    bytes: int
    requisites: int = 0  # responses that pages need to be shown: not in `pages`, nor in `bytes`
    rates: Rates | None  # None while they are not known: in the first seconds, and where nothing runs
    busy_partitions: int  # that have pending URLs
    still_s: float = 0.0  # since when no attempt has finished, s; at most 5 s too little
    left_s: float | None = None  # how long the pending URLs last, while they decrease, s
    waits_for: Sequence[str] = ()  # why instances claim no more URLs: "memory", "disk", "paused", "engine disk"
    full_nodes: Sequence[str] = ()  # whose disk has no room
    awaited: Sequence[Awaited] = ()  # of the instances where nothing moves
    last_error: str = ""  # of the last minute
    set_back_pages: int = 0  # that the engine lost in the last minute; they are fetched again
    logins: int = 0  # forms with a password that were sent
    one_shape: str = ""  # of all URLs that were fetched for ten minutes; "": there were others
    jobs: JobsAhead = JobsAhead()
    spent: str = ""  # the budget of the whole crawl that is used up, like "crawl:pages"
    sentence: str = ""  # for people: what it does
    notes: Sequence[str] = ()  # for people: the time left, what is waited for, the last error
    losses: Sequence[Loss] = ()  # what is missing in the results, largest first; not read for views in terminals


class DomainRows(msgspec.Struct, frozen=True, kw_only=True):
    """Some domains of a crawl, in their order, and how many it has found."""

    sort: str  # one of SORTS, "name" or "match"
    rows: Sequence[DomainView]
    total: int
    next: str = ""  # the cursor of the following page; "" on the last


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    """Headline and table, read together."""

    overview: Overview
    domains: DomainRows


class TotalsView(msgspec.Struct, frozen=True, kw_only=True):
    """All totals of a crawl."""

    totals: Totals
    pending: int
    domains: int
    in_flight: int


class Point(msgspec.Struct, frozen=True, kw_only=True):
    """What happened from `at` on, for `rates.seconds`; `pending` and `dead` are totals at its end."""

    at: float  # s since 1970
    rates: Rates
    pending: int = 0
    dead: int = 0


class SeriesView(msgspec.Struct, frozen=True, kw_only=True):
    """How something went over time, oldest first: 15 minutes by 5 s, and a day by 5 minutes."""

    fine: Sequence[Point]
    coarse: Sequence[Point]


def jobs_ahead(members: Iterable[Member]) -> JobsAhead:
    """Of the instances that are alive."""
    every = list(members)
    worst = max(every, key=lambda m: abs(m.clock_off_s), default=None)
    is_off = worst is not None and worst.clock_off_s != 0.0
    return JobsAhead(
        next_at=min((m.next_job_at for m in every if m.next_job_at), default=0.0),
        clock_off=worst.node if worst and is_off else "",
        clock_off_s=worst.clock_off_s if worst and is_off else 0.0,
    )


def series_view(samples: Samples) -> SeriesView:
    """The rates between the samples of a crawl, and from the newest one until now."""
    return SeriesView(fine=_points([*samples.fine, samples.now]), coarse=_points([*samples.coarse, samples.now]))


def _points(samples: Sequence[Sample]) -> list[Point]:
    return [
        Point(at=older.at_s, rates=Rates.between(older, newer), pending=newer.pending, dead=newer.dead)
        for older, newer in pairwise(samples)
        if newer.at_s > older.at_s
    ]
