"""`crawler token`: makes, lists and removes the tokens of the HTTP API."""

import argparse
from datetime import UTC, datetime

from crawler.cli.options import actor
from crawler.cli.run_async import run_on
from crawler.crawl.opening import OpenCrawl
from crawler.errors import UsageError
from crawler.frontier.api_tokens import ApiTokens, Role
from crawler.rules.job_names import check_user
from crawler.terminal.output import out, say, show
from crawler.terminal.tables import table


def run_token(arguments: argparse.Namespace) -> int:
    """Open the crawl and act on its tokens. Raises UsageError."""
    if arguments.act is None:
        raise UsageError("token: give an action: add, list or rm (see 'crawler token --help')")
    if getattr(arguments, "user", None) is not None:
        check_user(arguments.user)
    return run_on(arguments, {"add": _add, "list": _list_tokens, "rm": _remove}[arguments.act])


async def _add(crawl: OpenCrawl, arguments: argparse.Namespace) -> None:
    await crawl.operator_log.add(actor(), "token add", "", f"user {arguments.user}, role {arguments.role}")
    text = await ApiTokens(crawl.engine, crawl.keys).add(arguments.user, Role(arguments.role))
    say(f"Token of {arguments.user}, role {arguments.role}; it is not shown again:")
    out(text)


async def _list_tokens(crawl: OpenCrawl, arguments: argparse.Namespace) -> None:
    found = (await ApiTokens(crawl.engine, crawl.keys).read()).values()
    known = [{"id": one.id, "user": one.user, "role": one.role, "created_at": one.created_at} for one in found]
    made = [datetime.fromtimestamp(one.created_at, UTC).strftime("%Y-%m-%d %H:%M") for one in found]
    rows = [(one.id, one.user, one.role.value, at) for one, at in zip(found, made, strict=True)]
    text = table(("id", "user", "role", "created (UTC)"), rows)
    none = "no token yet: 'crawler token add --user U --role read|write' makes one"
    show({"tokens": known}, text if rows else none, as_json=arguments.json)


async def _remove(crawl: OpenCrawl, arguments: argparse.Namespace) -> None:
    tokens = ApiTokens(crawl.engine, crawl.keys)
    if token := (await tokens.read()).get(arguments.id):
        await crawl.operator_log.add(actor(), "token rm", "", f"{token.id} of user {token.user}")
    if not await tokens.remove(arguments.id):
        raise UsageError(f"there is no token {arguments.id} (see 'crawler token list')")
    out(f"token {arguments.id} removed")
