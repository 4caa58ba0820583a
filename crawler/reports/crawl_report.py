"""Text of a crawl's summary and statistics, from values; does no I/O."""

from collections.abc import Collection, Mapping, Sequence

from crawler.frontier.messages import QuotaReached
from crawler.frontier.reads import Totals
from crawler.frontier.waiting import CRAWL_URLS
from crawler.reports.domain_columns import told_columns
from crawler.reports.domain_view import DomainView
from crawler.reports.losses import Loss, is_asked, losses_text
from crawler.settings import OrderSettings
from crawler.terminal.tables import facts, table
from crawler.terminal.wording import counted, duration, moment, number, size


def domain_table(domains: Sequence[DomainView], *, is_running: bool = False) -> str:
    """One line a domain; `is_running`: also what holds while it is crawled. Columns that tell nothing are left out."""
    return table(*told_columns(domains, is_running=is_running))


def totals_text(
    totals: Totals,
    losses: Sequence[Loss],
    *,
    domains: int,
    in_flight: int,
    ordering: OrderSettings,
    is_paused: bool = False,
    waits_for: Collection[str] = (),
    held: tuple[int, int] = (0, 0),
    quota_reached: QuotaReached | None = None,
    jobs: Sequence[str] = (),
) -> str:
    """The whole crawl in a few lines."""
    over = pending_text(over_budget(totals, quota_reached))
    left_out = {reason: n for reason, n in totals.refused.items() if is_asked(reason)}
    pairs = [("paused", "by an operator (continue with 'crawler resume')")] if is_paused else []
    pairs += [waits_text(why).partition(" ")[::2] for why in sorted(waits_for) if why != "paused"]
    pairs += [
        ("pages", f"{number(totals.fetched)}{in_brackets(classes_text(totals.status))}"),
        *([("sitemaps", number(totals.sitemaps))] if totals.sitemaps else ()),
        ("pending", _pending(totals, in_flight)),
        *(
            [("held back", f"{counted(held[0], 'page')}: {counted(held[1], 'link')} wait (log: pages.held_back)")]
            if held[0]
            else []
        ),
        *([("items", number(totals.items))] if totals.items else []),
        *([("on disk", counted(n, "deferred URL"))] if (n := totals.spilled_deferred) else []),
        *([("budget", f"{over} (raise it to continue)")] if over else []),
        ("domains", number(domains)),
        ("size", size(totals.bytes)),
        ("retries", number(totals.retries)),
        ("failures", f"{number(sum(totals.errors.values()))}{in_brackets(named(totals.errors))}"),
        *([("jobs", "; ".join(jobs))] if jobs else []),
        ("losses", losses_text(losses) + in_brackets("crawler stats --losses" if losses else "")),
        *([("left out", f"{named(left_out)}, as asked")] if left_out else []),
        ("order", order_text(ordering)),
    ]
    return facts(pairs)


def waits_text(why: str) -> str:
    """Why instances claim no more URLs, or few (`Member.waits_for`), in words."""
    full = "slowed by lack of room in the engine's memory (frontier.memory, or its own maxmemory)"
    disk = "waits for free disk space (archive.disk_free_bytes_min); 'crawler prune' removes old results"
    engine = "waits for free space on the engine's disk: it can't be written (MISCONF)"
    return {"memory": full, "disk": disk, "engine disk": engine, "paused": "waits for 'crawler resume'"}.get(
        why, f"waits for {why}"
    )


def _pending(totals: Totals, in_flight: int) -> str:
    if not totals.pending:
        return "0"
    on_disk = f", {number(totals.spilled)} on disk" if totals.spilled else ""
    later = ""
    if totals.first_visible_at is not None:
        later = f", {number(totals.scheduled)} scheduled, the first for {moment(totals.first_visible_at)}"
    return f"{number(totals.pending)} ({number(in_flight)} in flight{on_disk}{later})"


def items_text(counts: DomainView) -> str:
    """Like "1,203 (12 invalid, left out: see the log)"."""
    invalid = f"{number(counts.items_invalid)} invalid, left out: see the log" if counts.items_invalid else ""
    return number(counts.items) + in_brackets(invalid)


def order_text(ordering: OrderSettings) -> str:
    """Like "freshness (half-life 6 h, 2 rules)"."""
    details = [f"half-life {duration(ordering.half_life_s)}"] if ordering.order == "freshness" else []
    details += [counted(len(ordering.rules), "rule")] if ordering.rules else []
    return ordering.order + in_brackets(", ".join(details))


def boost_text(boost: int) -> str:
    """Like "5, by an operator: when it is due, it goes before all without one"; not for 0."""
    return f"{boost}, by an operator: fetched {'before' if boost > 0 else 'after'} domains without a boost"


STOPS = {
    "paused": "paused by an operator (continue with 'crawler resume DOMAIN')",
    "blocked": "blocked by an operator (continue with 'crawler unblock DOMAIN')",
    "pages": "its budget of pages is used up",
    "bytes": "its budget of bytes is used up",
}
DEFERRED = {
    "blocked": "blocked by an operator",
    "urls": "beyond the budget of URLs",
    "pages": "beyond the budget of pages",
    "bytes": "beyond the budget of bytes",
    "depth": "beyond the budget of depth",
    "hosts": "on hosts beyond the budget of hosts",
    "allow_private": "at private addresses",
    "crawl:urls": "beyond the crawl's budget of URLs",
    "crawl:pages": "beyond the crawl's budget of pages",
    "crawl:bytes": "beyond the crawl's budget of bytes",
}


def over_budget(totals: Totals, quota_reached: QuotaReached | None) -> dict[str, int]:
    """How many URLs the budgets of the whole crawl keep, by reason. All that is pending, where one is used up."""
    over = {CRAWL_URLS: totals.beyond}
    if quota_reached:
        over[quota_reached.reason] = totals.pending
    return {reason: n for reason, n in over.items() if n}


def pending_text(over: Mapping[str, int]) -> str:
    """How many URLs wait for a larger budget of the whole crawl; "" for none. Deferred ones are losses."""
    return deferred_text({reason: n for reason, n in over.items() if reason != CRAWL_URLS})


def stop_text(stop: str, *, is_crawl_paused: bool = False, quota_reached: QuotaReached | None = None) -> str:
    """Why nothing of a domain is fetched now; "" when it is."""
    if stop:
        return STOPS.get(stop, stop)
    if quota_reached:
        _, _, what = quota_reached.reason.partition(":")
        return f"the whole crawl's budget of {what} is used up (budget.crawl_{what} = {quota_reached.budget})"
    return "the whole crawl is paused (continue with 'crawler resume')" if is_crawl_paused else ""


def deferred_text(deferred: Mapping[str, int]) -> str:
    """Like "1,203 beyond the budget of URLs, 12 trap:calendar": the most first."""
    ordered = sorted(deferred.items(), key=lambda item: (-item[1], item[0]))
    return ", ".join(f"{number(n)} {DEFERRED.get(reason, reason)}" for reason, n in ordered)


def named(counts: Mapping[str, int]) -> str:
    """Like "timeout 3, connect 1": the most frequent first."""
    ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return ", ".join(f"{name} {number(n)}" for name, n in ordered if n)


def finish_line(pages: int, seconds: float, why: str) -> str:
    """Like "Finished: 120 pages in 12 s (10.0/s)."."""
    words = {
        "finished": "Finished",
        "pages": "Page limit reached",
        "budget": "Finished by its budget",
        "time": "Time is up",
        "signal": "Stopped",
        "evicted": "Evicted",
    }
    return f"{words.get(why, why)}: {counted(pages, 'page')} in {duration(seconds)}."


def classes_text(status: Mapping[str, int]) -> str:
    """Like "2xx 1,203, 4xx 12"."""
    return ", ".join(f"{c}xx {number(n)}" for c, n in sorted(status.items()) if n)


def in_brackets(text: str) -> str:
    """What follows something in brackets, if there is anything."""
    return f" ({text})" if text else ""
