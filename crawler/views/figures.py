"""Figures of domains and of the whole crawl: one record each for text, JSON, API and dashboard; columns of tables."""

from collections.abc import Callable, Iterable, Sequence
from enum import StrEnum
from itertools import pairwise
from typing import NamedTuple

import msgspec
from msgspec.structs import asdict

from crawler.frontier.busy import BusyQueue
from crawler.frontier.deferred import BLOCKED, PAUSED
from crawler.frontier.members import Awaited, Member
from crawler.frontier.operator import Overrides
from crawler.frontier.series import FINE, Rates, Sample, Samples
from crawler.frontier.stats import DomainStats, Totals
from crawler.rules.text import one_line
from crawler.rules.urls import registrable_domain
from crawler.terminal.text import GAP, NOTHING, duration, fitted, number, or_nothing, rate, size, text_width
from crawler.views.losses import Loss

WAIT_SHOWN_MS = 50  # a shorter wait is none
TROUBLE = 1.5  # times its delay: a longer wait has another reason
ERROR_SHOWN_S = FINE.slots * FINE.slot_s  # as long as there are slots that show it


class DomainState(StrEnum):
    """What happens with a domain now, in one word."""

    FETCHING = "fetching"  # a request is open
    DUE = "due"  # the next request may start
    ACTIVE = "active"  # crawled as fast as its delay allows: the next request waits for that only
    WAITING = "waiting"  # for a retry, the time of scheduled URLs, after errors, or for a host that does not answer
    PAUSED = "paused"
    BLOCKED = "blocked"
    SPENT = "spent"  # one of its budgets is used up
    DONE = "done"  # nothing is pending


class DomainView(DomainStats, frozen=True, kw_only=True):
    """A domain's counts, with what else viewers show of it.

    `rates`, `in_flight`, `last_error` and `last_error_at` are known of the busiest domains only; `rates` not at once.
    """

    state: DomainState
    boost: int  # of an operator, -9 to 9
    in_flight: int | None  # open requests
    next: str  # for people: when the next request may start, or the word for why none does
    robots_denied: int  # URLs that robots.txt forbids
    latency_ms: float | None  # mean of all responses
    rates: Rates | None
    last_error: str  # of the last 15 minutes, like "timeout"
    last_error_at: float  # s since 1970; 0 when there was none
    login_failure: str = ""  # for which it is blocked
    logins: int = 0  # forms with a password that were sent
    ends_sessions: Sequence[str] = ()  # paths that do, and are not requested


def domain_view(
    stats: DomainStats, busy: BusyQueue | None, overrides: Overrides, now_s: float, *, began_s: float = 0.0
) -> DomainView:
    """Put together what is known of a domain at a time of the wall clock. `began_s`: since when instances run."""
    in_flight = min(busy.in_flight, stats.claimed) if busy and stats.owner else (0 if not stats.claimed else None)
    logins = overrides.logins.get(registrable_domain(stats.domain)) if overrides.logins else None
    error = busy if busy and now_s - busy.last_error_at <= ERROR_SHOWN_S else None
    state = _state_of(stats, in_flight, is_paused=overrides.is_paused)
    return DomainView(
        **asdict(stats),
        state=state,
        next=next_text(stats, state),
        boost=overrides.boosts.get(registrable_domain(stats.domain), 0) if overrides.boosts else 0,
        in_flight=in_flight,
        robots_denied=stats.refused.get("robots", 0),
        latency_ms=round(stats.fetch_ms / stats.fetched, 1) if stats.fetched else None,
        rates=busy.rates(now_s, began_s) if busy else None,
        last_error=error.last_error if error else "",
        last_error_at=error.last_error_at if error else 0.0,
        login_failure=overrides.login_failures.get(registrable_domain(stats.domain), "") if stats.stop else "",
        logins=logins.logins if logins else 0,
        ends_sessions=logins.ends if logins else (),
    )


def _state_of(d: DomainStats, in_flight: int | None, *, is_paused: bool) -> DomainState:
    if d.stop == BLOCKED:
        return DomainState.BLOCKED
    if d.stop == PAUSED or (is_paused and d.pending):
        return DomainState.PAUSED
    if d.stop:
        return DomainState.SPENT
    if not d.pending:
        return DomainState.DONE
    if in_flight:
        return DomainState.FETCHING
    if d.retrying + d.scheduled + d.set_aside == d.pending:
        return DomainState.WAITING
    if d.next_fetch_in_ms < WAIT_SHOWN_MS:
        return DomainState.DUE
    is_at_its_delay = bool(d.owner) and d.next_fetch_in_ms <= TROUBLE * d.delay_ms
    return DomainState.ACTIVE if is_at_its_delay else DomainState.WAITING


# A crawl at one moment, as all viewers show it: the headline of tables, and what `/v1/overview` answers.


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


# The columns of all tables of domains: what they show, and which of them fit into a width. Pure.
#
# Widths are reserved, so that columns stay where they are while numbers change.


NAME_WIDTH_MIN, NAME_WIDTH_MAX = 16, 40
NAME_WIDTH_EASY = 28  # left for names before a column beyond the first ones is shown
FIRST_RANKS = 6
SORTED_MARK = "↓"
UNKNOWN = "?"  # the domain is not among the busiest, of which it is kept


class Column(NamedTuple):
    """One column. `rank`: those with lower ones are kept for longer where there is little room."""

    title: str
    rank: int
    width: int  # reserved
    text: Callable[[DomainView], str]
    sort: str = ""  # the order by it, one of SORTS
    is_left: bool = False  # aligned
    is_of_running: bool = False  # tells nothing of a crawl that is finished


class Grid(NamedTuple):
    """A table with all texts cleaned and cut to the widths of their columns."""

    columns: Sequence[Column]
    widths: Sequence[int]
    titles: Sequence[str]
    rows: Sequence[Sequence[str]]

    def lines(self) -> list[str]:
        """The titles and each row as one line."""
        return [self._line(cells) for cells in (self.titles, *self.rows)]

    def _line(self, cells: Sequence[str]) -> str:
        return GAP.join(
            fitted(cell, width, left=column.is_left)
            for cell, width, column in zip(cells, self.widths, self.columns, strict=True)
        ).rstrip()


def domain_grid(domains: Sequence[DomainView], width: int, *, sort: str = "") -> Grid:
    """The columns that fit into a width, with a mark at the one that it is sorted by."""
    cells = {c.title: [one_line(c.text(d)) for d in domains] for c in COLUMNS}
    widths = {c.title: max(c.width, *map(text_width, cells[c.title]), 0) for c in COLUMNS[1:]}
    kept, left = {COLUMNS[0].title}, width - NAME_WIDTH_MIN
    for column in sorted(COLUMNS[1:], key=lambda c: c.rank):
        left -= len(GAP) + widths[column.title]
        if left < (0 if column.rank <= FIRST_RANKS else NAME_WIDTH_EASY - NAME_WIDTH_MIN):
            break
        kept.add(column.title)
    columns = [c for c in COLUMNS if c.title in kept]
    rest = width - sum(len(GAP) + widths[c.title] for c in columns[1:])
    widths[COLUMNS[0].title] = max(1, min(rest, NAME_WIDTH_MAX))
    return Grid(
        columns=columns,
        widths=[widths[c.title] for c in columns],
        titles=[c.title + SORTED_MARK * (bool(sort) and c.sort == sort) for c in columns],
        rows=list(zip(*(cells[c.title] for c in columns), strict=True)),
    )


def told_columns(domains: Sequence[DomainView], *, is_running: bool) -> tuple[list[str], list[list[str]]]:
    """Titles and rows of all columns that tell something, for a table of any width."""
    columns = [c for c in COLUMNS if is_running or not c.is_of_running]
    rows = [[c.text(d) for c in columns] for d in domains]
    told = [n for n, c in enumerate(columns) if c.title in _ALWAYS or any(row[n] != NOTHING for row in rows)]
    return [columns[n].title for n in told], [[row[n] for n in told] for row in rows]


def delay_text(delay_ms: int) -> str:
    """The delay in force; "?" until a robots.txt was read."""
    return duration(delay_ms / 1000) if delay_ms >= 0 else UNKNOWN


def next_text(d: DomainStats, state: DomainState) -> str:
    """When the next request may start, or the word for why none does."""
    if state in _STOPPED:
        return _STOPPED[state]
    if not d.pending:
        return NOTHING
    if d.scheduled == d.pending:
        return "later"
    return f"in {duration(d.next_fetch_in_ms / 1000)}" if d.next_fetch_in_ms >= WAIT_SHOWN_MS else "now"


def errors_of(d: DomainView) -> int:
    """Responses with 4xx and 5xx, and attempts without a response: what the order by errors compares."""
    return d.status.get("4", 0) + d.status.get("5", 0) + sum(d.errors.values())


_STOPPED = {DomainState.PAUSED: "paused", DomainState.BLOCKED: "blocked", DomainState.SPENT: "budget"}


def _count(n: int) -> str:
    return or_nothing(number(n), n)


def _in_flight(d: DomainView) -> str:
    return UNKNOWN if d.in_flight is None else _count(d.in_flight)


def _rate(d: DomainView) -> str:
    return or_nothing(rate(d.rates.pages), d.rates.pages) if d.rates else NOTHING


def _latency(d: DomainView) -> str:
    return duration(d.latency_ms / 1000) if d.latency_ms else NOTHING


def _status(title: str, rank: int) -> Column:
    return Column(title, rank, 5, lambda d: _count(d.status.get(title[0], 0)))


COLUMNS = (
    Column("domain", 0, NAME_WIDTH_MIN, lambda d: d.domain, is_left=True),
    Column("pages", 1, 7, lambda d: number(d.fetched), sort="pages"),
    Column("/s", 3, 5, _rate, sort="rate"),
    _status("2xx", 14),
    _status("3xx", 15),
    _status("4xx", 12),
    _status("5xx", 13),
    Column("errors", 5, 7, lambda d: _count(errors_of(d)), sort="errors"),
    Column("size", 7, 8, lambda d: or_nothing(size(d.bytes), d.bytes), sort="bytes"),
    Column("retries", 18, 7, lambda d: _count(d.retries)),
    Column("dead", 16, 5, lambda d: _count(d.dead)),
    Column("refused by robots.txt", 22, 21, lambda d: _count(d.robots_denied)),
    Column("queued", 2, 7, lambda d: _count(d.queued), sort="queue"),
    Column("in flight", 6, 9, _in_flight, is_of_running=True),
    Column("retrying", 19, 8, lambda d: _count(d.retrying), is_of_running=True),
    Column("scheduled", 20, 9, lambda d: _count(d.scheduled)),
    Column("set aside", 21, 9, lambda d: _count(d.set_aside), is_of_running=True),
    Column("delay", 9, 6, lambda d: delay_text(d.delay_ms), is_of_running=True),
    Column("next", 4, 8, lambda d: d.next, sort="due", is_of_running=True),
    Column("latency", 11, 7, _latency),
    Column("owner", 10, 8, lambda d: d.owner or NOTHING, is_of_running=True),
    Column("last error", 8, 14, lambda d: d.last_error or NOTHING, is_left=True),
)
_ALWAYS = ("domain", "pages")
