"""`crawler dead`: lists dead letters, puts them back into their queues, or purges them."""

import argparse

import msgspec

from crawler.cli.options import SHOWN, actor
from crawler.cli.run_async import run_on
from crawler.crawl.opening import OpenCrawl
from crawler.crawl.url_input import url_of
from crawler.errors import NotMetError, UsageError
from crawler.terminal.output import out, out_json, show
from crawler.views import operator
from crawler.views.dead_letter_changes import LetterFilter, dead_letter, dead_letter_list, dead_letters, purge, retry
from crawler.views.dead_letters import letter_text, letters_table
from crawler.views.values import domain_of, letter_reason_of


def run_dead(arguments: argparse.Namespace) -> int:
    """Do it. Raises UsageError for an invalid or ambiguous choice of dead letters."""
    _check(arguments)
    return run_on(arguments, _dead)


def _check(arguments: argparse.Namespace) -> None:
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


async def _dead(crawl: OpenCrawl, arguments: argparse.Namespace) -> None:
    wanted = LetterFilter(
        domain=arguments.domain, reason=arguments.reason or "", urls=arguments.urls, run=arguments.of_run or ""
    )
    if wanted.domain and not await operator.is_met(crawl, wanted.domain):
        raise NotMetError(f"this crawl never met {wanted.domain}: it has no dead letter of it")
    if wanted.run and not any([some async for some in dead_letters(crawl, LetterFilter(run=wanted.run), 1)]):
        from crawler.views.jobs import find_run

        await find_run(crawl, wanted.run)  # raises for an unknown one; those of a removed job may be here
    act = {"list": _list_letters, "show": _show, "retry": _retry, "purge": _purge}[arguments.action]
    await act(crawl, wanted, arguments)


async def _list_letters(crawl: OpenCrawl, wanted: LetterFilter, arguments: argparse.Namespace) -> None:
    if arguments.json:
        async for some in dead_letters(crawl, wanted, arguments.limit):
            for letter in some:
                out_json(msgspec.to_builtins(letter))
        return
    found = await dead_letter_list(crawl, wanted, arguments.limit or SHOWN)
    out(letters_table(found.newest, found.reasons))


async def _show(crawl: OpenCrawl, wanted: LetterFilter, arguments: argparse.Namespace) -> None:
    letter = await dead_letter(crawl, wanted)
    show(letter, letter_text(letter), as_json=arguments.json)


async def _retry(crawl: OpenCrawl, wanted: LetterFilter, arguments: argparse.Namespace) -> None:
    done = await retry(crawl, wanted, limit=arguments.limit, actor=actor())
    show({"retried": done.letters}, done.text, as_json=arguments.json)


async def _purge(crawl: OpenCrawl, wanted: LetterFilter, arguments: argparse.Namespace) -> None:
    done = await purge(crawl, wanted, limit=arguments.limit, actor=actor())
    show({"purged": done.letters}, done.text, as_json=arguments.json)
