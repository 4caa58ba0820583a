"""From links to candidates: scope, depth, score, partition. No I/O: the committer sends them where they belong."""

from collections import Counter
from collections.abc import Iterable
from functools import lru_cache

from crawler.frontier.crawls import CrawlRecord
from crawler.instance.clock import wall_s
from crawler.instance.state import RecentUrls
from crawler.model import Candidate, Claim, Refusal
from crawler.rules.domains import registrable_domain
from crawler.rules.fingerprint import fingerprint, partition_of
from crawler.rules.priority import default_priority, score
from crawler.rules.scope import ScopeRules
from crawler.rules.urls import authority_of, host_of


class Router:
    """Turns URLs into candidates by the crawl's shared rules."""

    def __init__(self, record: CrawlRecord, scope: ScopeRules, recent: RecentUrls) -> None:
        self._record = record
        self.scope = scope
        self.recent = recent
        self._place = lru_cache(maxsize=100_000)(self._place_of)

    def _place_of(self, authority: str) -> tuple[str, str, int]:
        """(domain, queue, partition) of a URL's host[:port]."""
        host = host_of(f"http://{authority}/")
        domain = registrable_domain(host)
        queue = domain if self._record.queue_by == "domain" else host
        return domain, queue, partition_of(domain, self._record.partitions)

    def place(self, url: str) -> tuple[str, str, int]:
        """(domain, queue, partition) of a canonical URL."""
        return self._place(authority_of(url))

    def candidate(
        self, url: str, *, depth: int, redirects: int = 0, seed: bool = False, priority: float | None = None
    ) -> Candidate:
        """A canonical URL that was let in."""
        domain, queue, partition = self._place(authority_of(url))
        value = score(
            priority=default_priority(depth) if priority is None else priority,
            age_s=wall_s() - self._record.begun_at,
            half_life_s=self._record.half_life_s,
        )
        return Candidate(
            url=url,
            fingerprint=fingerprint(url, self._record.run),
            partition=partition,
            domain=domain,
            queue=queue,
            depth=depth,
            redirects=redirects,
            seed=seed,
            score=value,
        )

    def links(self, claim: Claim, links: Iterable[str], refused: Counter[str]) -> list[Candidate]:
        """Candidates of a page's links that were not added lately; the others are counted by reason."""
        depth = claim.depth + 1
        if 0 <= self.scope.depth_max < depth:
            # Not marked as seen anywhere: a shorter path may lead there later.
            refused[Refusal.DEPTH] += sum(1 for url in links if self.scope.allows(url))
            return []
        allows, knows = self.scope.allows, self.recent.knows
        found = []
        for url in links:
            if knows(url, depth):
                continue
            if allows(url):
                found.append(self.candidate(url, depth=depth))
            else:
                refused[Refusal.SCOPE] += 1
        return found

    def redirect(self, claim: Claim, target: str, refused: Counter[str]) -> Candidate | None:
        """Where a redirect leads: same depth, one redirect more."""
        verdict = self.scope.verdict(target, claim.depth, claim.redirects + 1)
        if not verdict.allowed:
            refused[verdict.refusal or Refusal.SCOPE] += 1
            return None
        return self.candidate(target, depth=claim.depth, redirects=claim.redirects + 1, seed=claim.seed)
