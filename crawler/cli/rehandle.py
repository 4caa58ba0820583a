"""`crawler rehandle`: runs handlers over the pages of a crawl folder again, without a request."""

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from crawler.cli.crawl_options import add_app, log_to_folder
from crawler.cli.export import add_output, checked_targets
from crawler.cli.options import actor, add_common, settings_of
from crawler.errors import ArchiveError, HandlersFailed, UsageError

if TYPE_CHECKING:
    from crawler.outputs.target import Target
    from crawler.settings import Settings
    from crawler.views.rehandling import RehandleResult

EPILOG = """\
examples:
  crawler rehandle                                the app of the crawl, after it was changed
  crawler rehandle --app shop.py                  an app for a crawl that had none, or another one
  crawler rehandle --app shop.py -o items.jsonl   the same, and the new items there
  crawler rehandle --domain shop.example

No request is sent: pages come from the archive, with the status, headers and body that they had.
What handlers yield replaces the items of their pages. URLs that they follow, and that the crawl
does not know, are added: the next 'crawler crawl' fetches them. An app that is named becomes the
app of the crawl.

Pages whose handler fails, and pages whose body is not in the archive of this folder, keep their
items. Nothing changes before all pages were handled: until then Ctrl-C leaves everything as it
was. If the command is killed, run it again. No instance may run meanwhile.

exit codes: 0 done, 2 no such crawl or app, 3 engine, 4 an instance is running, or a prune or
rebuild, 5 bodies are missing, or the disk is full, 12 a target of -o is away, or rejects the
items, 13 the handler failed on pages
"""
UNREADABLE = {
    "no_record": "it was stored without its body (archive.warc = no); only another crawl can fetch it again",
    "not_found": "its body is in a file that is not in this folder; run the command where that file is",
    "damaged": "its record or its items are damaged; 'crawler audit' names the file",
}


def add_parser(commands: "argparse._SubParsersAction[Any]") -> None:
    p = commands.add_parser(
        "rehandle",
        help="run handlers over the pages of a crawl again",
        description="Run handlers (--app) over the pages in the archive again, and replace the items of these pages.",
        epilog=EPILOG,
    )
    add_app(p)
    p.add_argument("--domain", metavar="DOMAIN", default="", help="only pages of a domain; or one of its hosts or URLs")
    p.add_argument(
        "--append", action="store_true", help="keep the items that pages have, and add those that they do not have yet"
    )
    add_output(p.add_argument_group("results"))
    p.add_argument("--json", action="store_true", help="as one JSON object")
    add_common(p)
    p.set_defaults(run=run, takes_urls=False)


def run(arguments: argparse.Namespace) -> int:
    """Handle all pages, and print what came of it. Raises HandlersFailed and ArchiveError after that."""
    from crawler.archive.folder import open_existing
    from crawler.cli.checking import check_app
    from crawler.cli.event_loop import run_async
    from crawler.crawl.terms import permitted
    from crawler.views.commands import domain_of

    domain = domain_of(arguments.domain) if arguments.domain else ""
    settings = settings_of(arguments, {"app": "handlers.app"}, in_folder=True)
    open_existing(settings.archive.dir)  # fails before an engine is started
    settings = permitted(settings)
    if not settings.handlers.app:
        raise UsageError("this crawl has no app: name one with --app, like --app shop.py")
    check_app(settings)
    targets = checked_targets(arguments, settings.archive.dir, items=True)
    return run_async(_run(arguments, settings, domain, targets), has_users_code=True)


async def _run(arguments: argparse.Namespace, settings: "Settings", domain: str, targets: "Sequence[Target]") -> int:
    import msgspec

    from crawler.cli.session import kept_up_to_date, raise_first
    from crawler.crawl.opening import open_crawl
    from crawler.crawl.terms import app_name
    from crawler.handlers.load_app import load_app
    from crawler.terminal.progress import progress
    from crawler.terminal.text import out, out_json, warn
    from crawler.views.rehandling import rehandle

    async with open_crawl(settings, create=False) as crawl:
        log_to_folder(settings, crawl.folder.log, "rehandle", verbose=bool(arguments.verbose))
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
    from crawler.terminal.text import counted

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
    if result.pruned:
        lines.append(f"{counted(result.pruned, 'page was', 'pages were')} pruned, and stay without items.")
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
    from crawler.terminal.text import counted

    if result.failed:
        raise HandlersFailed(
            f"the handler failed on {counted(result.failed, 'page')}, whose items stay as they were: mend it and give "
            "the same command again; log/rehandle.log has each"
        )
    if missing := result.unreadable.total():
        raise ArchiveError(f"{counted(missing, 'page')} can't be read from the archive: the items stay as they were")
