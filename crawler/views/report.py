"""What a crawl says of itself at its end, of its settings by site, and of other crawls of the engine."""

from collections.abc import Collection, Mapping, Sequence

import msgspec

from crawler.frontier.deferred import CRAWL_URLS, REQUISITES
from crawler.frontier.messages import BudgetReached
from crawler.frontier.stats import CUT_REQUISITES, Totals
from crawler.model import RefusalReason, Request, Rights
from crawler.rules.login_pace import LoginRecord
from crawler.rules.rights import NO, PURPOSES, YES, outside, short_text, statement_text
from crawler.rules.text import one_line
from crawler.settings import OrderSettings
from crawler.terminal.tables import facts, table
from crawler.terminal.words import counted, duration, moment, number, size
from crawler.views.columns import told_columns
from crawler.views.figures import DomainView
from crawler.views.losses import Loss, is_asked, losses_text


def domain_table(domains: Sequence[DomainView], *, is_running: bool = False) -> str:
    """One line a domain; `is_running`: also what holds while it is crawled. Columns that tell nothing are left out."""
    return table(*told_columns(domains, is_running=is_running))


def one_shape_text(shapes: str) -> str:
    """That for ten minutes some domains had nothing but URLs of one shape each."""
    return one_line(f"only URLs of one shape for ten minutes: {shapes} (without an end? 'crawler block' ends it)")


def totals_text(
    totals: Totals,
    losses: Sequence[Loss],
    *,
    domains: int,
    in_flight: int,
    ordering: OrderSettings,
    is_paused: bool = False,
    waits_for: Collection[str] = (),
    full_nodes: Sequence[str] = (),
    held: tuple[int, int] = (0, 0),
    budget_reached: BudgetReached | None = None,
    jobs: Sequence[str] = (),
    logins: str = "",
    one_shape: str = "",
) -> str:
    """The whole crawl in a few lines."""
    over = pending_text(over_budget(totals, budget_reached))
    left_out = {reason: n for reason, n in totals.refused.items() if is_asked(reason)}
    pairs = [("paused", "by an operator (continue with 'crawler resume')")] if is_paused else []
    pairs += [waits_text(why, full_nodes).partition(" ")[::2] for why in sorted(waits_for) if why != "paused"]
    pairs += [
        ("pages", f"{number(totals.fetched)}{in_brackets(classes_text(totals.status))}"),
        *([("unchanged", f"{number(totals.unchanged)}, of pages of jobs")] if totals.unchanged else ()),
        *([("duplicates", duplicates_text(totals))] if totals.duplicates else ()),
        *([("sitemaps", number(totals.sitemaps))] if totals.sitemaps else ()),
        *([("requisites", requisites_text(totals))] if totals.requisites_met else ()),
        *([("rights", _rights(totals.rights))] if totals.rights else ()),
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
        *([("logins", logins)] if logins else []),
        *([("jobs", "; ".join(jobs))] if jobs else []),
        *([("shape", one_shape_text(one_shape))] if one_shape else []),
        ("losses", losses_text(losses) + in_brackets("crawler stats --losses" if losses else "")),
        *([("left out", f"{named(left_out)}, as asked")] if left_out else []),
        ("order", order_text(ordering)),
    ]
    return facts(pairs)


def duplicates_text(totals: Totals) -> str:
    """How many pages have the body of another one, and what that saves."""
    return f"{counted(totals.duplicates, 'page')}, {size(totals.duplicate_bytes)} of bodies not archived again"


def requisites_text(totals: Totals) -> str:
    """What pages need to be shown, like "320, 5.1 MB, 12 for robots.txt ...": they are no pages."""
    robots = counted(totals.requisite_robots, "robots.txt file", "robots.txt files")
    deferred, cut = totals.deferred_by.get(REQUISITES, 0), totals.lost.get(CUT_REQUISITES, 0)
    archived = totals.refused.get(RefusalReason.ARCHIVED, 0)
    parts = [
        f"{number(totals.requisites)} of {number(totals.requisites_met)} fetched", size(totals.requisite_bytes),
        f"{number(archived)} archived as pages" if archived else "",
        f"{robots} read for them" if totals.requisite_robots else "",
        f"{number(deferred)} deferred" if deferred else "", f"{number(cut)} cut" if cut else "",
    ]  # fmt: skip
    return ", ".join(part for part in parts if part)


def _rights(counts: Mapping[str, int]) -> str:
    """Like "ai-train n 12, search y 40": pages by what was said of a purpose."""
    known = [(purpose, word) for purpose in PURPOSES for word in (NO, YES)]
    parts = [(outside(purpose), word, counts.get(f"{purpose}:{word}", 0)) for purpose, word in known]
    return ", ".join(f"{purpose} {word} {number(n)}" for purpose, word, n in parts if n)


# What URLs wait for by no fault of their hosts: kinds of failures (`model.OURS`), values of `Member.waits_for`.
OURS = {"network": "your own network", "proxy": "the proxy (fetch.proxy)"}


def logins_text(sites: Mapping[str, LoginRecord]) -> str:
    """Like "3 (club.example); its sessions end with club.example/logout": of one site or of several."""
    counts = {site: one.logins for site, one in sites.items()}
    ends = [f"sessions of {site} end with {', '.join(one.ends)}" for site, one in sites.items() if one.ends]
    which = next(iter(counts), "") if len(counts) == 1 else named(counts)
    return one_line("; ".join([f"{number(sum(counts.values()))}{in_brackets(which)}", *ends]))


NODES_MAX = 3  # that are named in a line


def waits_text(why: str, full_nodes: Sequence[str] = ()) -> str:
    """Why instances claim no more URLs, or few (`Member.waits_for`), in words. `full_nodes`: whose disks are full."""
    full = "slowed by lack of room in the engine's memory (frontier.memory, or its own maxmemory)"
    more = f" and {number(n)} more" if (n := len(full_nodes) - NODES_MAX) > 0 else ""
    where = f" on {', '.join(full_nodes[:NODES_MAX])}{more}" if full_nodes else ""
    disk = f"waits for free disk space{where} (archive.disk_free_bytes_min); 'crawler prune' removes old results"
    engine = "waits for free space on the engine's disk: it can't be written (MISCONF)"
    resume = "waits for 'crawler resume'"
    backup = "stands still for 'crawler backup --pause'"
    known = {"memory": full, "disk": disk, "engine disk": engine, "paused": resume, "backup": backup}
    ours = f"waits for {OURS.get(why, why)}, which does not work: the last error tells why"
    return known.get(why, ours)


def outage_text(give_up_s: float) -> str:
    """Why a crawl has stopped whose own network, or proxy, does not work."""
    return f"nothing came through your network or proxy for {duration(give_up_s)} (hosts.give_up_s)"


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
    "rights": "whose robots.txt says no to rights.purpose",
    "crawl:urls": "beyond the crawl's budget of URLs",
    "crawl:pages": "beyond the crawl's budget of pages",
    "crawl:bytes": "beyond the crawl's budget of bytes",
}


def over_budget(totals: Totals, budget_reached: BudgetReached | None) -> dict[str, int]:
    """How many URLs the budgets of the whole crawl keep, by reason. All that is pending, where one is used up."""
    over = {CRAWL_URLS: totals.beyond}
    if budget_reached:
        over[budget_reached.reason] = totals.pending
    return {reason: n for reason, n in over.items() if n}


def pending_text(over: Mapping[str, int]) -> str:
    """How many URLs wait for a larger budget of the whole crawl; "" for none. Deferred ones are losses."""
    return deferred_text({reason: n for reason, n in over.items() if reason != CRAWL_URLS})


def stop_text(
    stop: str, *, is_crawl_paused: bool = False, budget_reached: BudgetReached | None = None, login_failure: str = ""
) -> str:
    """Why nothing of a domain is fetched now; "" when it is."""
    if stop and login_failure:
        return f"{login_failure} (try again with 'crawler unblock DOMAIN')"
    if stop:
        return STOPS.get(stop, stop)
    if budget_reached:
        _, _, what = budget_reached.reason.partition(":")
        return f"the whole crawl's budget of {what} is used up (budget.crawl_{what} = {budget_reached.budget})"
    return "the whole crawl is paused (continue with 'crawler resume')" if is_crawl_paused else ""


def deferred_text(deferred: Mapping[str, int]) -> str:
    """Like "1,203 beyond the budget of URLs, 12 trap:calendar": the most first."""
    ordered = sorted(deferred.items(), key=lambda item: (-item[1], item[0]))
    return ", ".join(f"{number(n)} {DEFERRED.get(reason, reason)}" for reason, n in ordered)


META_SHOWN = 200  # characters


def request_text(request: Request) -> str:
    """What a request carries besides its URL, for people: "POST, body of 12 bytes, meta {...}"."""
    parts = [request.method]
    if request.digest:
        parts.append(
            f"body of {counted(len(request.body), 'byte')}" if request.body else "a body that is not kept here"
        )
    parts += [f"headers {', '.join(request.headers)}"] if request.headers else []
    parts += [f"key {request.key}"] if request.key else []
    parts += [f"session {request.session}"] if request.session else []
    parts += [f"meta {msgspec.json.encode(request.meta).decode()[:META_SHOWN]}"] if request.meta else []
    return one_line(", ".join(parts))


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
        "outage": "Stopped, as nothing came through your network or proxy",
    }
    return f"{words.get(why, why)}: {counted(pages, 'page')} in {duration(seconds)}."


def classes_text(status: Mapping[str, int]) -> str:
    """Like "2xx 1,203, 4xx 12"."""
    return ", ".join(f"{c}xx {number(n)}" for c, n in sorted(status.items()) if n)


def in_brackets(text: str) -> str:
    """What follows something in brackets, if there is anything."""
    return f" ({text})" if text else ""


def rights_pairs(rights: Rights | None) -> list[tuple[str, str]]:
    """What was said about the use of a page, and where; nothing where nothing was."""
    if rights is None:
        return []
    more = [f"{counted(rights.cut, 'more statement')}, left out or cut"] if rights.cut else []
    return [("rights", one) for one in (short_text(rights), *map(statement_text, rights.sources), *more)]
