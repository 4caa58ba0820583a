"""`crawler stats`: totals and domains, as the engine has counted them."""

import argparse
import json
import shlex
import sys
from collections import Counter
from typing import TYPE_CHECKING, Any

from crawler.cli.options import add_common, limit_type, settings_of, whole_type
from crawler.errors import UsageError

if TYPE_CHECKING:
    from crawler.app.crawl import OpenCrawl
    from crawler.frontier.stats import DomainStats, Totals
    from crawler.settings import Settings

TOP = 20
TOP_OF_PARTITION = 128  # domains, which the engine keeps sorted by their pages
WATCH_S = 2.0
SORTS = ("pages", "rate", "queue", "errors", "bytes", "due")

EPILOG = """\
examples:
  crawler stats                       totals, and the 20 domains with most pages
  crawler stats example.com           one domain in full
  crawler stats --watch --sort queue  again every two seconds, most waiting URLs first
  crawler stats --by-name --top 100   100 domains by name, and the command for the next 100
  crawler stats --json --top 1000 | jq '.domains[] | select(.queued > 100)'

Every number is a counter that the crawl keeps: asking costs the same for ten URLs or a
billion. "robots" are URLs refused by robots.txt, "dead" URLs given up after all retries.

exit codes: 0 done, 2 no such crawl or domain, 3 engine
"""


def add_parser(commands: "argparse._SubParsersAction[Any]") -> None:
    p = commands.add_parser(
        "stats",
        help="totals and per-domain statistics",
        description="Totals of a crawl and statistics of its domains, while it runs and afterwards.",
        epilog=EPILOG,
    )
    p.add_argument("domain", nargs="?", metavar="DOMAIN", help="a domain, host or URL: this domain in full")
    p.add_argument(
        "--top",
        type=whole_type,
        default=TOP,
        metavar="N",
        help=f"the first N domains, at most 128 of a partition; with --by-name: domains of a page (default: {TOP})",
    )
    p.add_argument(
        "--sort",
        choices=SORTS,
        default="pages",
        help="what they are the first by: pages (default), or among some thousands of the busiest: pages per second, "
        "queue, errors, bytes, time since they are due",
    )
    p.add_argument(
        "--watch",
        nargs="?",
        type=limit_type,
        const=WATCH_S,
        metavar="S",
        help=f"print it again every S seconds until Ctrl-C, in place on a terminal (default: {WATCH_S:g})",
    )
    p.add_argument("--by-name", action="store_true", help="all domains in the order of their names, page by page")
    p.add_argument("--after", metavar="NAME", help="with --by-name: the page of those after this name")
    p.add_argument("--json", action="store_true", help="as one JSON object; times in ms")
    add_common(p)
    p.set_defaults(run=run, takes_urls=False)


def run(arguments: argparse.Namespace) -> int:
    """Print; raises UsageError for a crawl or domain that is not there."""
    from crawler.cli.event_loop import run_async

    if arguments.top < 0:
        raise UsageError(f"--top {arguments.top}: expected a number of domains")
    if arguments.after is not None and not arguments.by_name:
        raise UsageError("--after needs --by-name")
    if arguments.by_name and (arguments.domain or not arguments.top):
        given = arguments.domain or "--top 0"
        raise UsageError(f"--by-name and {given} can't be used together: --by-name lists all domains, page by page")
    return run_async(_run(arguments, settings_of(arguments)))


async def _run(arguments: argparse.Namespace, settings: "Settings") -> int:
    import asyncio

    from crawler.app.open_crawl import open_crawl
    from crawler.terminal.printing import out, repaint

    async with open_crawl(settings, create=False) as crawl:
        if arguments.watch is None:
            out(await _text(crawl, arguments))
            return 0
        try:
            while True:
                text = await _text(crawl, arguments)
                if arguments.json:
                    out(text)
                else:
                    repaint(text)
                await asyncio.sleep(arguments.watch)
        except asyncio.CancelledError:  # Ctrl-C
            return 0


async def _text(crawl: "OpenCrawl", arguments: argparse.Namespace) -> str:
    if arguments.domain:
        return await _one(crawl, arguments.domain, as_json=arguments.json)
    return await _all(crawl, arguments)


async def _one(crawl: "OpenCrawl", name: str, *, as_json: bool) -> str:
    from crawler.reports.crawl_report import domain_text
    from crawler.seeding.url_input import url_of_site

    domain, queue, partition = crawl.placement.of(url_of_site(name))
    (found,) = await crawl.stats.domains([(queue, partition)])
    operator = crawl.operator
    deferred = Counter[str]()
    for one in await operator.deferred_urls.of_queue(partition, queue):
        deferred[one.kind] += one.urls
    overrides, quota_reached = await operator.overrides(), await crawl.crawls.quota_reached()
    ordered_ms = overrides.delays_ms.get(domain)
    is_known = found.pending or found.fetched or found.dead or found.refused
    boost = overrides.boosts.get(domain, 0)
    if not (is_known or deferred or found.stop or ordered_ms is not None or boost):
        raise UsageError(f"this crawl has not met the domain {queue}")
    if as_json:
        more = {
            "deferred": deferred,
            "ordered_delay_ms": ordered_ms,
            "boost": boost,
            "crawl_paused": overrides.is_paused,
        }
        return json.dumps(domain_json(found) | more | {"crawl_spent": quota_reached.reason if quota_reached else ""})
    is_ordered, is_paused = ordered_ms is not None, overrides.is_paused
    return domain_text(
        found,
        deferred,
        is_delay_ordered=is_ordered,
        boost=boost,
        is_crawl_paused=is_paused,
        quota_reached=quota_reached,
    )


async def _listed(crawl: "OpenCrawl", arguments: argparse.Namespace) -> tuple[list["DomainStats"], str]:
    """The domains to list, and the name after which the next page begins: "" when there is none."""
    from crawler.runtime.clock import wall_s

    stats, top, following = crawl.stats, arguments.top, ""
    if arguments.by_name:
        names = await stats.domains_by_name((arguments.after or "").lower(), top + 1)
        if len(names) > top:
            following = names[top - 1][0]
        return await stats.domains(names[:top]), following
    if not top:
        return [], following
    if arguments.sort == "pages":  # needs no look at what happened lately
        return await stats.domains(await stats.top_domains(top)), following
    return [row.stats for row in await crawl.lists.top(arguments.sort, top, wall_s())], following


def _command_for(following: str) -> str:
    """The command as it was given, for the next page."""
    from crawler.redaction import redact
    from crawler.terminal.wording import program

    words = sys.argv[1:]
    if "--after" in words:
        at = words.index("--after")
        del words[at : at + 2]
    words = [word for word in words if not word.startswith("--after=")]
    return f"{program()} {shlex.join(map(redact, words))} {shlex.quote(f'--after={following}')}"


async def _all(crawl: "OpenCrawl", arguments: argparse.Namespace) -> str:
    import msgspec

    from crawler.reports.crawl_report import domain_table, over_budget, totals_text

    totals = await crawl.stats.totals()
    shown, following = await _listed(crawl, arguments)
    count = await crawl.stats.domain_count()
    members = (await crawl.members.read()).values()
    in_flight, is_full = sum(m.in_flight for m in members), any(m.waits_for == "memory" for m in members)
    in_flight = min(in_flight, totals.pending)
    is_paused, quota_reached = (await crawl.operator.overrides()).is_paused, await crawl.crawls.quota_reached()
    if arguments.json:
        counted = {"domains": count, "in_flight": in_flight, "paused": is_paused, "memory_full": is_full}
        return json.dumps(
            {
                "crawl": crawl.settings.crawl.name,
                "ordering": msgspec.to_builtins(crawl.record.ordering),
                "totals": totals_json(totals) | counted | {"over_budget": over_budget(totals, quota_reached)},
                "domains": [domain_json(d) for d in shown],
            }
            | ({"next": following} if arguments.by_name else {})
        )
    parts = [
        totals_text(
            totals,
            domains=count,
            in_flight=in_flight,
            ordering=crawl.record.ordering,
            is_paused=is_paused,
            is_full=is_full,
            quota_reached=quota_reached,
        )
    ]
    if shown:
        parts.append(domain_table(shown, owned=bool(totals.pending)))
    if following:
        parts.append(f"next page: {_command_for(following)}")
    elif not shown and arguments.sort != "pages" and arguments.top:
        parts.append(f"No domain to list by {arguments.sort} at this moment.")
    elif count > len(shown) and arguments.top and not arguments.by_name and arguments.sort == "pages":
        parts.append(_hint_of_more(count, len(shown)))
    return "\n\n".join(parts)


def _hint_of_more(count: int, shown: int) -> str:
    how = f"--top {count}" if count <= TOP_OF_PARTITION else "--by-name"  # they may all be of one partition
    return f"... and {count - shown:,} more domains: crawler stats {how}"


def totals_json(totals: "Totals") -> dict[str, Any]:
    from msgspec.structs import asdict

    return asdict(totals) | {"pending": totals.pending, "robots_denied": totals.refused.get("robots", 0)}


def domain_json(domain: "DomainStats") -> dict[str, Any]:
    from msgspec.structs import asdict

    return asdict(domain) | {"pending": domain.pending, "robots_denied": domain.refused.get("robots", 0)}
