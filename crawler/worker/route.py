"""Step 8, route: the links of a group of pages are added to their partitions before the pages are acked."""

import asyncio
import logging
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Collection, Sequence
from functools import partial
from itertools import chain
from typing import NamedTuple

from crawler.errors import EngineDown, EngineFull
from crawler.frontier.messages import AddReply
from crawler.frontier.owner import Frontier
from crawler.frontier.record import Crawls
from crawler.model import REQUISITE, SITEMAP, AddOutcome, Candidate, Claim
from crawler.routing.router import Router, with_sitemaps
from crawler.routing.runs_known import RunBook
from crawler.rules.introductions import Introductions, cost
from crawler.runtime.clocks import ENGINE_PAUSE_S, monotonic_ms
from crawler.runtime.tasks import retry_until_answered
from crawler.worker import url_lines
from crawler.worker.archive import Placed
from crawler.worker.internal_errors import ContentSteps
from crawler.worker.open_claims import ClaimPlace
from crawler.worker.outcomes import Committable
from crawler.worker.work import Work

# Pages whose links wait: their domain has introduced too much, or the engine has no room for the links.
#
# Such a page is archived and not acked; its claim stays open, and it joins later groups until nothing is left. So the
# order of a commit holds by itself, no crawl or run ends before, and after a crash the page is fetched again.

log = logging.getLogger(__name__)

EVERY_MS = 1_000  # how often held pages go on
WAKE_S = 0.25  # how often the committer looks for that, and for an end that must be quick
BYTES_MAX = 64 << 20  # of all held pages, as estimated
PAGES_MAX = 128  # a quarter of the claims that an instance may hold, at least
LINK_BYTES = 600  # a candidate in memory, without its URL
QUEUE_WAIT_MS = 5_000  # its queue: longer than what is claimed ahead, so that waiting claims go back to the engine
AGAIN_MS = 30_000  # a page that had no room here is not fetched again before


class HeldPage(NamedTuple):
    """A page with links left, and where the archive has it. `bytes`: of memory, about."""

    outcome: Committable
    placed: Placed
    bytes: int


class HeldBack:
    """The held pages of one instance, oldest first. Their queues make no requests."""

    def __init__(
        self,
        introductions: Introductions,
        work: Work,
        return_claims: Callable[[list[Claim]], Awaitable[None]],
    ) -> None:
        """`return_claims`: returns claims that were fetched, unacked; their queues wait as the scheduler knows."""
        self._introductions = introductions
        self._work = work
        self._return_claims = return_claims
        self._pages: dict[tuple[int, str], HeldPage] = {}
        self._domains: set[str] = set()
        self._next_ms = 0

    def __len__(self) -> int:
        return len(self._pages)

    @property
    def claims(self) -> list[Claim]:
        return [page.outcome.claim for page in self._pages.values()]

    def due(self) -> list[HeldPage]:
        """The pages that go on now. While the engine has no room they wait, unless they have to leave."""
        now_ms, leaving = monotonic_ms(), [page for page in self._pages.values() if not self._may_stay(page)]
        if now_ms < self._next_ms:
            return leaving
        self._next_ms = now_ms + EVERY_MS
        for page in self._pages.values():
            self._work.scheduler.postpone(page.outcome.claim.queue, QUEUE_WAIT_MS)
        return leaving if self._work.counters.is_engine_full else list(self._pages.values())

    def _may_stay(self, page: HeldPage) -> bool:
        claim = page.outcome.claim
        held = self._work.held
        counters = self._work.counters
        return (
            not (counters.is_stopping or counters.is_standing_still)
            and held.holds(claim)
            and held.is_open(claim.partition)
        )

    def keep(self, taken: Sequence[HeldPage], waiting: Sequence[tuple[Committable, Placed]]) -> list[Committable]:
        """`waiting` is what is left of `taken`, and further pages. Takes out and returns those that have no room here
        or have to leave.
        """
        known = {_key(page.outcome): page for page in taken}
        still = {_key(outcome): (outcome, placed) for outcome, placed in waiting}
        for key in known.keys() - still.keys():
            del self._pages[key]
        for key, (outcome, placed) in still.items():
            self._work.open_claims.moved(outcome.claim, ClaimPlace.HELD_BACK)
            if key not in known:
                self._pages[key] = HeldPage(outcome, placed, _bytes_of(outcome))
                self._work.scheduler.postpone(outcome.claim.queue, QUEUE_WAIT_MS)
        given = [page.outcome for page in self._take_excess()]
        self._note()
        return given

    async def give_back(self, given: Sequence[Committable]) -> None:
        """Return the claims of pages that were taken out: they are fetched again when their domains may go on."""
        now_ms = monotonic_ms()
        for outcome in given:
            claim, left = outcome.claim, outcome.left or ()
            owed = sum(cost(candidate.url) for candidate in left if candidate.queue != claim.queue)
            wait_ms = self._introductions.wait_ms(claim.domain, owed, now_ms)
            self._work.scheduler.postpone(claim.queue, max(AGAIN_MS, wait_ms))
        await self._return_claims([outcome.claim for outcome in given])

    def _take_excess(self) -> list[HeldPage]:
        """Take out what has to leave, and the newest beyond the bounds."""
        total, kept, given = 0, dict[tuple[int, str], HeldPage](), list[HeldPage]()
        for key, page in self._pages.items():
            if self._may_stay(page) and total + page.bytes <= BYTES_MAX and len(kept) < PAGES_MAX:
                total += page.bytes
                kept[key] = page
            else:
                given.append(page)
        self._pages = kept
        return given

    def _note(self) -> None:
        """Count what waits, and log when it begins and ends for a domain."""
        pages = self._pages.values()
        links = sum(len(page.outcome.left or ()) for page in pages)
        self._work.counters.held_pages, self._work.counters.held_links = len(pages), links
        before, self._domains = self._domains, {page.outcome.claim.domain for page in pages}
        for domain in self._domains - before:
            log.warning("pages.held_back", extra={"domain": domain, "pages": len(pages), "links": links})
        for domain in before - self._domains:
            log.warning("pages.released", extra={"domain": domain, "pages": len(pages), "links": links})


def _key(outcome: Committable) -> tuple[int, str]:
    return outcome.claim.partition, outcome.claim.token


def _bytes_of(outcome: Committable) -> int:
    response, links = outcome.response, outcome.page.links
    candidates = len(outcome.own) + len(outcome.left or ())
    return len(response.body) + len(response.raw_body) + sum(map(len, links)) + candidates * LINK_BYTES


PAGES_BEFORE_YIELD = 32  # pages whose links are judged before the event loop runs: 2 to 4 ms

ACK_ITEMS_MAX = 128  # links that one ack may add; more go through add
NOBODY = ""  # pays for links to a page's own queue

until_answered = partial(retry_until_answered, event="route.engine_error")


async def never_owed(_partitions: Collection[int]) -> bool:
    """What did not arrive is sent again until it does."""
    return False


class RouteStage:
    """Adds links to other queues; links to the page's own queue are left to its ack."""

    def __init__(
        self,
        frontier: Frontier,
        crawls: Crawls,
        router: Router,
        work: Work,
        content: ContentSteps,
        runs: RunBook,
        introductions: Introductions,
        owe: Callable[[Collection[int]], Awaitable[bool]] = never_owed,
    ) -> None:
        """`owe`: may what did not arrive in these partitions, whose shard is down, be sent later?"""
        self.traps = work.traps
        self._frontier = frontier
        self._work = work
        self._crawls = crawls
        self.router = router
        self._content = content
        self._runs = runs
        self._introductions = introductions
        self._owe = owe

    async def route(self, group: Sequence[Committable]) -> list[list[Candidate] | None]:
        """Add links, as far as their pages' domains may introduce others and the engine has room; the rest stays in
        `left`. Returns the links left for each page's ack, or None where its content failed.
        """
        await self._judge([outcome for outcome in group if outcome.left is None])
        pages = [outcome for outcome in group if outcome.error is None]
        while pages:  # again where what a domain paid for was known already
            refunded = await self._release(pages)
            pages = [outcome for outcome in pages if outcome.left and outcome.claim.domain in refunded]
        return [outcome.own if outcome.error is None else None for outcome in group]

    async def _judge(self, group: Sequence[Committable]) -> None:
        """Turn the links of pages into candidates, once."""
        await self._open_scope([outcome for outcome in group if not outcome.claim.run])
        of_runs = [outcome for outcome in group if outcome.claim.run]
        if of_runs:
            await self._open_scopes_of_runs(of_runs)
        for number, outcome in enumerate(group, 1):
            if outcome.claim.run:
                await self._know(outcome.claim.run)
            candidates = self._content.attempt(outcome, self._candidates, outcome) if outcome.error is None else None
            if candidates is not None:
                if outcome.claim.is_given_sitemap:
                    await self._open_for_seeds(outcome, candidates)
                queue = outcome.claim.queue
                run = outcome.claim.run  # requisites of its pages are of the crawl itself
                own = [one for one in candidates if one.queue == queue and one.run == run]
                others = [one for one in candidates if one.queue != queue or one.run != run]
                outcome.own, outcome.left = own[:ACK_ITEMS_MAX], own[ACK_ITEMS_MAX:] + others
            if number % PAGES_BEFORE_YIELD == 0:
                await asyncio.sleep(0)

    async def _release(self, pages: Sequence[Committable]) -> set[str]:
        """One round; the domains that got something back for URLs that were known."""
        now_ms = monotonic_ms()
        away: defaultdict[int, list[Candidate]] = defaultdict(list)
        payers: dict[_What, str] = {}
        granted = []
        for number, outcome in enumerate(pages, 1):
            granted.append(self._grant(outcome, away, payers, now_ms))
            if number % PAGES_BEFORE_YIELD == 0:
                await asyncio.sleep(0)
        if any(outcome.claim.run for outcome in pages):
            await self._touch(pages, away)
        known, refused = await self._add({partition: found for partition, found in away.items() if found})
        if refused:
            for outcome, some in zip(pages, granted, strict=True):
                back = [candidate for candidate in some if candidate.partition in refused]
                outcome.left = back + (outcome.left or [])
        refunds: Counter[str] = Counter()
        for candidate in known:
            refunds[payers[_what(candidate)]] += cost(candidate.url)
        for candidate in chain.from_iterable(refused.values()):
            self._refund(payers[_what(candidate)], cost(candidate.url), now_ms)
        for domain, refund in refunds.items():
            self._refund(domain, refund, now_ms)
        return {*refunds} - {NOBODY}

    def _refund(self, domain: str, paid: int, now_ms: int) -> None:
        if domain != NOBODY:
            self._introductions.spend(domain, -paid, now_ms)

    def _grant(
        self, outcome: Committable, away: dict[int, list[Candidate]], payers: dict["_What", str], now_ms: int
    ) -> Sequence[Candidate]:
        """Take out of `left` what may be added now. What other pages of the group have is added once, and paid once.

        Links to the page's own queue, which stand first, cost nothing; but where nothing of a full engine can move to
        disk, these wait as well.
        """
        is_full = self._work.counters.is_engine_full
        if is_full and not self._work.counters.can_spill:
            outcome.left, outcome.own = [*outcome.own, *(outcome.left or ())], []
            return ()
        domain, queue, left = outcome.claim.domain, outcome.claim.queue, outcome.left or []
        room = before = self._introductions.room(domain, now_ms, is_full=is_full)
        count = len(left)
        for number, candidate in enumerate(left):
            what = _what(candidate)
            if what in payers:
                continue
            is_own = candidate.queue == queue
            if not is_own:
                if room <= 0:
                    count = number
                    break
                room -= cost(candidate.url)
            payers[what] = NOBODY if is_own else domain
            away[candidate.partition].append(candidate)
        if room < before:
            self._introductions.spend(domain, int(before - room), now_ms)
        outcome.left = left[count:]
        return left[:count]

    def _candidates(self, outcome: Committable) -> list[Candidate]:
        claim, page = outcome.claim, outcome.page
        if claim.label == REQUISITE:
            return self._of_requisite(outcome)
        router = self._runs.router_of(claim.run) if claim.run else self.router
        if router is None:
            return []  # its run has ended
        outcome.scope_version = self.router.version
        is_read = outcome.withheld is None and (outcome.response.status == 200 or outcome.original is not None)
        digest = outcome.digest if is_read else ""
        led_to = (*page.links, outcome.redirect_to) if outcome.redirect_to else page.links
        body = outcome.response.body if digest else b""
        learned = self.traps.learn(claim, () if claim.label == SITEMAP else led_to, digest, body)
        links, followed = page.links, outcome.handled.followed
        if page.sitemaps:
            links, followed = with_sitemaps(links, followed, page.sitemaps)
        found = router.links(claim, links, outcome.refused, learned, digest, followed) if links or followed else []
        if outcome.redirect_to:
            target = router.redirect(claim, outcome.redirect_to, outcome.response.status, outcome.refused, learned)
            if target is not None:
                found.append(target)
        if page.requisites:
            found += self._requisites(outcome)
        url_lines.links_judged(outcome, found)
        return found

    def _requisites(self, outcome: Committable) -> list[Candidate]:
        urls = [one.url for one in outcome.page.requisites]
        return self.router.requisites(outcome.claim, urls, outcome.refused)

    def _of_requisite(self, outcome: Committable) -> list[Candidate]:
        """Where it leads: a style sheet, and a page in a frame, to what it needs itself, and a redirect to its target.
        The links of such a page are not followed, unless a link leads to its URL as a page.
        """
        outcome.scope_version = self.router.version
        found = self._requisites(outcome)
        if outcome.redirect_to:
            status = outcome.response.status
            target = self.router.redirect(outcome.claim, outcome.redirect_to, status, outcome.refused)
            found += [target] if target is not None else []
        url_lines.links_judged(outcome, found)
        return found

    async def _open_scope(self, group: Sequence[Committable]) -> None:
        """Add to the scope what the answers of seeds open, as a redirect within their site does.

        A seed that is out of scope here was added a moment ago: the engine has its root, this instance not yet.
        """
        seeds = [outcome for outcome in group if outcome.claim.seed]
        if any(self._content.attempt(outcome, self._is_beyond, outcome.claim) for outcome in seeds):
            self.router.follow(*await until_answered(self._crawls.shared))
        roots = {root for outcome in seeds if (root := self._opened_by(outcome))}
        if roots:
            await until_answered(partial(self._crawls.add_roots, roots))
            self.router.scope = self.router.scope.with_roots(roots)

    async def _open_scopes_of_runs(self, group: Sequence[Committable]) -> None:
        """The same for runs. Whatever was claimed of a run is in its scope: where it seems not to be, another session
        has just opened it.
        """
        await until_answered(partial(self._runs.learn, {outcome.claim.run for outcome in group}))
        for outcome in group:
            claim = outcome.claim
            await self._know(claim.run)
            if self._content.attempt(outcome, self._is_beyond, claim):
                await until_answered(partial(self._runs.learn_again, claim.run))
                await self._know(claim.run)
            if claim.seed and (root := self._opened_by(outcome)):
                await until_answered(partial(self._runs.open, claim.run, (root,)))

    async def _open_for_seeds(self, outcome: Committable, candidates: Sequence[Candidate]) -> None:
        """Each page that a run's sitemap names opens the scope, as the other seeds of the run do."""
        if roots := self._content.attempt(outcome, self._roots_of_seeds, outcome, candidates):
            await until_answered(partial(self._runs.open, outcome.claim.run, roots))

    def _roots_of_seeds(self, outcome: Committable, candidates: Sequence[Candidate]) -> list[str]:
        seeds, router = [one.url for one in candidates if one.seed], self._runs.router_of(outcome.claim.run)
        outcome.named = len(seeds)
        return [] if router is None else sorted({*map(router.scope.seed_root, seeds)} - router.scope.roots)

    async def _know(self, run: str) -> None:
        """It is known then, until something else is awaited: an engine that restarts has all runs forgotten."""
        while not self._runs.is_known(run):
            await until_answered(partial(self._runs.learn, {run}))

    async def _touch(self, pages: Sequence[Committable], away: dict[int, list[Candidate]]) -> None:
        """Note the partitions that are to get URLs of runs. Those of runs that have ended are dropped."""
        partitions: defaultdict[str, set[int]] = defaultdict(set)
        for some in (*(outcome.own for outcome in pages), *away.values()):
            for candidate in some:
                if candidate.run:
                    partitions[candidate.run].add(candidate.partition)
        ended = await until_answered(partial(self._runs.touch_all, partitions))
        for partition, found in away.items():
            away[partition] = [candidate for candidate in found if candidate.run not in ended]
        for outcome in pages:
            outcome.own = [candidate for candidate in outcome.own if candidate.run not in ended]

    def _is_beyond(self, claim: Claim) -> bool:
        router = self._runs.router_of(claim.run)
        return router is not None and not router.scope.allows(claim.url)

    def _opened_by(self, outcome: Committable) -> str:
        """The root that the answer of a seed adds to the scope of its crawl or run; "" for none."""
        router = self._runs.router_of(outcome.claim.run)
        if router is None or outcome.error is not None:
            return ""
        answer = self._content.attempt(outcome, router.scope.answered, outcome.claim.url, outcome.redirect_to)
        if answer is None:
            return ""
        outcome.leads_away = answer.leads_away
        return answer.root

    async def _add(self, away: dict[int, list[Candidate]]) -> tuple[list[Candidate], dict[int, list[Candidate]]]:
        """Add until every partition has accepted its URLs or has no room for them: the acks of their pages wait for
        this. Returns those that were known already, and by partition those that were refused.
        """
        known, refused = list[Candidate](), dict[int, list[Candidate]]()
        while away:
            asked = away
            replies = await until_answered(partial(self._frontier.add, asked))
            away = {}
            for partition, candidates in asked.items():
                reply = replies[partition]
                if isinstance(reply, AddReply):
                    self.added(partition, candidates, reply.woken)
                    found = zip(candidates, reply.outcomes, strict=True)
                    known += [candidate for candidate, outcome in found if outcome is not AddOutcome.NEW]
                    continue
                log.warning("route.refused", extra={"partition": partition, "error": str(reply)})
                (refused if isinstance(reply, EngineFull) else away)[partition] = candidates
            if away and all(isinstance(replies[p], EngineDown) for p in away) and await self._owe(away):
                break
            if away:
                await asyncio.sleep(ENGINE_PAUSE_S)
        return known, refused

    def added(self, partition: int, candidates: Sequence[Candidate], woken: int) -> None:
        """These are in the frontier now."""
        for candidate in candidates:
            router = self._runs.router_of(candidate.run) if candidate.run else self.router
            if router is None:
                continue
            recent = router.recent
            recent.add(candidate.name, candidate.depth)
        if woken and self._work.held.is_open(partition):
            for user in {candidate.user for candidate in candidates}:
                self._work.due.hint(partition, user)


_What = tuple[str, int, str]


def _what(candidate: Candidate) -> _What:
    """By what a group adds a candidate once."""
    return candidate.name, candidate.depth, candidate.run
