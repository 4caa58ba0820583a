"""`crawler prune`: removes old results from a crawl folder."""

import argparse
from typing import TYPE_CHECKING, Any

from crawler.cli.export import since_type
from crawler.cli.options import actor, add_common, count_type, settings_of
from crawler.errors import UsageError

if TYPE_CHECKING:
    from crawler.settings import Settings
    from crawler.views.pruning import PruneResult

EPILOG = """\
examples:
  crawler prune --older-than 30d --dry-run          what would go
  crawler prune --older-than 30d                    pages that were fetched more than 30 days ago
  crawler prune --keep-runs 5                       of each job, all but the newest 5 runs
  crawler prune --domain docs.example               all pages of a domain
  crawler prune --older-than 90d --domain docs.example

With several conditions, pages go for which all hold. Records, items and attempts are removed;
of each page a short line of the index stays, so it is not fetched again while the engine, or a
rebuild, knows it. 'jobs history' keeps the rows of runs. Pages of active runs, what running
instances still write to, and what outputs (-o) have not read yet stay for now. The crawl may
be running. Where several machines crawl, prune the folder of each. A prune that was
interrupted is completed by the next one.

Files of which a part goes are copied: one after the other, so the disk needs about 1 GB.

exit codes: 0 done, 2 no such crawl, or no condition, 3 engine, 4 another prune, a rebuild, an
export or an audit is in the way: repeat it later, 5 the disk is full or fails
"""
REASONS = {
    "running": "running instances still use their files",
    "outputs": "an output (-o) has not read them yet ({cursors}): run the crawl with the same -o, or delete that "
    "file if nobody wants the output any more",
    "unnamed": "their files have records that only the index of another folder of this crawl names",
    "damaged": "their files are damaged: 'crawler audit' tells more",
}


def add_parser(commands: "argparse._SubParsersAction[Any]") -> None:
    p = commands.add_parser(
        "prune",
        help="remove old results from a crawl folder",
        description="Remove pages from a crawl folder: by age, by domain, or all but the newest runs of jobs.",
        epilog=EPILOG,
    )
    p.add_argument(
        "--older-than", type=age_type, metavar="WHEN", default=0.0,
        help="pages fetched before: a time ago (12h, 30d) or a date, 2026-11-01 or 2026-11-01T08:00 (UTC)",
    )  # fmt: skip
    p.add_argument(
        "--keep-runs", type=count_type(1), metavar="N", default=0,
        help="pages of the runs of jobs, but for the newest N of each job, and active ones",
    )  # fmt: skip
    p.add_argument("--domain", metavar="DOMAIN", default="", help="pages of a domain; or one of its hosts or URLs")
    p.add_argument("--dry-run", action="store_true", help="remove nothing, print what would be")
    p.add_argument("--json", action="store_true", help="as one JSON object")
    add_common(p)
    p.set_defaults(run=run, takes_urls=False)


def age_type(text: str) -> float:
    """For argparse: like `since_type`, but a number needs its unit: nobody's 30 days are to become 30 seconds."""
    if text.strip().isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} has no unit (use 12h, 30d; or a date: 2026-11-01)")
    return since_type(text)


def run(arguments: argparse.Namespace) -> int:
    """Remove, and print what was."""
    from crawler.cli.event_loop import run_async
    from crawler.terminal.text import out, out_json
    from crawler.views.commands import domain_of

    domain = domain_of(arguments.domain) if arguments.domain else ""
    if not (arguments.older_than or arguments.keep_runs or domain):
        raise UsageError("name what to remove: --older-than WHEN, --keep-runs N, --domain DOMAIN")
    settings = settings_of(arguments, in_folder=True)
    result = run_async(_run(arguments, settings, domain))
    if arguments.json:
        import msgspec

        out_json(msgspec.to_builtins(result))
    else:
        out(_text(result, of_runs=arguments.keep_runs > 0))
    return 0


async def _run(arguments: argparse.Namespace, settings: "Settings", domain: str) -> "PruneResult":
    from crawler.archive.folder import open_existing
    from crawler.crawl.opening import open_crawl
    from crawler.terminal.progress import progress

    open_existing(settings.archive.dir)  # fails before an engine is started
    async with open_crawl(settings, create=False) as crawl:
        from crawler.views.pruning import Wanted, prune

        wanted = Wanted(before=arguments.older_than, domain=domain, keep_runs=arguments.keep_runs)
        with progress(verbose=arguments.verbose) as meter:
            return await prune(crawl, wanted, dry_run=arguments.dry_run, actor=actor(), meter=meter)


def _text(result: "PruneResult", *, of_runs: bool) -> str:
    from crawler.terminal.text import counted, size

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
