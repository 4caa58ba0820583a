"""What a crawl says of itself at its end, of its settings by site, and of other crawls of the engine."""

import enum
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import NamedTuple

import msgspec

from crawler.engine.client import Engine
from crawler.errors import ConflictError, NoCrawlError
from crawler.frontier.crawls import CrawlList, ListedCrawl
from crawler.frontier.deferred import CRAWL_URLS
from crawler.frontier.lookup import UrlLookup
from crawler.frontier.members import Members
from crawler.frontier.messages import QuotaReached
from crawler.frontier.record import ARRIVING, MOVED, REMOVED, Keys
from crawler.frontier.stats import Totals
from crawler.handlers.crawler import Crawler, Handler
from crawler.membership.peers import is_lock_free
from crawler.model import Request
from crawler.rules.logins import LoginRecord
from crawler.rules.scope import SiteRules, SiteTable, first_with, is_secret_header
from crawler.rules.text import one_line
from crawler.rules.urls import host_of, queue_of
from crawler.settings import MembershipSettings, OrderSettings, Settings
from crawler.settings.load import fixed_cookies
from crawler.settings.proxies import shown_proxy
from crawler.terminal.text import NOTHING, by_number, counted, duration, facts, moment, number, size, table
from crawler.views.figures import DomainView, told_columns
from crawler.views.losses import Loss, is_asked, losses_text
from crawler.views.ring import observed_members


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
    quota_reached: QuotaReached | None = None,
    jobs: Sequence[str] = (),
    logins: str = "",
    one_shape: str = "",
) -> str:
    """The whole crawl in a few lines."""
    over = pending_text(over_budget(totals, quota_reached))
    left_out = {reason: n for reason, n in totals.refused.items() if is_asked(reason)}
    pairs = [("paused", "by an operator (continue with 'crawler resume')")] if is_paused else []
    pairs += [waits_text(why, full_nodes).partition(" ")[::2] for why in sorted(waits_for) if why != "paused"]
    pairs += [
        ("pages", f"{number(totals.fetched)}{in_brackets(classes_text(totals.status))}"),
        *([("unchanged", f"{number(totals.unchanged)}, of pages of jobs")] if totals.unchanged else ()),
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
        *([("logins", logins)] if logins else []),
        *([("jobs", "; ".join(jobs))] if jobs else []),
        *([("shape", one_shape_text(one_shape))] if one_shape else []),
        ("losses", losses_text(losses) + in_brackets("crawler stats --losses" if losses else "")),
        *([("left out", f"{named(left_out)}, as asked")] if left_out else []),
        ("order", order_text(ordering)),
    ]
    return facts(pairs)


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


def stop_text(
    stop: str, *, is_crawl_paused: bool = False, quota_reached: QuotaReached | None = None, login_failure: str = ""
) -> str:
    """Why nothing of a domain is fetched now; "" when it is."""
    if stop and login_failure:
        return f"{login_failure} (try again with 'crawler unblock DOMAIN')"
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


# Which settings a URL gets, and where each comes from: the tables [[sites]], or the settings for all. No secrets.
#
# Looks at the settings and the app alone: what a crawl has stored, `crawler explain` tells.

KEYS = (
    "delay_s", "concurrency", "insecure_tls", "proxy", "headers", "cookies", "auth", "label", "depth_max", "priority",
)  # fmt: skip
HIDDEN = "(not shown)"
NOT_SENT = "(not sent over http)"


class SettingSource(NamedTuple):
    """One setting of a URL: what it is, and which key or table of the file says so ("" for none)."""

    key: str
    value: str
    where: str


def sources_of(url: str, settings: Settings, app: Crawler | None) -> list[SettingSource]:
    """All settings by site of a canonical URL, and who gets its page."""
    rules = SiteRules.of(settings.sites, *KEYS) or SiteRules(())
    tables = rules.fitting(url)
    queue = queue_of(host_of(url), by_domain=settings.frontier.queue_by == "domain")
    found = [SettingSource("queue", queue, f"frontier.queue_by = {settings.frontier.queue_by}")]
    found += _of_queue(rules, queue, settings)
    found += _of_connections(tables, settings)
    found += _sent(url, tables)
    found += _of_links(tables, settings)
    label = next((one.value for one in found if one.key == "label"), "")
    return [*found, _handler(url, "" if label == NOTHING else label, app)]


def https_only(settings: Settings) -> list[str]:
    """What of the tables goes to https alone, a line each."""
    rules = SiteRules.of(settings.sites, "headers", "cookies", "auth") or SiteRules(())
    return [
        f"{one.name}: over https only: {', '.join(one.secrets)} (begin match with http:// to send them over http)"
        for one in rules.tables
        if one.secrets and not one.pattern.names_scheme
    ]


def as_text(url: str, sources: list[SettingSource]) -> str:
    """For a terminal."""
    rows = [(one.key, one.value, one.where) for one in sources]
    return f"{url}\n" + table(("setting", "value", "from"), rows, left=3)


def _of_queue(rules: SiteRules, queue: str, settings: Settings) -> Iterator[SettingSource]:
    politeness, tables = settings.politeness, rules.tables_of_queue(queue)
    for key, plain, value in (
        ("delay_s", "politeness.delay_s", politeness.delay_s),
        ("concurrency", "politeness.concurrency_per_queue", politeness.concurrency_per_queue),
    ):
        own = first_with(tables, key)
        yield SettingSource(key, f"{getattr(own.site, key) if own else value:g}", own.name if own else plain)


def _of_connections(tables: Sequence[SiteTable], settings: Settings) -> Iterator[SettingSource]:
    own = first_with(tables, "insecure_tls")
    value = own.site.insecure_tls if own else settings.fetch.insecure_tls
    if own or value:
        yield SettingSource("insecure_tls", str(value).lower(), own.name if own else "fetch.insecure_tls")
    own = first_with(tables, "proxy")
    proxy = own.site.proxy if own else settings.fetch.proxy
    if own or proxy:
        yield SettingSource("proxy", shown_proxy(proxy), own.name if own else "fetch.proxy")


def _sent(url: str, tables: Sequence[SiteTable]) -> Iterator[SettingSource]:
    """Headers and cookies come from as many tables as there are. What is not sent takes no name from later tables."""
    taken: set[tuple[str, str]] = set()

    def named(
        one: SiteTable, kind: str, name: str, shown: str, value: str, *, is_secret: bool
    ) -> Iterator[SettingSource]:
        if (kind, name) in taken:
            return
        if is_secret and not one.sends_secrets_to(url):
            yield SettingSource(shown, NOT_SENT, one.name)
            return
        taken.add((kind, name))
        yield SettingSource(shown, HIDDEN if is_secret else value, one.name)

    for one in tables:
        if one.site.auth:
            yield from named(one, "headers", "authorization", "auth", "", is_secret=True)
        for name, value in one.site.headers.items():
            is_secret = is_secret_header(name, value)
            yield from named(one, "headers", name.lower(), f"header {name}", str(value), is_secret=is_secret)
        for name in fixed_cookies(one.site):
            yield from named(one, "cookies", name, f"cookie {name}", "", is_secret=True)


def _of_links(tables: Sequence[SiteTable], settings: Settings) -> Iterator[SettingSource]:
    label, depth, priority = (first_with(tables, key) for key in ("label", "depth_max", "priority"))
    yield SettingSource("label", label.site.label if label else NOTHING, label.name if label else "")
    limit = depth.site.depth_max if depth else settings.scope.depth_max
    yield SettingSource(
        "depth_max", str(limit) if limit != -1 else "no limit", depth.name if depth else "scope.depth_max"
    )
    yield SettingSource(
        "priority", f"{priority.site.priority:+g}" if priority else NOTHING, priority.name if priority else ""
    )


def _handler(url: str, label: str, app: Crawler | None) -> SettingSource:
    if app is None:
        return SettingSource("handler", NOTHING, "no app")
    handler = app.handler_for(url, label)
    if handler is None:
        return SettingSource("handler", NOTHING, "no handler of the app matches")
    return SettingSource("handler", handler.name, _why_handled(handler, url, label))


def _why_handled(handler: Handler, url: str, label: str) -> str:
    if label and handler.label == label:
        return f"@app.page(label={label!r})"
    if handler.is_default:
        return "@app.page(), for all pages without another handler"
    return f"@app.page({next(p.text for p in handler.patterns if p.matches(url))!r})"


# Reads which crawls an engine has, and removes one from it. Needs no open crawl, only the engine.


class CrawlCondition(enum.StrEnum):
    """Whether this release can use a crawl."""

    READY = "ready"
    OTHER_LAYOUT = "other_layout"  # only the release that created it can use it
    BEING_REMOVED = "being_removed"  # a removal was interrupted, or runs now
    MOVED = "moved"  # to another engine
    LEAVING = "leaving"  # to another engine: the move was interrupted, or runs now
    ARRIVING = "arriving"  # from another engine: the move was interrupted, or runs now


class CrawlRow(msgspec.Struct, frozen=True, kw_only=True):
    """A crawl of an engine. `created_at` is wall clock, s; numbers are None where this release can't read them."""

    name: str
    condition: CrawlCondition
    created_at: float
    layout: int | None = None  # None where a mark is stored in the place of the record
    place: str = ""  # the other engine of a move
    pages: int | None = None
    pending: int | None = None
    instances: int | None = None  # that take part by their own word, without those whose process is proven dead


class RemovedCrawl(msgspec.Struct, frozen=True, kw_only=True):
    """What a removal deleted."""

    name: str
    keys: int


async def crawl_rows(engine: Engine) -> list[CrawlRow]:
    """All crawls of an engine, by name. Takes one pass over the partitions of each. Raises EngineError."""
    return [await _row(engine, one) for one in await CrawlList(engine).read()]


async def crawl_row(engine: Engine, name: str) -> CrawlRow:
    """One crawl. Raises NoCrawlError when the engine does not have it."""
    crawls = CrawlList(engine)
    found = await crawls.find(name)
    if found is None:
        known = ", ".join(one.name for one in await crawls.read()) or "none"
        raise NoCrawlError(f"the engine has no crawl {name!r} (it has: {known})")
    return await _row(engine, found)


async def remove_crawl(engine: Engine, name: str, membership: MembershipSettings) -> RemovedCrawl:
    """Delete all that the engine has of a crawl; its folders stay. Interrupted anywhere, the same call finishes it.

    Raises NoCrawlError when the engine does not have it, ConflictError while instances or seeding commands take part.
    """
    await crawl_row(engine, name)
    crawls, members = CrawlList(engine), Members(engine, Keys(name))
    listed, states = await observed_members(members, membership.beat_s)
    _check_unused(name, [listed[session].node for session, state in states.items() if state not in ("dead", "silent")])
    if await crawls.mark(name):
        late = [member.node for session, member in (await members.read()).items() if session not in listed]
        if late:  # they joined while we looked
            await crawls.unmark(name)
            _check_unused(name, late)
    return RemovedCrawl(name=name, keys=await crawls.erase(name))


def _check_unused(name: str, nodes: list[str]) -> None:
    if nodes:
        raise ConflictError(f"running on crawl {name!r}: {', '.join(sorted(nodes, key=by_number))}; stop them first")


async def _row(engine: Engine, crawl: ListedCrawl) -> CrawlRow:
    if mark := crawl.mark:
        left = CrawlCondition.MOVED if mark.is_done else CrawlCondition.LEAVING
        conditions = {REMOVED: CrawlCondition.BEING_REMOVED, MOVED: left, ARRIVING: CrawlCondition.ARRIVING}
        return CrawlRow(
            name=crawl.name, condition=conditions[mark.layout], created_at=crawl.begun_at, place=mark.place
        )  # fmt: skip
    if crawl.record is None:
        return CrawlRow(
            name=crawl.name,
            condition=CrawlCondition.OTHER_LAYOUT,
            created_at=crawl.begun_at,
            layout=crawl.layout,
        )
    keys = Keys(crawl.name)
    progress = await UrlLookup(engine, keys, crawl.record.partitions).progress()
    members = (await Members(engine, keys).read()).values()
    return CrawlRow(
        name=crawl.name,
        condition=CrawlCondition.READY,
        created_at=crawl.begun_at,
        layout=crawl.layout,
        pages=progress.fetched,
        pending=progress.pending,
        instances=sum(1 for member in members if member.is_at_work and not is_lock_free(member)),
    )
