"""`crawler rehandle`: runs handlers over the pages of a crawl folder again, without a request."""

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from crawler.archive.folder import open_existing
from crawler.cli.check import check_app
from crawler.cli.crawl_options import log_to_folder
from crawler.cli.options import actor, settings_of
from crawler.cli.run_async import run_async
from crawler.crawl.opening import open_crawl
from crawler.crawl.terms import app_name, permitted
from crawler.errors import ArchiveError, HandlersFailed, NotMetError, UsageError
from crawler.outputs.target import Target
from crawler.settings import Settings
from crawler.terminal.output import out, out_json, warn
from crawler.terminal.progress import progress
from crawler.terminal.words import counted
from crawler.views.operator import is_met
from crawler.views.values import domain_of

if TYPE_CHECKING:
    from crawler.views.rehandling import RehandleResult
from crawler.cli.export import checked_targets

UNREADABLE = {
    "no_record": "it was stored without its body (archive.warc = no); only another crawl can fetch it again",
    "not_found": "its body is in a file that is not in this folder; run the command where that file is",
    "damaged": "its record or its items are damaged; 'crawler audit' names the file",
}


def run_rehandle(arguments: argparse.Namespace) -> int:
    """Handle all pages, and print what came of it. Raises HandlersFailed and ArchiveError after that."""
    domain = domain_of(arguments.domain) if arguments.domain else ""
    settings = settings_of(arguments, {"app": "handlers.app"}, in_folder=True)
    open_existing(settings.archive.dir)  # fails before an engine is started
    settings = permitted(settings)
    if not settings.handlers.app:
        raise UsageError("this crawl has no app: name one with --app, like --app shop.py")
    check_app(settings)
    targets = checked_targets(arguments, settings.archive.dir, items=True)
    return run_async(_run(arguments, settings, domain, targets), has_users_code=True)


async def _run(arguments: argparse.Namespace, settings: Settings, domain: str, targets: "Sequence[Target]") -> int:
    from crawler.cli.kept_outputs import kept_up_to_date, raise_first
    from crawler.handlers.load_app import load_app
    from crawler.views.rehandling import rehandle

    async with open_crawl(settings, create=False) as crawl:
        log_to_folder(settings, crawl.folder.log, "rehandle", verbose=bool(arguments.verbose))
        if domain and not await is_met(crawl, domain):
            raise NotMetError(f"this crawl never met {domain}: nothing is done")
        app, before = load_app(settings.handlers.app), crawl.record.needs.app
        with progress(verbose=arguments.verbose) as meter:
            result = await rehandle(crawl, app, domain=domain, append=arguments.append, actor=actor(), meter=meter)
        async with kept_up_to_date(crawl.folder, targets, warn, items=True) as ended:
            pass  # all of it is there
        if arguments.json:
            out_json(msgspec.to_builtins(result))
        else:
            out(_text(result))
            if before != (name := app_name(settings.handlers.app)):
                out(f"The app of the crawl is {name} now{f', and was {before}' if before else ''}.")
        raise_first(ended.problems, warn)
        _raise_for(result)
    return 0


def _text(result: "RehandleResult") -> str:
    lines = ["Completed an earlier rehandle, which was interrupted."] if result.completed else []
    handled = result.pages - result.failed - result.unreadable.total()
    lines.append(
        f"Handled {counted(handled, 'page')} again: {counted(result.items, 'item')} ({result.items_before:,} "
        f"before); {counted(result.changed, 'page has', 'pages have')} other items now."
    )
    if result.urls_added:
        lines.append(f"{counted(result.urls_added, 'new URL')} to crawl: 'crawler crawl' fetches them.")
    if result.items_invalid:
        lines.append(f"{counted(result.items_invalid, 'invalid item')} left out; log/rehandle.log has the reasons.")
    if result.items_dropped:
        lines.append(f"{counted(result.items_dropped, 'item')} dropped by functions of @app.item.")
    if result.pruned:
        lines.append(f"{counted(result.pruned, 'page was', 'pages were')} pruned, and stay without items.")
    if result.withheld:
        lines.append(
            f"{counted(result.withheld, 'page')} without a body, because of their rights: no handler gets them."
        )
    if result.dead:
        lines.append(
            f"{counted(result.dead, 'page')} not in the archive, because a handler failed when the page was fetched: "
            "'crawler dead retry --reason handler' retries."
        )
    if result.failures:
        first = result.failures[0]
        lines.append(f"The handler failed on {counted(result.failed, 'page')}, like {first.url}: {first.detail}")
        lines += [first.trace] * bool(first.trace)
    for why, n in sorted(result.unreadable.items()):
        lines.append(f"{counted(n, 'page')} not handled, like {result.unreadable_urls[why]}: {UNREADABLE[why]}.")
    return "\n".join(lines)


def _raise_for(result: "RehandleResult") -> None:
    if result.failed:
        raise HandlersFailed(
            f"the handler failed on {counted(result.failed, 'page')}, whose items stay as they were: mend it and give "
            "the same command again; log/rehandle.log has each"
        )
    if missing := result.unreadable.total():
        raise ArchiveError(f"{counted(missing, 'page')} can't be read from the archive: the items stay as they were")
