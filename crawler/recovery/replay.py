"""The archive of a lost crawl replayed: where each archived page led is added again, and its commit with it.

Works on whole records of pages that the book knows; what belongs to the crawl is the router's matter. Must not know
where the book has its knowledge from.
"""

import asyncio
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import msgspec
from msgspec.structs import replace

from crawler.archive.folder import CrawlFolder
from crawler.archive.index_reader import find_url
from crawler.archive.repair import ArchivedResponse, ArchiveSize, Flaw, TakenOut, walk_responses
from crawler.archive.warc_reader import StoredResponse, completed, read_record
from crawler.crawl.reparse import Rereader
from crawler.errors import ArchiveError, EngineError
from crawler.frontier.bulk import BulkLookup, UrlState
from crawler.frontier.codec import unpack_request
from crawler.frontier.folders import Folders
from crawler.frontier.jobs import Jobs
from crawler.frontier.leases import Leases
from crawler.frontier.owner import Frontier
from crawler.frontier.record import Crawls
from crawler.frontier.restore import DoneUrl, Restoring
from crawler.frontier.runs import Runs
from crawler.frontier.seeds import Seeds
from crawler.model import Candidate, Claim, WarcLocation
from crawler.parsing.parse import ParseKilledError
from crawler.recovery.jobs import RestoredJobs
from crawler.recovery.page_book import KnownPage, Orphan, PageBook
from crawler.routing.router import Router, parent_of, with_sitemaps
from crawler.rules.progress import Meter

# What a rebuild sends to the frontier, in batches: URLs first, and then the commits of the pages that led to them.
#
# In this order a rebuild that is killed anywhere has forgotten nothing: the next one finds the page still to be done.

BATCH = 4_000  # URLs and commits; a megabyte or two on the wire


class Refill:
    """Gathers and sends. Every call raises EngineError when the engine does not take it."""

    def __init__(
        self,
        frontier: Frontier,
        restoring: Restoring,
        router: Router,
        runs: Runs,
        *,
        is_committed: Callable[[str], bool],
        may_be_sent: bool = False,
    ) -> None:
        """`is_committed` tells of a fingerprint whether its page is in the index: it will become done, not pending.

        `may_be_sent`: nobody knows what was sent of the requests that must not be repeated.
        """
        self._frontier = frontier
        self._restoring = restoring
        self._router = router
        self._runs = runs
        self._is_committed = is_committed
        self._may_be_sent = may_be_sent
        self._urls: dict[str, Candidate] = {}
        self._again: dict[str, tuple[Candidate, DoneUrl | None]] = {}
        self._done: list[DoneUrl] = []
        self.restored = 0

    async def add(self, candidates: Iterable[Candidate], done: DoneUrl | None = None) -> None:
        """Take in URLs and the commit of the page that led to them."""
        for candidate in candidates:
            known = self._urls.get(candidate.fingerprint)
            if known is None:
                self._urls[candidate.fingerprint] = candidate
            elif candidate.depth < known.depth:
                self._urls[candidate.fingerprint] = replace(candidate, visible_at=known.visible_at)
        if done is not None:
            self._done.append(done)
        if len(self._urls) + len(self._done) >= BATCH:
            await self.flush()

    async def again(self, candidate: Candidate, done: DoneUrl | None) -> None:
        """Take in a URL that is to be fetched although it was committed: by what the engine may know as `done`, or None
        if it is to be fetched only if the engine does not know it.
        """
        self._again[candidate.fingerprint] = candidate, done
        if len(self._again) >= BATCH:
            await self.flush()

    async def flush(self) -> None:
        """Send what was taken in."""
        urls = {fp: c for fp, c in self._urls.items() if not self._is_committed(fp)}
        urls |= {fp: candidate for fp, (candidate, _) in self._again.items()}
        if self._may_be_sent:
            urls = {fp: _doubted(candidate) for fp, candidate in urls.items()}
        reopened = [done for _, done in self._again.values() if done is not None]
        done, self._done = self._done, []
        self._urls, self._again = {}, {}
        by_partition: dict[int, list[Candidate]] = {}
        for candidate in urls.values():
            by_partition.setdefault(candidate.partition, []).append(candidate)
        await self._touch([*urls.values(), *done])
        await self.reopen(reopened)
        for reply in (await self._frontier.add(by_partition)).values():
            if isinstance(reply, EngineError):
                raise reply
        for candidate in urls.values():
            if not candidate.run:
                self._router.recent.add(candidate.name, candidate.depth)
        self.restored += await self._restoring.restore(done)

    async def reopen(self, urls: Sequence[DoneUrl]) -> None:
        """Let the engine forget those of these URLs that it knows as done."""
        by_partition: dict[int, list[str]] = {}
        for one in urls:
            by_partition.setdefault(one.partition, []).append(one.fingerprint)
        pending = await self._restoring.pending(by_partition)
        await self._restoring.reopen(one for one in urls if one.fingerprint not in pending)

    async def _touch(self, found: Iterable[Candidate | DoneUrl]) -> None:
        """Note where there are going to be URLs of runs."""
        partitions: defaultdict[str, set[int]] = defaultdict(set)
        for one in found:
            if one.run:
                partitions[one.run].add(one.partition)
        if partitions:
            await self._runs.touch_all(partitions)


def _doubted(candidate: Candidate) -> Candidate:
    """Its owner does not send it, unless it may be repeated and all of it is here."""
    request = candidate.request
    if request is None or (request.may_repeat and not request.is_withheld):
        return candidate
    return replace(candidate, request=replace(request, is_sent=True))


PULSE = 256  # records between two turns of the event loop
EXAMPLES_MAX = 20


class RebuildReport(msgspec.Struct, kw_only=True):
    """What was found, and what was not."""

    committed: int = 0  # URLs that the index knows
    restored: int = 0  # of them, those that the engine did not have as done
    records: int = 0
    seeds: int = 0
    forgotten: int = 0  # lines of the index of domains that the crawl has forgotten: left out
    mended: int = 0  # lines of the index that did not say where their record is
    lines_lost: int = 0  # damaged ones of journals, which were taken out
    journals_hurt: list[str] = msgspec.field(default_factory=list)  # those whose loss was accepted, and the first flaw
    of_jobs: RestoredJobs = msgspec.field(default_factory=RestoredJobs)
    orphans: int = 0  # records of pages that were never committed: fetched again, and where they led is not lost
    unplaced: int = 0  # the same, but nothing known leads to them
    unplaced_urls: list[str] = msgspec.field(default_factory=list)
    pruned: int = 0  # committed pages whose records were removed: where they led is not known
    elsewhere: int = 0  # committed pages whose records are in folders that were not given
    refetched: int = 0  # committed pages that can't be read again
    unreadable: Counter[str] = msgspec.field(default_factory=Counter)  # the same, by file of records or items
    hurt_files: set[str] = msgspec.field(default_factory=set)  # WARC files with damage
    taken_out: list[TakenOut] = msgspec.field(default_factory=list)  # of them, those that have none any more
    alone: list[str] = msgspec.field(default_factory=list)  # servers without a working replica
    flawed: int = 0
    flaws: list[str] = msgspec.field(default_factory=list)  # parts of files that can't be read, some of them

    def flaw(self, what: str) -> None:
        self.flawed += 1
        if len(self.flaws) < EXAMPLES_MAX:
            self.flaws.append(what)


class RebuildDeps(msgspec.Struct, frozen=True, kw_only=True):
    """The crawl's frontier, as a rebuild needs it, and the parser."""

    name: str
    frontier: Frontier
    restoring: Restoring
    states: BulkLookup
    crawls: Crawls
    leases: Leases
    seeds: Seeds
    folders: Folders
    jobs: Jobs
    router: Router
    runs: Runs
    rereader: Rereader


class Replay:
    """Reads the archive of all folders, in the order in which it was written: the frontier grows as it did then."""

    def __init__(
        self,
        deps: RebuildDeps,
        routers: Mapping[str, Router],
        refill: Refill,
        book: PageBook,
        report: RebuildReport,
        meter: Meter,
    ) -> None:
        """`routers`: of the crawl itself ("") and of each active run."""
        self._d = deps
        self._routers = routers
        self._refill = refill
        self._book = book
        self._report = report
        self._meter = meter

    async def run(self, folders: Sequence[CrawlFolder]) -> None:
        """Every whole record: pages that were committed first, then the others. Raises EngineError."""
        size = ArchiveSize(folders)
        self._meter.begin("reading archive", "record", size.total)
        for number, folder in enumerate(folders):
            for found in walk_responses(folder):
                if isinstance(found, Flaw):
                    self._report.flaw(f"{folder.root}/{found.file}: {found.reason}")
                    self._report.hurt_files.add(f"{folder.root}/{found.file}")
                    continue
                self._report.records += 1
                if self._report.records % PULSE == 0:
                    await asyncio.sleep(0)
                await self._record(folders, number, found)
                self._meter.reached(self._report.records, size.position(found.location))
        await self._refill.flush()
        await self._orphans(folders)

    async def reopen_unindexed(self, folders: Sequence[CrawlFolder]) -> None:
        """What is archived, known as done, and named by no line of the index, is forgotten by the engine. What leads to
        it adds it again. Raises EngineError.
        """
        partitions = range(self._d.router.record.partitions)
        logged = {entry.fingerprint for one in partitions for entry in await self._d.states.undrained(one)}
        found: list[DoneUrl] = []
        for folder in folders:
            for one in walk_responses(folder):
                if isinstance(one, Flaw):
                    continue
                url, run = one.stored.uri, self._book.run_at(one.location)
                router = self._routers.get(run)
                if router is None or self._d.router.scope.forgets(url):
                    continue
                fp = one.stored.fingerprint or router.fingerprints.of(url)
                if self._book.page(fp) is None and fp not in logged:  # whoever is next writes the log into an index
                    page = KnownPage(0, 0, one.stored.status, len(one.stored.payload), 0, run=run)
                    found.append(self.done(url, fp, page))
                if len(found) == BATCH:
                    await self._refill.reopen(found)
                    found = []
        await self._refill.reopen(found)

    async def withdraw(self) -> int:
        """Pages whose records were found, and that were pending all the same, become done; how many.

        Raises EngineError.
        """
        withdrawn, book, partitions = 0, self._book, self._d.router.record.partitions
        self._meter.begin("checking URLs", "partition", partitions)
        for partition in range(partitions):
            self._meter.reached(partition, partition)
            async for some in self._d.restoring.all_pending(partition):
                done = [
                    (found, self.done(found.url.url, fp, page))
                    for fp, found in some
                    if book.is_found(fp) and (page := book.page(fp)) is not None
                ]
                withdrawn += await self._d.restoring.withdraw(done)
        return withdrawn

    async def _record(self, folders: Sequence[CrawlFolder], folder: int, found: ArchivedResponse) -> None:
        url, run = found.stored.uri, self._book.run_at(found.location)
        if self._d.router.scope.forgets(url):
            return
        router = self._routers.get(run)
        if router is None:
            return  # the run has ended, and needs nothing more
        fp = found.stored.fingerprint or router.fingerprints.of(url)
        page = self._book.page(fp)
        if page is None:
            if not found.stored.is_revisit:  # else it led nowhere that its original does not lead
                self._book.add_orphan(fp, url, folder, found.location)
            return
        stored = self._original(folders, found) if found.stored.is_revisit else found.stored
        if stored is None:
            return
        seed = page.depth == 0 or self._book.is_seed(fp)
        label = page.label
        request = unpack_request(page.request) if page.request else None
        parent = parent_of(
            url, page.depth, page.redirects, seed=seed, number=page.seed_number, run=run, label=label, request=request
        )
        led = await self._read(parent, stored)
        if led is not None:
            children, lost = led
            if found.location.offset != page.offset:
                self._book.found_elsewhere(fp, found.location, found.stored.digest)
            is_found = self._book.found(fp, found.location)
            await self._refill.add(children, self.done(url, fp, page, lost) if is_found else None)

    def _original(self, folders: Sequence[CrawlFolder], found: ArchivedResponse) -> StoredResponse | None:
        """The page of a revisit record, with the body that is in another one; None where that can't be read."""
        reasons = list[str]()
        for folder in folders:
            for place in self._places_of_original(folder, found):
                try:
                    return completed(folder, found.stored, place)
                except ArchiveError as error:
                    reasons.append(str(error))
        self._report.flaw(f"{found.stored.uri}: {reasons[0] if reasons else 'nobody knows what it is unchanged from'}")
        return None

    def _places_of_original(self, folder: CrawlFolder, found: ArchivedResponse) -> Iterator[WarcLocation]:
        """Where the body of a revisit record may be: as its line has it, or where other bytes have moved it."""
        if (place := self._book.original_of(found.location)) is not None:
            yield place
        if found.stored.status:  # the record itself tells whose body it has
            for one in find_url(folder, found.stored.refers_to):
                if one.warc is not None and one.original is None and one.digest == found.stored.digest:
                    yield self._book.moved_to(one.fingerprint, one.digest) or one.warc

    async def _read(self, parent: Claim, stored: StoredResponse) -> tuple[list[Candidate], dict[str, int]] | None:
        """Where an archived page leads, and what is missing of it; None when it can't be parsed any more."""
        try:
            page = await self._d.rereader.read(parent.url, stored, label=parent.label)
        except ParseKilledError as error:
            self._report.flaw(f"{parent.url}: {error}")
            return None
        refused: Counter[str] = Counter()  # counted when it was crawled
        router = self._routers[parent.run]
        links, followed = with_sitemaps(page.links, (), page.sitemaps)
        found = router.links(parent, links, refused, followed=followed)
        found += self._routers[""].requisites(parent, page.requisites, refused)
        target = router.redirect(parent, page.redirect_to, stored.status, refused) if page.redirect_to else None
        return [*found, target] if target else found, page.lost

    def done(self, url: str, fp: str, page: KnownPage, lost: Mapping[str, int] | None = None) -> DoneUrl:
        """The commit of a page, for the engine. `lost`: what is missing of it, once it was read again."""
        known = ({page.lost: 1} if page.lost else {}) | dict(lost or {})
        domain, queue, partition = self._d.router.placement.of(url)
        return DoneUrl(
            fingerprint=fp, partition=partition, domain=domain, queue=queue, status=page.status,
            body_bytes=page.body_bytes, fetch_ms=page.fetch_ms, seed_number=page.seed_number, run=page.run,
            items=page.items, lost=known, url=url, told=page.totals,
        )  # fmt: skip

    # --- archived, and never committed ---

    async def _orphans(self, folders: Sequence[CrawlFolder]) -> None:
        """Their pages are fetched again and may lead elsewhere by then: what they led to once is added now.

        How deep they are is in the frontier as soon as something leads to them. That may be another of them, so
        this goes on for as long as it finds some.
        """
        placed = -1
        while placed:
            placed = 0
            for some in self._book.orphans():
                placed += await self._place(folders, some)
            await self._refill.flush()
            self._report.orphans += placed
        for some in self._book.orphans():
            await self._count_unplaced(some)

    async def _place(self, folders: Sequence[CrawlFolder], some: Sequence[Orphan]) -> int:
        pending = await self._d.restoring.pending(self._by_partition(some))
        found = [orphan for orphan in some if orphan.fingerprint in pending]
        for orphan in found:
            record = pending[orphan.fingerprint]
            self._book.drop_orphan(orphan)
            try:
                stored = read_record(folders[orphan.folder], orphan.location)
            except ArchiveError as error:
                self._report.flaw(str(error))
                continue
            parent = parent_of(
                orphan.url,
                record.depth,
                record.redirects,
                seed=bool(record.seed),
                run=record.run,
                label=record.label,
                request=record.request,
            )
            led = await self._read(parent, stored)
            await self._refill.add(led[0] if led else ())
        return len(found)

    async def _count_unplaced(self, some: Sequence[Orphan]) -> None:
        """Of those that are left, some are committed in a folder that was rebuilt before; the others are told."""
        states = await self._d.states.of(self._by_partition(some))
        unknown = [orphan.url for orphan in some if states[orphan.fingerprint] is UrlState.UNSEEN]
        self._report.unplaced += len(unknown)
        self._report.unplaced_urls += unknown[: EXAMPLES_MAX - len(self._report.unplaced_urls)]

    def _by_partition(self, some: Sequence[Orphan]) -> dict[int, list[str]]:
        wanted: dict[int, list[str]] = {}
        for orphan in some:
            wanted.setdefault(self._d.router.placement.of(orphan.url)[2], []).append(orphan.fingerprint)
        return wanted
