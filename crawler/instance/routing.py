"""Stage five: from links to candidates (scope, depth, score, partition), and to the partitions that own them."""

import asyncio
import logging
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from functools import lru_cache, partial
from typing import TypeVar

from msgspec.structs import replace

from crawler.errors import EngineError
from crawler.frontier.crawls import CrawlRecord, Crawls
from crawler.frontier.frontier import Frontier
from crawler.frontier.parking import CRAWL_URLS, DEPTH
from crawler.frontier.replies import AddReply
from crawler.handlers.page import Followed
from crawler.instance.claimer import Claimer
from crawler.instance.clock import ENGINE_PAUSE_S, wall_s
from crawler.instance.outcome import Committable
from crawler.instance.ownership import Ownership
from crawler.instance.state import RecentUrls
from crawler.instance.traps import TrapMemory, parking_reason
from crawler.model import Candidate, Claim, Refusal
from crawler.rules.budgets import is_within, link_place
from crawler.rules.domains import registrable_domain
from crawler.rules.fingerprint import fingerprint, partition_of
from crawler.rules.priority import NO_SIGNALS, Ordering, Signals
from crawler.rules.scope import ScopeRules, ScopeVerdict
from crawler.rules.sites import SiteRules
from crawler.rules.traps import NOTHING_LEARNED, Action, TrapRules, TrapState
from crawler.rules.urls import authority_of, host_of
from crawler.settings import BudgetSettings, SiteSettings, TrapSettings

log = logging.getLogger(__name__)

NO_BUDGET = BudgetSettings()
NO_WISH = Followed("")
ACK_ITEMS_MAX = 128  # out-links that one ack may add; more go through add

Answer = TypeVar("Answer")


class Router:
    """Turns URLs into candidates by the crawl's shared rules, and by those about traps where there are any.

    By the `budget`, what is too far from a seed is parked, and it is noted which domain links to which. So is what
    the crawl's budget of URLs does not take in (`takes_in`, asked for each URL). `sites`: whose URLs have a limit of
    depth or a priority of their own.
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
    ) -> None:
        self.record = record  # as it was when this was made; its scope rules may have changed since
        self.scope = scope
        self.version = record.version
        self.recent = recent
        self._traps = TrapRules(traps) if traps else None
        self.takes_in: Callable[[], bool] = lambda: True
        self._depth_budget = budget.depth
        self._counts_links = budget.urls_per_linking_domain > 0
        self._ordering = Ordering.of(record.ordering, record.begun_at)
        self._priorities = SiteRules.of(sites, "priority")
        self._depths = SiteRules.of(sites, "depth_max")
        self._place = lru_cache(maxsize=100_000)(self._place_of)

    def follow(self, record: CrawlRecord, roots: Iterable[str]) -> None:
        """Take over scope rules and roots as they were read, unless newer ones are known. Roots only grow."""
        if record.version >= self.version:
            self.scope = ScopeRules.of(record.scope, self.scope.roots.union(roots))
            self.version = record.version

    def _place_of(self, authority: str) -> tuple[str, str, int]:
        """(domain, queue, partition) of a URL's host[:port]."""
        host = host_of(f"http://{authority}/")
        domain = registrable_domain(host)
        queue = domain if self.record.queue_by == "domain" else host
        return domain, queue, partition_of(domain, self.record.partitions)

    def place(self, url: str) -> tuple[str, str, int]:
        """(domain, queue, partition) of a canonical URL."""
        return self._place(authority_of(url))

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
        wish: Followed = NO_WISH,
    ) -> Candidate:
        """A canonical URL that was let in; a `priority` that was given stands for all that the order would reckon.

        `wish`: of the handler that led here, what its label is to be, and what its priority is added.
        """
        domain, queue, partition = self._place(authority_of(url))
        found_at, boost = wall_s(), wish.priority
        if self._priorities is not None and priority is None:
            boost += self._priorities.first(url, "priority") or 0.0
        score = self._ordering.score(url, depth=depth, found_at=found_at, signals=signals, given=priority, boost=boost)
        return Candidate(
            url=url,
            fingerprint=fingerprint(url, self.record.run),
            partition=partition,
            domain=domain,
            queue=queue,
            depth=depth,
            redirects=redirects,
            seed=seed,
            score=score,
            found_at=found_at,
            seed_number=seed_number,
            label=wish.label,
        )

    def verdict(self, url: str, depth: int, redirects: int = 0) -> ScopeVerdict:
        """As that of the scope, by the limit of depth that holds for this URL."""
        return self.scope.verdict(url, depth, redirects, depth_max=self._depth_max(url))

    def _depth_max(self, url: str) -> int:
        own = None if self._depths is None else self._depths.first(url, "depth_max")
        return self.scope.depth_max if own is None else int(own)

    def links(
        self,
        claim: Claim,
        links: Collection[str],
        refused: Counter[str],
        learned: TrapState = NOTHING_LEARNED,
        digest: str = "",
        followed: Sequence[Followed] = (),
    ) -> list[Candidate]:
        """Candidates of a page's links that were not added lately; the others are counted by reason.

        `followed`: what its handler wants of some of the links. `learned` is what is known of the page's domain,
        `digest` that of its body ("" for none): see rules/traps.
        """
        depth = claim.depth + 1
        if self._depths is None and 0 <= self.scope.depth_max < depth:
            # Not marked as seen anywhere: a shorter path may lead there later.
            refused[Refusal.DEPTH] += sum(1 for url in links if self.scope.allows(url))
            return []
        allows, knows = self.scope.allows, self.recent.knows
        signals = Signals(links=len(links))
        wishes = {one.url: one for one in reversed(followed)}  # the first one counts
        found = []
        for url in links:
            if knows(url, depth) and not self._is_new_link(claim, url):
                continue
            if self._depths is not None and 0 <= self._depth_max(url) < depth:
                refused[Refusal.DEPTH if allows(url) else Refusal.SCOPE] += 1
            elif allows(url):
                candidate = self.candidate(
                    url, depth=depth, signals=signals, seed_number=claim.seed_number, wish=wishes.get(url, NO_WISH)
                )
                found.append(self._judged(claim, candidate, learned, digest))
            else:
                refused[Refusal.SCOPE] += 1
        return found

    def _is_new_link(self, claim: Claim, url: str) -> bool:
        """A URL that is known may be the first one of its domain that the claim's domain links to."""
        if not self._counts_links:
            return False
        domain, _, _ = self.place(url)
        return domain != claim.domain and not self.recent.knows(_link(link_place(claim.domain), domain), 0)

    def _judged(self, claim: Claim, found: Candidate, learned: TrapState, digest: str) -> Candidate:
        """By all that parks a URL."""
        if self._counts_links and found.domain != claim.domain:
            found = replace(found, linked_from=link_place(claim.domain))
        found = self._trapped(claim, found, learned, digest)
        return found if found.parked or self.takes_in() else replace(found, parked=CRAWL_URLS)

    def _trapped(self, claim: Claim, found: Candidate, learned: TrapState, digest: str) -> Candidate:
        """The owner of a page has learned of the page's own domain only; links to others are judged by their looks."""
        if not is_within(found.depth, self._depth_budget):
            return replace(found, parked=DEPTH)
        if self._traps is None:
            return found
        own = found.domain == claim.domain
        verdict = self._traps.judge(learned if own else NOTHING_LEARNED, found.url, parent_digest=digest if own else "")
        if verdict.action is Action.PASS:
            return found
        if verdict.action is Action.PARK:
            return replace(found, parked=parking_reason(verdict.rule))
        return replace(found, score=found.score - verdict.penalty)  # one unit in all orders

    def redirect(
        self, claim: Claim, target: str, refused: Counter[str], learned: TrapState = NOTHING_LEARNED
    ) -> Candidate | None:
        """Where a redirect leads: same depth, one redirect more."""
        verdict = self.verdict(target, claim.depth, claim.redirects + 1)
        if not verdict.allowed:
            refused[verdict.refusal or Refusal.SCOPE] += 1
            return None
        hops, seed, number = claim.redirects + 1, claim.seed, claim.seed_number
        wish = Followed(target, claim.label) if claim.label else NO_WISH
        found = self.candidate(target, depth=claim.depth, redirects=hops, seed=seed, seed_number=number, wish=wish)
        return found if claim.seed else self._judged(claim, found, learned, "")


class RouteStage:
    """Stage five: the out-links of a group go to the partitions that own them, before their parents are acked."""

    def __init__(
        self,
        frontier: Frontier,
        crawls: Crawls,
        router: Router,
        ownership: Ownership,
        claimer: Claimer,
        traps: TrapMemory,
    ) -> None:
        self.traps = traps
        self._frontier = frontier
        self._crawls = crawls
        self.router = router
        self._ownership = ownership
        self._claimer = claimer

    async def route(self, group: Sequence[Committable]) -> list[list[Candidate]]:
        """Add what belongs to other partitions; per page, what is left for its own ack."""
        await self._open_scope(group)
        own: list[list[Candidate]] = []
        away: defaultdict[int, list[Candidate]] = defaultdict(list)
        taken: set[tuple[str, int, int | None]] = set()
        for outcome in group:
            mine: list[Candidate] = []
            for candidate in self._candidates(outcome):
                if candidate.partition == outcome.claim.partition and len(mine) < ACK_ITEMS_MAX:
                    mine.append(candidate)  # although others of the group have it: their acks may be refused
                elif (what := (candidate.url, candidate.depth, candidate.linked_from)) not in taken:
                    taken.add(what)
                    away[candidate.partition].append(candidate)
            own.append(mine)
        await self._add(dict(away))
        return own

    def _candidates(self, outcome: Committable) -> list[Candidate]:
        claim, page = outcome.claim, outcome.page
        outcome.scope_version = self.router.version
        digest = outcome.digest if outcome.response.status == 200 else ""
        led_to = (*page.links, outcome.redirect_to) if outcome.redirect_to else page.links
        learned = self.traps.learn(claim, led_to, digest)
        followed = outcome.handled.followed
        found = self.router.links(claim, page.links, outcome.refused, learned, digest, followed) if page.links else []
        if outcome.redirect_to:
            target = self.router.redirect(claim, outcome.redirect_to, outcome.refused, learned)
            if target is not None:
                found.append(target)
        return found

    async def _open_scope(self, group: Sequence[Committable]) -> None:
        """What a seed redirects to belongs to the crawl, as the seed did.

        A seed that is not in scope itself was given a moment ago: its root is known to the engine, not yet here.
        """
        if any(o.claim.seed and not self.router.scope.allows(o.claim.url) for o in group):
            self.router.follow(*await until_answered(self._crawls.shared))
        scope = self.router.scope
        targets = [o.redirect_to for o in group if o.claim.seed and o.redirect_to and not scope.allows(o.redirect_to)]
        if targets:
            roots = {scope.root_of(target) for target in targets}
            await until_answered(partial(self._crawls.add_roots, roots))
            self.router.scope = self.router.scope.with_roots(roots)

    async def _add(self, away: dict[int, list[Candidate]]) -> None:
        """Add until every partition has taken its URLs: the acks of their parents wait for this."""
        while away:
            asked = away
            replies = await until_answered(partial(self._frontier.add, asked))
            away = {}
            for partition, candidates in asked.items():
                reply = replies[partition]
                if isinstance(reply, AddReply):
                    self.added(partition, candidates, reply.woken)
                else:
                    away[partition] = candidates
                    log.warning("route.refused", extra={"partition": partition, "error": str(reply)})
            if away:
                await asyncio.sleep(ENGINE_PAUSE_S)

    def added(self, partition: int, candidates: Sequence[Candidate], woken: int) -> None:
        """These stand in the frontier now."""
        recent = self.router.recent
        for candidate in candidates:
            recent.add(candidate.url, candidate.depth)
            if candidate.linked_from is not None:
                recent.add(_link(candidate.linked_from, candidate.domain), 0)
        if woken and self._ownership.is_open(partition):
            self._claimer.schedule(partition)


def _link(place: int, domain: str) -> str:
    """Under which the recent URLs remember that a domain was linked to."""
    return f"{place} {domain}"


async def until_answered(call: Callable[[], Awaitable[Answer]]) -> Answer:
    """Repeat an idempotent call until the engine answers."""
    while True:
        try:
            return await call()
        except EngineError as error:
            log.warning("route.engine_error", extra={"error": str(error)})
            await asyncio.sleep(ENGINE_PAUSE_S)
