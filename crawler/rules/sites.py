"""Settings by site: which of the tables [[sites]] a URL or a queue gets a setting from. Pure.

The first table in the file that matches and has the key decides; each header and each cookie is a key of its own.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache, partial
from typing import Any

import msgspec

from crawler.errors import UsageError
from crawler.rules.patterns import UrlPattern, _host_expression
from crawler.rules.places import is_ip, registrable_domain
from crawler.rules.urls import split
from crawler.settings import BudgetSettings, FromEnvironment, ScopeSettings, Settings, SiteSettings

_ORIGINS_MAX = 50_000  # origins whose tables are cached; about 150 bytes each
_OF_QUEUES = ("delay_s", "concurrency")  # a queue has one clock, whatever its URLs
_SECRET = ("auth", "cookies")
_OF_CONNECTIONS = ("insecure_tls", "proxy")
_UNSET = SiteSettings(match="*")


class SiteTable(msgspec.Struct, frozen=True):
    """One table of [[sites]] and its number."""

    number: int
    pattern: UrlPattern
    site: SiteSettings

    @property
    def name(self) -> str:
        """Like "sites[2] shop.example/cart/*"."""
        return f"sites[{self.number}] {self.pattern.text}"

    def sends_secrets_to(self, url: str) -> bool:
        """Only over https, unless the pattern names another scheme: others on the network could read them."""
        return self.pattern.names_scheme or url.startswith("https:")

    @property
    def secrets(self) -> list[str]:
        """The keys of the secrets that it adds to requests."""
        site = self.site
        headers = [f"headers.{n}" for n, v in site.headers.items() if is_secret_header(n, v)]
        fixed = isinstance(site.cookies, dict) and bool(site.cookies)  # those of a file know where they may go
        return ["auth"] * bool(site.auth) + ["cookies"] * fixed + headers


class SiteRules:
    """The tables that set certain keys, found by origin. Build with `of`."""

    def __init__(self, tables: Sequence[SiteTable]) -> None:
        self._tables = tuple(tables)
        self._by_origin: dict[str, tuple[SiteTable, ...]] = {}

    @classmethod
    def of(cls, sites: Sequence[SiteSettings], *keys: str) -> "SiteRules | None":
        """None when no table sets any of `keys`. Raises UsageError."""
        tables = [
            SiteTable(number, _pattern(number, site), site)
            for number, site in enumerate(sites)
            if any(_sets(site, key) for key in keys)
        ]
        return cls(tables) if tables else None

    @property
    def tables(self) -> Sequence[SiteTable]:
        return self._tables

    def fitting(self, url: str) -> Sequence[SiteTable]:
        """The tables that a canonical URL matches, in order."""
        slash = url.index("/", 8)
        tables = self._by_origin.get(url[:slash])
        if tables is None:
            tables = self._of_origin(url, url[:slash])
        if not tables:
            return tables
        target = url[slash:]
        return [table for table in tables if table.pattern.fits_target(target)]

    def first(self, url: str, key: str) -> Any:
        """The value of `key` in the first matching table that sets it; None without one."""
        return _first_value(self.fitting(url), key)

    def tables_of_queue(self, queue: str) -> Sequence[SiteTable]:
        """The tables that a queue matches by its name, which is a domain or a host."""
        return [table for table in self._tables if table.pattern.fits_host(queue)]

    def of_queue(self, queue: str, key: str) -> Any:
        """The value of `key` for a queue, from the first matching table that sets it; None without one."""
        return _first_value(self.tables_of_queue(queue), key)

    def _of_origin(self, url: str, origin: str) -> tuple[SiteTable, ...]:
        if len(self._by_origin) >= _ORIGINS_MAX:
            self._by_origin.clear()
        parts = split(url)
        found = self._by_origin[origin] = tuple(t for t in self._tables if t.pattern.fits_origin(parts))
        return found


def _first_value(tables: Sequence[SiteTable], key: str) -> Any:
    table = first_with(tables, key) if tables else None
    return None if table is None else getattr(table.site, key)


def of_queues(sites: Sequence[SiteSettings], key: str) -> Callable[[str], Any]:
    """A cached look-up of `key` for a queue by its name; it returns None where no table sets it."""
    rules = SiteRules.of(sites, key)
    return (lambda _: None) if rules is None else lru_cache(maxsize=_ORIGINS_MAX)(partial(rules.of_queue, key=key))


def is_limited(scope: ScopeSettings, budget: BudgetSettings, sites: Sequence[SiteSettings]) -> bool:
    """Is there any limit on depth, so that a shorter path to a URL matters?"""
    return (
        scope.depth_max >= 0
        or budget.depth > 0
        or any(site.depth_max is not None and site.depth_max >= 0 for site in sites)
    )


def first_with(tables: Sequence[SiteTable], key: str) -> SiteTable | None:
    """The first table that sets `key`."""
    return next((table for table in tables if _sets(table.site, key)), None)


def complaints(settings: Settings) -> Iterator[str]:
    """Problems of [[sites]] that the settings alone can't show, one line each."""
    for number, site in enumerate(settings.sites):
        try:
            pattern = _pattern(number, site)
        except UsageError as error:
            yield str(error)
            continue
        for key in _OF_QUEUES:
            if _sets(site, key):
                yield from _queue_complaints(f"sites[{number}].{key}", pattern, settings.frontier.queue_by)
        for key in _OF_CONNECTIONS:
            if _sets(site, key) and not pattern.is_of_origins:
                host = pattern.text.rpartition("://")[2].partition("/")[0]
                yield (
                    f"sites[{number}].{key} applies to connections, whatever the path: put it in a table of its own "
                    f"with match = {host!r}"
                )
        if pattern.is_of_any_host:
            for key in _SECRET:
                if _sets(site, key) and not isinstance(site.cookies, str):
                    yield f"sites[{number}].{key}: match = {site.match!r} would send it to every host: name its host"
            for name, value in site.headers.items():
                if is_secret_header(name, value):
                    yield f"sites[{number}].headers.{name}: match = {site.match!r} would send it to every host"


SECRET_HEADERS = frozenset({"authorization", "cookie", "proxy-authorization"})


def is_secret_header(name: str, value: str | FromEnvironment) -> bool:
    """Is it secret by its name, or because its value comes from the environment?"""
    return name.lower() in SECRET_HEADERS or isinstance(value, FromEnvironment)


def patterns_of_site(url: str) -> list[str]:
    """Where a secret may go that was given for the site of a canonical URL: to its registrable domain, over its scheme
    or https. To its host and port alone where nobody owns what is below the host: an address, a public suffix. Nowhere
    for a name that a pattern would read otherwise.
    """
    parts = split(url)
    domain, own = registrable_domain(parts.host), [f"{parts.scheme}://{parts.host}:{parts.port}"]
    if is_ip(parts.host):
        return own
    if "*" in domain or not _host_expression(domain):
        return []
    if registrable_domain(f"www.{domain}") != domain:
        return own
    return [f"{scheme}://*.{domain}" for scheme in dict.fromkeys((parts.scheme, "https"))]


def _queue_complaints(key: str, pattern: UrlPattern, queue_by: str) -> Iterator[str]:
    hosts = pattern.text.rpartition("://")[2].partition("/")[0].partition(":")[0].lower().rstrip(".")
    named = hosts.removeprefix("*.")
    domain = registrable_domain(named)
    is_below = queue_by == "domain" and "*" not in named and named.endswith(f".{domain}")
    if not pattern.is_of_hosts:
        match = domain if is_below else hosts
        yield f"{key} applies to whole queues, whatever the path: put it in a table of its own with match = {match!r}"
    elif is_below:
        yield (
            f"{key} applies to whole queues, which are domains: set match = {domain!r}, or frontier.queue_by = 'host' "
            "for a queue of each host"
        )


def _pattern(number: int, site: SiteSettings) -> UrlPattern:
    try:
        return UrlPattern.parse(site.match)
    except UsageError as error:
        raise UsageError(f"sites[{number}].match: {error}") from None


def _sets(site: SiteSettings, key: str) -> bool:
    return bool(getattr(site, key) != getattr(_UNSET, key))
