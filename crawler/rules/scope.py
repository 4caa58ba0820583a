"""Which URLs belong to a crawl: roots taken from the seeds, filters, limits on depth and redirects. Pure.

Each verdict names the rule that decided, in words that `crawler explain` prints unchanged.

A seed speaks for its own site. Where it redirects to another one, only the page there belongs to the crawl, as a root
of its own ("page:"), unless `scope.redirected_seeds` says otherwise. Such a root also names where the redirect came
from, so that a chain of them is judged by the seed at its beginning, by whichever instance, and again in a rebuild.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import NamedTuple

import msgspec

from crawler.errors import UsageError
from crawler.expressions import NO_EXPRESSIONS, Expressions
from crawler.model import RefusalReason
from crawler.rules.forgotten import Forgotten
from crawler.rules.places import registrable_domain
from crawler.rules.urls import authority_of, found_in_url, host_of, origin_of
from crawler.settings import ScopeSettings

PREFIX, PAGE = "prefix:", "page:"

_AUTHORITIES_MAX = 50_000  # remembered verdicts; about 100 bytes each


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
    forgotten: Forgotten | None = field(default=None, compare=False, repr=False)
    _prefixes: tuple[str, ...] = ()
    _pages: dict[str, str] = field(default_factory=dict, compare=False, repr=False)  # URL -> what redirected there
    _by_authority: dict[str, bool] = field(default_factory=dict, compare=False, repr=False)

    @classmethod
    def of(
        cls, settings: ScopeSettings, roots: Iterable[str] = (), *, forgotten: Forgotten | None = None
    ) -> "ScopeRules":
        """Raises UsageError, with the option's name, for an invalid regular expression."""
        rules = cls(
            mode=settings.mode,
            roots=frozenset(),
            include=_compiled("include", settings.include),
            exclude=_compiled("exclude", settings.exclude),
            depth_max=settings.depth_max,
            redirects_max=settings.redirects_max,
            redirected_seeds=settings.redirected_seeds,
            forgotten=forgotten,
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
        if self._in_wide_roots(target) or self._pages.get(target) == "" or not self.admits(target):
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
        return self.admits(url) and self._in_roots(url)

    def excludes(self, url: str) -> bool:
        """Does an expression of `exclude` match a canonical URL, or was its domain forgotten? Then it is not fetched,
        also if it waits already.
        """
        if self.forgotten is not None and self.forgotten.has(url):
            return True
        return bool(self.exclude) and bool(found_in_url(self.exclude, url))

    def forgets(self, url: str) -> bool:
        """Was the domain of a canonical URL forgotten?"""
        return self.forgotten is not None and self.forgotten.has(url)

    def admits(self, url: str) -> bool:
        """Do the filters let it in? A seed, which opens the scope for itself, needs no more."""
        if self.excludes(url):
            return False
        return not self.include or bool(found_in_url(self.include, url))

    def verdict(self, url: str, depth: int, redirects: int = 0, *, depth_max: int | None = None) -> ScopeVerdict:
        """Verdict on a canonical URL found at `depth` (seeds 0) after `redirects` hops; `depth_max`: its own limit."""
        if self.forgotten is not None and (at := self.forgotten.since(url)):
            day = datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d")
            return _refused(
                RefusalReason.FORGOTTEN, f"this domain was forgotten on {day}, permanently (crawler forget)"
            )
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
