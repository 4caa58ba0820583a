"""`crawler pause`, `resume`, `block`, `unblock`, `delay`, `boost`, `purge`, `release`: an operator's hand."""

import argparse
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import msgspec

from crawler.cli.event_loop import run_on
from crawler.cli.options import actor
from crawler.cli.parse_admin import AHEAD
from crawler.crawl.opening import OpenCrawl
from crawler.errors import NotMetError, UsageError
from crawler.terminal.text import show, table
from crawler.views import commands
from crawler.views.commands import CommandResult


def operate(arguments: argparse.Namespace) -> int:
    """Read what was given, before an engine is started, and act. Raises UsageError."""
    given = arguments.domain
    arguments.domain = commands.domain_of(given) if given else ""
    if arguments.command == "delay":
        arguments.delay = commands.delay_ms_of(arguments.delay)
    elif arguments.command == "boost" and arguments.boost is not None:
        arguments.boost = commands.boost_of(arguments.boost)
    elif arguments.command == "boost" and given:
        most = commands.BOOST_MAX
        raise UsageError(f"boost {given}: give a boost from -{most} to {most}, 0 for none")
    elif arguments.command == "release":
        try:
            commands.check_release(arguments.reason, arguments.urls)
        except UsageError as error:
            raise UsageError(f"--{error}") from None
    return run_on(arguments, _operate)


async def _operate(crawl: OpenCrawl, arguments: argparse.Namespace) -> None:
    if arguments.command == "boost" and not arguments.domain:
        found = (await commands.boosts(crawl)).boosts
        rows = [(domain, str(n)) for domain, n in found.items()]
        text = table(("domain", "boost"), rows) if rows else "no domain has a boost"
        show({"domain": None, "boosts": dict(found)}, text, as_json=arguments.json)
        return
    if arguments.domain and not await commands.is_met(crawl, arguments.domain):
        await _check_unmet(crawl, arguments)
    act, keys = ACTS[arguments.command]
    given = {key: getattr(arguments, name) for key, name in keys.items()}
    result = await act(crawl, arguments.domain, **given, actor=actor())
    show(_json(result), result.text, as_json=arguments.json)


async def _check_unmet(crawl: OpenCrawl, arguments: argparse.Namespace) -> None:
    """Raises NotMetError for a domain of which the crawl has no URL, as a misspelt one: unless it was given --ahead, or
    another command holds for it, which this one may take back.
    """
    domain = arguments.domain
    if getattr(arguments, "ahead", False) or (await crawl.operator.overrides()).has(domain):
        return
    later = "; correct the name, or add --ahead to store the command for later" if arguments.command in AHEAD else ""
    raise NotMetError(f"this crawl never met {domain}: nothing is done{later}")


def _json(result: CommandResult) -> dict[str, Any]:
    """The result by the field of its kind; `urls` where there is no other number."""
    found: dict[str, Any] = msgspec.to_builtins(result)
    left_out = {"text", "is_changed"} | ({"urls"} if not {"paused", "blocked"} & found.keys() else set())
    return {"domain": None} | {key: value for key, value in found.items() if key not in left_out}


# What each command does, and which of its arguments go where.
ACTS: Mapping[str, tuple[Callable[..., Awaitable[CommandResult]], Mapping[str, str]]] = {
    "pause": (commands.pause, {}),
    "resume": (commands.resume, {}),
    "block": (commands.block, {}),
    "unblock": (commands.unblock, {}),
    "delay": (commands.set_delay, {"delay_ms": "delay"}),
    "boost": (commands.set_boost, {"boost": "boost"}),
    "purge": (commands.purge, {}),
    "release": (commands.release, {"reason": "reason", "urls_max": "urls"}),
}
