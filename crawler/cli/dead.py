"""`crawler dead`: lists dead letters, puts them back into their queues, or purges them."""

import argparse
from typing import TYPE_CHECKING, Any

from crawler.cli.options import actor, add_common, settings_of, whole_type
from crawler.errors import UsageError

if TYPE_CHECKING:
    from crawler.crawl.opening import OpenCrawl
    from crawler.settings import Settings
    from crawler.views.dead_letters import LetterFilter

SHOWN = 50
ACTIONS = ("list", "show", "retry", "purge")

EPILOG = """\
examples:
  crawler dead list                                the newest, and how many for each reason
  crawler dead show https://docs.example/slow      everything about one, with each attempt
  crawler dead retry --domain docs.example         retry all of them when their site is back
  crawler dead retry https://docs.example/slow
  crawler dead purge --reason dns_not_found
  crawler dead list --run 0k3v9x2m7q.1.trvm5c      those of a run of a job

A retried URL counts as new and gets all its attempts again. A running crawl takes it up at
once; a finished one with 'crawler crawl'. URLs of a run of a job are put back while it goes on;
'crawler jobs retry' repeats one that has failed. A purged URL stays seen: it is not crawled again,
and counts as refused ("purged").

With --json, `list` prints one object a line, and all of them unless --limit is given.

exit codes: 0 done, 2 no such crawl, URL or reason, 3 engine
"""


def add_parser(commands: "argparse._SubParsersAction[Any]") -> None:
    p = commands.add_parser(
        "dead",
        usage="crawler dead list|show|retry|purge [URL ...] [options]",
        help="dead letters (URLs that ran out of attempts): list, retry or purge them",
        description="Dead letters: URLs whose last attempt failed, with the reason and each attempt.",
        epilog=EPILOG,
    )
    p.add_argument("action", choices=ACTIONS, metavar="ACTION", help="list, show, retry or purge")
    p.add_argument("urls", nargs="*", metavar="URL", help="of these URLs only")
    p.add_argument("--domain", metavar="D", help="only of this domain")
    p.add_argument("--reason", metavar="R", help="only those that failed for this reason, like timeout or dns_error")
    p.add_argument("--run", dest="of_run", metavar="RUN", help="only of this run of a job")
    p.add_argument("--limit", metavar="N", type=whole_type, help=f"at most N (default: all; {SHOWN} in a table)")
    p.add_argument("--all", action="store_true", help="retry or purge all there are")
    p.add_argument("--json", action="store_true", help="for programs; times in seconds")
    add_common(p)
    p.set_defaults(run=run, takes_urls=True)


def run(arguments: argparse.Namespace) -> int:
    """Do it. Raises UsageError for an invalid or ambiguous choice of dead letters."""
    from crawler.cli.event_loop import run_async

    _check(arguments)
    return run_async(_run(arguments, settings_of(arguments)))


def _check(arguments: argparse.Namespace) -> None:
    from crawler.crawl.url_input import url_of
    from crawler.views.commands import domain_of, letter_reason_of

    action, urls = arguments.action, arguments.urls
    filters = arguments.domain or arguments.reason or (arguments.of_run and not urls)
    if action == "list" and urls:
        raise UsageError(f"'crawler dead list' takes no URL: write 'crawler dead show {urls[0]}'")
    if action == "show" and len(urls) != 1:
        raise UsageError("name one URL: crawler dead show URL")
    if urls and (filters or arguments.all or arguments.limit is not None):
        raise UsageError("URLs go alone or with --run, without --domain, --reason, --limit and --all")
    if action in ("retry", "purge") and not (urls or filters or arguments.all):
        raise UsageError(f"'crawler dead {action}' needs a choice: give URLs, --domain, --reason, --run or --all")
    if arguments.limit is not None and arguments.limit < 1:
        raise UsageError(f"--limit {arguments.limit}: expected a number of dead letters")
    if arguments.reason:
        try:
            letter_reason_of(arguments.reason)
        except UsageError as error:
            raise UsageError(f"--{error}") from None
    arguments.domain = domain_of(arguments.domain) if arguments.domain else ""
    arguments.urls = [url_of(url) for url in urls]


async def _run(arguments: argparse.Namespace, settings: "Settings") -> int:
    from crawler.crawl.opening import open_crawl

    async with open_crawl(settings, create=False) as crawl:
        from crawler.views.dead_letters import LetterFilter

        wanted = LetterFilter(
            domain=arguments.domain, reason=arguments.reason or "", urls=arguments.urls, run=arguments.of_run or ""
        )
        act = {"list": _list, "show": _show, "retry": _retry, "purge": _purge}[arguments.action]
        await act(crawl, wanted, arguments)
    return 0


async def _list(crawl: "OpenCrawl", wanted: "LetterFilter", arguments: argparse.Namespace) -> None:
    import msgspec

    from crawler.terminal.text import out, out_json
    from crawler.views.dead_letters import dead_letter_list, dead_letters, letters_table

    if arguments.json:
        async for some in dead_letters(crawl, wanted, arguments.limit):
            for letter in some:
                out_json(msgspec.to_builtins(letter))
        return
    found = await dead_letter_list(crawl, wanted, arguments.limit or SHOWN)
    out(letters_table(found.newest, found.reasons))


async def _show(crawl: "OpenCrawl", wanted: "LetterFilter", arguments: argparse.Namespace) -> None:
    import msgspec

    from crawler.terminal.text import out, out_json
    from crawler.views.dead_letters import dead_letter, letter_text

    letter = await dead_letter(crawl, wanted)
    if arguments.json:
        out_json(msgspec.to_builtins(letter))
    else:
        out(letter_text(letter))


async def _retry(crawl: "OpenCrawl", wanted: "LetterFilter", arguments: argparse.Namespace) -> None:
    from crawler.terminal.text import counted, out, out_json
    from crawler.views.dead_letters import retry

    done = await retry(crawl, wanted, limit=arguments.limit, actor=actor())
    if arguments.json:
        out_json({"retried": done.letters})
    else:
        is_idle = done.letters and not done.is_running
        idle = "; no instance is running: start one with 'crawler crawl'" if is_idle else ""
        ended = ": no such dead letter, or the run has ended" if arguments.of_run and not done.letters else ""
        out(f"{counted(done.letters, 'URL')} put back{ended or idle}")


async def _purge(crawl: "OpenCrawl", wanted: "LetterFilter", arguments: argparse.Namespace) -> None:
    from crawler.terminal.text import counted, out, out_json
    from crawler.views.dead_letters import purge

    done = await purge(crawl, wanted, limit=arguments.limit, actor=actor())
    if arguments.json:
        out_json({"purged": done.letters})
    else:
        out(f"{counted(done.letters, 'dead letter')} purged")
