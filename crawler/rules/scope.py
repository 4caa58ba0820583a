"""Which URLs belong to a crawl: roots taken from the seeds, filters, limits on depth and redirects. Pure.

Each verdict names the rule that decided, in words that `crawler explain` prints unchanged.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

import msgspec

from crawler.errors import UsageError
from crawler.model import RefusalReason
from crawler.rules.identity import registrable_domain
from crawler.rules.urls import authority_of, found_in_url, host_of
from crawler.settings import ScopeSettings
from crawler.settings.expressions import NO_EXPRESSIONS, Expressions

_AUTHORITIES_MAX = 50_000  # remembered verdicts; about 100 bytes each


class ScopeVerdict(msgspec.Struct, frozen=True, kw_only=True):
    """`rule` names what decided; `refusal` is None exactly when the URL is allowed."""

    allowed: bool
    refusal: RefusalReason | None = None
    rule: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScopeRules:
    """Scope of a crawl. Build with `of`; `with_roots` returns an extended copy.

    Roots are strings: "domain:example.com", "host:example.com:8080", "prefix:https://example.com/docs/", "any:*".
    """

    mode: str
    roots: frozenset[str]
    include: Expressions = NO_EXPRESSIONS
    exclude: Expressions = NO_EXPRESSIONS
    depth_max: int = -1
    redirects_max: int = 10
    _prefixes: tuple[str, ...] = ()
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
        )
        return rules.with_roots(roots)

    def with_roots(self, roots: Iterable[str]) -> "ScopeRules":
        """The same rules with more roots; itself when it has them all."""
        more = self.roots.union(roots)
        if more == self.roots:
            return self
        prefixes = tuple(sorted(root[7:] for root in more if root.startswith("prefix:")))
        return replace(self, roots=more, _prefixes=prefixes, _by_authority={})

    def of_run(self, mode: str, roots: Iterable[str], depth_max: int) -> "ScopeRules":
        """The scope of a run, by these filters: `mode` "" is that of the crawl, and the smaller limit counts."""
        deepest = smaller_limit(self.depth_max, depth_max)
        own = replace(
            self, mode=mode or self.mode, roots=frozenset(), depth_max=deepest, _prefixes=(), _by_authority={}
        )
        return own.with_roots(roots)

    def root_of(self, url: str) -> str:
        """The root that the canonical `url` adds to the scope as a seed."""
        if self.mode == "domain":
            return f"domain:{registrable_domain(host_of(url))}"
        if self.mode == "host":
            return f"host:{authority_of(url)}"
        if self.mode == "prefix":
            path = url.partition("?")[0]
            return f"prefix:{path[: path.rindex('/') + 1]}"
        return "any:*"

    def allows(self, url: str) -> bool:
        """Is the canonical `url` within roots and filters? The hot path: depth and redirects are not checked."""
        if self.exclude and found_in_url(self.exclude, url):
            return False
        if self.include and not found_in_url(self.include, url):
            return False
        return self._in_roots(url)

    def verdict(self, url: str, depth: int, redirects: int = 0, *, depth_max: int | None = None) -> ScopeVerdict:
        """Verdict on a canonical URL found at `depth` (seeds 0) after `redirects` hops; `depth_max`: its own limit."""
        if self.exclude and (found := found_in_url(self.exclude, url)):
            return _refused(RefusalReason.SCOPE, f"exclude /{self.exclude.patterns[min(found)]}/")
        if self.include and not found_in_url(self.include, url):
            return _refused(RefusalReason.SCOPE, "no include matches")
        if not self._in_roots(url):
            return _refused(RefusalReason.SCOPE, f"no seed is in {self.root_of(url).replace(':', ' ', 1)}")
        limit = self.depth_max if depth_max is None else depth_max
        if 0 <= limit < depth:
            return _refused(RefusalReason.DEPTH, f"depth {depth} > limit {limit}")
        if redirects > self.redirects_max:
            return _refused(RefusalReason.REDIRECTS, f"redirects {redirects} > limit {self.redirects_max}")
        return ScopeVerdict(allowed=True, rule=self._reason(url))

    def _in_roots(self, url: str) -> bool:
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
            root = next(f"prefix:{prefix}" for prefix in self._prefixes if url.startswith(prefix))
        return f"{root.replace(':', ' ', 1)} of a seed"


def smaller_limit(one: int, other: int) -> int:
    """Of two limits of depth; -1 is none."""
    return max(one, other) if min(one, other) < 0 else min(one, other)


def _refused(refusal: RefusalReason, rule: str) -> ScopeVerdict:
    return ScopeVerdict(allowed=False, refusal=refusal, rule=rule)


def _compiled(option: str, patterns: Iterable[str]) -> Expressions:
    try:
        return Expressions(patterns)
    except ValueError as error:
        raise UsageError(f"scope.{option}: {error}") from None
