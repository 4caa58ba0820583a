"""`crawler pause`, `resume`, `block`, `unblock`, `delay`, `boost`, `purge`, `release`: an operator's hand."""

import argparse
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from crawler.cli.options import add_common, settings_of, whole_type
from crawler.errors import UsageError

if TYPE_CHECKING:
    from crawler.app.crawl import OpenCrawl
    from crawler.settings import Settings

DELAY_MAX_S = 86_400
BOOST_MAX = 9
NOTED = ("pause", "block", "delay", "boost")  # commands that also hold for URLs found later

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
    run: "Callable[[OpenCrawl, argparse.Namespace], Awaitable[tuple[str, dict[str, Any]]]]",
    domain: str = "",
) -> argparse.ArgumentParser:
    p: argparse.ArgumentParser = commands.add_parser(name, help=text, description=f"{name}: {text}.", epilog=EPILOG)
    if domain:
        whole = "all boosts are listed" if name == "boost" else "the whole crawl"
        p.add_argument("domain", nargs="?", metavar="DOMAIN", help=f"a domain, host or URL (default: {whole})")
    else:
        p.add_argument("domain", metavar="DOMAIN", help="a domain, host or URL")
    p.add_argument("--json", action="store_true", help="as one JSON object")
    add_common(p)
    p.set_defaults(run=_runner(run), takes_urls=False)
    return p


def _runner(
    act: "Callable[[OpenCrawl, argparse.Namespace], Awaitable[tuple[str, dict[str, Any]]]]",
) -> Callable[[argparse.Namespace], int]:
    def run(arguments: argparse.Namespace) -> int:
        from crawler.cli.event_loop import run_async

        _check(arguments)
        return run_async(_run(act, arguments, settings_of(arguments)))

    return run


def _check(arguments: argparse.Namespace) -> None:
    """Reads what was given; done before an engine is started. Raises UsageError."""
    from crawler.rules.identity import registrable_domain
    from crawler.rules.urls import host_of
    from crawler.seeding.url_input import url_of_site

    given = arguments.domain
    arguments.domain = registrable_domain(host_of(url_of_site(given))) if given else ""
    if hasattr(arguments, "delay"):
        arguments.delay = _delay_ms(arguments.delay)
    if hasattr(arguments, "boost"):
        arguments.boost = _boost_of(given, arguments.boost)
    if getattr(arguments, "urls", 0) < 0:
        raise UsageError(f"--urls {arguments.urls}: expected a number of URLs")
    if getattr(arguments, "reason", None) in ("paused", "blocked"):
        word = {"paused": "resume", "blocked": "unblock"}[arguments.reason]
        raise UsageError(f"--reason {arguments.reason}: use 'crawler {word} DOMAIN'")


def _delay_ms(text: str) -> int | None:
    from crawler.terminal.wording import parse_duration

    if text == "auto":
        return None
    seconds = parse_duration(text)
    if not 0 <= seconds <= DELAY_MAX_S:
        raise UsageError(f"delay {text}: expected seconds from 0 to {DELAY_MAX_S:,}, or auto")
    return round(seconds * 1000)


def _boost_of(domain: str | None, text: str | None) -> int:
    if text is None:
        if domain:
            raise UsageError(f"boost {domain}: give a boost from -{BOOST_MAX} to {BOOST_MAX}, 0 for none")
        return 0
    try:
        n = int(text)
    except ValueError:
        n = BOOST_MAX + 1
    if not -BOOST_MAX <= n <= BOOST_MAX:
        raise UsageError(f"boost {text}: expected a whole number from -{BOOST_MAX} to {BOOST_MAX}")
    return n


async def _run(
    act: "Callable[[OpenCrawl, argparse.Namespace], Awaitable[tuple[str, dict[str, Any]]]]",
    arguments: argparse.Namespace,
    settings: "Settings",
) -> int:
    from crawler.app.open_crawl import open_crawl
    from crawler.terminal.printing import out, out_json, warn

    async with open_crawl(settings, create=False) as crawl:
        if arguments.domain and not await _is_met(crawl, arguments.domain):
            noted = "; the command is stored and holds once it does" if arguments.command in NOTED else ""
            warn(f"this crawl has no URL of the domain {arguments.domain}{noted}")
        text, found = await act(crawl, arguments)
    if arguments.json:
        out_json({"domain": arguments.domain or None} | found)
    else:
        out(text)
    return 0


async def _is_met(crawl: "OpenCrawl", domain: str) -> bool:
    """Has any URL of it been added to this crawl?"""
    operator = crawl.operator
    partition = operator.partition_of(domain)
    found = await crawl.stats.domains([(queue, partition) for queue in await operator.queues_of(domain)])
    if any(d.pending or d.fetched or d.dead or d.refused for d in found):
        return True
    return any([await operator.deferred_urls.of_queue(partition, d.domain) for d in found])


async def _pause(crawl: "OpenCrawl", arguments: argparse.Namespace) -> tuple[str, dict[str, Any]]:
    from crawler.frontier.overrides import EVERYWHERE, OverrideKind

    domain, operator = arguments.domain, crawl.operator
    is_new = await operator.book.give(OverrideKind.PAUSED, domain or EVERYWHERE)
    n = await operator.carry_out(domain) if domain else (await crawl.stats.totals()).pending
    return f"{_of(domain)} {_now(is_new)} paused: {_urls(n)} wait{'s' * (n == 1)}", {"paused": True, "urls": n}


async def _resume(crawl: "OpenCrawl", arguments: argparse.Namespace) -> tuple[str, dict[str, Any]]:
    from crawler.frontier.overrides import EVERYWHERE, OverrideKind

    domain, operator = arguments.domain, crawl.operator
    was = await operator.book.cancel(OverrideKind.PAUSED, domain or EVERYWHERE)
    n = await operator.carry_out(domain) if domain else (await crawl.stats.totals()).pending
    if not was:
        return f"{_of(domain)} was not paused{await _still(crawl, domain)}", {"paused": False, "urls": n}
    text = f"{_of(domain)} is resumed with {_urls(n)}{await _still(crawl, domain)}"
    return text + await _alone(crawl), {"paused": False, "urls": n}


async def _block(crawl: "OpenCrawl", arguments: argparse.Namespace) -> tuple[str, dict[str, Any]]:
    from crawler.frontier.overrides import OverrideKind

    is_new = await crawl.operator.book.give(OverrideKind.BLOCKED, arguments.domain)
    n = await crawl.operator.carry_out(arguments.domain)
    text = f"{arguments.domain} {_now(is_new)} blocked: {_urls(n)} deferred"
    return text, {"blocked": True, "urls": n}


async def _unblock(crawl: "OpenCrawl", arguments: argparse.Namespace) -> tuple[str, dict[str, Any]]:
    from crawler.frontier.overrides import OverrideKind

    was = await crawl.operator.book.cancel(OverrideKind.BLOCKED, arguments.domain)
    n = await crawl.operator.carry_out(arguments.domain)
    if not was:
        return f"{arguments.domain} was not blocked", {"blocked": False, "urls": 0}
    text = f"{arguments.domain} is no longer blocked: {_urls(n)} back in its queue"
    return text + await _still(crawl, arguments.domain) + await _alone(crawl), {"blocked": False, "urls": n}


async def _delay(crawl: "OpenCrawl", arguments: argparse.Namespace) -> tuple[str, dict[str, Any]]:
    from crawler.terminal.wording import duration

    await crawl.operator.delay(arguments.domain, arguments.delay)
    if arguments.delay is None:
        text = f"{arguments.domain}: the delay follows robots.txt and the settings again"
    else:
        text = f"{arguments.domain}: {duration(arguments.delay / 1000)} between requests from now on"
    return text, {"delay_ms": arguments.delay}


async def _boost(crawl: "OpenCrawl", arguments: argparse.Namespace) -> tuple[str, dict[str, Any]]:
    domain, n = arguments.domain, arguments.boost
    if not domain:
        return await _boosts(crawl)
    await crawl.operator.boost(domain, n)
    if not n:
        text = f"{domain}: no boost"
    else:
        text = f"{domain}: boost {n}; fetched {'before' if n > 0 else 'after'} domains without a boost"
    return text, {"boost": n}


async def _boosts(crawl: "OpenCrawl") -> tuple[str, dict[str, Any]]:
    from crawler.terminal.tables import table

    found = sorted((await crawl.operator.overrides()).boosts.items(), key=lambda one: (-one[1], one[0]))
    text = table(("domain", "boost"), [(domain, str(n)) for domain, n in found]) if found else "no domain has a boost"
    return text, {"boosts": dict(found)}


async def _purge(crawl: "OpenCrawl", arguments: argparse.Namespace) -> tuple[str, dict[str, Any]]:
    n = await crawl.operator.purge(arguments.domain)
    return f"{arguments.domain}: {_urls(n)} dropped", {"purged": n}


async def _release(crawl: "OpenCrawl", arguments: argparse.Namespace) -> tuple[str, dict[str, Any]]:
    n = await crawl.operator.release(arguments.domain, arguments.reason or "", arguments.urls)
    return f"{_urls(n)} released{await _alone(crawl) if n else ''}", {"released": n}


def _of(domain: str) -> str:
    return domain or "The crawl"


def _now(is_new: bool) -> str:
    return "is now" if is_new else "was already"


def _urls(n: int) -> str:
    from crawler.terminal.wording import counted

    return counted(n, "URL")


async def _still(crawl: "OpenCrawl", domain: str) -> str:
    """Which other command still stops it."""
    overrides = await crawl.operator.overrides()
    stop = overrides.stop_of(domain) if domain else ""
    if stop:
        return f"; {domain} is still {stop}"
    return "; the whole crawl is paused ('crawler resume')" if overrides.is_paused else ""


async def _alone(crawl: "OpenCrawl") -> str:
    return "" if await crawl.members.read() else "; no instance is running: start one with 'crawler crawl'"
