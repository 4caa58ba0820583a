"""`crawler ring`: members and shares, the owner of a URL, pins, moves and eviction."""

import argparse
from collections.abc import Awaitable, Callable, Mapping

from crawler.cli.options import actor
from crawler.cli.run_async import run_on
from crawler.crawl.opening import OpenCrawl
from crawler.errors import UsageError
from crawler.terminal.output import show
from crawler.views.pins import evict, pin, pins, unpin
from crawler.views.ring_text import evict_text, members_text, pin_text, pins_text, place_text, plan_text, unpin_text
from crawler.views.shares import members, place, planned

Answer = tuple[object, str]  # for programs and for people


def run_ring(arguments: argparse.Namespace) -> int:
    """Open the crawl and print the answer. Raises UsageError."""
    return run_on(arguments, _ring)


async def _ring(crawl: OpenCrawl, arguments: argparse.Namespace) -> None:
    found, text = await ANSWERS[arguments.answer](crawl, arguments)
    show(found, text, as_json=arguments.json)


async def _show(crawl: OpenCrawl, arguments: argparse.Namespace) -> Answer:
    if arguments.url is None:
        listed = await members(crawl)
        return listed, members_text(listed)
    found = await place(crawl, arguments.url)
    return found, place_text(found)


async def _plan(crawl: OpenCrawl, arguments: argparse.Namespace) -> Answer:
    if not arguments.changes:
        raise UsageError("a plan needs a change: --add 2, --add NODE:WEIGHT, --remove 1 or --remove NODE")
    try:
        found = await planned(crawl, arguments.changes)
    except UsageError as error:  # add NODE: ..., remove NODE: ...
        raise UsageError(f"--{error}") from None
    return found, plan_text(found)


async def _pin(crawl: OpenCrawl, arguments: argparse.Namespace) -> Answer:
    found = await pin(crawl, arguments.domain, arguments.node, actor=actor())
    return found, pin_text(found)


async def _unpin(crawl: OpenCrawl, arguments: argparse.Namespace) -> Answer:
    found = await unpin(crawl, arguments.domain, actor=actor())
    return found, unpin_text(found)


async def _pins(crawl: OpenCrawl, _: argparse.Namespace) -> Answer:
    found = await pins(crawl)
    return found, pins_text(found)


async def _evict(crawl: OpenCrawl, arguments: argparse.Namespace) -> Answer:
    found = await evict(crawl, arguments.node, actor=actor())
    return found, evict_text(found)


ANSWERS: Mapping[str, Callable[[OpenCrawl, argparse.Namespace], Awaitable[Answer]]] = {
    "show": _show, "plan": _plan, "pin": _pin, "unpin": _unpin, "pins": _pins, "evict": _evict
}  # fmt: skip
