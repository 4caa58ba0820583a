"""`crawler rebuild`: recreates a crawl from its folder in an engine that lost it."""

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from crawler.cli.crawl_options import log_to_folder
from crawler.cli.options import add_common, settings_of
from crawler.crawl.url_input import add_urls, complaints, sources_of
from crawler.terminal.progress import progress
from crawler.terminal.text import counted, out, warn

if TYPE_CHECKING:
    from crawler.archive.folder import CrawlFolder
    from crawler.crawl.opening import Entrance, OpenCrawl
    from crawler.crawl.seed import GivenUrl
    from crawler.frontier.record import Crawls
    from crawler.recovery.replay import RebuildDeps, RebuildReport
    from crawler.rules.text import Meter
    from crawler.settings import Settings

FILES_SHOWN = 3
EPILOG = """\
examples:
  crawler rebuild
  crawler rebuild --redis redis://queue.example/ --dir crawl-data

For an engine that was wiped, or replaced by an empty one. Every page of the index counts as
done again and is not fetched again; every link of every archived page and every seed is
added again. Dead letters, and URLs that robots.txt forbade, are tried again.

Rebuild each folder of the crawl, on each of its machines, before anything crawls.
If a rebuild is interrupted, run the same command again.

exit codes: 0 done, 2 bad folder or URL, 3 engine, 4 instances are running, or the engine has
another crawl, 5 a part of index, archive or journals can't be read
"""


def add_parser(commands: "argparse._SubParsersAction[Any]") -> None:
    p = commands.add_parser(
        "rebuild",
        help="recreate a crawl from its folder when the engine lost it",
        description="Recreate a crawl in an engine that lost it, from the index, archive and seeds of its folder.",
        epilog=EPILOG,
    )
    add_urls(p)
    p.add_argument(
        "--refetch", action="store_true",
        help="fetch pages again whose record or items are missing or damaged (without this, they end the rebuild), or "
        "were pruned",
    )  # fmt: skip
    p.add_argument(
        "--accept-loss", action="store_true",
        help="go on without the seeds and jobs that damaged or cut journals had (without this, these end the rebuild)",
    )  # fmt: skip
    p.add_argument("-q", "--quiet", action="store_true", help="print only errors")
    add_common(p, many_folders=True)
    p.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Rebuild, and print what the engine has now."""
    from crawler.cli.event_loop import run_async

    plain, files = sources_of(arguments)
    folders = arguments.dir or []
    arguments.dir = folders[0] if folders else None
    return run_async(_run(arguments, settings_of(arguments, in_folder=True), folders[1:], plain, files))


async def _run(
    arguments: argparse.Namespace,
    settings: "Settings",
    others: Sequence[str],
    plain: list["GivenUrl"],
    files: list[str],
) -> int:
    from crawler.archive.folder import open_existing, open_or_create
    from crawler.crawl.opening import open_crawl
    from crawler.membership.peers import check_no_instance_runs, is_lock_free

    for folder in (settings.archive.dir, *others):
        open_existing(folder)  # fails before anything is created
    more = [open_or_create(other) for other in others]

    async with open_crawl(settings, create=True, enter=entrance(more)) as crawl:
        log_to_folder(settings, crawl.folder.log, "rebuild", verbose=bool(arguments.verbose))
        await check_no_instance_runs(crawl.members, is_lock_free, settings.membership)
        from crawler.views.seeds import seeding_member

        async with seeding_member(crawl):
            with progress(quiet=arguments.quiet, verbose=arguments.verbose) as meter:
                await _seed(crawl, plain, files, meter)
                report = await _rebuild(
                    crawl, [crawl.folder, *more], meter, refetch=arguments.refetch, accept_loss=arguments.accept_loss
                )
        if not arguments.quiet:
            await _print(crawl, report, [crawl.folder, *more])
    return 0


def entrance(others: Sequence["CrawlFolder"]) -> "Entrance":
    """For `open_crawl`: enter the crawl of its folder and these, recreated if the engine lost it."""
    from crawler.crawl.opening import admit_rebuild

    async def enter(folder: "CrawlFolder", crawls: "Crawls", settings: "Settings", **_: Any) -> Any:
        return await admit_rebuild([folder, *others], crawls, settings)

    return enter


async def _seed(crawl: "OpenCrawl", plain: list["GivenUrl"], files: list[str], meter: "Meter") -> None:
    from crawler.cli.seed import Intake, given_batches
    from crawler.crawl.opening import make_seeder

    seeder, intake = make_seeder(crawl), Intake(meter)
    async for batch in given_batches(plain, files, intake):
        intake.added(await seeder.add_all(batch))
    for line in complaints(seeder.report)[len(seeder.report.invalid) :]:
        warn(line)


async def _rebuild(
    crawl: "OpenCrawl", folders: Sequence["CrawlFolder"], meter: "Meter", *, refetch: bool, accept_loss: bool
) -> "RebuildReport":
    from crawler.recovery.rebuild import Rebuild

    deps = doors_of(await crawl.reloaded())
    try:
        return await Rebuild(deps, folders, refetch=refetch, accept_loss=accept_loss, meter=meter).run()
    finally:
        await deps.rereader.close()


def doors_of(crawl: "OpenCrawl") -> "RebuildDeps":

    from crawler.crawl.opening import make_router
    from crawler.crawl.reparse import Rereader
    from crawler.frontier.restore import Restoring
    from crawler.recovery.replay import RebuildDeps

    return RebuildDeps(
        name=crawl.settings.crawl.name,
        frontier=crawl.frontier,
        restoring=Restoring(
            crawl.engine, crawl.keys, hash_key=crawl.record.hash_key, run=crawl.record.run, files=crawl.spill_files
        ),
        states=crawl.states,
        crawls=crawl.crawls,
        seeds=crawl.seeds,
        jobs=crawl.jobs,
        # What a budget of URLs would take in, the next instance takes up.
        router=make_router(crawl, admits_urls=lambda: not crawl.settings.budget.crawl_urls),
        runs=crawl.runs,
        rereader=Rereader(crawl.settings, crawl.record),
    )


async def _print(crawl: "OpenCrawl", report: "RebuildReport", folders: Sequence["CrawlFolder"]) -> None:
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
