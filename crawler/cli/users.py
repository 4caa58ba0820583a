"""`crawler users`: the users who share a crawl, and their weights."""

import argparse

from msgspec import to_builtins

from crawler.cli.options import actor, settings_of
from crawler.cli.run_async import run_async
from crawler.crawl.opening import OpenCrawl, open_crawl
from crawler.errors import UsageError
from crawler.rules.job_names import check_user
from crawler.rules.shares import CRAWL, check_weight
from crawler.terminal.output import out, out_json, show
from crawler.terminal.tables import table
from crawler.terminal.words import number
from crawler.views.users import list_users, set_weight


def run_users(arguments: argparse.Namespace) -> int:
    """List users or set a weight. Raises UsageError."""
    if arguments.user is not None and (arguments.weight is None or arguments.crawl is not None):
        raise UsageError(f"users {arguments.user}: give a weight, like 'crawler users {arguments.user} 2'")
    user, weight = arguments.user or CRAWL, arguments.weight if arguments.crawl is None else arguments.crawl
    if weight is not None:
        check_weight(weight)
    if user != CRAWL:
        check_user(user)
    return run_async(_users(arguments, user, weight))


async def _users(arguments: argparse.Namespace, user: str, weight: float | None) -> int:
    async with open_crawl(settings_of(arguments), create=False) as crawl:
        if weight is None:
            await _list_users(crawl, as_json=arguments.json)
            return 0
        await set_weight(crawl, user, weight, actor=actor())
    text = f"{user or 'the crawl itself'}: weight {weight:g}"
    show({"user": user or None, "weight": weight}, text, as_json=arguments.json)
    return 0


async def _list_users(crawl: OpenCrawl, *, as_json: bool) -> None:
    found = await list_users(crawl)
    if as_json:
        out_json({"users": to_builtins(found)})
        return
    waiting = ["-" if one.waiting is None else number(one.waiting) for one in found]
    shown = [(one.user or "(the crawl)", f"{one.weight:g}", n) for one, n in zip(found, waiting, strict=True)]
    out(table(("user", "weight", "URLs waiting"), shown))
