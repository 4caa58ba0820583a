"""`crawler prune`, `audit` and `rebuild`: what removes from a crawl folder, judges it, and reads a crawl from it."""

import argparse
import random
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace

from crawler.archive.folder import CrawlFolder, open_existing, open_or_create
from crawler.cli.crawl_options import KEYS, log_to_folder
from crawler.cli.event_loop import run_async
from crawler.cli.options import actor, settings_of, with_logins
from crawler.cli.seed import Intake, given_batches
from crawler.crawl.opening import Entrance, OpenCrawl, admit_rebuild, holding, make_router, make_seeder, open_crawl
from crawler.crawl.url_files import ListForm
from crawler.crawl.url_input import GivenUrl, form_of, sources_of
from crawler.errors import AuditFailed, UsageError
from crawler.frontier.job_audit import JobBooks
from crawler.frontier.leases import Takeovers
from crawler.frontier.record import Crawls
from crawler.frontier.restore import Restoring
from crawler.membership.node_names import check_no_instance_runs, is_lock_free
from crawler.outputs.opening import targets_of
from crawler.outputs.records import ITEMS, PAGES
from crawler.outputs.target import Target
from crawler.outputs.verify import compare
from crawler.rules.parts import Part, range_of, sample_of
from crawler.rules.progress import Meter
from crawler.settings import Settings
from crawler.terminal.progress import progress
from crawler.terminal.text import counted, out, out_json, show, size, warn
from crawler.views.pruning import PruneResult, Wanted, prune
from crawler.views.seeds import seeding_member
from crawler.views.values import domain_of

if TYPE_CHECKING:
    from crawler.audit.findings import Report
    from crawler.audit.run_audit import Subject, WebLogs
    from crawler.recovery.replay import RebuildDeps, RebuildReport


REASONS = {
    "running": "running instances still use their files",
    "outputs": "an output (-o) has not read them yet ({cursors}): run the crawl with the same -o, or delete that "
    "file if nobody wants the output any more",
    "unnamed": "their files have records that only the index of another folder of this crawl names",
    "unchanged": "pages of later runs, which stay, are unchanged from them and have no body of their own",
    "damaged": "their files are damaged: 'crawler audit' tells more",
}


def run_prune(arguments: argparse.Namespace) -> int:
    """Remove, and print what was."""
    domain = domain_of(arguments.domain) if arguments.domain else ""
    if not (arguments.older_than or arguments.keep_runs or domain):
        raise UsageError("name what to remove: --older-than WHEN, --keep-runs N, --domain DOMAIN")
    settings = settings_of(arguments, in_folder=True)
    result = run_async(_prune(arguments, settings, domain))
    show(result, _text(result, of_runs=arguments.keep_runs > 0), as_json=arguments.json)
    return 0


async def _prune(arguments: argparse.Namespace, settings: Settings, domain: str) -> PruneResult:
    open_existing(settings.archive.dir)  # fails before an engine is started
    async with open_crawl(settings, create=False) as crawl:
        wanted = Wanted(before=arguments.older_than, domain=domain, keep_runs=arguments.keep_runs)
        with progress(verbose=arguments.verbose) as meter:
            return await prune(crawl, wanted, dry_run=arguments.dry_run, actor=actor(), meter=meter)


def _text(result: PruneResult, *, of_runs: bool) -> str:
    lines = []
    if result.completed is not None:
        lines.append(f"Completed a prune that was interrupted, of {counted(result.completed, 'page')}.")
    if result.dry_run:
        verb, rewritten = "Would remove", "would be rewritten"
    else:
        verb, rewritten = "Removed", "rewritten"
    what = f"{counted(result.pages, 'page')} and {counted(result.attempts, 'attempt')} of the history"
    files = f"{counted(result.files_removed, 'file')} removed, {result.files_rewritten:,} {rewritten}"
    if result.dry_run:
        files = f"{counted(result.files_removed, 'file')} would be removed, {result.files_rewritten:,} {rewritten}"
    lines.append(f"{verb} {what}: {size(result.bytes)} ({files}).")
    if result.failed_runs:
        lines.append(f"{verb} {counted(result.failed_runs, 'failed run')} from the lists of their jobs.")
    for why, n in sorted(result.waiting.items()):
        reason = REASONS[why].format(cursors=", ".join(result.cursors))
        lines.append(f"{counted(n, 'page')} more stay for now: {reason}.")
    if result.pages and not result.dry_run:
        stay = "Their runs stay in the history of jobs." if of_runs else "They stay done, and are not fetched again."
        lines.append(f"{stay} Where they led is not in the archive any more.")
    return "\n".join(lines)


# `crawler audit`: was anything lost, committed twice, requested too early or against robots.txt?

JSON_LINES = b"{"


def run_audit(arguments: argparse.Namespace) -> int:
    """Print the report; raises AuditFailed when something is violated."""
    from crawler.audit.report import report_json, report_text, violations_text

    folders = arguments.dir or []
    arguments.dir = folders[0] if folders else None
    targets = _targets(arguments)
    if (arguments.of_partitions or arguments.sample) and (targets or arguments.web_log):
        given = "--web-log" if arguments.web_log else "-o"
        raise UsageError(f"{given} needs the whole crawl: leave --partitions and --sample out")
    report = run_async(
        _audit(arguments, with_logins(settings_of(arguments, KEYS, in_folder=True)), folders[1:], targets)
    )
    if arguments.json:
        out_json(report_json(report))
    else:
        out(report_text(report))
    if found := violations_text(report):
        raise AuditFailed(f"the crawl is not clean: {found}")
    if report.no_evidence:
        raise AuditFailed(f"nothing is proven: {report.no_evidence}")
    return 0


def _targets(arguments: argparse.Namespace) -> list["Target"]:
    return targets_of(arguments.output, table=(ITEMS if arguments.items else PAGES).name)


async def _audit(
    arguments: argparse.Namespace, settings: Settings, others: Sequence[str], targets: Sequence["Target"]
) -> Any:
    from crawler.audit.run_audit import audit

    for folder in (settings.archive.dir, *others):
        open_existing(folder)  # fails before an engine is started
    files = [_web_log(text) for text in arguments.web_log]
    async with open_crawl(settings, create=False) as crawl:
        part = part_of(arguments, crawl.record.partitions)
        subject = await _subject(crawl, others, _web_logs(files, arguments.agent, crawl.settings), part)
        with progress(verbose=arguments.verbose) as meter:
            report = await audit(subject, meter)
            for target in targets:
                _compare(subject.folders, target, report, items=arguments.items, meter=meter)
        return report


def _compare(folders: "Sequence[CrawlFolder]", target: Target, report: "Report", *, items: bool, meter: Meter) -> None:
    """Blocks; nothing else is going on in this process."""
    found = compare(folders, target, items=items, meter=meter)
    if not found.missing and not found.extra:
        report.notes.append(f"{found.target} has all {counted(found.wanted, found.what.removesuffix('s'))}")
    elif report.is_moving:
        has = f"{found.found:,} of {found.wanted:,} {found.what}"
        report.notes.append(f"{found.target} has {has}: not judged while the crawl is running")
    else:
        facts = msgspec.structs.asdict(found)
        report.findings.outputs.add(found.missing + found.extra, **facts)


def part_of(arguments: argparse.Namespace, partitions: int) -> Part | None:
    """Which partitions are wanted; None for all. Raises UsageError."""
    if arguments.of_partitions is None and arguments.sample is None:
        return None
    if arguments.of_partitions is not None and arguments.sample is not None:
        raise UsageError("--partitions and --sample can't be used together")
    if arguments.sample is not None:
        return sample_of(arguments.sample, partitions, random.sample)
    return range_of(arguments.of_partitions, partitions)


async def _subject(crawl: OpenCrawl, others: Sequence[str], logs: "WebLogs", part: Part | None) -> "Subject":
    from crawler.audit.judge_links import CrawlRules
    from crawler.audit.run_audit import Subject

    return Subject(
        settings=msgspec.structs.replace(crawl.settings, scope=crawl.record.scope),
        folders=[crawl.folder, *(open_existing(other) for other in others)],
        rules=CrawlRules(record=crawl.record, roots=crawl.roots, history=await crawl.crawls.history()),
        states=crawl.states,
        letters=crawl.letters,
        stats=crawl.stats,
        jobs=JobBooks(crawl.engine, crawl.keys, crawl.record.partitions),
        runs=crawl.runs,
        known_folders=await crawl.folders.read(),
        takeovers=Takeovers(crawl.engine, crawl.keys),
        overrides=crawl.operator.book,
        web_logs=logs,
        session=crawl.session,
        part=part,
    )


def _web_logs(files: Sequence[tuple[Path, str]], agent: str | None, settings: Settings) -> "WebLogs":
    """Of each log the requests of this agent; that of the crawl, if none was named."""
    from crawler.audit.run_audit import WebLogs

    if agent is None:
        product = settings.fetch.user_agent.partition("/")[0].strip()
        agent = "" if all(_is_json(file) for file, _ in files) else product
    return WebLogs(files=files, agent=agent)


def _web_log(text: str) -> tuple[Path, str]:
    """A file, and the host of its lines where they don't tell it. Raises UsageError."""
    from crawler.audit.requests import check_format, is_host, lacks_host

    host, equals, name = text.partition("=")
    if not equals or Path(text).is_file():
        host, name = "", text
    file = Path(name)
    if not file.is_file():
        raise UsageError(f"web log {file} does not exist")
    if host and not is_host(host):
        raise UsageError(f"--web-log {text}: {host!r} is not a host, with or without a port")
    if not host and lacks_host(file):
        raise UsageError(f"{file} has no hosts: write --web-log HOST={file}")
    check_format(file, host)
    return file, host


def _is_json(file: Path) -> bool:
    try:
        with file.open("rb") as opened:
            return opened.read(1) in (JSON_LINES, b"")
    except OSError as error:
        raise UsageError(f"can't read the web log {file}: {error.strerror}") from None


# `crawler rebuild`: recreates a crawl from its folder in an engine that lost it.

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
        restoring=Restoring(
            crawl.engine, crawl.keys, hash_key=crawl.record.hash_key, run=crawl.record.run, files=crawl.spill_files
        ),
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
