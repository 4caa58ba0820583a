"""The router: turns URLs into candidates by scope, depth, score, partition, traps and budgets."""

import copy
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from itertools import chain, repeat

from msgspec.structs import replace

from crawler.frontier.deferred import CRAWL_URLS, DEPTH
from crawler.frontier.placement import Placement
from crawler.frontier.record import CrawlRecord
from crawler.model import (
    REQUISITE,
    REQUISITE_DEPTH_MAX,
    SITEMAP,
    SITEMAP_DEPTH_MAX,
    Candidate,
    Claim,
    Followed,
    RefusalReason,
    Request,
    requisite_name,
)
from crawler.routing.recent_urls import RecentUrls
from crawler.routing.traps_learned import deferral_reason
from crawler.rules.job_runs import URLS, RunRecord, RunSpec
from crawler.rules.order import NO_SIGNALS, Ordering, Signals
from crawler.rules.remaining import is_within
from crawler.rules.requests import redirected
from crawler.rules.scope import ScopeRules, ScopeVerdict, smaller_limit
from crawler.rules.sites import SiteRules
from crawler.rules.trap_verdict import Action, TrapRules
from crawler.rules.traps import NOTHING_LEARNED, TrapState
from crawler.runtime.clocks import wall_s
from crawler.settings import BudgetSettings, SiteSettings, TrapSettings

OUT_OF_SCOPE_MAX = 16_384  # URLs that are remembered as out of scope
RECENT_OF_RUN = 4096  # URLs that are remembered for each run
NO_BUDGET = BudgetSettings()
NOT_FOLLOWED = Followed("")
LAST = -1e6  # the score of requisites: behind all pages of their queue, whatever the order of the crawl
BEHIND = 16.0  # of sitemaps and their entries: links of pages come first, as if these were sixteen steps further away


class Router:
    """Turns URLs into candidates by the crawl's shared rules, and by trap rules where there are any.

    URLs that are too far from a seed are deferred by the `budget`, and so are those that the crawl's budget of URLs
    does not admit (`admits_urls`, called for each URL). `sites`: sites with a depth limit or a priority of their own.
    """

    def __init__(
        self,
        record: CrawlRecord,
        scope: ScopeRules,
        recent: RecentUrls,
        traps: TrapSettings | None = None,
        *,
        budget: BudgetSettings = NO_BUDGET,
        sites: Sequence[SiteSettings] = (),
        admits_urls: Callable[[], bool] = lambda: True,
    ) -> None:
        self.record = record  # as of the router's creation; its scope rules may have changed since
        self.fingerprints = record.fingerprints
        self.scope = scope
        self.version = record.version
        self.recent = recent
        self._out_of_scope = RecentUrls(OUT_OF_SCOPE_MAX)
        self._judged_by = scope  # what these were refused by
        self._traps = TrapRules(traps) if traps else None
        self._admits_urls = admits_urls
        self._budget = budget
        self._ordering = Ordering.of(record.ordering, record.begun_at)
        self._priorities = SiteRules.of(sites, "priority")
        self._depths = SiteRules.of(sites, "depth_max")
        self.placement = Placement(record)
        self._run = RunRecord(run="", user="", name="", nominal=0, started_at=0.0, spec=RunSpec())

    def of_run(self, run: RunRecord) -> "Router":
        """Routing for a run: by its own scope, limit of depth and priority, and by the crawl's rules for the rest.

        What has been added to the crawl or to another run is new to this one. Budgets are for the crawl alone.
        """
        router = copy.copy(self)
        router._belong_to(run)  # noqa: SLF001 - of this class
        return router

    def _belong_to(self, run: RunRecord) -> None:
        self._run, self._budget, self._admits_urls = run, NO_BUDGET, lambda: True
        self.fingerprints = self.fingerprints.of_run(run.run)
        self.scope = self._judged_by = self.scope.of_run(run.spec.scope, run.roots, run.spec.depth)
        self.recent, self._out_of_scope = RecentUrls(RECENT_OF_RUN), RecentUrls(RECENT_OF_RUN)

    def follow(self, record: CrawlRecord, roots: Iterable[str]) -> None:
        """Take over scope rules and roots as they were read, unless newer ones are known. Roots only grow."""
        if record.version >= self.version:
            self.scope = ScopeRules.of(record.scope, self.scope.roots.union(roots), forgotten=record.forgotten)
            self.version = record.version

    def candidate(
        self,
        url: str,
        *,
        depth: int,
        redirects: int = 0,
        seed: bool = False,
        priority: float | None = None,
        signals: Signals = NO_SIGNALS,
        seed_number: int = 0,
        followed: Followed = NOT_FOLLOWED,
        found_at: float = 0.0,
    ) -> Candidate:
        """A candidate for a canonical URL. A given `priority` replaces the score of the fetch order; the priority that
        a handler gave with `followed` is added to it. `found_at`: wall clock (s), default now.
        """
        domain, queue, partition = self.placement.of(url)
        found_at, boost = found_at or wall_s(), followed.priority
        if self._priorities is not None and priority is None:
            boost += self._priorities.first(url, "priority") or 0.0
        boost += self._run.spec.priority
        score = self._ordering.score(url, depth=depth, found_at=found_at, signals=signals, given=priority, boost=boost)
        return Candidate(
            url=url,
            fingerprint=self.fingerprints.of(url, followed.request, followed.label),
            partition=partition,
            domain=domain,
            queue=queue,
            depth=depth,
            redirects=redirects,
            seed=seed,
            score=score,
            found_at=found_at,
            seed_number=seed_number,
            run=self._run.run,
            label=followed.label,
            user=self._run.user,
            request=followed.request,
        )

    def verdict(self, url: str, depth: int, redirects: int = 0) -> ScopeVerdict:
        """The scope's verdict, with the depth limit that applies to this URL."""
        return self.scope.verdict(url, depth, redirects, depth_max=self._depth_max(url))

    def _depth_max(self, url: str) -> int:
        own = None if self._depths is None else self._depths.first(url, "depth_max")
        return self.scope.depth_max if own is None else smaller_limit(int(own), self._run.spec.depth)

    def links(
        self,
        claim: Claim,
        links: Collection[str],
        refused: Counter[str],
        learned: TrapState = NOTHING_LEARNED,
        digest: str = "",
        followed: Sequence[Followed] = (),
    ) -> list[Candidate]:
        """Candidates for a page's links that were not added lately; refused ones are counted by reason.

        `followed`: what its handler gave to some links, and requests that no link leads to. `learned`: trap state of
        the page's domain. `digest`: that of its body ("" for none). See rules/traps.
        """
        if claim.is_given_sitemap:
            return self._given(claim, links, refused, followed)
        urls_max = self._run.spec.urls
        others = [one for one in followed if not one.is_plain] if followed else ()
        if self._run.stopped:
            refused[RefusalReason.RUN_URLS] += len(links) + len(others)
            return []
        is_of_sitemap = claim.label == SITEMAP
        depth = 1 if is_of_sitemap else claim.depth + 1
        if self._depths is None and 0 <= self.scope.depth_max < depth:
            # Not marked as seen anywhere: a shorter path may lead there later.
            urls = chain(links, (one.url for one in others))
            refused[RefusalReason.DEPTH] += sum(1 for url in urls if self.scope.allows(url))
            return []
        if self._traps is not None:
            digest = self._traps.repeated(learned, digest)
        signals, found_at = NO_SIGNALS if is_of_sitemap else Signals(links=len(links)), wall_s()
        followed_by_url = {one.url: one for one in reversed(followed) if one.is_plain}  # the first one counts
        fresh = self._to_judge(links, depth, refused) if links else []
        wanted = zip(fresh, map(followed_by_url.get, fresh, repeat(NOT_FOLLOWED)), strict=False)
        found = []
        for url, given in chain(wanted, ((one.url, one) for one in others)) if others else wanted:
            link, at = given, depth
            if is_of_sitemap or link.label == SITEMAP:
                at = _depth_of_sitemap(claim) if link.label == SITEMAP else depth
                link = replace(link, priority=link.priority - BEHIND)
            if not self.scope.allows(url):
                if self.scope.forgets(url):
                    refused[RefusalReason.FORGOTTEN] += 1
                    continue
                self._out_of_scope.add(url, 0)
                refused[RefusalReason.SCOPE] += 1
            elif at > SITEMAP_DEPTH_MAX if link.label == SITEMAP else self._is_too_deep(url, depth):
                refused[RefusalReason.DEPTH] += 1
            else:
                number = claim.seed_number
                candidate = self.candidate(
                    url, depth=at, signals=signals, seed_number=number, followed=link, found_at=found_at
                )
                found.append(self._judged(claim, candidate, learned, digest))
        if 0 < urls_max < len(found):
            refused[RefusalReason.RUN_URLS] += len(found) - urls_max
            del found[urls_max:]
        return found

    def _given(
        self, claim: Claim, urls: Collection[str], refused: Counter[str], followed: Sequence[Followed]
    ) -> list[Candidate]:
        """What a run's sitemap names: sitemaps, and seeds of the run if they are of its domain, which each open the
        scope, and are added beyond its limit of URLs.
        """
        own, found = {self.placement.of(url)[0] for url in (claim.url, self._run.sitemap) if url}, []
        if self._run.stopped not in ("", URLS):
            refused[RefusalReason.RUN_URLS] += len(urls)
            return []
        sitemaps, found_at = {one.url: one for one in followed if one.label == SITEMAP}, wall_s()
        for url in urls:
            link = sitemaps.get(url)
            depth = 0 if link is None else claim.depth + 1
            one = self.candidate(url, depth=depth, seed=link is None, followed=link or NOT_FOLLOWED, found_at=found_at)
            if self.scope.forgets(url):
                refused[RefusalReason.FORGOTTEN] += 1
            elif one.domain not in own or (link is None and not self.scope.admits(url)):
                refused[RefusalReason.SCOPE] += 1
            elif link is not None and depth > SITEMAP_DEPTH_MAX:
                refused[RefusalReason.DEPTH] += 1
            else:
                found.append(one)
        return found

    def requisites(self, claim: Claim, urls: Sequence[str], refused: Counter[str]) -> list[Candidate]:
        """Candidates for what a page, or a style sheet, needs to be shown; without those that were added lately.

        Of any host, and of the crawl itself, whatever run the page is of: so each is fetched once. Budgets and limits
        of pages are not for them.
        """
        depth = claim.depth + 1 if claim.is_requisite else 1
        names = [requisite_name(url) for url in urls]
        fresh, found, found_at = set(self.recent.unknown(names, depth)), [], wall_s()
        for url, name in zip(urls, names, strict=True):
            if name not in fresh:
                continue
            if self.scope.forgets(url):
                refused[RefusalReason.FORGOTTEN] += 1
            elif depth > REQUISITE_DEPTH_MAX:
                refused[RefusalReason.DEPTH] += 1
            else:
                found.append(self._requisite(url, depth, 0, found_at))
        return found

    def _requisite(self, url: str, depth: int, redirects: int, found_at: float) -> Candidate:
        followed = Followed(url, REQUISITE)
        return self.candidate(
            url, depth=depth, redirects=redirects, priority=LAST, followed=followed, found_at=found_at
        )

    def _is_too_deep(self, url: str, depth: int) -> bool:
        """For a site with a limit of its own."""
        return self._depths is not None and 0 <= self._depth_max(url) < depth

    def _to_judge(self, links: Collection[str], depth: int, refused: Counter[str]) -> list[str]:
        """The links without those that were added or refused lately: most of a page's, on most sites."""
        fresh = self.recent.unknown(links, depth)
        if self._judged_by is not self.scope:
            self._out_of_scope.clear()
            self._judged_by = self.scope
        in_scope = self._out_of_scope.unknown(fresh, 0)
        if len(in_scope) < len(fresh):
            refused[RefusalReason.SCOPE] += len(fresh) - len(in_scope)
        return in_scope

    def _judged(self, claim: Claim, found: Candidate, learned: TrapState, digest: str) -> Candidate:
        """Apply everything that can defer a URL."""
        found = self._trapped(claim, found, learned, digest)
        return found if found.deferred or self._admits_urls() else replace(found, deferred=CRAWL_URLS)

    def _trapped(self, claim: Claim, found: Candidate, learned: TrapState, digest: str) -> Candidate:
        """Apply the depth budget and the trap rules. The state is that of the page's own domain only: links to other
        domains are judged by their URLs alone.
        """
        if not is_within(found.depth, self._budget.depth):
            return replace(found, deferred=DEPTH)
        if self._traps is None:
            return found
        own = found.domain == claim.domain
        verdict = self._traps.judge(
            learned if own else NOTHING_LEARNED, found.url, parent=claim.url if own else "",
            parent_digest=digest if own else "",
        )  # fmt: skip
        if verdict.action is Action.PASS:
            return found
        if verdict.action is Action.DEFER:
            return replace(found, deferred=deferral_reason(verdict.rule))
        return replace(found, score=found.score - verdict.penalty)  # one unit in all orders

    def redirect(
        self, claim: Claim, target: str, status: int, refused: Counter[str], learned: TrapState = NOTHING_LEARNED
    ) -> Candidate | None:
        """The candidate for the target of a redirect with this status: same depth, one redirect more."""
        if claim.is_given_sitemap or claim.is_requisite:  # wherever it is
            refusal = RefusalReason.REDIRECTS if claim.redirects >= self.scope.redirects_max else None
            refusal = RefusalReason.FORGOTTEN if self.scope.forgets(target) else refusal
        else:
            refusal = self.verdict(target, claim.depth, claim.redirects + 1).refusal
        if refusal:
            refused[refusal] += 1
            return None
        if claim.is_requisite:
            return self._requisite(target, claim.depth, claim.redirects + 1, wall_s())
        hops, seed, number = claim.redirects + 1, claim.seed, claim.seed_number
        request = redirected(claim.request, status, claim.url, target)
        followed = Followed(target, claim.label, request=request) if claim.label or request else NOT_FOLLOWED
        found = self.candidate(
            target, depth=claim.depth, redirects=hops, seed=seed, seed_number=number, followed=followed
        )
        return found if claim.seed or claim.is_given_sitemap else self._judged(claim, found, learned, "")


def with_sitemaps(
    links: Sequence[str], followed: Sequence[Followed], sitemaps: Sequence[str]
) -> tuple[tuple[str, ...], list[Followed]]:
    """The links of a page and what its handler followed, and the sitemaps that it names, which come first."""
    return tuple(dict.fromkeys((*sitemaps, *links))), [*(Followed(url, SITEMAP) for url in sitemaps), *followed]


def _depth_of_sitemap(claim: Claim) -> int:
    """Of one that this page, or this sitemap, names."""
    return claim.depth + 1 if claim.label == SITEMAP else 1


def parent_of(
    url: str, depth: int, redirects: int, *, seed: bool, number: int = 0, run: str = "", label: str = "",
    request: Request | None = None,
) -> Claim:  # fmt: skip
    """What routing needs of the page that it routes from."""
    return Claim(
        url=url, fingerprint="", visit=1, partition=0, epoch=0, token="", domain="", queue="", depth=depth,
        redirects=redirects, attempts=0, deliveries=0, seed=seed, seed_number=number, run=run, label=label,
        request=request,
    )  # fmt: skip
