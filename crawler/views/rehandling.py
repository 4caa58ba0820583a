"""Runs an app over the pages of a crawl folder again, without a request, and puts what it yields in place.

All pages are handled before anything changes. Then, as in a commit, the links are in the frontier before the lines of
the index name the new items. The journal (archive/rehandling.py) completes a run that was killed in between.
"""

import asyncio
import logging
import mmap
import os
from collections import Counter, defaultdict
from collections.abc import Iterator
from functools import partial

import msgspec
from msgspec.structs import replace

from crawler.archive.folder import CrawlFolder, alone_in
from crawler.archive.forget_files import check_not_begun
from crawler.archive.index_reader import IndexReader, archive_path
from crawler.archive.index_writer import IndexWriter
from crawler.archive.inflight_log import InflightMark
from crawler.archive.items import ItemFiles, ItemWriter
from crawler.archive.new_places import ITEMS, WARC
from crawler.archive.prune_journal import FILE as PRUNE_FILE
from crawler.archive.prune_journal import PRUNE_LOCK, PRUNE_LOCK_TIMEOUT_S
from crawler.archive.prune_records import PruneRule
from crawler.archive.prune_steps import READERS_TIMEOUT_S, is_here
from crawler.archive.rehandling import (
    NewItems,
    RehandleJournal,
    check_whole,
    drop_draft,
    put_in_place,
    remove_replaced,
)
from crawler.archive.repair import recover_open_files
from crawler.archive.session_locks import is_abandoned
from crawler.archive.warc_reader import read_content
from crawler.crawl.opening import OpenCrawl, make_router
from crawler.crawl.terms import change, check_terms
from crawler.errors import ArchiveError, ConflictError, may_be_of_content
from crawler.frontier.operator_log import Actor
from crawler.frontier.restore import Restoring
from crawler.handlers.crawler import Crawler
from crawler.handlers.page_run import NOTHING_HANDLED, Handled, HandlerError
from crawler.membership.node_names import check_no_instance_runs, is_lock_free
from crawler.model import Claim, CommitEntry, Decoded, FailureKind, Followed, Response
from crawler.outputs.cursor import start_items_over
from crawler.parsing.parse import PageParser, ParseKilledError
from crawler.recovery.replay import Refill
from crawler.routing.router import parent_of
from crawler.rules.progress import SILENT, Meter
from crawler.runtime.crash_points import reached
from crawler.runtime.tasks import first_error
from crawler.views.pruning import undrained_entries
from crawler.worker.archive import encode_followed
from crawler.worker.handle import HandlerRuntime
from crawler.worker.revisits import response_of

log = logging.getLogger(__name__)
EXAMPLES_MAX = 20  # of failures
SYNC_BYTES = 16 << 20  # of new items: written to disk, so that they do not fill the memory
PULSE = 256  # lines of the index between two turns of the event loop
NO_RECORD, NOT_FOUND, DAMAGED = "no_record", "not_found", "damaged"


class HandlingFailure(msgspec.Struct, frozen=True, kw_only=True):
    """A page that its handler failed on."""

    url: str
    detail: str
    trace: str = ""


class RehandleResult(msgspec.Struct, kw_only=True):
    """What came of the pages. Those without a body here (`unreadable`, by reason) and `failed` ones keep their items.

    `completed`: an earlier run was interrupted while it put its items in place, and was completed first.
    """

    pages: int = 0
    changed: int = 0  # pages that have other items now
    items_before: int = 0
    items: int = 0
    items_invalid: int = 0  # left out
    items_dropped: int = 0  # by functions of `@app.item`
    urls_added: int = 0  # that handlers followed, and that the crawl did not know
    failed: int = 0
    failures: list[HandlingFailure] = msgspec.field(default_factory=list)  # the first of them
    unreadable: Counter[str] = msgspec.field(default_factory=Counter)
    unreadable_urls: dict[str, str] = msgspec.field(default_factory=dict)  # one of these for each reason
    pruned: int = 0
    withheld: int = 0  # pages whose body was not kept, because of their rights: no handler gets them
    dead: int = 0  # pages of the whole crawl that are not in the archive, because their handler failed
    completed: bool = False


async def rehandle(
    crawl: OpenCrawl, app: Crawler, *, domain: str = "", append: bool = False, actor: Actor, meter: Meter = SILENT
) -> RehandleResult:
    """Give the pages of the folder the items that this app yields; it becomes the app of the crawl.

    `domain`: only its pages. `append`: pages keep the items that they have, and get those that they do not have yet.
    Raises EngineError, ArchiveError, and ConflictError while instances, a prune, a rebuild or a reader are in the way.
    """
    folder, result = crawl.folder, RehandleResult()
    with folder.exclusive(PRUNE_LOCK, PRUNE_LOCK_TIMEOUT_S), alone_in(folder, os.getpid()):
        check_not_begun(folder)
        if (folder.root / PRUNE_FILE).exists():
            raise ConflictError("a prune was interrupted: run the same 'crawler prune' again first, which completes it")
        await check_no_instance_runs(crawl.members, is_lock_free, crawl.settings.membership)
        await check_terms(crawl)
        await crawl.operator_log.add(actor, "rehandle", domain, crawl.settings.handlers.app)
        await asyncio.to_thread(recover_open_files, folder, partial(is_abandoned, folder))
        await _index_log(crawl)
        if (journal := RehandleJournal.found(folder)) is not None:
            result.completed, result.urls_added = True, await _carry_out(crawl, journal)
        rehandling = _Rehandling(crawl, app, PruneRule(domain=domain), result, meter, append=append)
        if (journal := await rehandling.run()) is not None:
            _step("begun")
            result.urls_added += await _carry_out(crawl, journal)
        result.dead = (await crawl.stats.totals()).dead_by.get(FailureKind.HANDLER, 0)
        await change(crawl, {"handlers.app": crawl.settings.handlers.app})
    return result


def _step(name: str) -> None:
    reached("rehandle.step", name)


# --- before: what the engine's log has ---


async def _index_log(crawl: OpenCrawl) -> None:
    """Index what a session that died committed and did not index, as far as its files are here.

    If this is killed in between, the next owner writes the same lines again.
    """
    ours = [entry for entry in await undrained_entries(crawl) if _has_files_here(crawl.folder, entry)]
    if not ours:
        return
    index = IndexWriter(crawl.folder, crawl.session)
    for entry in ours:
        index.add(entry)
    await asyncio.to_thread(index.close)
    _step("indexed")
    by_partition: defaultdict[int, list[CommitEntry]] = defaultdict(list)
    for entry in ours:
        by_partition[crawl.placement.of(entry.url)[2]].append(entry)
    await _restoring(crawl).clear_log(by_partition)


def _has_files_here(folder: CrawlFolder, entry: CommitEntry) -> bool:
    has_record = entry.warc is not None and is_here(folder, WARC, entry.warc.file)
    return has_record or (entry.items is not None and is_here(folder, ITEMS, entry.items.file))


def _restoring(crawl: OpenCrawl) -> Restoring:
    record = crawl.record
    return Restoring(crawl.engine, crawl.keys, hash_key=record.hash_key, files=crawl.spill_files)


# --- the pages ---


class _UnreadableError(Exception):
    """The body of a page is not here; its text is a key of `RehandleResult.unreadable`."""


class _Rehandling:
    """Handles each page of the folder that matches, and notes what it gets. Only one run."""

    def __init__(
        self, crawl: OpenCrawl, app: Crawler, rule: PruneRule, result: RehandleResult, meter: Meter, *, append: bool
    ) -> None:
        self._crawl, self._folder = crawl, crawl.folder
        self._rule = rule
        self._result = result
        self._meter = meter
        self._append = append
        self._settings = replace(crawl.settings, scope=crawl.record.scope)
        self._parser = PageParser(self._settings, link_rules=crawl.record.link_rules, reads_feeds=crawl.record.sitemaps)
        self._handlers = HandlerRuntime(app, self._settings, crawl.stats)
        self._old = ItemFiles(self._folder)
        self._new = ItemWriter(self._folder, crawl.session, level=crawl.settings.archive.compression_level)
        self._unsynced = 0  # bytes of new items that are not on disk yet

    async def run(self) -> RehandleJournal | None:
        """The journal, which counts from here on; None if nothing is to change."""
        total = await self._count()
        draft = RehandleJournal.draft(self._folder, self._crawl.session)
        try:
            await self._handle_all(draft, total)
            _step("handled")
            return None if draft.is_empty else draft.begun(self._folder)
        finally:
            draft.close()
            drop_draft(self._folder)  # unless it counts now

    async def _count(self) -> int:
        """How many pages there are. Raises ArchiveError when the index has damage: its lines could not be changed."""
        reader, total = IndexReader(self._folder), 0
        for number, entry in enumerate(reader.entries(pruned=True)):
            if number % PULSE == 0:
                await asyncio.sleep(0)
            self._result.pruned += entry.pruned and self._rule.matches(replace(entry, pruned=False))
            self._result.withheld += entry.is_withheld and self._rule.matches(entry)
            total += self._is_wanted(entry)
        check_whole(reader)
        return total

    def _is_wanted(self, entry: CommitEntry) -> bool:
        return entry.is_page and not entry.is_withheld and self._rule.matches(entry)

    async def _handle_all(self, draft: RehandleJournal, total: int) -> None:
        self._meter.begin("handling pages", "page", total)
        entries = filter(self._is_wanted, IndexReader(self._folder).entries())
        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(self._settings.handlers.threads):
                    group.create_task(self._work(draft, entries))
        except BaseExceptionGroup as errors:
            raise first_error(errors) from None
        finally:
            await self._handlers.close("rehandled")
            await self._parser.close()
            self._old.close()
            await asyncio.to_thread(self._new.close)

    async def _work(self, draft: RehandleJournal, entries: Iterator[CommitEntry]) -> None:
        mark = InflightMark(mmap.mmap(-1, mmap.PAGESIZE), 0)  # of nobody: no other process is to fetch these pages
        for entry in entries:
            await self._page(draft, entry, mark)
            _step("page")
            self._meter.reached(self._result.pages, self._result.pages)
            if self._unsynced >= SYNC_BYTES:
                self._unsynced = 0
                await asyncio.to_thread(self._new.sync)
            await asyncio.sleep(0)

    async def _page(self, draft: RehandleJournal, entry: CommitEntry, mark: InflightMark) -> None:
        result, before = self._result, entry.items.count if entry.items else 0
        result.pages += 1
        result.items_before += before
        try:
            handled = await self._handled(entry, self._response_of(entry), mark)
            result.items += self._note(draft, entry, handled)
            return
        except _UnreadableError as error:
            result.unreadable[str(error)] += 1
            result.unreadable_urls.setdefault(str(error), entry.url)
        except HandlerError as error:
            self._failed(entry, str(error), error.trace)
        except ParseKilledError as error:
            self._failed(entry, str(error))
        except Exception as error:
            if not may_be_of_content(error):
                raise
            self._failed(entry, f"{type(error).__name__}: {error}")
        result.items += before  # it keeps what it has

    def _failed(self, entry: CommitEntry, detail: str, trace: str = "") -> None:
        log.warning("handler.failed", extra={"url": entry.url, "error": detail, "trace": trace})
        self._result.failed += 1
        if len(self._result.failures) < EXAMPLES_MAX:
            self._result.failures.append(HandlingFailure(url=entry.url, detail=detail, trace=trace))

    def _response_of(self, entry: CommitEntry) -> Response:
        place = entry.content
        if place is None:
            raise _UnreadableError(NO_RECORD)
        if entry.original is None and archive_path(self._folder, place.file) is None:
            raise _UnreadableError(NOT_FOUND)
        try:
            stored = read_content(self._folder, entry)
        except ArchiveError:
            raise _UnreadableError(DAMAGED) from None
        if stored.uri != entry.url:  # other bytes have moved it
            raise _UnreadableError(DAMAGED)
        found = response_of(entry.url, stored, self._settings.fetch)
        return replace(found, is_unchanged=True) if entry.original is not None and not entry.is_duplicate else found

    async def _handled(self, entry: CommitEntry, response: Response, mark: InflightMark) -> Handled:
        """As the fetch stage does it. Raises ParseKilledError, HandlerError."""
        if response.decoded is Decoded.NOTHING:
            return NOTHING_HANDLED
        parsed, tree = await self._parser.parse_with_tree(response, mark)
        claim = _claim_of(self._crawl, entry)
        _, handled = await self._handlers.handling.handle(
            claim, response, parsed, tree, mark, rights=entry.rights, guarded=False
        )
        if handled.retry_s is not None:
            raise HandlerError("the handler wants it to be fetched again (page.retry), which is not done here")
        return handled

    def _note(self, draft: RehandleJournal, entry: CommitEntry, handled: Handled) -> int:
        """Write what a page gets, if it is not what it has; how many items it has then."""
        self._result.items_invalid += handled.invalid_count
        self._result.items_dropped += handled.dropped_count
        old, led = self._read(entry)
        items = handled.items
        if self._append:
            had = Counter(old)
            items = [*old, *(item for item in items if _is_new(item, had))]
        known = {one.url for one in led or ()}
        more = list({one.url: one for one in reversed(handled.followed) if one.url not in known}.values())[::-1]
        if led is not None and items == old and not more:
            return len(items)
        # Where the page led before, a rebuild must know, too: sitemaps of its host are among it.
        followed = [*(led or ()), *more]
        place = self._new.add(items, [encode_followed(one) for one in followed]) if items or followed else None
        self._unsynced += place.length if place else 0
        self._result.changed += items != old
        _, queue, partition = self._crawl.placement.of(entry.url)
        draft.add(entry, NewItems(place, len(more)), (partition, queue))
        return len(items)

    def _read(self, entry: CommitEntry) -> tuple[list[bytes], list[Followed] | None]:
        """The items that a page has, and where it led; None where that can't be read."""
        if entry.items is None:
            return [], []
        try:
            return self._old.items(entry.items), self._old.followed(entry.items)
        except ArchiveError:
            if self._append:
                raise _UnreadableError(DAMAGED) from None
            return [], None


def _is_new(item: bytes, had: Counter[bytes]) -> bool:
    """Is it none of those that a page has? Each of these counts once."""
    if had[item] <= 0:
        return True
    had[item] -= 1
    return False


def _claim_of(crawl: OpenCrawl, entry: CommitEntry) -> Claim:
    claim = parent_of(
        entry.url, entry.depth, entry.redirects, seed=entry.depth == 0, number=entry.seed_number, run=entry.run,
        label=entry.label, request=entry.request,
    )  # fmt: skip
    domain, queue, partition = crawl.placement.of(entry.url)
    return replace(claim, fingerprint=entry.fingerprint, domain=domain, queue=queue, partition=partition)


# --- in place ---


async def _carry_out(crawl: OpenCrawl, journal: RehandleJournal) -> int:
    """Do what a journal says, from its beginning or from anywhere; how many URLs are new."""
    with journal:
        before = (await crawl.inspect.progress()).added
        if journal.has_followed:
            await _add_followed(crawl, journal)
        _step("linked")
        await asyncio.to_thread(_on_disk, crawl.folder, journal)
        await _restoring(crawl).count_items(journal.session, journal.counts())
        _step("counted")
        journal.end()
        _step("ended")
        return (await crawl.inspect.progress()).added - before


async def _add_followed(crawl: OpenCrawl, journal: RehandleJournal) -> None:
    """Add where pages did not lead before; what the crawl knows stays as it is. Raises EngineError."""
    # What a budget of URLs would take in, the next instance takes up.
    router = make_router(crawl, admits_urls=lambda: not crawl.settings.budget.crawl_urls)
    active = await crawl.runs.active()
    routers = {"": router} | {run: router.of_run(record) for run, record in active.items()}
    refill = Refill(crawl.frontier, _restoring(crawl), router, crawl.runs, is_committed=lambda _: False)
    with ItemFiles(crawl.folder) as files:
        for number, entry in enumerate(IndexReader(crawl.folder).entries()):
            if number % PULSE == 0:
                await asyncio.sleep(0)
            new = journal.of(entry)
            if new is not None and new.items is not None and new.followed and entry.run in routers:
                followed = files.followed(new.items)[-new.followed :]
                claim, urls = _claim_of(crawl, entry), [one.url for one in followed if one.is_plain]
                await refill.add(routers[entry.run].links(claim, urls, Counter(), followed=followed))
    await refill.flush()


def _on_disk(folder: CrawlFolder, journal: RehandleJournal) -> None:
    with folder.changing(READERS_TIMEOUT_S):
        put_in_place(folder, journal, _step)
        _step("placed")
        start_items_over(folder)
        _step("outputs")
        remove_replaced(folder, journal, _step)
