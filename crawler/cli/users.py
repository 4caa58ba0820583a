"""`crawler users`: the users who share a crawl, and their weights."""

import argparse
from typing import TYPE_CHECKING, Any

from crawler.cli.options import actor, add_common, settings_of
from crawler.errors import UsageError

if TYPE_CHECKING:
    from crawler.crawl.opening import OpenCrawl

EPILOG = """\
examples:
  crawler users                   users with waiting URLs, and their weights
  crawler users ann 3             ann gets three times the share of a user with weight 1
  crawler users ann 1             back to the default share
  crawler users --crawl 0.5       the weight of the crawl itself: URLs that belong to no job

Jobs belong to users ('crawler jobs add --user U'). While several users have URLs that are due,
they take turns by weight: in each domain, and in what an instance fetches. A user with nothing
to fetch leaves the share to the others. Running instances follow within two seconds.

exit codes: 0 done, 2 no such crawl, bad name or weight, 3 engine
"""


def add_parser(commands: "argparse._SubParsersAction[Any]") -> None:
    p = commands.add_parser(
        "users",
        help="list the users who share a crawl, or set a weight",
        description="List users with waiting URLs, or set the weight of one.",
        epilog=EPILOG,
    )
    p.add_argument("user", nargs="?", metavar="USER", help="whose weight to set (default: all users are listed)")
    p.add_argument("weight", nargs="?", metavar="WEIGHT", type=_number, help="from 0.01 to 1000; 1 is the default")
    p.add_argument("--crawl", metavar="WEIGHT", type=_number, help="the weight of URLs that belong to no job")
    p.add_argument("--json", action="store_true", help="as one JSON object")
    add_common(p)
    p.set_defaults(run=run, takes_urls=False)


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number") from None


def run(arguments: argparse.Namespace) -> int:
    """List users or set a weight. Raises UsageError."""
    from crawler.cli.event_loop import run_async
    from crawler.rules.jobs import CRAWL, check_user, check_weight

    if arguments.user is not None and (arguments.weight is None or arguments.crawl is not None):
        raise UsageError(f"users {arguments.user}: give a weight, like 'crawler users {arguments.user} 2'")
    user, weight = arguments.user or CRAWL, arguments.weight if arguments.crawl is None else arguments.crawl
    if weight is not None:
        check_weight(weight)
    if user != CRAWL:
        check_user(user)
    return run_async(_run(arguments, user, weight))


async def _run(arguments: argparse.Namespace, user: str, weight: float | None) -> int:
    from crawler.crawl.opening import open_crawl
    from crawler.terminal.text import out, out_json
    from crawler.views.commands import set_weight

    async with open_crawl(settings_of(arguments), create=False) as crawl:
        if weight is None:
            await _list(crawl, as_json=arguments.json)
            return 0
        await set_weight(crawl, user, weight, actor=actor())
    if arguments.json:
        out_json({"user": user or None, "weight": weight})
    else:
        out(f"{user or 'the crawl itself'}: weight {weight:g}")
    return 0


async def _list(crawl: "OpenCrawl", *, as_json: bool) -> None:
    from msgspec import to_builtins

    from crawler.terminal.text import number, out, out_json, table
    from crawler.views.commands import list_users

    found = await list_users(crawl)
    if as_json:
        out_json({"users": to_builtins(found)})
        return
    waiting = ["-" if one.waiting is None else number(one.waiting) for one in found]
    shown = [(one.user or "(the crawl)", f"{one.weight:g}", n) for one, n in zip(found, waiting, strict=True)]
    out(table(("user", "weight", "URLs waiting"), shown))
