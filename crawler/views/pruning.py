"""Removes committed pages from the crawl folder on this machine, by age, domain, or the runs of jobs that are kept.

The engine keeps what it knows of them: they stay seen and done. What must stay is read in an order in which nothing is
missed while the crawl goes on: who lives, the count of commits, active runs, the engine's log, and then the index.
"""

import asyncio
import time
from collections.abc import Sequence
from functools import partial

import msgspec

from crawler.archive.folder import CrawlFolder, Life
from crawler.archive.forget_files import check_not_begun
from crawler.archive.prune import Planner, runs_in
from crawler.archive.prune_attempts import AttemptFigures, prune_attempts
from crawler.archive.prune_journal import PRUNE_LOCK, PRUNE_LOCK_TIMEOUT_S, Figures, Journal
from crawler.archive.prune_records import PruneRule, runs_beyond
from crawler.archive.prune_steps import PruneWork
from crawler.archive.rehandling import FILE as REHANDLE_FILE
from crawler.archive.repair import recover_open_files
from crawler.archive.session_locks import is_abandoned, life_of, sessions
from crawler.crawl.opening import OpenCrawl
from crawler.errors import ConflictError, EngineDown, UsageError
from crawler.frontier.operator_log import Actor
from crawler.model import CommitEntry
from crawler.rules.progress import SILENT, Meter
from crawler.runtime.crash_points import reached
from crawler.terminal.words import counted, moment
from crawler.version import PACKAGE, program_version
from crawler.views.failed_runs import dismiss_old

WRITTEN_PAUSE_S = 0.05
WRITTEN_LOOKS = 600


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be removed: pages for which all of these hold. `before`: wall clock, s; 0 and "": not given."""

    before: float = 0.0
    domain: str = ""
    keep_runs: int = 0

    @property
    def text(self) -> str:
        """For the operator log."""
        told = [f"fetched before {moment(self.before)}"] * bool(self.before)
        told += [f"beyond the newest {counted(self.keep_runs, 'run')} of each job"] * bool(self.keep_runs)
        return ", ".join(told)


class PruneResult(msgspec.Struct, frozen=True, kw_only=True):
    """What was removed, or would be. `waiting`: pages that match and stay for now, by reason (`plan.RUNNING` ...).

    `completed`: pages of an earlier prune that was interrupted, and that this one completed; None: there was none.
    """

    dry_run: bool
    pages: int
    attempts: int
    failed_runs: int  # dismissed: they are no longer in the lists of their jobs
    bytes: int  # of records, items and attempts
    files_removed: int
    files_rewritten: int
    waiting: dict[str, int]
    cursors: list[str]  # of the outputs that some of these wait for, relative to the crawl folder
    completed: int | None = None


async def prune(crawl: OpenCrawl, wanted: Wanted, *, dry_run: bool, actor: Actor, meter: Meter = SILENT) -> PruneResult:
    """Remove pages from the folder; a prune that was interrupted is completed first.

    Raises UsageError where nothing is wanted, EngineError, ArchiveError, and ConflictError while another prune, a
    rebuild or a reader is in the way: the same call goes on later.
    """
    if not (wanted.before or wanted.domain or wanted.keep_runs):
        raise UsageError("nothing to prune by: give an age, a domain, or the number of runs to keep")
    folder = crawl.folder
    with folder.exclusive(PRUNE_LOCK, PRUNE_LOCK_TIMEOUT_S):
        check_not_begun(folder)
        if (folder.root / REHANDLE_FILE).exists():  # it names items that no line names yet
            raise ConflictError("a rehandle was interrupted: run 'crawler rehandle' first, which completes it")
        if not dry_run:
            await crawl.operator_log.add(actor, "prune", wanted.domain, wanted.text)
        await asyncio.to_thread(recover_open_files, folder, partial(is_abandoned, folder))
        completed = await asyncio.to_thread(_complete, folder, meter, dry_run=dry_run)
        alive = _alive(folder)
        committed, active = await crawl.states.committed(), frozenset(await crawl.runs.active())
        undrained = await undrained_entries(crawl)
        known = await asyncio.to_thread(runs_in, folder, undrained) if wanted.keep_runs else set[str]()
        beyond = runs_beyond(known, wanted.keep_runs, active) if wanted.keep_runs else None
        rule = PruneRule(before=wanted.before, domain=wanted.domain, runs=beyond, active=active)
        is_alive = partial(_is_alive, folder, alive)
        planner = Planner(folder, rule, committed=committed, is_alive=is_alive, meter=meter)
        figures = await asyncio.to_thread(_carry_out, folder, planner, undrained, meter, dry_run=dry_run)
        of_history = await asyncio.to_thread(prune_attempts, folder, rule, is_alive=is_alive, dry_run=dry_run)
        failed_runs = 0
        if not wanted.domain:
            failed_runs = await dismiss_old(
                crawl, before=wanted.before, keep=wanted.keep_runs, runs=known, active=active, dry_run=dry_run
            )
    return _result(figures, of_history, failed_runs, dry_run=dry_run, completed=completed)


def _complete(folder: CrawlFolder, meter: Meter, *, dry_run: bool) -> int | None:
    """Do what an interrupted prune left; how many pages it was about. Raises ConflictError in a dry run."""
    journal = Journal.found(folder)
    if journal is None:
        return None
    with journal:
        if dry_run:
            raise ConflictError("a prune was interrupted: run it again without --dry-run, which completes it first")
        pages = journal.figures.pages
        _work(folder, journal, meter).run()
    return pages


def _carry_out(
    folder: CrawlFolder, planner: Planner, undrained: Sequence[CommitEntry], meter: Meter, *, dry_run: bool
) -> Figures:
    with planner.plan(undrained) as planned:
        if dry_run or planned.is_empty:
            return planned.figures
        _step("planned")
        journal = planned.keep()
    with journal:
        _step("begun")
        _work(folder, journal, meter).run()
    return planned.figures


def _work(folder: CrawlFolder, journal: Journal, meter: Meter) -> PruneWork:
    software = f"{PACKAGE}/{program_version()}"
    return PruneWork(folder, journal, software=software, now_s=time.time(), step=_step, meter=meter)


def _step(name: str) -> None:
    reached("prune.step", name)


def _alive(folder: CrawlFolder) -> frozenset[str]:
    return frozenset(session for session in sessions(folder) if life_of(folder, session) is Life.ALIVE)


def _is_alive(folder: CrawlFolder, before: frozenset[str], session: str) -> bool:
    """Is a session alive, or was it when the engine's log was read? What it committed since is not known here."""
    return session in before or life_of(folder, session) is Life.ALIVE


async def undrained_entries(crawl: OpenCrawl) -> list[CommitEntry]:
    """Commits that are in no index yet. What was drained before can't come back after a kill of the engine."""
    found: list[CommitEntry] = []
    partitions = [partition for partition, _, _ in await crawl.states.counters()]
    for partition in partitions:
        found += await crawl.states.undrained(partition)
    metas = [*map(crawl.keys.meta, partitions)]
    for _ in range(WRITTEN_LOOKS):
        if len(await crawl.engine.written(metas)) == len(metas):
            return found
        await asyncio.sleep(WRITTEN_PAUSE_S)
    raise EngineDown("the engine's disk is too slow: its last writes are not in its file yet; give the command again")


def _result(
    figures: Figures, of_history: AttemptFigures, failed_runs: int, *, dry_run: bool, completed: int | None
) -> PruneResult:
    return PruneResult(
        dry_run=dry_run,
        pages=figures.pages,
        attempts=of_history.attempts,
        failed_runs=failed_runs,
        bytes=figures.bytes + of_history.bytes,
        files_removed=figures.files_removed,
        files_rewritten=figures.files_rewritten,
        waiting=figures.waiting,
        cursors=figures.cursors,
        completed=completed,
    )
