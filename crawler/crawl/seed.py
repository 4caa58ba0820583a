"""Stage zero: URLs that people give enter the crawl, each counted as new, seen, out of scope or invalid.

No page leads to a seed, so each is in the folder's journal before the engine has it.
"""

import asyncio
import contextlib
import time
from collections import Counter, deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence

import msgspec
from msgspec.structs import replace

from crawler.archive.journals import SeedJournal, SeedLine
from crawler.content.html import redirect_target
from crawler.content.sitemap import NO_SITEMAP, Sitemap, SitemapUrl, parse_sitemap
from crawler.crawl.url_input import INVALID_KEPT_MAX, GivenUrl, SeedReport, url_of
from crawler.errors import EngineDown, EngineError, InvalidUrl, NothingFetchedError, UsageError
from crawler.frontier.bulk import BulkLookup, UrlState
from crawler.frontier.dead_letters import DeadLetters
from crawler.frontier.messages import AddReply
from crawler.frontier.owner import Frontier
from crawler.frontier.record import Crawls
from crawler.frontier.seeds import Seeds
from crawler.model import OURS, REDIRECTS, AddOutcome, Candidate, FailureKind, FetchResult, Followed, Response
from crawler.rules.challenges import sentence_of
from crawler.rules.urls import host_of, registrable_domain
from crawler.runtime.process import wall_s
from crawler.terminal.text import counted, failure_text, warn
from crawler.web.fetcher import Fetcher
from crawler.worker.borrowed_slots import COMMAND_PATIENCE_MS, SlotBorrower
from crawler.worker.router import Router, parent_of

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
        while engine.is_cluster:
            is_safe = await engine.written(asked) == asked
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
        opened = frozenset(scope.seed_root(url) for url in urls) - scope.roots
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
        return await self._books.states.of(self._router.record.run, wanted)

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
            run=self._router.record.run,
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


# Reads sitemaps that people name, on the clock of their host: an index leads to further ones, two levels deep.

DEPTH_MAX = 2  # an index of indexes; the protocol knows one level, sites have two
SITEMAPS_MAX = 10_000  # of one index, each a request on its host's clock: nearly three hours at one a second
REDIRECTS_MAX = 5
COMPLAINTS_MAX = 10
OWN_WAIT_MS = 1_000  # at least, until what failed of our own is tried again
BODY_BYTES_MAX = 50 * 1024 * 1024  # the protocol's own limit


class FoundUrls(msgspec.Struct, frozen=True):
    """The URLs of one sitemap, and which one it was."""

    where: str
    urls: list[SitemapUrl]


class SitemapReader:
    """`foreign` counts URLs of other domains: no sitemap speaks for those. The domain is that of the URL given, or that
    it redirects to.
    """

    def __init__(self, fetcher: Fetcher, slot_borrower: SlotBorrower, *, is_patient: bool = False) -> None:
        """`is_patient`: wait while a proxy, or our own network, does not work."""
        self._fetcher = fetcher
        self._slot_borrower = slot_borrower
        self._is_patient = is_patient
        self.foreign = 0
        self._left_out = 0  # sitemaps beyond SITEMAPS_MAX
        self._missing: list[str] = []
        self._odd: list[str] = []
        self._domains: set[str] = set()

    async def read(self, url: str) -> AsyncIterator[FoundUrls]:
        """The sitemap at `url` and those that it names. Raises UsageError, NothingFetchedError for the first only."""
        try:
            first = url_of(url)
        except InvalidUrl as error:
            raise UsageError(f"--sitemap: {error}") from None
        waiting, known = deque([(first, 0)]), {first}
        self._domains.add(registrable_domain(host_of(first)))
        while waiting:
            current, level = waiting.popleft()
            sitemap = await self._fetched(current, is_first=current == first)
            yield FoundUrls(f"sitemap {current}", self._own_entries(sitemap.urls))
            further = self._own(sitemap.sitemaps) if level < DEPTH_MAX else []
            for loc in further:
                if loc in known:
                    continue
                if len(known) > SITEMAPS_MAX:
                    self._left_out += 1
                    continue
                known.add(loc)
                waiting.append((loc, level + 1))

    def missing(self, url: str) -> list[str]:
        """Lines on what was not read, the first of them, and how many more there are."""
        said = _first(self._missing)
        if self._left_out:
            said.append(
                f"{self._left_out} sitemaps named by {url} were not read: only {SITEMAPS_MAX} are read of one index; "
                "give the others with --sitemap"
            )
        return said

    def oddities(self) -> list[str]:
        """Lines on sitemaps that were read leniently, the first of them, and how many more there are."""
        return _first(self._odd)

    def _own_entries(self, entries: Sequence[SitemapUrl]) -> list[SitemapUrl]:
        own = set(self._own([entry.loc for entry in entries]))
        return [entry for entry in entries if entry.loc in own]

    def _own(self, urls: Sequence[str]) -> list[str]:
        own = [url for url in urls if registrable_domain(host_of(url)) in self._domains]
        self.foreign += len(urls) - len(own)
        return own

    async def _fetched(self, url: str, *, is_first: bool) -> Sitemap:
        """What a URL leads to, after redirects; an empty one for a further sitemap that can't be had."""
        target = url
        for _ in range(REDIRECTS_MAX + 1):
            result = await self._polite(target)
            response = result.response
            if response is not None and response.status in REDIRECTS:
                with contextlib.suppress(InvalidUrl):
                    target = redirect_target(target, response.header("location")) or ""
                if target:
                    continue
            if response is not None and response.status == 200 and not result.challenge:
                sitemap = parse_sitemap(response.body, target)
                if is_first and sitemap.flaw == NO_SITEMAP:
                    raise UsageError(f"{url} is not a sitemap; seeds need no option: crawler seed {url}")
                if is_first:
                    self._domains.add(registrable_domain(host_of(target)))
                self._judge(url, sitemap, response)
                return sitemap
            break
        if is_first:
            raise NothingFetchedError(f"can't fetch the sitemap {url}: {_reason(result)}")
        self._missing.append(f"{url}: not read: {_reason(result)}")
        return Sitemap()

    def _judge(self, url: str, sitemap: Sitemap, response: Response) -> None:
        """Note what is wrong with a sitemap, or with how it came."""
        cut = f"its transfer was cut off ({response.truncated})" if response.truncated else response.decode_error
        read = counted(len(sitemap.urls) + len(sitemap.sitemaps), "URL was read", "URLs were read")
        if missing := cut or sitemap.flaw:
            self._missing.append(f"{url}: {missing}; {read}")
        if sitemap.oddity:
            self._odd.append(f"{url}: {sitemap.oddity}; {read}")
        if sitemap.left_out:
            left_out = counted(sitemap.left_out, "entry", "entries")
            self._odd.append(f"{url}: {left_out} without a usable URL left out; {read}")
        if sitemap.alternates:
            links = counted(sitemap.alternates, "link to another language", "links to other languages")
            self._odd.append(
                f"{url}: {links} (hreflang) not read: their own entries, or their pages, name them; {read}"
            )

    async def _polite(self, url: str) -> FetchResult:
        while True:
            async with self._slot_borrower.borrow(url, patience_ms=COMMAND_PATIENCE_MS) as granted:
                if not granted:
                    raise NothingFetchedError(f"no turn at {host_of(url)} within 30 s: its domain is busy, try again")
                result = await self._fetcher.fetch(url, body_bytes_max=BODY_BYTES_MAX)
            if not self._is_patient or result.failure is None or result.failure.kind not in OURS:
                return result
            await asyncio.sleep(max(self._fetcher.own_wait_ms(url), OWN_WAIT_MS) / 1000)


def _first(lines: Sequence[str]) -> list[str]:
    more = len(lines) - COMPLAINTS_MAX
    return [*lines[:COMPLAINTS_MAX], *([f"the same of {counted(more, 'more sitemap')}"] if more > 0 else [])]


def _reason(result: FetchResult) -> str:
    if result.challenge:
        return sentence_of(result.challenge)
    if result.response is not None:
        return f"status {result.response.status}"
    assert result.failure is not None
    return failure_text(result.failure.kind, result.failure.detail)
