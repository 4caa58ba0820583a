"""Which settings a URL gets, and where each comes from: the tables [[sites]], or the settings for all. No secrets.

Looks at the settings and the app alone: what a crawl has stored, `crawler explain` tells.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from crawler.handlers.crawler import Crawler, Handler
from crawler.rules.places import queue_of
from crawler.rules.sites import SiteRules, SiteTable, first_with, is_secret_header
from crawler.rules.urls import host_of
from crawler.settings import Settings
from crawler.settings.proxies import shown_proxy
from crawler.settings.site_checks import fixed_cookies
from crawler.terminal.tables import NOTHING, table

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
