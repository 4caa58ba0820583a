"""A domain as all viewers show it: the row of tables, of the API and of `stats --json`."""

from collections.abc import Mapping
from enum import StrEnum

import msgspec
from msgspec.structs import asdict

from crawler.frontier.lists import FINE, BusyQueue, Rates
from crawler.frontier.operator import Overrides
from crawler.frontier.reads import DomainStats
from crawler.frontier.waiting import BLOCKED, PAUSED
from crawler.rules.urls import registrable_domain

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


class DomainView(msgspec.Struct, frozen=True, kw_only=True):
    """One domain, or host where the queues are by host. Counts are totals of the crawl; times in ms.

    `rates`, `in_flight`, `last_error` and `last_error_at` are known of the busiest domains only; `rates` not at once.
    """

    domain: str
    partition: int
    state: DomainState
    stop: str  # why none of its URLs is handed out, else ""
    boost: int  # of an operator, -9 to 9
    queued: int
    claimed: int  # by its owner: open requests, and URLs that are next
    retrying: int
    scheduled: int  # they become visible later
    set_aside: int  # their origins do not answer; one of each probes it from time to time
    pending: int  # the sum of these five
    in_flight: int | None  # open requests
    fetched: int  # responses with any status
    status: Mapping[str, int]  # responses by class: "2", "3", "4", "5"
    bytes: int
    retries: int
    dead: int
    errors: Mapping[str, int]  # attempts without a response, by reason
    refused: Mapping[str, int]  # URLs that were not fetched, by reason
    robots_denied: int  # those of them that robots.txt forbids
    fetch_ms: int  # sum over all responses
    latency_ms: float | None  # mean of all responses
    items: int
    items_invalid: int
    delay_ms: int  # between two requests; -1 until a robots.txt was read
    next_fetch_in_ms: int
    rates: Rates | None
    last_error: str  # of the last 15 minutes, like "timeout"
    last_error_at: float  # s since 1970; 0 when there was none
    owner: str  # node, or "" when there is none now
    epoch: int


def domain_view(
    stats: DomainStats, busy: BusyQueue | None, overrides: Overrides, now_s: float, *, began_s: float = 0.0
) -> DomainView:
    """Put together what is known of a domain at a time of the wall clock. `began_s`: since when instances run."""
    in_flight = min(busy.in_flight, stats.claimed) if busy and stats.owner else (0 if not stats.claimed else None)
    error = busy if busy and now_s - busy.last_error_at <= ERROR_SHOWN_S else None
    return DomainView(
        **asdict(stats),
        state=_state_of(stats, in_flight, is_paused=overrides.is_paused),
        boost=overrides.boosts.get(registrable_domain(stats.domain), 0) if overrides.boosts else 0,
        pending=stats.pending,
        in_flight=in_flight,
        robots_denied=stats.refused.get("robots", 0),
        latency_ms=round(stats.fetch_ms / stats.fetched, 1) if stats.fetched else None,
        rates=busy.rates(now_s, began_s) if busy else None,
        last_error=error.last_error if error else "",
        last_error_at=error.last_error_at if error else 0.0,
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
