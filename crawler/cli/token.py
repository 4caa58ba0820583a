"""`crawler token`: makes, lists and removes the tokens of the HTTP API."""

import argparse
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from crawler.cli.options import actor, add_common, settings_of
from crawler.errors import UsageError

if TYPE_CHECKING:
    from crawler.crawl.opening import OpenCrawl

Act = Callable[["OpenCrawl", argparse.Namespace], Awaitable[None]]

EPILOG = """\
examples:
  crawler token add --user ops --role write    print a new token, for this time only
  crawler token list                           ids, users and roles
  crawler token rm 1f9a02c4                    no longer valid, within a second

  curl -H "Authorization: Bearer $TOKEN" -X POST http://127.0.0.1:8800/v1/pause

Tokens belong to a crawl. The engine has a digest of each, never the token itself.

exit codes: 0 done, 2 no such crawl, user name or token, 3 engine
"""


def add_parser(commands: "argparse._SubParsersAction[Any]") -> None:
    p = commands.add_parser(
        "token",
        help="make, list and remove the tokens of the HTTP API",
        description="Make, list and remove tokens for the HTTP API of 'crawler serve'.",
        epilog=EPILOG,
    )
    p.set_defaults(run=run, act=None, parser=p)
    actions = p.add_subparsers(metavar="ACTION", title="actions")

    def add(name: str, act: Act, text: str) -> argparse.ArgumentParser:
        one: argparse.ArgumentParser = actions.add_parser(name, help=text, description=f"{text[0].upper()}{text[1:]}.")
        one.set_defaults(act=act, parser=one)
        add_common(one)
        return one

    one = add("add", _add, "make a token and print it")
    one.add_argument("--user", required=True, metavar="U", help="whose it is; in the operator log")
    one.add_argument("--role", required=True, choices=("read", "write"), help="what its bearer may do")
    one = add("list", _list, "ids, users and roles of all tokens")
    one.add_argument("--json", action="store_true", help="as one JSON object")
    one = add("rm", _remove, "remove a token")
    one.add_argument("id", metavar="ID", help="as in 'crawler token list'")


def run(arguments: argparse.Namespace) -> int:
    """Open the crawl and act on its tokens. Raises UsageError."""
    from crawler.cli.event_loop import run_async
    from crawler.rules.jobs import check_user

    if arguments.act is None:
        raise UsageError("token: give an action: add, list or rm (see 'crawler token --help')")
    if getattr(arguments, "user", None) is not None:
        check_user(arguments.user)
    return run_async(_run(arguments))


async def _run(arguments: argparse.Namespace) -> int:
    from crawler.crawl.opening import open_crawl

    async with open_crawl(settings_of(arguments), create=False) as crawl:
        await arguments.act(crawl, arguments)
    return 0


async def _add(crawl: "OpenCrawl", arguments: argparse.Namespace) -> None:
    from crawler.frontier.api_store import ApiTokens, Role
    from crawler.terminal.text import out, say

    await crawl.operator_log.add(actor(), "token add", "", f"user {arguments.user}, role {arguments.role}")
    text = await ApiTokens(crawl.engine, crawl.keys).add(arguments.user, Role(arguments.role))
    say(f"Token of {arguments.user}, role {arguments.role}; it is not shown again:")
    out(text)


async def _list(crawl: "OpenCrawl", arguments: argparse.Namespace) -> None:
    from datetime import UTC, datetime

    from crawler.frontier.api_store import ApiTokens
    from crawler.terminal.text import out, out_json, table

    found = (await ApiTokens(crawl.engine, crawl.keys).read()).values()
    if arguments.json:
        known = [{"id": one.id, "user": one.user, "role": one.role, "created_at": one.created_at} for one in found]
        out_json({"tokens": known})
    elif not found:
        out("no token yet: 'crawler token add --user U --role read|write' makes one")
    else:
        made = [datetime.fromtimestamp(one.created_at, UTC).strftime("%Y-%m-%d %H:%M") for one in found]
        rows = [(one.id, one.user, one.role.value, at) for one, at in zip(found, made, strict=True)]
        out(table(("id", "user", "role", "created (UTC)"), rows))


async def _remove(crawl: "OpenCrawl", arguments: argparse.Namespace) -> None:
    from crawler.frontier.api_store import ApiTokens
    from crawler.terminal.text import out

    tokens = ApiTokens(crawl.engine, crawl.keys)
    if token := (await tokens.read()).get(arguments.id):
        await crawl.operator_log.add(actor(), "token rm", "", f"{token.id} of user {token.user}")
    if not await tokens.remove(arguments.id):
        raise UsageError(f"there is no token {arguments.id} (see 'crawler token list')")
    out(f"token {arguments.id} removed")
