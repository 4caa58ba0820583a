"""Which URLs belong to a crawl: roots taken from the seeds, filters, limits on depth and redirects. Pure.

Each verdict names the rule that decided, in words that `crawler explain` prints unchanged.

A seed speaks for its own site. Where it redirects to another one, only the page there belongs to the crawl, as a root
of its own ("page:"), unless `scope.redirected_seeds` says otherwise. Such a root also names where the redirect came
from, so that a chain of them is judged by the seed at its beginning, by whichever instance, and again in a rebuild.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from typing import Any, NamedTuple
from urllib.parse import quote

import msgspec

from crawler.errors import InvalidUrl, UsageError
from crawler.expressions import NO_EXPRESSIONS, Expressions
from crawler.model import RefusalReason, UrlParts
from crawler.rules.urls import (
    authority_of,
    canonicalize,
    found_in_url,
    host_of,
    is_ip,
    origin_of,
    registrable_domain,
    split,
)
from crawler.settings import BudgetSettings, FromEnvironment, ScopeSettings, Settings, SiteSettings

_SCHEMES = ("http://", "https://")
_LABEL = re.compile(r"[a-z0-9_*-]+", re.IGNORECASE)


class UrlPattern(msgspec.Struct, frozen=True):
    """One pattern. Build with `parse`."""

    text: str
    _scheme: str
    _host: re.Pattern[str]
    _port: int | None
    _path: re.Pattern[str]
    _has_query: bool

    @classmethod
    def parse(cls, text: str) -> "UrlPattern":
        """Raises UsageError, with the reason, for an invalid pattern."""
        scheme, rest = _scheme_of(text.strip())
        authority, slash, path = rest.partition("/")
        host, colon, port = authority.partition(":")
        if is_v6 := authority.startswith("["):
            address, bracket, behind = authority.partition("]")
            host, colon, port = address + bracket, behind[:1], behind[1:]
        path = "".join([c if c.isascii() else quote(c) for c in path])
        hosts = _address_expression(host) if is_v6 else _host_expression(host.removesuffix(".").lower())
        if not hosts or colon not in ("", ":"):
            raise UsageError(f"pattern {text!r}: expected HOST/PATH, like *.example.com/product/*")
        if colon and not (port.isascii() and port.isdigit() and 0 < int(port) < 65_536):
            raise UsageError(f"pattern {text!r}: {port!r} is not a port")
        return cls(
            text=text.strip(),
            _scheme=scheme,
            _host=re.compile(hosts),
            _port=int(port) if port else None,
            _path=re.compile(_glob(f"/{path}", ".*") if slash else ".*", re.DOTALL),
            _has_query="?" in path,
        )

    @property
    def is_of_any_host(self) -> bool:
        return self._host.pattern == ".*"

    @property
    def names_scheme(self) -> bool:
        return bool(self._scheme)

    @property
    def is_of_origins(self) -> bool:
        """Does it look at no path?"""
        return self._path.pattern in (".*", "/.*") and not self._has_query

    @property
    def is_of_hosts(self) -> bool:
        """Does it only look at the host?"""
        return self.is_of_origins and not self._scheme and self._port is None

    def fits_host(self, host: str) -> bool:
        """Does a host (lower case, without port) match? Then some of its URLs may match."""
        return self._host.fullmatch(host) is not None

    def fits_site(self, host: str) -> bool:
        """May some URL of the site match that a host belongs to?"""
        site = registrable_domain(host)
        return self.fits_host(host) or self.fits_host(site) or self._host.pattern.endswith(re.escape(f".{site}"))

    def fits_origin(self, parts: UrlParts) -> bool:
        """Do scheme, host and port match?"""
        if self._scheme and self._scheme != parts.scheme:
            return False
        if self._port is not None and self._port != parts.port:
            return False
        return self._host.fullmatch(parts.host) is not None

    def fits_target(self, target: str) -> bool:
        """Do path and query match?"""
        compared = target if self._has_query else target.partition("?")[0]
        return self._path.fullmatch(compared) is not None

    def matches(self, url: str) -> bool:
        """Does a canonical URL match?"""
        parts = split(url)
        return self.fits_origin(parts) and self.fits_target(parts.target)


def _as_sent(label: str) -> str:
    """A label of a host as URLs have it; one with a star stays."""
    if label.isascii() or "*" in label:
        return label
    from ada_url import idna

    return idna.encode(label).decode()


def _scheme_of(text: str) -> tuple[str, str]:
    for scheme in _SCHEMES:
        if text.lower().startswith(scheme):
            return scheme.removesuffix("://"), text[len(scheme) :]
    return "", text


def _address_expression(address: str) -> str:
    """Of an IPv6 address in brackets; "" for what is none."""
    try:
        return re.escape(host_of(canonicalize(f"http://{address}/")))
    except InvalidUrl:
        return ""


def _host_expression(host: str) -> str:
    """Of a name in lower case, whose labels may have stars; "" for what is none."""
    labels = [_as_sent(label) for label in host.split(".")]
    if not all(_LABEL.fullmatch(label) for label in labels):
        return ""
    if labels == ["*"]:
        return ".*"
    if labels[0] == "*":
        return r"(?:.+\.)?" + r"\.".join(_glob(label, "[^.]*") for label in labels[1:])
    return r"\.".join(_glob(label, "[^.]*") for label in labels)


def _glob(text: str, anything: str) -> str:
    """The text between two stars matches at its first occurrence, in an atomic group: no URL causes backtracking."""
    first, *parts = (re.escape(part) for part in re.split(r"\*+", text))
    if not parts:
        return first
    *middle, last = parts
    return first + "".join(f"(?>{anything}?{part})" for part in middle) + anything + last


# Settings by site: which of the tables [[sites]] a URL or a queue gets a setting from. Pure.
#
# The first table in the file that matches and has the key decides; each header and each cookie is a key of its own.


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


_AUTHORITIES_MAX = 50_000  # remembered verdicts; about 100 bytes each
PREFIX, PAGE = "prefix:", "page:"
_CHAIN_MAX = 16  # redirects of a seed that are followed back: more than scope.redirects_max allows


class ScopeVerdict(msgspec.Struct, frozen=True, kw_only=True):
    """`rule` names what decided; `refusal` is None exactly when the URL is allowed."""

    allowed: bool
    refusal: RefusalReason | None = None
    rule: str = ""


class SeedAnswer(NamedTuple):
    """What the answer of a seed adds to the scope. `leads_away`: from its site, so that only the page is added."""

    root: str = ""  # "": nothing
    leads_away: bool = False


_NOTHING = SeedAnswer()


@dataclass(frozen=True, slots=True, kw_only=True)
class ScopeRules:
    """Scope of a crawl. Build with `of`; `with_roots` returns an extended copy.

    Roots are strings: "domain:example.com", "host:example.com:8080", "prefix:https://example.com/docs/", "any:*",
    "page:https://example.com/docs" for one URL, with a blank and the URL that redirected there behind it.
    """

    mode: str
    roots: frozenset[str]
    include: Expressions = NO_EXPRESSIONS
    exclude: Expressions = NO_EXPRESSIONS
    depth_max: int = -1
    redirects_max: int = 10
    redirected_seeds: str = "site"
    _prefixes: tuple[str, ...] = ()
    _pages: dict[str, str] = field(default_factory=dict, compare=False, repr=False)  # URL -> what redirected there
    _by_authority: dict[str, bool] = field(default_factory=dict, compare=False, repr=False)

    @classmethod
    def of(cls, settings: ScopeSettings, roots: Iterable[str] = ()) -> "ScopeRules":
        """Raises UsageError, with the option's name, for an invalid regular expression."""
        rules = cls(
            mode=settings.mode,
            roots=frozenset(),
            include=_compiled("include", settings.include),
            exclude=_compiled("exclude", settings.exclude),
            depth_max=settings.depth_max,
            redirects_max=settings.redirects_max,
            redirected_seeds=settings.redirected_seeds,
        )
        return rules.with_roots(roots)

    def with_roots(self, roots: Iterable[str]) -> "ScopeRules":
        """The same rules with more roots; itself when it has them all."""
        new = frozenset(roots) - self.roots
        if not new:
            return self
        prefixes = sorted((*self._prefixes, *(root.removeprefix(PREFIX) for root in new if root.startswith(PREFIX))))
        pages = self._pages.copy()
        for root in sorted(new):
            url, _, origin = root.removeprefix(PAGE).partition(" ")
            if root.startswith(PAGE) and (
                not origin or url not in pages
            ):  # what is given is a seed, wherever else from
                pages[url] = origin
        return replace(self, roots=self.roots | new, _prefixes=tuple(prefixes), _pages=pages, _by_authority={})

    def of_run(self, mode: str, roots: Iterable[str], depth_max: int) -> "ScopeRules":
        """The scope of a run, by these filters: `mode` "" is that of the crawl, and the smaller limit counts."""
        deepest = smaller_limit(self.depth_max, depth_max)
        own = replace(
            self,
            mode=mode or self.mode,
            roots=frozenset(),
            depth_max=deepest,
            _prefixes=(),
            _pages={},
            _by_authority={},
        )
        return own.with_roots(roots)

    def seed_root(self, url: str) -> str:
        """The root that the canonical `url` adds to the scope as a seed."""
        return self.root_of(url) if self.was_led_to(url) or not self._may_be_folder(url) else f"{PAGE}{url}"

    def answered(self, seed: str, target: str = "") -> SeedAnswer:
        """What the answer of a seed, or of a URL that one redirected to, adds. `target`: of its redirect; "": none."""
        if not target:
            is_seed_root = self._is_undecided(seed) and not self._in_wide_roots(seed)
            return SeedAnswer(self.root_of(seed)) if is_seed_root else _NOTHING
        if self._in_wide_roots(target) or self._pages.get(target) == "" or not self._passes_filters(target):
            return _NOTHING
        if self.redirected_seeds == "follow":
            return SeedAnswer(self.root_of(target))
        first = self._seed_of(seed)
        if root := self._root_of_site(first, target):
            return SeedAnswer(root)
        is_same = self.redirected_seeds == "site" and self._is_same_place(first, target)
        page = "" if target in self._pages else f"{PAGE}{target} {seed}"
        return SeedAnswer(page, leads_away=not is_same and not self._is_away(seed))

    def led_away(self) -> list[tuple[str, str]]:
        """Seeds and the pages that they finally led to on other sites, none of which were seeds since."""
        origins = {origin for url, origin in self._pages.items() if self._is_away(url)}
        away = (url for url in self._pages if url not in origins and self._is_away(url))
        return sorted((self._seed_of(url), url) for url in away if not self._in_wide_roots(url))

    def was_led_to(self, url: str) -> bool:
        """Is it in the scope as a page that a seed redirected to?"""
        return bool(self._pages.get(url))

    def _root_of_site(self, seed: str, target: str) -> str:
        """The root for the target of a redirect where the seed's own site is; "" where it is not."""
        path, there = _path(seed), _path(target)
        if self.redirected_seeds == "page":
            is_folder = self._may_be_folder(seed) and (origin_of(target), there) == (origin_of(seed), f"{path}/")
            return self.root_of(target) if is_folder else ""
        if registrable_domain(host_of(seed)) != registrable_domain(host_of(target)):
            return ""
        if self.mode != "prefix":
            return self.root_of(target)
        if self._may_be_folder(seed) and there == path:
            return ""  # its own answer tells
        folder = path[: path.rindex("/") + 1]
        if self._may_be_folder(seed) and there.startswith(f"{path}/"):
            folder = f"{path}/"
        if not there.startswith(folder):
            return ""
        if folder == "/" and _bare_host(seed) != _bare_host(target):
            return self.root_of(target)
        return f"{PREFIX}{origin_of(target)}{folder}"

    def _may_be_folder(self, url: str) -> bool:
        """Is it to be seen by the answer whether a seed is a page in a folder, or the folder, as /docs may be?"""
        if self.mode != "prefix" or self.redirected_seeds == "follow":
            return False
        name = _path(url).rpartition("/")[2]
        return name != "" and "." not in name

    def _is_undecided(self, url: str) -> bool:
        seed = self._seed_of(url)
        if url not in self._pages or (url != seed and self.redirected_seeds == "page"):
            return False
        return self._may_be_folder(url) and self._is_same_place(seed, url)

    def _is_same_place(self, seed: str, url: str) -> bool:
        """Is it the seed on another host of its site, and may be a folder there?"""
        is_site = registrable_domain(host_of(seed)) == registrable_domain(host_of(url))
        return is_site and self._may_be_folder(seed) and _path(seed) == _path(url)

    def _is_away(self, url: str) -> bool:
        """Did a seed of another site redirect to it?"""
        return self.was_led_to(url) and not self._is_same_place(self._seed_of(url), url)

    def _seed_of(self, url: str) -> str:
        """Where the redirects began that led to a URL; itself if none did."""
        for _ in range(_CHAIN_MAX):
            origin = self._pages.get(url)
            if not origin:
                break
            url = origin
        return url

    def root_of(self, url: str) -> str:
        """The root that takes in the site, or the folder, of the canonical `url`."""
        if self.mode == "domain":
            return f"domain:{registrable_domain(host_of(url))}"
        if self.mode == "host":
            return f"host:{authority_of(url)}"
        if self.mode == "prefix":
            path = url.partition("?")[0]
            return f"{PREFIX}{path[: path.rindex('/') + 1]}"
        return "any:*"

    def allows(self, url: str) -> bool:
        """Is the canonical `url` within roots and filters? The hot path: depth and redirects are not checked."""
        return self._passes_filters(url) and self._in_roots(url)

    def excludes(self, url: str) -> bool:
        """Does an expression of `exclude` match a canonical URL? Then it is not fetched, also if it waits already."""
        return bool(self.exclude) and bool(found_in_url(self.exclude, url))

    def _passes_filters(self, url: str) -> bool:
        if self.excludes(url):
            return False
        return not self.include or bool(found_in_url(self.include, url))

    def verdict(self, url: str, depth: int, redirects: int = 0, *, depth_max: int | None = None) -> ScopeVerdict:
        """Verdict on a canonical URL found at `depth` (seeds 0) after `redirects` hops; `depth_max`: its own limit."""
        if self.exclude and (found := found_in_url(self.exclude, url)):
            return _refused(RefusalReason.SCOPE, f"exclude /{self.exclude.patterns[min(found)]}/")
        if self.include and not found_in_url(self.include, url):
            return _refused(RefusalReason.SCOPE, "no include matches")
        if not self._in_roots(url):
            return _refused(RefusalReason.SCOPE, f"no seed is in {_words(self.root_of(url))}")
        limit = self.depth_max if depth_max is None else depth_max
        if 0 <= limit < depth:
            return _refused(RefusalReason.DEPTH, f"depth {depth} > limit {limit}")
        if redirects > self.redirects_max:
            return _refused(RefusalReason.REDIRECTS, f"redirects {redirects} > limit {self.redirects_max}")
        return ScopeVerdict(allowed=True, rule=self._reason(url))

    def root_holding(self, url: str) -> str:
        """The root for exactly this page, or ""."""
        origin = self._pages.get(url)
        return "" if origin is None else f"{PAGE}{url} {origin}".rstrip()

    def _in_roots(self, url: str) -> bool:
        return url in self._pages or self._in_wide_roots(url)

    def _in_wide_roots(self, url: str) -> bool:
        """Is it within a root that is more than one page?"""
        if "any:*" in self.roots or self.mode == "any":
            return True
        authority = authority_of(url)
        known = self._by_authority.get(authority)
        if known is None:
            if len(self._by_authority) >= _AUTHORITIES_MAX:
                self._by_authority.clear()
            known = self._by_authority[authority] = self._root_of_authority(url, authority) != ""
        return known or url.startswith(self._prefixes)

    def _root_of_authority(self, url: str, authority: str) -> str:
        """The host or domain root that covers all of an authority, or ""."""
        for root in (f"host:{authority}", f"domain:{registrable_domain(host_of(url))}"):
            if root in self.roots:
                return root
        return ""

    def _reason(self, url: str) -> str:
        if self.mode == "any" or "any:*" in self.roots:
            return "any URL"
        root = self._root_of_authority(url, authority_of(url))
        if not root:
            root = next((f"{PREFIX}{prefix}" for prefix in self._prefixes if url.startswith(prefix)), "")
        if root:
            return f"{_words(root)} of a seed"
        if not self._pages[url]:
            return "a seed, whose answer will tell whether it is a folder"
        return f"only this page: the seed {self._seed_of(url)} redirects to it (scope.redirected_seeds)"


def sites_of(roots: Iterable[str]) -> set[str]:
    """The registrable domains of roots; "any:*" has none."""
    sites = set[str]()
    for root in roots:
        kind, _, place = root.partition(":")
        if kind != "any":
            url = place.partition(" ")[0] if "://" in place else f"http://{place}/"
            sites.add(registrable_domain(host_of(url)))
    return sites


def smaller_limit(one: int, other: int) -> int:
    """Of two limits of depth; -1 is none."""
    return max(one, other) if min(one, other) < 0 else min(one, other)


def _path(url: str) -> str:
    """Of a canonical URL, without its query."""
    return url[len(origin_of(url)) :].partition("?")[0]


def _bare_host(url: str) -> str:
    return host_of(url).removeprefix("www.")


def _words(root: str) -> str:
    return root.replace(":", " ", 1)


def _refused(refusal: RefusalReason, rule: str) -> ScopeVerdict:
    return ScopeVerdict(allowed=False, refusal=refusal, rule=rule)


def _compiled(option: str, patterns: Iterable[str]) -> Expressions:
    try:
        return Expressions(patterns)
    except ValueError as error:
        raise UsageError(f"scope.{option}: {error}") from None
