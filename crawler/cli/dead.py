"""`crawler dead`: lists dead letters, puts them back into their queues, or purges them."""

import argparse
import heapq
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from typing import TYPE_CHECKING, Any

from crawler.cli.options import add_common, settings_of, whole_type
from crawler.errors import UsageError

if TYPE_CHECKING:
    from crawler.app.crawl import OpenCrawl
    from crawler.frontier.dead_letters import DeadLetters, StoredLetter
    from crawler.settings import Settings

SHOWN = 50
ACTIONS = ("list", "show", "retry", "purge")

EPILOG = """\
examples:
  crawler dead list                                the newest, and how many for each reason
  crawler dead show https://docs.example/slow      everything about one, with each attempt
  crawler dead retry --domain docs.example         retry all of them when their site is back
  crawler dead retry https://docs.example/slow
  crawler dead purge --reason dns_not_found

A retried URL counts as new and gets all its attempts again. A running crawl takes it up at
once; a finished one with 'crawler crawl'. A purged URL stays seen: it is not crawled again,
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
    from crawler.model import FailureKind
    from crawler.seeding.url_input import url_of

    action, urls = arguments.action, arguments.urls
    filters = arguments.domain or arguments.reason
    if action == "list" and urls:
        raise UsageError(f"'crawler dead list' takes no URL: write 'crawler dead show {urls[0]}'")
    if action == "show" and len(urls) != 1:
        raise UsageError("name one URL: crawler dead show URL")
    if urls and (filters or arguments.all or arguments.limit is not None):
        raise UsageError("URLs go alone, without --domain, --reason, --limit and --all")
    if action in ("retry", "purge") and not (urls or filters or arguments.all):
        raise UsageError(f"'crawler dead {action}' needs a choice: give URLs, --domain, --reason or --all")
    if arguments.limit is not None and arguments.limit < 1:
        raise UsageError(f"--limit {arguments.limit}: expected a number of dead letters")
    if arguments.reason and arguments.reason not in list(FailureKind):
        raise UsageError(f"--reason {arguments.reason}: expected one of {', '.join(FailureKind)}")
    arguments.urls = [url_of(url) for url in urls]


async def _run(arguments: argparse.Namespace, settings: "Settings") -> int:
    from crawler.app.open_crawl import open_crawl

    async with open_crawl(settings, create=False) as crawl:
        letters = crawl.letters
        if arguments.action == "list":
            await _list(_wanted(crawl, letters, arguments), limit=arguments.limit, as_json=arguments.json)
        elif arguments.action == "show":
            await _show(crawl, letters, arguments.urls[0], as_json=arguments.json)
        else:
            await _change(crawl, letters, arguments)
    return 0


async def _wanted(
    crawl: "OpenCrawl", letters: "DeadLetters", arguments: argparse.Namespace
) -> "AsyncIterator[list[StoredLetter]]":
    """The letters that options ask for, some at a time, and without a limit in the case of a table."""
    from crawler.seeding.url_input import url_of_site

    domain, _, partition = crawl.placement.of(url_of_site(arguments.domain)) if arguments.domain else ("", "", -1)
    left = arguments.limit if arguments.action != "list" or arguments.json else None
    async for some in letters.read(partition):
        found = [
            one for one in some
            if (not domain or one.letter.domain == domain) and arguments.reason in (None, one.letter.reason)
        ]  # fmt: skip
        yield found[:left]
        if left is not None:
            left -= min(left, len(found))
            if not left:
                return


async def _list(found: "AsyncIterator[list[StoredLetter]]", *, limit: int | None, as_json: bool) -> None:
    from crawler.reports.dead_letters_view import letter_json, letters_table
    from crawler.terminal.printing import out, out_json

    reasons: Counter[str] = Counter()
    newest: list[tuple[float, str, Any]] = []
    async for some in found:
        if as_json:
            for one in some:
                out_json(letter_json(one.letter))
            continue
        reasons.update(one.letter.reason for one in some)
        keyed = [(one.letter.failed_at, one.fingerprint, one.letter) for one in some]
        newest = heapq.nlargest(limit or SHOWN, [*newest, *keyed], key=lambda one: one[:2])
    if not as_json:
        out(letters_table([letter for _, _, letter in newest], reasons))


async def _show(crawl: "OpenCrawl", letters: "DeadLetters", url: str, *, as_json: bool) -> None:
    from crawler.reports.dead_letters_view import letter_json, letter_text
    from crawler.terminal.printing import out, out_json

    found = await _of_urls(crawl, letters, [url])
    letter = found[0].letter
    if as_json:
        out_json(letter_json(letter))
    else:
        out(letter_text(letter))


async def _of_urls(crawl: "OpenCrawl", letters: "DeadLetters", urls: Sequence[str]) -> "list[StoredLetter]":
    """The letters of these URLs. Raises UsageError when one has none."""
    found = []
    for url in urls:
        _, _, partition = crawl.placement.of(url)
        one = await letters.find(partition, crawl.frontier.fingerprints.of(url))
        if one is None:
            raise UsageError(f"{url} is not a dead letter (see: crawler explain {url})")
        found.append(one)
    return found


async def _change(crawl: "OpenCrawl", letters: "DeadLetters", arguments: argparse.Namespace) -> None:
    from crawler.model import RefusalReason
    from crawler.terminal.printing import out, out_json
    from crawler.terminal.wording import counted

    is_retry, done = arguments.action == "retry", 0
    async for some in _chosen(crawl, letters, arguments):
        done += await letters.requeue(some) if is_retry else await letters.discard(some, RefusalReason.PURGED)
    if arguments.json:
        out_json({"retried" if is_retry else "purged": done})
    elif not is_retry:
        out(f"{counted(done, 'dead letter')} purged")
    else:
        idle = "" if await crawl.members.read() else "; no instance is running: start one with 'crawler crawl'"
        out(f"{counted(done, 'URL')} put back{idle if done else ''}")


async def _chosen(
    crawl: "OpenCrawl", letters: "DeadLetters", arguments: argparse.Namespace
) -> "AsyncIterator[list[StoredLetter]]":
    if arguments.urls:
        yield await _of_urls(crawl, letters, arguments.urls)
        return
    async for some in _wanted(crawl, letters, arguments):
        yield some
