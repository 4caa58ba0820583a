"""Figures of domains and of the whole crawl: one record each for text, JSON, API and dashboard; columns of tables."""

from collections.abc import Sequence
from enum import StrEnum

from msgspec.structs import asdict

from crawler.frontier.busy import BusyQueue
from crawler.frontier.deferred import BLOCKED, PAUSED
from crawler.frontier.operator import Overrides
from crawler.frontier.series import FINE, Rates
from crawler.frontier.stats import DomainStats
from crawler.rules.places import registrable_domain
from crawler.terminal.tables import NOTHING
from crawler.terminal.words import duration

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


def next_text(d: DomainStats, state: DomainState) -> str:
    """When the next request may start, or the word for why none does."""
    if state in _STOPPED:
        return _STOPPED[state]
    if not d.pending:
        return NOTHING
    if d.scheduled == d.pending:
        return "later"
    return f"in {duration(d.next_fetch_in_ms / 1000)}" if d.next_fetch_in_ms >= WAIT_SHOWN_MS else "now"


_STOPPED = {DomainState.PAUSED: "paused", DomainState.BLOCKED: "blocked", DomainState.SPENT: "budget"}
