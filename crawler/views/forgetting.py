"""Forgets a domain: its URLs, pages, items and records go, and one keyed digest keeps it out permanently.

The record of the crawl, and of each folder, has the digest before anything else changes: so whatever happens later,
nothing of the domain is fetched again, and instances that run stop to within two seconds. No instance may run while the
rest is done: the folders are held like by a prune and a crawl, and the engine is asked before and after. In this order:
what is committed and in no index yet is indexed; the engine forgets URLs and pages; outputs that know their records by
key lose them; archive and items; the lines of the indexes; other files; outputs that are written again; the engine's
file. Each step finds its work by itself, so a command that was killed is given again.
"""

import asyncio
import contextlib
import os
import time
from collections.abc import Iterable, Sequence
from functools import partial

import msgspec

from crawler.archive.crawl_binding import bind, bound_to
from crawler.archive.folder import SUBFOLDERS, CrawlFolder, alone_in
from crawler.archive.forget_files import Figures, ForgetFiles, end, removed_drafts
from crawler.archive.forget_rest import forget_rest, forget_spilled
from crawler.archive.index_writer import IndexWriter
from crawler.archive.new_places import ITEMS, WARC
from crawler.archive.prune_journal import FILE as PRUNE_FILE
from crawler.archive.prune_journal import PRUNE_LOCK, PRUNE_LOCK_TIMEOUT_S
from crawler.archive.prune_steps import is_here
from crawler.archive.rehandling import FILE as REHANDLE_FILE
from crawler.archive.repair import recover_open_files
from crawler.archive.session_locks import is_abandoned
from crawler.crawl.admission import bound_of
from crawler.crawl.opening import OpenCrawl
from crawler.errors import ConflictError, CrawlerError
from crawler.frontier.operator_log import Actor
from crawler.frontier.restore import Restoring
from crawler.membership.node_names import is_lock_free, running_nodes
from crawler.model import CommitEntry
from crawler.outputs.forgetting import (
    ForgetFailed,
    KeptOutput,
    cursors_in,
    forget_early,
    forget_late,
    kept_outputs,
    old_copies,
)
from crawler.outputs.target import Target
from crawler.recovery.forget_engine import EngineFigures, ForgetEngine, note_forgotten
from crawler.rules.forgotten import ForgottenDomain, Named, digest_of, united
from crawler.rules.progress import SILENT, Meter
from crawler.runtime.crash_points import reached
from crawler.terminal.words import counted, size
from crawler.views.pruning import undrained_entries

STAYS = (
    "It stays out of this crawl permanently. Not reached by this command: backups, exported files, copies of the "
    "folders, and settings files that name it."
)
EXTERNAL = (
    "; its append-only file, snapshots, replicas and backups have what was ever written: give BGREWRITEAOF (or BGSAVE) "
    "on each of its servers"
)
DONE, NOT_REACHED, IMPOSSIBLE = "done", "not reached", "impossible"


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """A folder, an output, the engine, or a file of theirs, and whether anything of the domain is left there."""

    place: str
    state: str
    text: str = ""  # what went, or why something stays and what to do


class ForgetResult(msgspec.Struct, frozen=True, kw_only=True):
    """What was forgotten, or would be. `is_known`: the domain was forgotten before."""

    domain: str
    dry_run: bool
    is_known: bool
    engine: EngineFigures
    folders: Figures
    places: list[Place]
    running: list[str] = []  # who is to be stopped: until then the domain is kept out, and nothing goes

    @property
    def is_done(self) -> bool:
        return all(one.state == DONE for one in self.places)


async def forget(
    crawl: OpenCrawl,
    domain: str,
    *,
    folders: Sequence[CrawlFolder],
    targets: Sequence[Target] = (),
    dry_run: bool,
    actor: Actor,
    meter: Meter = SILENT,
) -> ForgetResult:
    """Forget a domain in the engine and in these folders, of which the crawl's own is the first. A folder that can't be
    written is not reached. While instances run, the domain is only kept out.

    Raises EngineError, ArchiveError, and ConflictError while a prune, a rebuild or a reader is in the way, or an
    instance in that of a dry run: the same call goes on later.
    """
    writable = [folders[0], *(folder for folder in folders[1:] if not unwritable(folder))]
    with contextlib.ExitStack() as stack:
        busy = await running_nodes(crawl.members, is_lock_free, crawl.settings.membership, may_seed=False)
        for folder in writable:
            stack.enter_context(folder.exclusive(PRUNE_LOCK, PRUNE_LOCK_TIMEOUT_S))
            for file, what in ((PRUNE_FILE, "prune"), (REHANDLE_FILE, "rehandle")):
                if (folder.root / file).exists():
                    raise ConflictError(f"a {what} was interrupted: run 'crawler {what}' first, which completes it")
            try:
                stack.enter_context(alone_in(folder, os.getpid()))
            except ConflictError as error:
                where = str(error).partition(";")[0].removeprefix("another crawl is running in ")
                busy = busy or [f"the crawl in {where}"]
        if busy and dry_run:
            raise ConflictError(f"running on this crawl: {', '.join(busy)}; stop all instances first")
        return await _Forget(crawl, domain, folders, writable, targets, actor, meter, busy=busy, dry_run=dry_run).run()


def _step(name: str) -> None:
    reached("forget.step", name)


class _Forget:
    """One call."""

    def __init__(
        self,
        crawl: OpenCrawl,
        domain: str,
        given: Sequence[CrawlFolder],
        folders: Sequence[CrawlFolder],
        targets: Sequence[Target],
        actor: Actor,
        meter: Meter,
        *,
        busy: Sequence[str],
        dry_run: bool,
    ) -> None:
        """`folders`: those of the given ones that can be written. `busy`: who works on the crawl, for people."""
        self._crawl = crawl
        self._named = Named(domain)
        self._digest = digest_of(domain, crawl.record.hash_key)
        self._given = given
        self._folders = folders
        self._targets = targets
        self._actor = actor
        self._meter = meter
        self._busy = busy
        self._dry_run = dry_run
        self._is_known = any(one.digest == self._digest for one in crawl.record.forgotten_domains)
        self._done = dict[str, float]()  # fields of the key `forgotten`
        self._places = list[Place]()
        self._engine = ForgetEngine(crawl, self._named, _step)

    async def run(self) -> ForgetResult:
        crawl, dry_run = self._crawl, self._dry_run
        self._done = {
            name.decode(): float(value) for name, value in (await _read(crawl)).items()
        }  # of each domain that was forgotten
        working = {folder.crawl for folder in self._folders}
        has_all = len(self._given) == len(working) >= len(working | (await crawl.folders.read()).keys())
        if not dry_run:
            await self._note()
        if self._busy:
            return await self._kept_out()
        record = (await crawl.crawls.shared())[0]
        files = ForgetFiles(
            self._folders, self._named, forgotten=record.forgotten, has_all=has_all, step=_step, meter=self._meter
        )
        with contextlib.closing(files):
            await asyncio.to_thread(self._settle_files)
            undrained = await undrained_entries(crawl)
            if not dry_run:
                await self._index_log(undrained)
                await asyncio.to_thread(files.settle)
            await asyncio.to_thread(files.read)
            if dry_run:
                files.figures.pages += sum(map(files.owns, undrained))
            await self._in_engine(files, undrained)
            outputs = kept_outputs(self._folders, self._targets)
            kept_keys = await self._early_outputs(files, outputs)
            await asyncio.to_thread(files.change_files, dry_run=dry_run)
            if not dry_run:
                await self._in_folders(files, kept_keys)
                await self._late_outputs(outputs)
            figures = files.figures
            self._places += [Place(place=p, state=NOT_REACHED, text=why) for p, why in files.unreached]
        await self._finish()
        return self._result(figures)

    async def _kept_out(self) -> ForgetResult:
        """Instances run: they fetch nothing of the domain any more, and may be writing what they have fetched."""
        why = "instances run on this crawl: stop them, and give the same command again"
        places = [str(folder.root) for folder in self._folders] + [target.shown for target in self._targets]
        self._places = [Place(place=one, state=NOT_REACHED, text=why) for one in (*places, "engine")]
        await self._list_others()
        return self._result(Figures())

    def _result(self, figures: Figures) -> ForgetResult:
        return ForgetResult(
            domain=self._named.domain, dry_run=self._dry_run, is_known=self._is_known, engine=self._engine.figures,
            folders=figures, places=self._places, running=[*self._busy],
        )  # fmt: skip

    # --- before anything goes ---

    async def _note(self) -> None:
        """From here on nothing of the domain comes in, whatever becomes of this call."""
        crawl, record = self._crawl, self._crawl.record
        domains = united(record.forgotten_domains, [ForgottenDomain(digest=self._digest, at=time.time())])
        await crawl.operator_log.add(self._actor, "forget", "", "a domain")
        await note_forgotten(crawl, domains)
        now, _ = await crawl.crawls.shared()
        for folder in self._folders:
            if _is_of(folder, bound_of(crawl.keys.crawl_name, now).first_begun_at):
                await asyncio.to_thread(bind, folder, bound_of(crawl.keys.crawl_name, now))
        _step("noted")

    def _settle_files(self) -> None:
        for folder in self._folders:
            recover_open_files(folder, partial(is_abandoned, folder))
            removed_drafts(folder, dry_run=self._dry_run)

    async def _index_log(self, undrained: Sequence[CommitEntry]) -> None:
        """Index what sessions that died committed and did not index, where its files are: their places change."""
        crawl, left = self._crawl, list(undrained)
        for folder in self._folders:
            here = [one for one in left if _has_files_in(folder, one)]
            if here:
                index = IndexWriter(folder, f"{crawl.session}f")
                for entry in here:
                    index.add(entry)
                await asyncio.to_thread(index.close)
                _step("indexed")
                await self._clear_log(here)
                left = [one for one in left if one not in here]

    async def _clear_log(self, entries: Iterable[CommitEntry]) -> None:
        crawl = self._crawl
        restoring = Restoring(crawl.engine, crawl.keys, hash_key=crawl.record.hash_key, files=crawl.spill_files)
        by_partition: dict[int, list[CommitEntry]] = {}
        for entry in entries:
            by_partition.setdefault(crawl.placement.of(entry.url)[2], []).append(entry)
        await restoring.clear_log(by_partition)

    # --- the engine ---

    async def _in_engine(self, files: ForgetFiles, undrained: Sequence[CommitEntry]) -> None:
        engine, dry_run = self._engine, self._dry_run
        await engine.drop_waiting(dry_run=dry_run)
        await engine.drop_letters(dry_run=dry_run)
        if dry_run:
            return
        ours = [one for one in undrained if files.owns(one)]
        await engine.reopen(entry for _, _, entry in files.entries())
        await engine.reopen(ours)
        await self._clear_log(ours)
        await engine.clear_partition()
        await engine.clear_wide()
        await engine.forget_in_jobs()
        if (spilled := self._crawl.spill_files) is not None:
            await asyncio.to_thread(forget_spilled, spilled.root, engine.partition, self._named)
        _step("engine")

    # --- outputs ---

    async def _early_outputs(self, files: ForgetFiles, outputs: Sequence[KeptOutput]) -> set[str]:
        """Folders of which outputs still need the keys of the domain's pages."""
        needed = set[str]()
        named = {(one.folder.crawl, one.cursor.name) for one in outputs}
        for folder in self._folders:
            for cursor in cursors_in(folder):
                if (folder.crawl, cursor.name) in named or self._output_field(folder, cursor.name) in self._done:
                    continue
                needed.add(folder.crawl)
                why = "an output: name its target with -o, or delete this file if nobody wants the output any more"
                self._places.append(Place(place=str(cursor), state=NOT_REACHED, text=why))
        if self._dry_run:
            return needed
        visits = sorted({(int(entry.fingerprint), entry.visit) for _, _, entry in files.entries()})
        for one in outputs:
            if not one.is_late:
                try:
                    gone = await asyncio.to_thread(forget_early, one, self._named, visits)
                except (ForgetFailed, CrawlerError) as error:
                    needed.add(one.folder.crawl)
                    self._places.append(Place(place=one.target.shown, state=NOT_REACHED, text=str(error)))
                else:
                    await self._output_done(one, f"{counted(gone, 'record')} removed")
        unknown = [one for one in self._targets if not any(one is kept.target for kept in outputs)]
        for target in unknown:
            why = "no folder given keeps it up to date: an export is to be removed, and made again"
            self._places.append(Place(place=target.shown, state=IMPOSSIBLE, text=why))
        _step("outputs")
        return needed

    async def _late_outputs(self, outputs: Sequence[KeptOutput]) -> None:
        for one in outputs:
            if one.is_late:
                try:
                    await asyncio.to_thread(forget_late, one, self._named)
                except ForgetFailed as error:
                    self._places.append(Place(place=one.target.shown, state=IMPOSSIBLE, text=str(error)))
                except CrawlerError as error:
                    self._places.append(Place(place=one.target.shown, state=NOT_REACHED, text=str(error)))
                else:
                    await self._output_done(one, "written again")

    async def _output_done(self, output: KeptOutput, text: str) -> None:
        await self._note_done(self._output_field(output.folder, output.cursor.name))
        self._places.append(Place(place=output.target.shown, state=DONE, text=text))
        for copy in old_copies(output, self._named):
            why = "an old copy of an output, which was set aside: remove it"
            self._places.append(Place(place=str(copy), state=NOT_REACHED, text=why))
        _step("output")

    def _output_field(self, folder: CrawlFolder, cursor: str) -> str:
        return f"{self._digest} output {folder.crawl} {cursor}"

    # --- folders ---

    async def _in_folders(self, files: ForgetFiles, kept_keys: set[str]) -> None:
        for folder in self._folders:
            await asyncio.to_thread(files.drop_lines, folder, keeps_keys=folder.crawl in kept_keys)
            lines, unreached = await asyncio.to_thread(forget_rest, folder, self._named, _step)
            files.figures.lines += lines
            files.unreached += unreached
            await asyncio.to_thread(end, folder)

    async def _finish(self) -> None:
        crawl, engine, dry_run = self._crawl, self._engine, self._dry_run
        stays = [one.place for one in self._places if one.state != DONE]
        for folder in self._folders:
            root = str(folder.root)
            inside = [one for one in stays if one.startswith(f"{root}/")]
            if inside or dry_run:
                why = (
                    f"{counted(len(inside), 'file')} of it, see above" if inside else "nothing is changed by --dry-run"
                )
                self._places.append(Place(place=root, state=NOT_REACHED, text=why))
            else:
                await self._note_done(self._folder_field(folder.crawl))
                self._places.append(Place(place=root, state=DONE))
        await self._list_others()
        if dry_run:
            self._places.append(Place(place="engine", state=NOT_REACHED, text="nothing is changed by --dry-run"))
            return
        await engine.look_again()
        if nodes := await running_nodes(crawl.members, is_lock_free, crawl.settings.membership, may_seed=False):
            why = f"{', '.join(nodes)} began meanwhile: stop all instances, and give the same command again"
            self._places.append(Place(place="engine", state=NOT_REACHED, text=why))
            return
        text = _engine_text(engine.figures)
        if crawl.settings.frontier.redis:
            text += EXTERNAL
        else:
            await engine.rewrite_file(crawl.folder.engine)
            text += "; its file is rewritten"
        self._places.append(Place(place="engine", state=DONE, text=text))
        self._places += [Place(place="engine", state=IMPOSSIBLE, text=why) for why in dict.fromkeys(engine.left)]
        _step("ended")

    async def _list_others(self) -> None:
        """Folders that can't be written, and those of the crawl that were not given."""
        working = {folder.crawl for folder in self._folders}
        for folder in self._given:
            if folder.crawl not in working:
                why = f"{unwritable(folder)}: make it writable, and give the same command again"
                self._places.append(Place(place=str(folder.root), state=NOT_REACHED, text=why))
        given = {folder.crawl for folder in self._given}
        for folder_id, note in sorted((await self._crawl.folders.read()).items()):
            if folder_id not in given and self._folder_field(folder_id) not in self._done:
                why = "a folder of this crawl: give the command with --dir for it, on its machine"
                self._places.append(Place(place=note.shown, state=NOT_REACHED, text=why))

    def _folder_field(self, folder: str) -> str:
        return f"{self._digest} folder {folder}"

    async def _note_done(self, field: str) -> None:
        self._done[field] = time.time()
        await self._crawl.engine.command("HSET", self._crawl.keys.forgetting, field, repr(time.time()))


async def _read(crawl: OpenCrawl) -> dict[bytes, bytes]:
    from crawler.frontier.codec import pairs_of

    return dict(pairs_of(await crawl.engine.command("HGETALL", crawl.keys.forgetting)))


def _is_of(folder: CrawlFolder, first_begun_at: float) -> bool:
    bound = bound_to(folder)
    return bound is not None and bound.first_begun_at == first_begun_at


def _has_files_in(folder: CrawlFolder, entry: CommitEntry) -> bool:
    has_record = entry.warc is not None and is_here(folder, WARC, entry.warc.file)
    return has_record or (entry.items is not None and is_here(folder, ITEMS, entry.items.file))


def _engine_text(figures: EngineFigures) -> str:
    return (
        f"{counted(figures.waiting, 'URL')} that waited, {counted(figures.dead_letters, 'dead letter')}, "
        f"{counted(figures.pages, 'page')}, {counted(figures.entries, 'other record')}"
    )


def forget_text(result: ForgetResult) -> str:
    """For people."""
    files, engine, verb = result.folders, result.engine, "Would forget" if result.dry_run else "Forgot"
    first = (
        f"Nothing of {result.domain} is fetched any more. Nothing is removed yet: stop {', '.join(result.running)} "
        "and all other instances of this crawl first."
        if result.running
        else f"{verb} {result.domain}: {counted(files.pages, 'page')}, {counted(files.records, 'record')} "
        f"({size(files.bytes)}), {counted(engine.waiting, 'URL')} that waited, "
        f"{counted(engine.dead_letters, 'dead letter')}; {counted(files.files_removed, 'file')} removed, "
        f"{files.files_rewritten:,} rewritten."
    )
    lines = [first]
    if result.dry_run:
        lines += [f"{one.place}: {one.text}" for one in result.places if "--dry-run" not in one.text]
        return "\n".join(lines)
    lines += [f"{one.state}: {one.place}{f': {one.text}' if one.text else ''}" for one in result.places]
    lines.append(STAYS)
    if not result.is_done:
        lines.append("Not all is done: give the same command again for what is left.")
    return "\n".join(lines)


def unwritable(folder: CrawlFolder) -> str:
    """Why nothing can be taken out of a folder; "" if it can."""
    for place in (folder.root, *(folder.root / name for name in SUBFOLDERS)):
        if place.exists() and not os.access(place, os.W_OK | os.X_OK):
            return f"{place} can't be written"
    return ""
