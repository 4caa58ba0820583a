"""One domain in full, and the rows of many: read from the engine, with the facts and the sentence that people read."""

from collections.abc import Mapping, Sequence

import msgspec
from msgspec.structs import replace

from crawler.frontier.series import Rates
from crawler.rules.text import printable
from crawler.terminal.tables import facts
from crawler.terminal.words import counted, duration, moment, number, rate, size
from crawler.views.columns import delay_text
from crawler.views.figures import TROUBLE, WAIT_SHOWN_MS, DomainState, DomainView
from crawler.views.report import (
    OURS,
    boost_text,
    classes_text,
    deferred_text,
    in_brackets,
    items_text,
    named,
    stop_text,
)
from crawler.views.snapshot import SeriesView


class RobotsView(msgspec.Struct, frozen=True, kw_only=True):
    """The robots.txt of an origin as the crawl obeys it."""

    origin: str
    read_at: float  # s since 1970
    rules: int  # that apply to us
    crawl_delay_s: float | None  # as the site wrote it
    allows_front_page: bool


class DomainDetail(msgspec.Struct, frozen=True, kw_only=True):
    """One domain, or host where the queues are by host, with what an operator wants to know of it."""

    domain: DomainView
    sentence: str  # why something or nothing happens here
    instances: int  # of the crawl, that are alive
    deferred: Mapping[str, int]  # its URLs that are deferred, by reason
    ordered_delay_ms: int | None  # by an operator
    crawl_paused: bool
    crawl_spent: str  # the budget of the whole crawl that is used up
    robots: Sequence[RobotsView]
    series: SeriesView  # empty for a domain that is not among the busiest
    facts: Sequence[tuple[str, str]] = ()  # for people: names and texts


FULL = {
    "memory": "the engine's memory is full (frontier.memory, or its own maxmemory)",
    "disk": "the disk of the crawl folder is nearly full (archive.disk_free_bytes_min)",
}


def sentence(
    d: DomainView,
    deferred: Mapping[str, int],
    *,
    instances: int,
    crawl_stop: str,
    waits_for: str = "",
) -> str:
    """Why something or nothing happens with a domain. `crawl_stop`: why the whole crawl is stopped, or ""."""
    if d.state is DomainState.DONE:
        return _done(d, deferred)
    waiting = counted(d.pending, "URL")
    if d.stop:
        return f"Nothing is fetched: {stop_text(d.stop, login_failure=d.login_failure).replace('DOMAIN', d.domain)}."
    if crawl_stop:
        return f"Nothing is fetched: {crawl_stop}."
    if not instances:
        return f"Nothing is fetched: no instance is running, and {waiting} wait{'s' * (d.pending == 1)}."
    if not d.owner:
        return f"Nothing is fetched: no instance owns partition {d.partition} now; one takes it over within seconds."
    if d.state is DomainState.FETCHING:
        speed = f", {rate(d.rates.pages)} pages/s" if d.rates and d.rates.pages else ""
        return f"{d.owner} fetches from it: {counted(d.in_flight or 0, 'open request')}{speed}."
    if waits_for in OURS and d.set_aside:
        return f"Its URLs that are set aside wait for {OURS[waits_for]}, which does not work, or for their hosts."
    if waits_for in FULL:
        claimed = "Few URLs are claimed at a time" if waits_for == "memory" else "Nothing is claimed"
        return f"{claimed}: {FULL[waits_for]}."
    wait = duration(d.next_fetch_in_ms / 1000)
    trouble = (
        f" after errors (the last: {d.last_error})"
        if d.last_error and d.next_fetch_in_ms > TROUBLE * d.delay_ms
        else ""
    )
    if d.next_fetch_in_ms >= WAIT_SHOWN_MS:
        delay = f", its delay is {duration(d.delay_ms / 1000)}" if d.delay_ms > 0 and not trouble else ""
        return f"The next request starts in {wait}{trouble}{delay}."
    if what := _all_wait_for(d):
        return f"{waiting} wait{'s' * (d.pending == 1)} for {what}."
    if d.claimed:
        return f"{d.owner} has claimed {counted(d.claimed, 'URL')} of it: a request starts when there is room."
    return f"It is due: {d.owner} claims from it when there is room for more requests."


def _all_wait_for(d: DomainView) -> str:
    """What all URLs of a domain wait for, "" if they wait for nothing of that kind."""
    if d.scheduled == d.pending:
        return "the time given to 'crawler seed --at'"
    if d.retrying + d.scheduled + d.set_aside < d.pending:
        return ""
    trouble = f" after errors (the last: {d.last_error})" if d.last_error else ""
    return f"{'hosts that do not answer, and are probed' if d.set_aside else 'a retry'}{trouble}"


def _done(d: DomainView, deferred: Mapping[str, int]) -> str:
    if deferred:
        return f"Nothing is pending; deferred: {deferred_text(deferred)} ('crawler release {d.domain}')."
    if d.dead and not d.fetched:
        return f"Nothing was fetched: {counted(d.dead, 'dead letter')} ({named(d.errors)})."
    if d.robots_denied and not d.fetched:
        return f"Nothing was fetched: robots.txt forbids {counted(d.robots_denied, 'URL')}."
    if not d.fetched:
        return "Nothing is known of it but its name."
    dead = f", {counted(d.dead, 'dead letter')}" if d.dead else ""
    return f"Done: all of its URLs are fetched or given up ({counted(d.fetched, 'page')}{dead})."


def detail_text(detail: DomainDetail) -> str:
    """One domain in full, its sentence first."""
    return f"{printable(detail.sentence)}\n\n{facts(detail.facts)}"


def with_facts(detail: DomainDetail) -> DomainDetail:
    """The same, with its facts."""
    d = detail.domain
    delay = delay_text(d.delay_ms) if d.delay_ms >= 0 else "unknown: no robots.txt was read yet"
    owner = f"owner {d.owner}, epoch {d.epoch}" if d.owner else "no owner now"
    found = [
        ("domain", d.domain),
        ("partition", f"{d.partition}, {owner}"),
        ("pages", f"{number(d.fetched)}{in_brackets(classes_text(d.status))}"),
        *([("rate", _rate_text(d.rates))] if d.rates else []),
        ("queued", number(d.queued)),
        *([("deferred", deferred_text(detail.deferred))] if detail.deferred else []),
        ("claimed", number(d.claimed) + in_brackets(f"{number(d.in_flight)} in flight" if d.in_flight else "")),
        ("retrying", number(d.retrying)),
        *([("scheduled", number(d.scheduled))] if d.scheduled else []),
        *([("set aside", f"{number(d.set_aside)} (their hosts, or a proxy, do not answer)")] if d.set_aside else []),
        *([("items", items_text(d))] if d.items or d.items_invalid else []),
        *([("requisites", f"{number(d.requisites)}, {size(d.requisite_bytes)}")] if d.requisites else []),
        ("size", size(d.bytes)),
        ("retries", number(d.retries)),
        ("failures", f"{number(sum(d.errors.values()))}{in_brackets(named(d.errors))}"),
        *([("last error", f"{d.last_error} at {moment(d.last_error_at)}")] if d.last_error else []),
        ("dead letters", number(d.dead)),
        ("refused", f"{number(sum(d.refused.values()))}{in_brackets(named(d.refused))}"),
        *robots_facts(detail.robots),
        *([("logins", number(d.logins))] if d.logins else []),
        *([("ends sessions", ", ".join(d.ends_sessions))] if d.ends_sessions else []),
        ("delay", f"{delay} (by an operator)" if detail.ordered_delay_ms is not None else delay),
        *([("boost", boost_text(d.boost))] if d.boost else []),
        ("next fetch", d.next),
        ("mean fetch", f"{number(d.latency_ms)} ms" if d.latency_ms else "-"),
    ]
    return replace(detail, facts=found)


def _rate_text(rates: Rates) -> str:
    errors = rates.client_errors + rates.server_errors + rates.failures
    failing = f", {rate(errors)} errors/s" if errors else ""
    return f"{rate(rates.pages)} pages/s, {size(rates.bytes)}/s{failing}"


ROBOTS_ROWS = 5  # a domain can have thousands of hosts
ORIGINS_NAMED = 3  # of those that are alike


def robots_facts(robots: Sequence[RobotsView]) -> list[tuple[str, str]]:
    """A row for all robots.txt files that say the same, those that forbid most first; at most ROBOTS_ROWS."""
    alike: dict[tuple[bool, float, int], list[RobotsView]] = {}
    for one in robots:
        delay_s = -1.0 if one.crawl_delay_s is None else one.crawl_delay_s
        alike.setdefault((one.allows_front_page, -delay_s, -one.rules), []).append(one)
    groups = [alike[key] for key in sorted(alike)]
    rows = [(_robots_name(group, is_alone=len(groups) == 1), _robots_text(group)) for group in groups[:ROBOTS_ROWS]]
    rest = sum(map(len, groups[ROBOTS_ROWS:]))
    return (
        [*rows, (f"robots.txt, {counted(rest, 'more origin')}", "listed by 'crawler stats DOMAIN --json'")]
        if rest
        else rows
    )


def _robots_name(group: Sequence[RobotsView], *, is_alone: bool) -> str:
    if is_alone:
        return "robots.txt"
    return f"robots.txt, {counted(len(group), 'origin') if len(group) > 1 else group[0].origin.partition('://')[2]}"


def _robots_text(group: Sequence[RobotsView]) -> str:
    """What they say, when they were read, and of whom they are."""
    first, read = group[0], sorted(one.read_at for one in group)
    parts = [counted(first.rules, "rule")]
    if first.crawl_delay_s is not None:
        parts.append(f"crawl-delay {duration(first.crawl_delay_s)}")
    if not first.allows_front_page:
        parts.append("forbids the front page")
    origins = ", ".join(one.origin for one in group[:ORIGINS_NAMED])
    more = f" and {number(len(group) - ORIGINS_NAMED)} more" if len(group) > ORIGINS_NAMED else ""
    times = moment(read[0]) if read[0] == read[-1] else f"{moment(read[0])} to {moment(read[-1])}"
    return f"{origins}{more}: {', '.join(parts)}; read at {times}"
