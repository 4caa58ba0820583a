"""`crawler pause`, `resume`, `block`, `unblock`, `delay`, `boost`, `purge`, `release`: an operator's hand."""

import argparse
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import msgspec

from crawler.cli.options import actor
from crawler.cli.parse_operate import AHEAD
from crawler.cli.run_async import run_on
from crawler.crawl.opening import OpenCrawl
from crawler.errors import NotMetError, UsageError
from crawler.terminal.output import show
from crawler.terminal.tables import table
from crawler.views import operator, values
from crawler.views.operator import CommandResult

# What each command does, and which of its arguments go where.
ACTS: Mapping[str, tuple[Callable[..., Awaitable[CommandResult]], Mapping[str, str]]] = {
    "pause": (operator.pause, {}),
    "resume": (operator.resume, {}),
    "block": (operator.block, {}),
    "unblock": (operator.unblock, {}),
    "delay": (operator.set_delay, {"delay_ms": "delay"}),
    "boost": (operator.set_boost, {"boost": "boost"}),
    "purge": (operator.purge, {}),
    "purge matching": (operator.purge_matching, {"matching": "matching", "is_dry": "dry_run"}),
    "release": (operator.release, {"reason": "reason", "urls_max": "urls"}),
}


def operate(arguments: argparse.Namespace) -> int:
    """Read what was given, before an engine is started, and act. Raises UsageError."""
    given = arguments.domain
    if arguments.command == "purge":
        _check_purge(arguments)
    arguments.domain = values.domain_alone(given, arguments.command) if given else ""
    if arguments.command == "delay":
        arguments.delay = values.delay_ms_of(arguments.delay)
    elif arguments.command == "boost" and arguments.boost is not None:
        arguments.boost = values.boost_of(arguments.boost)
    elif arguments.command == "boost" and given:
        most = values.BOOST_MAX
        raise UsageError(f"boost {given}: give a boost from -{most} to {most}, 0 for none")
    elif arguments.command == "release":
        try:
            values.check_release(arguments.reason, arguments.urls)
        except UsageError as error:
            raise UsageError(f"--{error}") from None
    return run_on(arguments, _operate)


async def _operate(crawl: OpenCrawl, arguments: argparse.Namespace) -> None:
    if arguments.command == "boost" and not arguments.domain:
        found = (await operator.boosts(crawl)).boosts
        rows = [(domain, str(n)) for domain, n in found.items()]
        text = table(("domain", "boost"), rows) if rows else "no domain has a boost"
        show({"domain": None, "boosts": dict(found)}, text, as_json=arguments.json)
        return
    if arguments.domain and not await operator.is_met(crawl, arguments.domain):
        await _check_unmet(crawl, arguments)
    act, keys = ACTS["purge matching" if getattr(arguments, "matching", None) else arguments.command]
    given = {key: getattr(arguments, name) for key, name in keys.items()}
    result = await act(crawl, arguments.domain, **given, actor=actor())
    show(_json(result), result.text, as_json=arguments.json)


def _check_purge(arguments: argparse.Namespace) -> None:
    """Raises UsageError unless it is told what to drop."""
    if arguments.matching == "":
        raise UsageError("--matching is empty, which is found in every URL: name the domains to purge instead")
    if arguments.matching:
        operator.UrlMatch(arguments.matching)
    elif arguments.dry_run:
        raise UsageError("--dry-run is for --matching")
    elif not arguments.domain:
        raise UsageError("purge: give a domain, or --matching REGEX, which holds for the whole crawl without one")


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
