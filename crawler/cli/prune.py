"""`crawler prune`: removes old results from a crawl folder."""

import argparse

from crawler.archive.folder import open_existing
from crawler.cli.options import actor, settings_of
from crawler.cli.run_async import run_async
from crawler.crawl.opening import open_crawl
from crawler.errors import UsageError
from crawler.settings import Settings
from crawler.terminal.output import show
from crawler.terminal.progress import progress
from crawler.terminal.words import counted, size
from crawler.views.pruning import PruneResult, Wanted, prune
from crawler.views.values import domain_of

REASONS = {
    "running": "running instances still use their files",
    "outputs": "an output (-o) has not read them yet ({cursors}): run the crawl with the same -o, or delete that "
    "file if nobody wants the output any more",
    "unnamed": "their files have records that only the index of another folder of this crawl names",
    "unchanged": "pages that stay are unchanged from them, or have the same body, and have none of their own",
    "shown": "they are what pages load (--requisites), and pages stay that may show them",
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
