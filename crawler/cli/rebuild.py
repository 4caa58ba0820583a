"""`crawler rebuild`: recreates a crawl from its folder in an engine that lost it."""

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from crawler.archive.folder import CrawlFolder, open_existing, open_or_create
from crawler.cli.crawl_options import log_to_folder
from crawler.cli.options import settings_of, with_logins
from crawler.cli.run_async import run_async
from crawler.cli.seed import Intake, given_batches
from crawler.crawl.admission import admit_rebuild, holding
from crawler.crawl.opening import Entrance, OpenCrawl, make_router, make_seeder, open_crawl
from crawler.crawl.url_files import ListForm
from crawler.crawl.url_input import GivenUrl, form_of, sources_of
from crawler.frontier.record import Crawls
from crawler.frontier.restore import Restoring
from crawler.membership.node_names import check_no_instance_runs, is_lock_free
from crawler.rules.progress import Meter
from crawler.settings import Settings
from crawler.terminal.output import out, warn
from crawler.terminal.progress import progress
from crawler.terminal.words import counted
from crawler.views.seeds import seeding_member

if TYPE_CHECKING:
    from crawler.recovery.replay import RebuildDeps, RebuildReport


FILES_SHOWN = 3


def run_rebuild(arguments: argparse.Namespace) -> int:
    """Rebuild, and print what the engine has now."""
    plain, files = sources_of(arguments)
    form = form_of(arguments)
    folders = arguments.dir or []
    arguments.dir = folders[0] if folders else None
    settings = with_logins(settings_of(arguments, in_folder=True))
    return run_async(_rebuild(arguments, settings, folders[1:], plain, files, form))


async def _rebuild(
    arguments: argparse.Namespace,
    settings: Settings,
    others: Sequence[str],
    plain: list["GivenUrl"],
    files: list[str],
    form: ListForm,
) -> int:
    from crawler.recovery.side import without_replica

    named = [open_existing(folder) for folder in (settings.archive.dir, *others)]  # fails before anything is created
    folders, empty = holding(named, settings.crawl.name)
    for folder in empty:
        warn(f"{folder.root} has nothing of the crawl {settings.crawl.name!r}: left out")
    settings = replace(settings, archive=replace(settings.archive, dir=str(folders[0].root)))
    more = [open_or_create(folder.root) for folder in folders[1:]]

    async with open_crawl(settings, create=True, enter=entrance(more, arguments.partitions)) as crawl:
        log_to_folder(settings, crawl.folder.log, "rebuild", verbose=bool(arguments.verbose))
        await check_no_instance_runs(crawl.members, is_lock_free, settings.membership)

        async with seeding_member(crawl):
            with progress(quiet=arguments.quiet, verbose=arguments.verbose) as meter:
                await _seed(crawl, plain, files, form, meter)
                report = await _recreate(
                    crawl, [crawl.folder, *more], meter, refetch=arguments.refetch, accept_loss=arguments.accept_loss
                )
        if report.alone:
            warn(without_replica(report.alone))
        if not arguments.quiet:
            await _print(crawl, report, [crawl.folder, *more])
    return 0


def entrance(others: Sequence["CrawlFolder"], partitions: int = 0) -> Entrance:
    """For `open_crawl`: enter the crawl of its folder and these, recreated if the engine lost it."""

    async def enter(folder: CrawlFolder, crawls: Crawls, settings: Settings, **_: Any) -> Any:
        return await admit_rebuild([folder, *others], crawls, settings, partitions=partitions)

    return enter


async def _seed(crawl: OpenCrawl, plain: list["GivenUrl"], files: list[str], form: ListForm, meter: Meter) -> None:
    seeder, intake = make_seeder(crawl), Intake(meter)
    async for batch in given_batches(plain, files, form, intake):
        intake.added(await seeder.add_all(batch))
    intake.end()


async def _recreate(
    crawl: OpenCrawl, folders: Sequence["CrawlFolder"], meter: Meter, *, refetch: bool, accept_loss: bool
) -> "RebuildReport":
    from crawler.recovery.rebuild import Rebuild

    deps = doors_of(await crawl.reloaded())
    try:
        return await Rebuild(deps, folders, refetch=refetch, accept_loss=accept_loss, meter=meter).run()
    finally:
        await deps.rereader.close()


def doors_of(crawl: OpenCrawl) -> "RebuildDeps":
    from crawler.crawl.reparse import Rereader
    from crawler.recovery.replay import RebuildDeps

    return RebuildDeps(
        name=crawl.settings.crawl.name,
        frontier=crawl.frontier,
        restoring=Restoring(crawl.engine, crawl.keys, hash_key=crawl.record.hash_key, files=crawl.spill_files),
        states=crawl.states,
        crawls=crawl.crawls,
        leases=crawl.leases,
        seeds=crawl.seeds,
        folders=crawl.folders,
        jobs=crawl.jobs,
        # What a budget of URLs would take in, the next instance takes up.
        router=make_router(crawl, admits_urls=lambda: not crawl.settings.budget.crawl_urls),
        runs=crawl.runs,
        rereader=Rereader(crawl.settings, crawl.record),
    )


async def _print(crawl: OpenCrawl, report: "RebuildReport", folders: Sequence["CrawlFolder"]) -> None:
    progress = await crawl.inspect.progress()
    for flaw in report.flaws:
        warn(flaw)
    if report.mended:
        warn(f"the index has the place of {counted(report.mended, 'record')} again, which bytes before it had moved")
    for one in report.taken_out:
        left = f"its records are in {one.left} now" if one.left else "it had no whole record"
        damaged = counted(one.damaged_bytes, "damaged byte")
        warn(f"{one.file} is mended: {damaged} taken out, and kept in {one.kept_in}; {left}")
    for hurt in report.journals_hurt:
        warn(f"its loss is accepted: {hurt}")
    if report.lines_lost:
        warn(f"left out, and kept in log/damaged.jsonl: {counted(report.lines_lost, 'damaged line')} of journals")
    if report.unplaced:
        warn(
            f"{counted(report.unplaced, 'archived page')} was never committed, and nothing known leads there "
            f"(like {report.unplaced_urls[0]}): another folder of the crawl may, or a seed that is to be given again"
        )
    if report.elsewhere:
        warn(
            f"the records of {counted(report.elsewhere, 'committed page')} are in another folder of this crawl: "
            "fetched again unless that one is rebuilt, too"
        )
    where = " and ".join(str(folder.root) for folder in folders)
    out(f"The crawl {crawl.settings.crawl.name!r} is recreated from {where}:\n")
    out(f"done     {progress.fetched:,} (not fetched again)")
    sources = f"links of {counted(report.records, 'archived page')}, {counted(report.seeds, 'seed')}"
    out(f"pending  {progress.pending:,} ({sources})")
    if report.of_jobs.jobs:
        out(f"jobs     {report.of_jobs.jobs:,}")
    if report.of_jobs.runs:
        out(f"runs     {report.of_jobs.runs:,} in the history of jobs, by their pages: how they ended is not known")
    _print_left_out(report)
    if report.pruned:
        out(f"         {report.pruned:,} that are done were pruned: links that only they had are not known any more")
        out("         ('crawler rebuild --refetch' fetches these pages again)")
    if report.refetched:
        files = ", ".join(f"{name} ({pages:,})" for name, pages in report.unreadable.most_common(FILES_SHOWN))
        more = (
            f" and {counted(len(report.unreadable) - FILES_SHOWN, 'more file')}"
            if len(report.unreadable) > FILES_SHOWN
            else ""
        )
        out(f"         {report.refetched:,} of them were done, but can't be read again: {files}{more}")
    out("\nDead letters, and URLs that robots.txt forbade, are tried again: only the engine knew them.")
    out("Rebuild the other folders of this crawl, if there are any; then crawl as before.")


def _print_left_out(report: "RebuildReport") -> None:
    if report.forgotten:
        lines = counted(report.forgotten, "line")
        out(f"         {lines} of the index left out, of domains that this crawl has forgotten")
