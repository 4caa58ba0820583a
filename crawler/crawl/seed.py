"""Stage zero: URLs that people give enter the crawl, each counted as new, seen, out of scope or invalid.

No page leads to a seed, so each is in the folder's journal before the engine has it.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence

import msgspec
from msgspec.structs import replace

from crawler.archive.seed_journal import SeedJournal, SeedLine
from crawler.crawl.url_input import INVALID_KEPT_MAX, GivenUrl, SeedReport
from crawler.errors import EngineDown, EngineError
from crawler.frontier.bulk import BulkLookup, UrlState
from crawler.frontier.dead_letters import DeadLetters
from crawler.frontier.messages import AddReply
from crawler.frontier.owner import Frontier
from crawler.frontier.record import Crawls
from crawler.frontier.seeds import Seeds
from crawler.model import AddOutcome, Candidate, FailureKind, Followed
from crawler.routing.router import Router, parent_of
from crawler.runtime.clocks import wall_s
from crawler.terminal.output import warn

BATCH = 10_000  # over a thousand partitions: a call for some URLs costs little more than one for two
# A page that ended processes, and what may have been served.
NOT_AGAIN = frozenset({FailureKind.POISON_URL, FailureKind.OUTCOME_UNKNOWN})
SHARD_PATIENCE_S, CONFIRM_PAUSE_S = 60.0, 0.1  # until a shard that failed has another primary
SEEDS_KEPT_MAX = 1_000  # of a report, to see at the end what became of them

# Where a committed page leads: its links and the target of its redirect; None if its record is not here.
LeadsTo = Callable[[str], Awaitable[tuple[Sequence[str], str] | None]]


class SeedBooks(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of seeds: their URLs, what became of them, and what the crawl folder has of them."""

    states: BulkLookup
    seeds: Seeds
    letters: DeadLetters
    journal: SeedJournal


class Seeder:
    """Adds seeds. Each seed's domain (host, prefix) joins the crawl's scope."""

    def __init__(
        self,
        frontier: Frontier,
        crawls: Crawls,
        router: Router,
        books: SeedBooks,
        *,
        leads_to: LeadsTo,
        note_folder: Callable[[], Awaitable[None]],
        depth: int = 0,
        priority: float | None = None,
        patience_s: float = SHARD_PATIENCE_S,
    ) -> None:
        """`note_folder`: tell the engine which folder's journal has the seeds. `patience_s`: with a silent engine, at
        each batch.
        """
        self._note_folder = note_folder
        self._has_noted = False
        self._leads_to = leads_to
        self._patience_s = patience_s
        self._frontier = frontier
        self._crawls = crawls
        self._router = router
        self._books = books
        self._depth = depth
        self._priority = priority
        self.report = SeedReport()

    async def add_all(self, given: Iterable[GivenUrl]) -> SeedReport:
        """Add in batches; repeating is safe. Raises EngineError when the engine does not take them, ConflictError when
        it lost the crawl, ArchiveError when the journal can't be written.
        """
        batch: list[tuple[str, GivenUrl]] = []
        for one in given:
            url = self.report.canonical(one)
            if url is not None:
                batch.append((url, one))
            if len(batch) >= BATCH:
                await self._add(batch)
                batch = []
        await self._add(batch)
        return self.report

    async def _add(self, batch: Sequence[tuple[str, GivenUrl]]) -> None:
        """Raises EngineDown when the engine, or a shard of it, is silent for too long: one silence ends nothing."""
        if not batch:
            return
        opened = self._opened([url for url, _ in batch])
        by_partition, given = self._candidates(batch)
        deadline_s, new, is_told = time.monotonic() + self._patience_s, set[str](), False
        while True:
            try:
                await self._enter(opened, by_partition, given, new)
            except EngineError as error:
                is_silent = isinstance(error, EngineDown) or self._frontier.engine.is_in_doubt  # or another one's now
                if not is_silent or time.monotonic() > deadline_s:
                    raise
                if not is_told:
                    warn(f"{error}; waiting for it")
                is_told = True
                await asyncio.sleep(CONFIRM_PAUSE_S)
            else:
                return

    async def _enter(
        self,
        opened: frozenset[str],
        by_partition: dict[int, list[Candidate]],
        given: Mapping[str, GivenUrl],
        new: set[str],
    ) -> None:
        """One try. `new`: what the engine did not have at an earlier one whose answer was lost: it may have it now."""
        await self._crawls.still(self._router.record)
        engine_run_id, before = self._frontier.engine.run_id, frozenset(new)
        states = await self._states_of(by_partition)
        unseen = [c for c in self._in_state(by_partition, states, UrlState.UNSEEN) if c.fingerprint not in new]
        await self._note(await self._numbered(by_partition, unseen), given, opened)
        new.update(c.fingerprint for c in unseen)
        replies = await self._added(opened, by_partition)
        await self._confirmed(opened, by_partition, engine_run_id)
        lowered = self._lowered(by_partition, replies)
        await self._note([replace(c, visible_at=0.0) for c in lowered if c.fingerprint not in new], given)
        await self._retry(self._in_state(by_partition, states, UrlState.DEAD))
        for known in (UrlState.COMMITTED, UrlState.ENDED):
            for one in self._in_state(by_partition, states, known):
                if one.fingerprint not in before:
                    await self._lead_on(one.url)
        self._count(by_partition, replies, before)

    async def _added(
        self, roots: frozenset[str], by_partition: Mapping[int, Sequence[Candidate]]
    ) -> dict[int, AddReply]:
        await self._crawls.add_roots(roots)
        replies = await self._frontier.add(by_partition, hints_us=True)
        errors = [reply for reply in replies.values() if isinstance(reply, EngineError)]
        if errors:
            raise errors[0]
        return {p: reply for p, reply in replies.items() if isinstance(reply, AddReply)}

    async def _confirmed(
        self, roots: frozenset[str], by_partition: Mapping[int, Sequence[Candidate]], engine_run_id: str
    ) -> None:
        """In a cluster, wait until replicas have what was added. It is added again when a shard has changed since: that
        may have lost it: no page leads to a seed. Raises EngineDown when a shard stays down.
        """
        engine, keys = self._frontier.engine, self._frontier.keys
        asked = {keys.crawl, *map(keys.meta, by_partition)}
        deadline_s = time.monotonic() + self._patience_s
        while True:
            is_safe = await engine.dependable(asked) == asked
            if engine.run_id != engine_run_id:
                engine_run_id = engine.run_id
                await self._added(roots, by_partition)
            elif is_safe:
                return
            elif time.monotonic() > deadline_s:
                raise EngineDown("no answer from a shard of the engine: repeat the command when it is there again")
            else:
                await asyncio.sleep(CONFIRM_PAUSE_S)

    async def _lead_on(self, url: str) -> None:
        """Add where a page leads that was committed when its site was not in the scope: a seed had redirected to it."""
        scope, known = self._router.scope, set[str]()
        while scope.was_led_to(url) and url not in known:
            known.add(url)
            found = await self._leads_to(url)
            if found is None:
                self.report.unread.append(url)
                return
            parent = parent_of(url, self._depth, 0, seed=True)
            by_partition: dict[int, list[Candidate]] = {}
            for candidate in self._router.links(parent, found[0], Counter()):
                by_partition.setdefault(candidate.partition, []).append(candidate)
            for reply in (await self._frontier.add(by_partition, hints_us=True)).values():
                if isinstance(reply, EngineError):
                    raise reply
            url = found[1]

    def _opened(self, urls: Sequence[str]) -> frozenset[str]:
        """Roots that the scope does not have yet; the router has them from here on."""
        scope = self._router.scope
        opened = frozenset(scope.seed_root(url) for url in urls if not scope.forgets(url)) - scope.roots
        self._router.scope = scope.with_roots(opened)
        return opened

    def _candidates(
        self, batch: Sequence[tuple[str, GivenUrl]]
    ) -> tuple[dict[int, list[Candidate]], dict[str, GivenUrl]]:
        """Those in scope, by partition, and by their fingerprints what was given."""
        by_partition, given = dict[int, list[Candidate]](), dict[str, GivenUrl]()
        now_s = wall_s()
        for url, one in batch:
            verdict = self._router.verdict(url, self._depth)
            if not verdict.allowed:
                self.report.out_of_scope += 1
                if len(self.report.out_of_scope_rules) < INVALID_KEPT_MAX:
                    self.report.out_of_scope_rules.append((url, verdict.rule))
                continue
            candidate = self._router.candidate(
                url, depth=self._depth, seed=True, priority=self._priority_of(one), signals=one.signals,
                followed=Followed(url, one.label, request=one.request),
            )  # fmt: skip
            given[candidate.fingerprint] = one
            if one.visible_at > now_s:
                candidate = replace(candidate, visible_at=one.visible_at)
            by_partition.setdefault(candidate.partition, []).append(candidate)
            if len(self.report.seeds) < SEEDS_KEPT_MAX:
                self.report.seeds.append(candidate)
        return by_partition, given

    def _priority_of(self, one: GivenUrl) -> float | None:
        return self._priority if one.priority is None else one.priority

    async def _states_of(self, by_partition: Mapping[int, Sequence[Candidate]]) -> dict[str, UrlState]:
        """What the engine knows of them: a crawl that is resumed with all its seeds does not note them again."""
        wanted = {partition: [c.fingerprint for c in mine] for partition, mine in by_partition.items()}
        return await self._books.states.of(wanted)

    @staticmethod
    def _in_state(
        by_partition: Mapping[int, Sequence[Candidate]], states: Mapping[str, UrlState], state: UrlState
    ) -> list[Candidate]:
        return [c for mine in by_partition.values() for c in mine if states[c.fingerprint] is state]

    async def _retry(self, failed: Iterable[Candidate]) -> None:
        """Put seeds that were given up back into their queues, but for those that wait for 'dead retry'."""
        wanted: dict[int, list[str]] = {}
        visible_at = dict[str, float]()
        for one in failed:
            wanted.setdefault(one.partition, []).append(one.fingerprint)
            visible_at[one.fingerprint] = one.visible_at
        if not wanted:
            return
        found = await self._books.letters.find_all(wanted)
        again = [one for one in found if one.letter.reason not in NOT_AGAIN]
        retried = await self._books.letters.requeue(again, visible_at)
        self.report.retried += retried
        self.report.seen -= retried

    async def _numbered(self, by_partition: dict[int, list[Candidate]], unseen: list[Candidate]) -> list[Candidate]:
        """New seeds with their numbers, also in the batch that is added."""
        numbers = await self._books.seeds.number([c.url for c in unseen])
        found = {c.fingerprint: replace(c, seed_number=n) for c, n in zip(unseen, numbers, strict=True)}
        for partition, mine in by_partition.items():
            by_partition[partition] = [found.get(c.fingerprint, c) for c in mine]
        return list(found.values())

    async def _note(self, seeds: Iterable[Candidate], given: Mapping[str, GivenUrl], roots: Iterable[str] = ()) -> None:
        lines = [SeedLine(root=root) for root in sorted(roots)]
        lines += [self._line(seed, given[seed.fingerprint]) for seed in seeds]
        if lines:
            await asyncio.to_thread(self._books.journal.append, lines)
            if not self._has_noted:
                await self._note_folder()
                self._has_noted = True

    def _line(self, seed: Candidate, given: GivenUrl) -> SeedLine:
        request = seed.request
        return SeedLine(
            url=seed.url,
            depth=seed.depth,
            priority=self._priority_of(given),
            sitemap_priority=given.signals.sitemap_priority,
            changed_at=given.signals.changed_at,
            label=seed.label,
            request=request.without_body() if request is not None and request.is_secret else request,
            number=seed.seed_number,
            visible_at=seed.visible_at,
        )

    @staticmethod
    def _lowered(by_partition: Mapping[int, Sequence[Candidate]], replies: Mapping[int, AddReply]) -> list[Candidate]:
        """Those that were known from further away."""
        found = ((one, c) for p, mine in by_partition.items() for one, c in zip(replies[p].outcomes, mine, strict=True))
        return [c for outcome, c in found if outcome is AddOutcome.LOWERED]

    def _count(
        self,
        by_partition: Mapping[int, Sequence[Candidate]],
        replies: Mapping[int, AddReply],
        new_before: frozenset[str],
    ) -> None:
        """Count what became of them. `new_before`: what an earlier try may have added counts as new."""
        for partition, mine in by_partition.items():
            outcomes = zip(replies[partition].outcomes, mine, strict=True)
            new = sum(outcome is AddOutcome.NEW or c.fingerprint in new_before for outcome, c in outcomes)
            self.report.new += new
            self.report.seen += len(mine) - new
