"""Where discovered URLs go: scope, traps, priority, the runs that they belong to."""

import asyncio
import copy
from collections import Counter, OrderedDict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import chain, repeat

import msgspec
from msgspec.structs import replace

from crawler.frontier.deferred import CRAWL_URLS, DEPTH
from crawler.frontier.placement import Placement
from crawler.frontier.record import CrawlRecord
from crawler.frontier.runs import ActiveRun, Runs, with_roots
from crawler.model import SITEMAP, SITEMAP_DEPTH_MAX, Candidate, Claim, Followed, RefusalReason, Request
from crawler.rules.jobs import URLS, RunRecord, RunSpec, with_limits
from crawler.rules.order import NO_SIGNALS, Ordering, Signals, is_within, link_place
from crawler.rules.requests import redirected
from crawler.rules.scope import ScopeRules, ScopeVerdict, SiteRules, smaller_limit
from crawler.rules.traps import NOTHING_LEARNED, Action, TrapRules, TrapState
from crawler.runtime.process import monotonic_ms, wall_s
from crawler.settings import BudgetSettings, SiteSettings, TrapSettings
from crawler.settings.schema import JobSettings

URL_CHARS_MAX = 512  # longer ones are not remembered: 200,000 of 8 KiB would take 1.6 GB


class RecentUrls:
    """URLs whose add has succeeded lately, with their depth.

    Two generations: the older one is dropped when the younger is full, so memory is bounded without work per hit.
    Cleared when the engine restarted or fell back.
    """

    def __init__(self, capacity: int) -> None:
        self._half = max(1, capacity // 2)
        self._young: dict[str, int] = {}
        self._old: dict[str, int] = {}

    def knows(self, url: str, depth: int) -> bool:
        """Was this URL added lately at this depth or a smaller one?"""
        known = self._young.get(url)
        if known is None:
            known = self._old.get(url)
            if known is None:
                return False
            self._young[url] = known
        return known <= depth

    def unknown(self, urls: Collection[str], depth: int) -> list[str]:
        """Those that `knows` does not know, in their order; faster than a call for each."""
        young = map(self._young.get, urls)
        missing = [url for url, known in zip(urls, young, strict=True) if known is None or known > depth]
        return [url for url in missing if not self.knows(url, depth)] if self._old else missing

    def add(self, url: str, depth: int) -> None:
        if len(url) > URL_CHARS_MAX:
            return
        self._young[url] = depth
        if len(self._young) >= self._half:
            self._old, self._young = self._young, {}

    def clear(self) -> None:
        self._young, self._old = {}, {}


# Trap states of domains in this instance's memory, and what follows for URLs that it has claimed.
#
# The rules decide; this keeps their states. A state that is lost by a new owner, a restart or lack of room is learned
# again: that costs fetches of suspects, but no page.

DOMAINS_MAX = 20_000  # of each kind: at most 1 KB each in msgpack, a few in Python


def deferral_reason(rule: str) -> str:
    """The reason that a rule's URLs are deferred with."""
    return f"trap:{rule}"


class TrapMemory:
    """The states of domains, for the crawl and for each run: what was fetched before is no repetition in another run.

    Those with suspects have their own room, so that the many others don't evict them.
    """

    def __init__(self, limits: TrapSettings, domains_max: int = DOMAINS_MAX) -> None:
        self._rules = TrapRules(limits)
        self._domains_max = domains_max
        self._plain: OrderedDict[str, TrapState] = OrderedDict()  # least recently used first
        self._suspect: OrderedDict[str, TrapState] = OrderedDict()
        self._released: OrderedDict[tuple[str, str], None] = OrderedDict()  # queue and reason; the engine has them all

    def state_of(self, domain: str, run: str = "") -> TrapState:
        key = _key(domain, run)
        return self._suspect.get(key) or self._plain.get(key, NOTHING_LEARNED)

    def learn(self, claim: Claim, links: Sequence[str], digest: str, body: bytes = b"") -> TrapState:
        """Learn from a claim's page, once, before its links are judged; the new state of its domain.

        `digest`: of a body of status 200, "" for others; `body`: that body. `links` includes the target of a redirect.
        """
        known = self.state_of(claim.domain, claim.run)
        state = self._rules.learn(known, claim.url, links=links, digest=digest, body=body)
        key = _key(claim.domain, claim.run)
        states = self._suspect if state.counts or state.tokens.slot or state.has_chain else self._plain
        if states is self._suspect:
            self._plain.pop(key, None)
        states[key] = state
        states.move_to_end(key)
        if len(states) > self._domains_max:
            states.popitem(last=False)
        return state

    def reason_to_defer(self, claim: Claim) -> str:
        """The reason to defer a claimed URL by what was learned since it was queued; "" for none.

        Seeds and their redirect targets are never deferred.
        """
        if claim.seed:
            return ""
        verdict = self._rules.judge(self.state_of(claim.domain, claim.run), claim.url)
        reason = deferral_reason(verdict.rule) if verdict.action is Action.DEFER else ""
        return "" if (claim.queue, reason) in self._released else reason

    def release(self, queue: str, reason: str) -> None:
        """An operator released the URLs of a queue that have this reason: fetch them, but still judge their links."""
        self._released[queue, reason] = None
        if len(self._released) > self._domains_max:
            self._released.popitem(last=False)  # the engine tells it again when a URL is deferred for that reason

    def forget(self, runs: Collection[str]) -> None:
        """Forget what was learned for these."""
        for states in (self._plain, self._suspect):
            for key in [key for key in states if " " in key and key.partition(" ")[0] in runs]:
                del states[key]


def _key(domain: str, run: str) -> str:
    return f"{run} {domain}" if run else domain


# The router: turns URLs into candidates by scope, depth, score, partition, traps and quotas.


OUT_OF_SCOPE_MAX = 16_384  # URLs that are remembered as out of scope
RECENT_OF_RUN = 4096  # URLs that are remembered for each run
NO_BUDGET = BudgetSettings()
NOT_FOLLOWED = Followed("")
BEHIND = 16.0  # of sitemaps and their entries: links of pages come first, as if these were sixteen steps further away


class Router:
    """Turns URLs into candidates by the crawl's shared rules, and by trap rules where there are any.

    URLs that are too far from a seed are deferred by the `budget`, and so are those that the crawl's quota of URLs does
    not admit (`admits_urls`, called for each URL). With a quota for each linking domain, a candidate has the place of
    the domain that links to it. `sites`: sites with a depth limit or a priority of their own.
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
        self._counts_links = budget.urls_per_linking_domain > 0
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
            self.scope = ScopeRules.of(record.scope, self.scope.roots.union(roots))
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
            fingerprint=self.fingerprints.of(url, followed.request),
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
        fresh = self._to_judge(claim, links, depth, refused) if links else []
        wanted = zip(fresh, map(followed_by_url.get, fresh, repeat(NOT_FOLLOWED)), strict=False)
        found = []
        for url, given in chain(wanted, ((one.url, one) for one in others)) if others else wanted:
            link, at = given, depth
            if is_of_sitemap or link.label == SITEMAP:
                at = _depth_of_sitemap(claim) if link.label == SITEMAP else depth
                link = replace(link, priority=link.priority - BEHIND)
            if not self.scope.allows(url):
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

    def _is_too_deep(self, url: str, depth: int) -> bool:
        """For a site with a limit of its own."""
        return self._depths is not None and 0 <= self._depth_max(url) < depth

    def _to_judge(self, claim: Claim, links: Collection[str], depth: int, refused: Counter[str]) -> list[str]:
        """The links without those that were added or refused lately: most of a page's, on most sites."""
        if self._counts_links:
            knows = self.recent.knows
            fresh = [url for url in links if not knows(url, depth) or self._is_new_link(claim, url)]
        else:
            fresh = self.recent.unknown(links, depth)
        if self._judged_by is not self.scope:
            self._out_of_scope.clear()
            self._judged_by = self.scope
        in_scope = self._out_of_scope.unknown(fresh, 0)
        if len(in_scope) < len(fresh):
            refused[RefusalReason.SCOPE] += len(fresh) - len(in_scope)
        return in_scope

    def _is_new_link(self, claim: Claim, url: str) -> bool:
        """A URL that is known may be the first one of its domain that the claim's domain links to."""
        domain, _, _ = self.placement.of(url)
        return domain != claim.domain and not self.recent.knows(
            link_name(link_place(claim.domain, self.record.hash_key), domain), 0
        )

    def _link_place(self, claim: Claim) -> int:
        return link_place(claim.domain, self.record.hash_key)

    def _judged(self, claim: Claim, found: Candidate, learned: TrapState, digest: str) -> Candidate:
        """Apply everything that can defer a URL."""
        if self._counts_links and found.domain != claim.domain:
            found = replace(found, linked_from=self._link_place(claim))
        found = self._trapped(claim, found, learned, digest)
        return found if found.deferred or self._admits_urls() else replace(found, deferred=CRAWL_URLS)

    def _trapped(self, claim: Claim, found: Candidate, learned: TrapState, digest: str) -> Candidate:
        """Apply the depth quota and the trap rules. The state is that of the page's own domain only: links to other
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
        verdict = self.verdict(target, claim.depth, claim.redirects + 1)
        if not verdict.allowed:
            refused[verdict.refusal or RefusalReason.SCOPE] += 1
            return None
        hops, seed, number = claim.redirects + 1, claim.seed, claim.seed_number
        request = redirected(claim.request, status, claim.url, target)
        followed = Followed(target, claim.label, request=request) if claim.label or request else NOT_FOLLOWED
        found = self.candidate(
            target, depth=claim.depth, redirects=hops, seed=seed, seed_number=number, followed=followed
        )
        return found if claim.seed else self._judged(claim, found, learned, "")


def with_sitemaps(
    links: Sequence[str], followed: Sequence[Followed], sitemaps: Sequence[str]
) -> tuple[tuple[str, ...], list[Followed]]:
    """The links of a page and what its handler followed, and the sitemaps that it names, which come first."""
    return tuple(dict.fromkeys((*sitemaps, *links))), [*(Followed(url, SITEMAP) for url in sitemaps), *followed]


def _depth_of_sitemap(claim: Claim) -> int:
    """Of one that this page, or this sitemap, names."""
    return claim.depth + 1 if claim.label == SITEMAP else 1


def link_name(place: int, domain: str) -> str:
    """The key in the recent URLs of a link between domains."""
    return f"{place} {domain}"


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


# What this instance knows of active runs: their records, how their links are routed, which partitions they touched.
#
# A record is read again when it is needed and a second old. So within about a second an instance refuses the URLs of a
# run that has ended, or of which nothing more is to be fetched. What it fetches in this second does no harm: the links
# of an ended run are dropped when their partitions are touched, or by the partitions themselves.


RUNS_MAX = 4096  # known at a time; the one that was read longest ago is forgotten
IDLE_MS = 600_000  # and those that were not read for so long: most have ended
ROUTERS_MAX = 128  # at a time, with their recent URLs: some 100 KB each, 1 MB at most for URLs of usual length
FRESH_MS = 1000
LIMITED_MS = 100  # the same for a run that may reach a limit: it may exceed it by what is fetched in this time
ENDED = "run_ended"
NO_LIMITS = JobSettings()


class _Known(msgspec.Struct):
    """`record`: None for a run that has ended. `roots`: those that were noted for it."""

    record: RunRecord | None
    roots: frozenset[str]
    read_ms: int
    touched: set[int]


class RunBook:
    """The runs that this instance has met lately.

    `router`: that of the crawl. `traps`: what was learned for runs is forgotten with them. `jobs`: limits of runs
    without others.
    """

    def __init__(self, runs: Runs, router: Router, traps: TrapMemory, jobs: JobSettings = NO_LIMITS) -> None:
        self._runs = runs
        self._jobs = jobs
        self._router = router
        self._traps = traps
        self._known: dict[str, _Known] = {}  # the one that was read last is the last
        self._routers: OrderedDict[str, tuple[Router, ScopeRules]] = OrderedDict()  # with the crawl's scope at the time
        self._wanted: set[str] = set()
        self._reading = asyncio.Lock()
        self._engine_starts = 0

    async def learn(self, runs: Collection[str]) -> None:
        """Read the records of these that are not known, or not any more; those that others want meanwhile with them.

        A run that has ended is read each time: when the engine has lost its last second, the run is triggered again.
        Raises EngineError.
        """
        if all(map(self._is_active, runs)):
            return
        self._wanted.update(runs)
        async with self._reading:
            asked = [run for run in {*self._wanted, *runs} if not self._is_active(run)]
            self._wanted.clear()
            for run in asked:
                if self._is_fresh(run):
                    del self._known[run]  # it has ended, by a read before this one, which may fail
            if asked:
                read_ms = monotonic_ms()
                for run, active in (await self._runs.look(asked)).items():
                    self._note(run, await self._with_roots(run, active), read_ms)
                self._forget_old(read_ms)

    async def learn_again(self, run: str) -> None:
        """Read its record, however new what is known of it is. Raises EngineError."""
        if run in self._known:
            self._known[run].read_ms = -FRESH_MS
        await self.learn((run,))

    def _is_active(self, run: str) -> bool:
        return self._is_fresh(run) and self._known[run].record is not None

    def _is_fresh(self, run: str) -> bool:
        known = self._known.get(run)
        if known is None:
            return False
        is_limited = known.record is not None and known.record.is_limited
        return monotonic_ms() - known.read_ms < (LIMITED_MS if is_limited else FRESH_MS)

    async def _with_roots(self, run: str, active: ActiveRun | None) -> tuple[RunRecord | None, frozenset[str]]:
        """A record and the roots that were noted for its run. These only grow, so they are read when they have."""
        if active is None:
            return None, frozenset()
        known = self._known.get(run)
        roots = known.roots if known is not None else frozenset()
        return active.record, roots if len(roots) == active.roots else await self._runs.roots(run)

    def _note(self, run: str, found: tuple[RunRecord | None, frozenset[str]], read_ms: int) -> None:
        record, roots = found
        if record is not None:
            record = with_limits(record, self._jobs)
            found = record, roots
        before = self._known.pop(run, None)
        if before is None:
            before = _Known(record, roots, read_ms, set())
        elif (before.record, before.roots) != found:
            before.record, before.roots = record, roots
            self._routers.pop(run, None)
        before.read_ms = read_ms
        self._known[run] = before

    def _forget_old(self, now_ms: int) -> None:
        gone = set[str]()
        for run, known in self._known.items():
            if len(self._known) - len(gone) <= RUNS_MAX and now_ms - known.read_ms < IDLE_MS:
                break
            gone.add(run)
        for run in gone:
            del self._known[run]
            self._routers.pop(run, None)
        if gone:
            self._traps.forget(gone)

    async def refusal_of(self, claim: Claim) -> str:
        """Why a claimed URL of a run is not to be fetched, "" if it is. Raises EngineError when that can't be read."""
        while not self._is_fresh(claim.run):
            await self.learn((claim.run,))
        record = self._known[claim.run].record
        if record is None:
            return ENDED
        if record.stopped and record.stopped != URLS:
            return f"run_{record.stopped}"
        return "run_depth" if 0 <= record.spec.depth < claim.depth else ""

    def excludes(self, url: str) -> bool:
        """Does the crawl's `exclude`, which holds for its runs as well, match a URL that waits?"""
        return self._router.scope.excludes(url)

    def is_known(self, run: str) -> bool:
        """Is it known, now, whether this run is active?"""
        return run in self._known

    def router_of(self, run: str) -> Router | None:
        """Routing for the links of a run, as far as it is known; None when it has ended, or is not known."""
        if not run:
            return self._router
        known = self._known.get(run)
        if known is None or known.record is None:
            return None
        router, scope = self._routers.get(run, (None, None))
        if router is None or scope is not self._router.scope:
            router = self._router.of_run(with_roots(known.record, known.roots))
            self._routers[run] = router, self._router.scope
            if len(self._routers) > ROUTERS_MAX:
                self._routers.popitem(last=False)
        self._routers.move_to_end(run)
        return router

    def asks_for_changes(self, run: str) -> bool:
        """Are sites to be asked whether pages of this run have changed since an earlier one?"""
        known = self._known.get(run)
        return known is not None and known.record is not None and known.record.spec.refetch == "changed"

    def may_lead_to(self, claim: Claim, url: str) -> bool:
        """May a redirect of this claim lead to that URL?"""
        router = self.router_of(claim.run)
        return router is not None and router.verdict(url, claim.depth, claim.redirects + 1).allowed

    async def touch_all(self, partitions: Mapping[str, Collection[int]]) -> set[str]:
        """Note in the engine that partitions are to get URLs of runs, unless it was noted; the runs that have ended.

        To those, nothing may be added. Raises EngineError.
        """
        ended = {run for run in partitions if (known := self._known.get(run)) is not None and known.record is None}
        new = {run: {*mine} - self._touched(run) for run, mine in partitions.items() if run not in ended}
        asked = {run: mine for run, mine in new.items() if mine}
        if not asked:
            return ended
        engine_starts = self._engine_starts
        ended_since = await self._runs.touch_all(asked)
        if engine_starts == self._engine_starts:
            for run, mine in asked.items():
                self._note_touched(run, mine, is_active=run not in ended_since)
        return ended | ended_since

    def _touched(self, run: str) -> set[int]:
        known = self._known.get(run)
        return known.touched if known else set()

    def _note_touched(self, run: str, partitions: Iterable[int], *, is_active: bool) -> None:
        known = self._known.get(run)
        if known is not None and is_active:
            known.touched.update(partitions)
        elif known is not None:
            known.record = None
            self._routers.pop(run, None)

    async def open(self, run: str, root: str) -> None:
        """Note a root of its scope in the engine, which a redirect of one of its seeds opens. Raises EngineError."""
        await self._runs.touch(run, (), (root,))
        await self.learn_again(run)

    def forget(self) -> None:
        """The engine restarted, and may have lost what this session knows of it."""
        self._engine_starts += 1
        self._traps.forget(self._known)
        self._known.clear()
        self._routers.clear()
