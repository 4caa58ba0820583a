"""What an archived page must have led to: its record parsed again by the crawl's own parser, its links judged by the
rules that held when the page was committed.

Must not know what became of the links.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet

import msgspec

from crawler.archive.seed_journal import SeedLine
from crawler.archive.warc_reader import StoredResponse
from crawler.audit.ledger import Commit
from crawler.crawl.reparse import Rereader
from crawler.frontier.codec import unpack_request
from crawler.frontier.record import CrawlRecord, ScopeHistory
from crawler.model import Candidate, Claim, Followed
from crawler.routing.recent_urls import RecentUrls
from crawler.routing.router import Router, parent_of, with_sitemaps
from crawler.rules.job_runs import RunRecord, with_limits
from crawler.rules.places import registrable_domain
from crawler.rules.scope import ScopeRules
from crawler.rules.urls import authority_of, host_of
from crawler.settings import ScopeSettings, Settings, SiteSettings

LINKS_REMEMBERED = 200_000  # pages of a site repeat most of their links
ROUTERS_MAX = 64  # of runs; those that are active at one time are next to each other in the archive


class CrawlRules(msgspec.Struct, frozen=True, kw_only=True):
    """What the engine has stored of a crawl."""

    record: CrawlRecord
    roots: frozenset[str]
    history: ScopeHistory


class LinkRules:
    """Which links of a page belong to the crawl, or to the run that it was fetched for, as instances judged it then."""

    def __init__(
        self,
        rules: CrawlRules,
        sites: Sequence[SiteSettings] = (),
        *,
        runs: Mapping[str, RunRecord] | None = None,
    ) -> None:
        """`runs`: those that are active, with all roots of their scopes; of others nothing is required."""
        self._sites = sites
        self._runs = runs or {}
        self._of_runs: dict[tuple[str, int], Router] = {}  # the one that was used last is the last
        self._roots = rules.roots
        self._opened = rules.history.roots
        self._prefixes = [root for root in rules.roots if root.startswith("prefix:")]
        self._recent = RecentUrls(LINKS_REMEMBERED)
        self._past = [(until, self._router(rules, scope)) for until, scope in rules.history.rules]
        self.router = self._router(rules, rules.record.scope)

    def _router(self, rules: CrawlRules, scope: ScopeSettings) -> Router:
        return Router(
            rules.record,
            ScopeRules.of(scope, rules.roots, forgotten=rules.record.forgotten),
            self._recent,
            sites=self._sites,
        )

    def lacking(self, root: str) -> bool:
        """Did a seed open this root of the scope, and the engine lacks it?"""
        return bool(root) and root not in self._roots

    def seed(self, line: SeedLine, roots: AbstractSet[str]) -> Candidate | None:
        """A seed of the crawl as a journal has it, if it belongs to the scope with these roots as well."""
        router = self.router
        if not line.url:
            return None
        if roots - router.scope.roots:
            router = Router(router.record, router.scope.with_roots(roots), self._recent, sites=self._sites)
        if not router.verdict(line.url, line.depth).allowed:
            return None
        followed = Followed(line.url, line.label, request=line.request)
        return router.candidate(line.url, depth=line.depth, seed=True, followed=followed)

    def required(
        self, commit: Commit, links: tuple[str, ...], target: str | None, followed: Sequence[Followed] = ()
    ) -> list[Candidate]:
        """Where the links and the redirect of a committed page must have gone, but for what was told lately."""
        if commit.run:
            return self._required_of_run(commit, links, target, followed)
        router, claim = self._router_at(commit.scope), _claim_of(commit)
        refused: Counter[str] = Counter()
        judged = router.links(claim, links, refused, followed=followed)
        found = [c for c in judged if self._was_open(c.url, commit.scope)]
        if target:
            candidate = router.redirect(claim, target, commit.status, refused)
            # A seed's redirect opens the scope for its target by itself.
            if candidate is not None and (commit.depth == 0 or self._was_open(target, commit.scope)):
                found.append(candidate)
        for candidate in found:
            self._recent.add(candidate.name, candidate.depth)
        return found

    def _required_of_run(
        self, commit: Commit, links: tuple[str, ...], target: str | None, followed: Sequence[Followed]
    ) -> list[Candidate]:
        """Nobody knows when the roots of a run were opened. So only links within the page's own root are required: that
        one was open. Nor when a limit of URLs was reached.
        """
        record = self._runs.get(commit.run)
        if record is None or record.spec.urls:
            return []
        router, claim, refused = self._router_of(record, commit.scope), _claim_of(commit), Counter[str]()
        scope = router.scope
        own = scope.of_run(scope.mode, [scope.root_of(commit.url)], scope.depth_max)
        found = [c for c in router.links(claim, links, refused, followed=followed) if own.allows(c.url)]
        if target:
            candidate = router.redirect(claim, target, commit.status, refused)
            if candidate is not None and (commit.depth == 0 or own.allows(target)):
                found.append(candidate)
        for candidate in found:
            router.recent.add(candidate.name, candidate.depth)
        return found

    def _router_of(self, record: RunRecord, version: int) -> Router:
        key = record.run, version
        router = self._of_runs.pop(key, None)
        if router is None:
            router = self._router_at(version).of_run(record)
        self._of_runs[key] = router
        while len(self._of_runs) > ROUTERS_MAX:
            del self._of_runs[next(iter(self._of_runs))]
        return router

    def _router_at(self, version: int) -> Router:
        """Routing by the rules of that version; 0, of commits that don't know theirs, stands for those of today."""
        if version:
            for until, router in self._past:
                if version <= until:
                    return router
        return self.router

    def _was_open(self, url: str, version: int) -> bool:
        """Had some root that lets this URL in come by that version?"""
        if not version or self.router.scope.mode == "any":
            return True
        authority = authority_of(url)
        roots = ["any:*", f"host:{authority}", f"domain:{registrable_domain(host_of(url))}"]
        roots += [prefix for prefix in self._prefixes if url.startswith(prefix[7:])]
        roots.append(self.router.scope.root_holding(url))
        return any(root in self._roots and self._opened.get(root, 0) <= version for root in roots)


class LinkReader:
    """Parses archived pages again."""

    def __init__(self, rules: CrawlRules, settings: Settings, runs: Mapping[str, RunRecord] | None = None) -> None:
        """`runs`: see `LinkRules`."""
        active = {run: with_limits(record, settings.jobs) for run, record in (runs or {}).items()}
        self.rules = LinkRules(rules, settings.sites, runs=active)
        self._rereader = Rereader(settings, rules.record)

    async def close(self) -> None:
        await self._rereader.close()

    async def required(self, commit: Commit, stored: StoredResponse) -> list[Candidate]:
        """The URLs that this page must have led to. Raises ParseKilledError when it can't be parsed."""
        page = await self._rereader.read(commit.url, stored, label=commit.label)
        links, followed = with_sitemaps(page.links, (), page.sitemaps)
        return self.rules.required(commit, links, page.redirect_to or None, followed)


def _claim_of(commit: Commit) -> Claim:
    depth, redirects = commit.depth, commit.redirects
    request = unpack_request(commit.request) if commit.request else None
    return parent_of(commit.url, depth, redirects, seed=False, run=commit.run, label=commit.label, request=request)
