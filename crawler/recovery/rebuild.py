"""Recreates a crawl that the engine lost, from the seed journal, index and archive on disk.

    pruned page           seen and done, too; where it led is not known any more
    indexed page          seen and done, counted as its line has it; never fetched again
    followed by a handler added again with label and priority, as the page's item frame says; a label does not outlive a
                          redirect
    link, redirect        added again, from every archived page that the crawl knew, be its commit in the index or lost
                          with the engine; as deep as the page's line says, or its place in the frontier
    seed                  added again, from the journal
    dead letter, refusal  not known any more: tried again
    job                   added again, from the journal of jobs (recovery/page_book.py)
    of a run of a job     the same for a run that the engine has as active; others get a row in the history of their job

Idempotent, and may be killed anywhere: no folder is bound to the new crawl before all of them were read. Memory is
bounded by the recent-URL cache and the largest record. Must not know commands.
"""

import asyncio
import contextlib
import itertools
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Sequence
from functools import partial
from typing import Any, TypeVar

from msgspec.structs import replace

from crawler.archive.crawl_binding import bind
from crawler.archive.folder import CrawlFolder
from crawler.archive.index_reader import IndexReader, index_bytes, sessions_of
from crawler.archive.index_writer import change_lines
from crawler.archive.items import ItemFiles
from crawler.archive.job_journal import JobJournal
from crawler.archive.journals import Journal
from crawler.archive.prune_journal import PRUNE_LOCK, PRUNE_LOCK_TIMEOUT_S
from crawler.archive.repair import recover_open_files, take_damage_out, warc_names
from crawler.archive.seed_journal import SeedJournal, SeedLine
from crawler.archive.session_locks import is_abandoned
from crawler.crawl.admission import bound_of
from crawler.engine.server import Change
from crawler.errors import ArchiveError, EngineError
from crawler.frontier.codec import pack_request
from crawler.frontier.stats import lost_in, told_in
from crawler.model import Candidate, CommitEntry, Followed
from crawler.recovery.jobs import restore_jobs
from crawler.recovery.page_book import KnownPage, PageBook
from crawler.recovery.replay import PULSE, RebuildDeps, RebuildReport, Refill, Replay
from crawler.routing.router import parent_of
from crawler.rules.order import Signals
from crawler.rules.progress import SILENT, Meter
from crawler.rules.requests import redirected
from crawler.terminal.words import counted

ROOTS_MAX = 1_000  # of the scope, in one call
SEEDS_AT_ONCE = 1_000
NO_RECORD = "(no archive)"
PRUNED = "(pruned)"
DAMAGED = "damaged.jsonl"  # lines that were taken out of journals; in the folder of logs
AnyJournal = TypeVar("AnyJournal", SeedJournal, JobJournal)


class Rebuild:
    """One rebuild of one crawl, from all of its folders that were given.

    With `refetch`, committed pages that can't be read again are fetched again; without, they end the rebuild. So do
    damaged lines of journals, unless `accept_loss` takes them out.
    """

    def __init__(
        self,
        deps: RebuildDeps,
        folders: Sequence[CrawlFolder],
        *,
        refetch: bool = False,
        accept_loss: bool = False,
        meter: Meter = SILENT,
    ) -> None:
        self._d = deps
        self._folders = folders
        self._refetch = refetch
        self._accept_loss = accept_loss
        self._meter = meter
        self._report = RebuildReport()
        self._scope_version = 0  # the highest that a page was judged by
        self._has_items = False
        self._routers = {"": deps.router}  # of the crawl itself, and of each active run
        self._has_pruned = False
        self._changes: list[Change] = []  # of servers of the engine, since the rebuild began
        self._numbers: dict[int, int] = {}  # of the last commit that a partition had, by the lines of the index

    async def run(self) -> RebuildReport:
        """Read everything, then bind the folders to the crawl. Raises EngineError, also when a server of the engine was
        replaced meanwhile, and ArchiveError for what can't be read or written.
        """
        await self._confirm()  # the record: all that follows is added again if it is lost
        with contextlib.ExitStack() as stack:
            stack.enter_context(self._d.frontier.engine.restarts.listen(self._changes.append))
            for folder in self._folders:
                stack.enter_context(folder.exclusive(PRUNE_LOCK, PRUNE_LOCK_TIMEOUT_S))
                stack.enter_context(folder.reading())
            return await self._run()

    async def _run(self) -> RebuildReport:
        for folder in self._folders:
            await asyncio.to_thread(recover_open_files, folder, partial(is_abandoned, folder))
        self._check_journals()
        active = await self._d.runs.active()
        self._routers |= {run: self._d.router.of_run(record) for run, record in active.items()}
        await self._d.restoring.hold(self._d.router.record.partitions)
        with PageBook(self._folders[0].tmp) as book:
            refill = self._refill = Refill(
                self._d.frontier, self._d.restoring, self._d.router, self._d.runs,
                is_committed=lambda fp: book.page(fp) is not None, may_be_sent=True,
            )  # fmt: skip
            await self._read_seeds(book)
            await self._read_index(book)
            replay = Replay(self._d, self._routers, refill, book, self._report, self._meter)
            if self._refetch:  # also where lines are missing that nobody can miss: those of a torn tail
                await replay.reopen_unindexed(self._folders)
            await self._add_seeds()  # only now: they may be among what was forgotten
            await self._read_followed(book)
            await replay.run(self._folders)
            if self._has_pruned and not self._refetch:
                await self._read_pruned(book, replay)
            self._report.restored = refill.restored + await replay.withdraw()
            await self._settle_unreadable(book, replay)
            await self._check_servers()
            self._drop_lines(book)
            self._mend_places(book)
            self._take_damage_out()
            await self._d.crawls.count_from(self._scope_version)
            await self._d.leases.raise_sequences(self._numbers)  # else the engine seems to be set back
            record, _ = await self._d.crawls.shared()
            await self._d.crawls.mark_partitions(record.partitions)
            self._report.of_jobs = await restore_jobs(self._d.jobs, self._journals(JobJournal), book)
        for folder in self._folders:
            await self._d.folders.note(folder.crawl, str(folder.root.resolve()))
            bind(folder, bound_of(self._d.name, record))
        return self._report

    async def _confirm(self) -> None:
        """Wait for a replica of each server."""
        keys, record = self._d.crawls.keys, self._d.router.record
        every = [keys.crawl, *map(keys.meta, range(record.partitions))]
        self._report.alone = await self._d.frontier.engine.confirm(every)

    async def _check_servers(self) -> None:
        """A replica that took over lacks what its primary got last, and would look whole once it has the marks."""
        await self._confirm()
        if any(change.may_have_lost for change in self._changes):
            raise EngineError(
                "a server of the engine was replaced while the crawl was rebuilt, and may lack a part of it: run "
                "'crawler rebuild' again"
            )

    # --- journals ---

    def _journals(self, kind: type[AnyJournal]) -> list[AnyJournal]:
        begun_at = self._d.router.record.first_begun_at
        return [kind(folder, self._d.name, begun_at) for folder in self._folders]

    def _check_journals(self) -> None:
        """Nothing else has what a damaged line had. Raises ArchiveError, unless that is accepted."""
        journals: list[Journal[Any]] = [*self._journals(SeedJournal), *self._journals(JobJournal)]
        for folder, journal in zip([*self._folders] * 2, journals, strict=True):
            damaged = [str(what) for what in (*journal.damaged(), journal.missing()) if what]
            if damaged and not self._accept_loss:
                more = f", and {counted(len(damaged) - 1, 'more flaw')}" if len(damaged) > 1 else ""
                raise ArchiveError(
                    f"{journal.path}: {damaged[0]}{more}. Restore the file from a copy. Without one, "
                    "'crawler rebuild --accept-loss' goes on: name the seeds with it, and add jobs afterwards, to give "
                    "them again"
                )
            if damaged:
                self._report.journals_hurt.append(f"{journal.path}: {damaged[0]}")
                self._report.lines_lost += journal.drop_damaged(folder.log / DAMAGED)

    # --- seeds and scope ---

    def _seed_lines(self) -> Iterable[SeedLine]:
        for journal in self._journals(SeedJournal):
            yield from journal.read()

    async def _open(self, roots: Iterable[str]) -> None:
        """Let URLs under these roots in."""
        router = self._d.router
        opened = sorted(frozenset(roots) - router.scope.roots)
        for start in range(0, len(opened), ROOTS_MAX):
            await self._d.crawls.add_roots(opened[start : start + ROOTS_MAX])
        router.scope = router.scope.with_roots(opened)

    async def _read_seeds(self, book: PageBook) -> None:
        """Roots: what belongs to the crawl is decided by the scope as it was last. And which pages are seeds."""
        router = self._d.router
        roots = set[str]()
        forgotten = self._d.router.record.forgotten
        for line in self._seed_lines():
            if forgotten is not None and (forgotten.has_root(line.root) or (line.url and forgotten.has(line.url))):
                continue
            roots.add(line.root)
            if line.url:
                self._report.seeds += 1
                book.add_seed(router.fingerprints.of(line.url, line.request))
        await self._open(roots - {""})
        numbered = (
            (line.number, line.url)
            for line in self._seed_lines()
            if line.number and not (forgotten is not None and forgotten.has(line.url))
        )
        while some := dict(itertools.islice(numbered, SEEDS_AT_ONCE)):
            await self._d.seeds.restore(some)

    async def _add_seeds(self) -> None:
        router = self._d.router
        self._meter.begin("adding seeds", "seed", self._report.seeds)
        ours = (line for line in self._seed_lines() if line.url)
        for number, line in enumerate(ours):
            self._meter.reached(number, number)
            if router.verdict(line.url, line.depth).allowed:
                signals = Signals(sitemap_priority=line.sitemap_priority, changed_at=line.changed_at)
                seed = router.candidate(
                    line.url, depth=line.depth, seed=True, priority=line.priority, signals=signals,
                    seed_number=line.number, followed=Followed(line.url, line.label, request=line.request),
                )  # fmt: skip
                await self._refill.add([replace(seed, visible_at=line.visible_at)])
        await self._refill.flush()

    # --- index ---

    async def _entries(self, reader: IndexReader, *, pruned: bool = False) -> AsyncIterator[CommitEntry]:
        """All of one folder, so that others get their turn meanwhile."""
        self._meter.begin("reading index", "page", index_bytes(reader.folder))
        for number, entry in enumerate(reader.entries(pruned=pruned)):
            if number % PULSE == 0:
                self._meter.reached(number, reader.bytes_read)
                await asyncio.sleep(0)
            if self._d.router.scope.forgets(entry.url):
                self._report.forgotten += not pruned  # which are read more than once
            else:
                yield entry

    async def _read_index(self, book: PageBook) -> None:
        """Remember every committed page. The answers of seeds opened the scope, as the seeds did."""
        router, answers = self._d.router, list[tuple[str, str]]()
        for folder in self._folders:
            reader = IndexReader(folder, heard=self._note_number)
            async for entry in self._entries(reader, pruned=True):
                if entry.run:
                    book.add_to_run(entry)
                if entry.warc is not None and (entry.run or entry.original is not None):
                    book.add_of_run(entry.warc, entry)
                if entry.run not in self._routers:
                    continue
                self._has_items |= entry.items is not None
                self._has_pruned |= entry.pruned
                self._scope_version = max(self._scope_version, entry.scope_version)
                self._report.committed += book.add_page(entry.fingerprint, _page_of(entry))
                if not entry.run and self._is_seed(book, entry):
                    if entry.redirect_to:
                        request = redirected(entry.request, entry.status, entry.url, entry.redirect_to)
                        book.add_seed(router.fingerprints.of(entry.redirect_to, request))
                    if entry.redirect_to or router.record.scope.mode == "prefix":
                        answers.append((entry.url, entry.redirect_to))
            for missing in reader.missing:
                if missing.file.startswith(f"{folder.index.name}/"):  # records are looked for one by one
                    self._report.flaw(f"{folder.root}/{missing.file}: {missing.reason}")
        if self._report.flawed and not self._refetch:
            raise ArchiveError(
                f"the index has unreadable parts ({self._report.flaws[0]}), whose pages would be fetched "
                "again: restore the files and run this again, or add --refetch"
            )
        await self._open_by(book, answers)

    def _note_number(self, entry: CommitEntry) -> None:
        partition = self._d.router.placement.of(entry.url)[2]
        self._numbers[partition] = max(entry.sequence, self._numbers.get(partition, 0))

    async def _open_by(self, book: PageBook, answers: Sequence[tuple[str, str]]) -> None:
        """Open the scope as the answers of seeds did: (URL, target of its redirect). Each hop of a chain of redirects
        is known by the one before, and these may be in any order.
        """
        router = self._d.router
        while answers:
            scope, known, later = router.scope, set[str](), list[tuple[str, str]]()
            for url, target in answers:
                if scope.allows(url):
                    answer = scope.answered(url, target)
                    known.add(answer.root)
                    if answer.leads_away:
                        book.led_away(router.fingerprints.of(url))
                else:
                    later.append((url, target))
            await self._open(known - {""})
            answers = later if known else ()

    async def _read_pruned(self, book: PageBook, replay: Replay) -> None:
        """Pages whose records were removed are done, too; where they led is not known any more."""
        for folder in self._folders:
            async for entry in self._entries(IndexReader(folder), pruned=True):
                known = entry.pruned and book.page(entry.fingerprint) is not None
                if known and not book.is_found(entry.fingerprint):
                    book.found(entry.fingerprint)
                    self._report.pruned += 1
                    await self._refill.add((), replay.done(entry.url, entry.fingerprint, _page_of(entry)))
        await self._refill.flush()

    async def _read_followed(self, book: PageBook) -> None:
        """Where handlers led, whether there was a link or not, with labels and priorities: before the links, for who
        adds a URL first decides these.
        """
        if not self._has_items:
            return
        with contextlib.ExitStack() as stack:
            files = [stack.enter_context(ItemFiles(folder)) for folder in self._folders]
            for folder in self._folders:
                async for entry in self._entries(IndexReader(folder)):
                    if entry.items is not None and entry.run in self._routers:
                        await self._refill.add(self._followed(book, files, entry))
        await self._refill.flush()

    def _followed(self, book: PageBook, files: Sequence[ItemFiles], entry: CommitEntry) -> list[Candidate]:
        followed = _followed_in(files, entry)
        if followed is None:
            book.lost(entry.fingerprint)
            return []
        seed, number = self._is_seed(book, entry), entry.seed_number
        parent = parent_of(entry.url, entry.depth, entry.redirects, seed=seed, number=number, run=entry.run)
        return self._routers[entry.run].links(
            parent, [one.url for one in followed if one.is_plain], Counter(), followed=followed
        )

    def _is_seed(self, book: PageBook, entry: CommitEntry) -> bool:
        """Links are deeper than 0; what a seed redirects to is as deep as the seed."""
        return entry.depth == 0 or book.is_seed(entry.fingerprint)

    # --- committed, and not to be read again ---

    async def _settle_unreadable(self, book: PageBook, replay: Replay) -> None:
        """Where these pages led is not known: fetched once more they lead there again, and their first result stays.

        What another machine had committed and this one indexed is no loss: that machine's folder has the record, and
        its rebuild finds the page here with its depth.
        """
        here = frozenset[str]().union(*map(sessions_of, self._folders))
        for folder in self._folders if book.unfound else ():
            async for entry in self._entries(IndexReader(folder), pruned=True):
                is_lost = book.is_lost(entry.fingerprint)
                if book.named(entry.fingerprint):  # once, whatever folders have it
                    where = _file_of(entry, is_lost=is_lost)
                    await self._unreadable(book, replay, entry, where, is_ours=entry.session in here)
        await self._refill.flush()
        lost = self._report.unreadable
        if lost and not self._refetch:
            files = ", ".join(f"{name} ({pages:,})" for name, pages in lost.most_common(3))
            raise ArchiveError(
                f"{counted(lost.total(), 'committed page')} can't be read, so their links are unknown: {files}; "
                "restore the files and run this again, or add --refetch to have these pages fetched again"
            )
        self._report.refetched = lost.total()

    def _drop_lines(self, book: PageBook) -> None:
        """What is fetched again gets a line of its own, of which nothing is lost. By now the engine has its URL."""
        if not (self._refetch and (self._report.unreadable or self._report.flawed)):
            return
        here = frozenset[str]().union(*map(sessions_of, self._folders))

        def left(entry: CommitEntry) -> CommitEntry | None:
            has_files = entry.warc is not None or entry.items is not None
            is_ours = (has_files or entry.pruned) and entry.session in here
            return None if is_ours and book.is_named(entry.fingerprint) else entry

        for folder in self._folders:
            change_lines(folder, left, mends=True)

    def _mend_places(self, book: PageBook) -> None:
        """Lines whose record is elsewhere in a file, because bytes were put into it or cut out of it, get its place."""

        def mended(entry: CommitEntry) -> CommitEntry:
            if entry.original is not None and (original := book.moved_from(entry.original)) is not None:
                entry = entry.referring(original)
            place = book.moved_to(entry.fingerprint, entry.digest) if entry.warc is not None else None
            if place is None:
                return entry
            self._report.mended += 1
            return entry.placed(place, entry.items)

        if book.moved:
            for folder in self._folders:
                change_lines(folder, mended)

    def _take_damage_out(self) -> None:
        """By now the index names none of it."""
        for folder in self._folders:
            for name in warc_names(folder):
                if f"{folder.root}/{folder.warc.name}/{name}" in self._report.hurt_files:
                    taken = take_damage_out(folder, name, self._folders)
                    if taken is not None:
                        self._report.taken_out.append(taken)

    async def _unreadable(
        self, book: PageBook, replay: Replay, entry: CommitEntry, where: str, *, is_ours: bool
    ) -> None:
        if is_ours:
            self._report.unreadable[where] += 1
        else:
            self._report.elsewhere += 1
        if self._refetch or not is_ours:
            done = replay.done(entry.url, entry.fingerprint, _page_of(entry)) if is_ours else None
            await self._refill.again(self._again(entry, seed=self._is_seed(book, entry)), done)

    def _again(self, entry: CommitEntry, *, seed: bool) -> Candidate:
        number = entry.seed_number
        return self._routers[entry.run].candidate(
            entry.url,
            depth=entry.depth,
            redirects=entry.redirects,
            seed=seed,
            seed_number=number,
            followed=Followed(entry.url, entry.label, request=entry.request),
        )


def _followed_in(files: Sequence[ItemFiles], entry: CommitEntry) -> list[Followed] | None:
    """What a page's handler followed, from the folder that has it; None when no folder has it."""
    assert entry.items is not None
    for one in files:
        with contextlib.suppress(ArchiveError):
            return one.followed(entry.items)
    return None


def _file_of(entry: CommitEntry, *, is_lost: bool) -> str:
    """What could not be read of a page. `is_lost`: it is where its handler led."""
    if is_lost and entry.items is not None:
        return f"items/{entry.items.file}"
    if entry.pruned:
        return PRUNED
    return entry.warc.file if entry.warc else NO_RECORD


def _page_of(e: CommitEntry) -> KnownPage:
    items, offset = e.items.count if e.items else 0, e.warc.offset if e.warc else -1
    return KnownPage(
        e.depth,
        e.redirects,
        e.counted_status,
        e.body_bytes,
        e.fetch_ms,
        e.seed_number,
        items,
        e.run,
        lost_in(e),
        offset,
        pack_request(e.request) if e.request else "",
        " ".join(told_in(e)),
    )
