"""`crawler pause`, `resume`, `block`, `unblock`, `delay`, `boost`, `purge`, `release`: an operator's hand."""

import argparse
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from crawler.cli.options import actor, add_common, settings_of, whole_type
from crawler.errors import NotMetError, UsageError

if TYPE_CHECKING:
    from crawler.crawl.opening import OpenCrawl
    from crawler.settings import Settings
    from crawler.views.commands import CommandResult

    Act = Callable[[OpenCrawl, argparse.Namespace], Awaitable[CommandResult]]

BOOST_MAX = 9  # as in views/commands.py, which --help must not import
AHEAD = ("pause", "block", "delay", "boost")  # commands that also hold for URLs found later

EPILOG = """\
examples:
  crawler pause                        the whole crawl: no request starts anywhere
  crawler pause docs.example           one domain; its URLs wait, and the crawl waits for them
  crawler resume                       continue
  crawler block docs.example           fetch nothing from it; the crawl ends without it
  crawler unblock docs.example
  crawler delay docs.example 5         5 s between its requests, whatever robots.txt has
  crawler delay docs.example auto      by robots.txt and the settings again
  crawler boost docs.example 5         before domains with a lower boost; -5 after the others, 0 for none
  crawler boost                        list domains with a boost
  crawler purge docs.example           drop its queued and deferred URLs permanently
  crawler release --reason urls        deferred URLs back into their queues

Running instances obey within two seconds; open requests end as usual. A command given while
no instance runs is stored for the next one. It holds until another command undoes it.

exit codes: 0 done, 2 no such crawl, domain or reason, 3 engine
"""


def add_parser(commands: "argparse._SubParsersAction[Any]") -> None:
    _add(commands, "pause", "start no more requests, to one domain or to any", domain="?", run=_pause)
    _add(commands, "resume", "continue a paused domain or crawl", domain="?", run=_resume)
    _add(commands, "block", "stop fetching from a domain; its URLs are deferred", run=_block)
    _add(commands, "unblock", "fetch from a blocked domain again", run=_unblock)
    p = _add(commands, "delay", "set the delay between requests to a domain", run=_delay)
    p.add_argument("delay", metavar="SECONDS|auto", help="seconds, or auto to use robots.txt and the settings")
    p = _add(
        commands, "boost", "fetch from a domain before others that are due, or after them; list the boosts", domain="?",
        run=_boost,
    )  # fmt: skip
    n = f"from -{BOOST_MAX} to {BOOST_MAX}: higher goes first; 0 for none"
    p.add_argument("boost", nargs="?", metavar="N", help=n)
    _add(commands, "purge", "drop the queued and deferred URLs of a domain permanently", run=_purge)
    p = _add(commands, "release", "put deferred URLs back into their queues", domain="?", run=_release)
    p.add_argument("--reason", metavar="R", help="only those deferred for this reason, like urls, pages or trap:RULE")
    p.add_argument("--urls", metavar="N", type=whole_type, default=0, help="at most about N (default: all)")


def _add(
    commands: "argparse._SubParsersAction[Any]",
    name: str,
    text: str,
    *,
    run: "Act",
    domain: str = "",
) -> argparse.ArgumentParser:
    p: argparse.ArgumentParser = commands.add_parser(name, help=text, description=f"{name}: {text}.", epilog=EPILOG)
    if domain:
        whole = "all boosts are listed" if name == "boost" else "the whole crawl"
        p.add_argument("domain", nargs="?", metavar="DOMAIN", help=f"a domain, host or URL (default: {whole})")
    else:
        p.add_argument("domain", metavar="DOMAIN", help="a domain, host or URL")
    if name in AHEAD:
        p.add_argument("--ahead", action="store_true", help="also for a domain that the crawl has not met yet")
    p.add_argument("--json", action="store_true", help="as one JSON object")
    add_common(p)
    p.set_defaults(run=_runner(run), takes_urls=False)
    return p


def _runner(act: "Act") -> Callable[[argparse.Namespace], int]:
    def run(arguments: argparse.Namespace) -> int:
        from crawler.cli.event_loop import run_async

        _check(arguments)
        return run_async(_run(act, arguments, settings_of(arguments)))

    return run


def _check(arguments: argparse.Namespace) -> None:
    """Reads what was given; done before an engine is started. Raises UsageError."""
    from crawler.views.commands import boost_of, check_release, delay_ms_of, domain_of

    given = arguments.domain
    arguments.domain = domain_of(given) if given else ""
    if hasattr(arguments, "delay"):
        arguments.delay = delay_ms_of(arguments.delay)
    if getattr(arguments, "boost", None) is not None:
        arguments.boost = boost_of(arguments.boost)
    elif arguments.command == "boost" and given:
        raise UsageError(f"boost {given}: give a boost from -{BOOST_MAX} to {BOOST_MAX}, 0 for none")
    if hasattr(arguments, "reason"):
        try:
            check_release(arguments.reason or "", arguments.urls)
        except UsageError as error:
            raise UsageError(f"--{error}") from None


async def _run(act: "Act", arguments: argparse.Namespace, settings: "Settings") -> int:
    from crawler.crawl.opening import open_crawl
    from crawler.terminal.text import out, out_json

    async with open_crawl(settings, create=False) as crawl:
        from crawler.views.commands import is_met

        if arguments.command == "boost" and not arguments.domain:
            return await _list_boosts(crawl, as_json=arguments.json)
        if arguments.domain and not await is_met(crawl, arguments.domain):
            await _check_unmet(crawl, arguments)
        result = await act(crawl, arguments)
    if arguments.json:
        out_json(_json(result))
    else:
        out(result.text)
    return 0


async def _check_unmet(crawl: "OpenCrawl", arguments: argparse.Namespace) -> None:
    """Raises NotMetError for a domain of which the crawl has no URL, as a misspelt one: unless it was given --ahead, or
    another command holds for it, which this one may take back.
    """
    domain = arguments.domain
    if getattr(arguments, "ahead", False) or (await crawl.operator.overrides()).has(domain):
        return
    later = "; correct the name, or add --ahead to store the command for later" if arguments.command in AHEAD else ""
    raise NotMetError(f"this crawl never met {domain}: nothing is done{later}")


def _json(result: "CommandResult") -> dict[str, Any]:
    """The result by the field of its kind; `urls` where there is no other number."""
    import msgspec

    found: dict[str, Any] = msgspec.to_builtins(result)
    left_out = {"text", "is_changed"} | ({"urls"} if not {"paused", "blocked"} & found.keys() else set())
    return {"domain": None} | {key: value for key, value in found.items() if key not in left_out}


async def _list_boosts(crawl: "OpenCrawl", *, as_json: bool) -> int:
    from crawler.terminal.text import out, out_json, table
    from crawler.views.commands import boosts

    found = (await boosts(crawl)).boosts
    if as_json:
        out_json({"domain": None, "boosts": dict(found)})
    elif found:
        out(table(("domain", "boost"), [(domain, str(n)) for domain, n in found.items()]))
    else:
        out("no domain has a boost")
    return 0


async def _pause(crawl: "OpenCrawl", arguments: argparse.Namespace) -> "CommandResult":
    from crawler.views import commands

    return await commands.pause(crawl, arguments.domain, actor=actor())


async def _resume(crawl: "OpenCrawl", arguments: argparse.Namespace) -> "CommandResult":
    from crawler.views import commands

    return await commands.resume(crawl, arguments.domain, actor=actor())


async def _block(crawl: "OpenCrawl", arguments: argparse.Namespace) -> "CommandResult":
    from crawler.views import commands

    return await commands.block(crawl, arguments.domain, actor=actor())


async def _unblock(crawl: "OpenCrawl", arguments: argparse.Namespace) -> "CommandResult":
    from crawler.views import commands

    return await commands.unblock(crawl, arguments.domain, actor=actor())


async def _delay(crawl: "OpenCrawl", arguments: argparse.Namespace) -> "CommandResult":
    from crawler.views import commands

    return await commands.set_delay(crawl, arguments.domain, arguments.delay, actor=actor())


async def _boost(crawl: "OpenCrawl", arguments: argparse.Namespace) -> "CommandResult":
    from crawler.views import commands

    return await commands.set_boost(crawl, arguments.domain, arguments.boost, actor=actor())


async def _purge(crawl: "OpenCrawl", arguments: argparse.Namespace) -> "CommandResult":
    from crawler.views import commands

    return await commands.purge(crawl, arguments.domain, actor=actor())


async def _release(crawl: "OpenCrawl", arguments: argparse.Namespace) -> "CommandResult":
    from crawler.views import commands

    return await commands.release(
        crawl, arguments.domain, reason=arguments.reason or "", urls_max=arguments.urls, actor=actor()
    )
