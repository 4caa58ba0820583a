"""Step 8, route: the links of a group of pages are added to their partitions before the pages are acked."""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Sequence
from functools import partial

from crawler.frontier.crawl_record import Crawls
from crawler.frontier.frontier import Frontier
from crawler.frontier.messages import AddReply
from crawler.membership.held_partitions import HeldPartitions
from crawler.model import Candidate
from crawler.pipeline import url_lines
from crawler.pipeline.due_partitions import DuePartitions
from crawler.pipeline.internal_errors import ContentSteps
from crawler.pipeline.outcome import Committable
from crawler.pipeline.router import Router, link_name
from crawler.pipeline.run_book import RunBook
from crawler.pipeline.trap_memory import TrapMemory
from crawler.runtime.clock import ENGINE_PAUSE_S
from crawler.runtime.tasks import retry_until_answered

log = logging.getLogger(__name__)

PAGES_BEFORE_YIELD = 32  # pages whose links are judged before the event loop runs: 2 to 4 ms

ACK_ITEMS_MAX = 128  # links that one ack may add; more go through add

until_answered = partial(retry_until_answered, event="route.engine_error")


class RouteStage:
    """Adds links to other partitions; links to the page's own partition are left to its ack."""

    def __init__(
        self,
        frontier: Frontier,
        crawls: Crawls,
        router: Router,
        held: HeldPartitions,
        due: DuePartitions,
        traps: TrapMemory,
        content: ContentSteps,
        runs: RunBook,
    ) -> None:
        self.traps = traps
        self._frontier = frontier
        self._crawls = crawls
        self.router = router
        self._held = held
        self._due = due
        self._content = content
        self._runs = runs

    async def route(self, group: Sequence[Committable]) -> list[list[Candidate] | None]:
        """Add links of other partitions; per page the links left for its ack, or None where its content failed."""
        await self._open_scope([outcome for outcome in group if not outcome.claim.run])
        of_runs = [outcome for outcome in group if outcome.claim.run]
        if of_runs:
            await self._open_scopes_of_runs(of_runs)
        own: list[list[Candidate] | None] = []
        away: defaultdict[int, list[Candidate]] = defaultdict(list)
        taken: set[tuple[str, int, int | None, str]] = set()
        for number, outcome in enumerate(group, 1):
            candidates = self._content.attempt(outcome, self._candidates, outcome) if outcome.error is None else None
            if candidates is None:
                own.append(None)
                continue
            mine: list[Candidate] = []
            for candidate in candidates:
                if candidate.partition == outcome.claim.partition and len(mine) < ACK_ITEMS_MAX:
                    mine.append(candidate)  # even if other pages of the group have it: their acks may be refused
                elif (what := _what(candidate)) not in taken:
                    taken.add(what)
                    away[candidate.partition].append(candidate)
            own.append(mine)
            if number % PAGES_BEFORE_YIELD == 0:
                await asyncio.sleep(0)
        if of_runs:
            own = await self._touch(own, away)
        await self._add({partition: found for partition, found in away.items() if found})
        return own

    def _candidates(self, outcome: Committable) -> list[Candidate]:
        claim, page = outcome.claim, outcome.page
        router = self._runs.router_of(claim.run) if claim.run else self.router
        if router is None:
            return []  # its run has ended
        outcome.scope_version = self.router.version
        digest = outcome.digest if outcome.response.status == 200 else ""
        led_to = (*page.links, outcome.redirect_to) if outcome.redirect_to else page.links
        learned = self.traps.learn(claim, led_to, digest)
        followed = outcome.handled.followed
        found = router.links(claim, page.links, outcome.refused, learned, digest, followed) if page.links else []
        if outcome.redirect_to:
            target = router.redirect(claim, outcome.redirect_to, outcome.refused, learned)
            if target is not None:
                found.append(target)
        url_lines.links_judged(outcome, found)
        return found

    async def _open_scope(self, group: Sequence[Committable]) -> None:
        """Add the targets of redirected seeds to the scope, since the seeds are in it.

        A seed that is out of scope here was added a moment ago: the engine has its root, this instance not yet.
        """
        seeds = [outcome for outcome in group if outcome.claim.seed]
        if any(self._content.attempt(outcome, self._root_beyond, outcome.claim.url) for outcome in seeds):
            self.router.follow(*await until_answered(self._crawls.shared))
        targets = [outcome for outcome in seeds if outcome.redirect_to and outcome.error is None]
        roots = {root for o in targets if (root := self._content.attempt(o, self._root_beyond, o.redirect_to))}
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
            if self._content.attempt(outcome, self._root_beyond, claim.url, claim.run):
                await until_answered(partial(self._runs.learn_again, claim.run))
            if claim.seed and outcome.redirect_to and outcome.error is None:
                root = self._content.attempt(outcome, self._root_beyond, outcome.redirect_to, claim.run)
                if root:
                    await until_answered(partial(self._runs.open, claim.run, root))

    async def _touch(
        self, own: Sequence[list[Candidate] | None], away: dict[int, list[Candidate]]
    ) -> list[list[Candidate] | None]:
        """Note the partitions that are to get URLs of runs. Those of runs that have ended are dropped; what is left of
        `own`.
        """
        partitions: defaultdict[str, set[int]] = defaultdict(set)
        for some in (*own, *away.values()):
            for candidate in some or ():
                if candidate.run:
                    partitions[candidate.run].add(candidate.partition)
        ended = await until_answered(partial(self._runs.touch_all, partitions))
        for partition, found in away.items():
            away[partition] = [candidate for candidate in found if candidate.run not in ended]
        return [mine and [candidate for candidate in mine if candidate.run not in ended] for mine in own]

    def _root_beyond(self, url: str, run: str = "") -> str:
        """The root that would take a URL into the scope; "" when the URL is in scope."""
        router = self._runs.router_of(run) if run else self.router
        if router is None:
            return ""
        scope = router.scope
        return "" if scope.allows(url) else scope.root_of(url)

    async def _add(self, away: dict[int, list[Candidate]]) -> None:
        """Add until every partition has accepted its URLs: the acks of their pages wait for this."""
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
        """These are in the frontier now."""
        for candidate in candidates:
            router = self._runs.router_of(candidate.run) if candidate.run else self.router
            if router is None:
                continue
            recent = router.recent
            recent.add(candidate.url, candidate.depth)
            if candidate.linked_from is not None:
                recent.add(link_name(candidate.linked_from, candidate.domain), 0)
        if woken and self._held.is_open(partition):
            for user in {candidate.user for candidate in candidates}:
                self._due.hint(partition, user)


def _what(candidate: Candidate) -> tuple[str, int, int | None, str]:
    """By what a group adds a candidate once."""
    return candidate.url, candidate.depth, candidate.linked_from, candidate.run
