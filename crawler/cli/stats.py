"""`crawler stats`: totals and domains, as the engine has counted them."""

import argparse
import json
import shlex
import sys
from typing import TYPE_CHECKING, Any

from crawler.cli.options import add_common, limit_type, settings_of, whole_type
from crawler.errors import UsageError

if TYPE_CHECKING:
    from crawler.crawl.opening import OpenCrawl
    from crawler.frontier.reads import Totals
    from crawler.settings import Settings
    from crawler.views.domains import DomainDetail
    from crawler.views.figures import DomainRows

TOP = 20
TOP_OF_PARTITION = 128  # domains, which the engine keeps sorted by their pages
WATCH_S = 2.0
SORTS = ("pages", "rate", "queue", "errors", "bytes", "due")

EPILOG = """\
examples:
  crawler stats                       totals, and the 20 domains with most pages
  crawler stats example.com           one domain in full
  crawler stats --losses              what is missing in the results, and what to do
  crawler stats --watch --sort queue  again every two seconds, most waiting URLs first
  crawler stats --by-name --top 100   100 domains by name, and the command for the next 100
  crawler stats --json --top 1000 | jq '.domains[] | select(.queued > 100)'

Every number is a counter that the crawl keeps: asking costs the same for ten URLs or a
billion. "robots" are URLs refused by robots.txt, "dead" URLs that were given up.

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
    p.add_argument(
        "--losses", action="store_true", help="what is missing in the results: how much, why, an example, what to do"
    )
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
    if arguments.losses and (arguments.domain or arguments.by_name):
        given = arguments.domain or "--by-name"
        raise UsageError(f"--losses and {given} can't be used together: losses are of the whole crawl")
    return run_async(_run(arguments, settings_of(arguments)))


async def _run(arguments: argparse.Namespace, settings: "Settings") -> int:
    import asyncio

    from crawler.crawl.opening import open_crawl
    from crawler.terminal.text import out, repaint

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
    from crawler.views.domains import detail_text, domain_detail

    found = await domain_detail(crawl, name)
    return json.dumps(_detail_json(found)) if as_json else detail_text(found)


async def _listed(crawl: "OpenCrawl", arguments: argparse.Namespace) -> "DomainRows":
    from crawler.views.domains import domain_page, domain_rows

    if arguments.by_name:
        return await domain_page(crawl, arguments.after or "", arguments.top)
    return await domain_rows(crawl, arguments.sort, arguments.top)


def _command_for(following: str) -> str:
    """The command as it was given, for the next page."""
    from crawler.redaction import redact
    from crawler.terminal.text import program

    words = sys.argv[1:]
    if "--after" in words:
        at = words.index("--after")
        del words[at : at + 2]
    words = [word for word in words if not word.startswith("--after=")]
    return f"{program()} {shlex.join(map(redact, words))} {shlex.quote(f'--after={following}')}"


async def _all(crawl: "OpenCrawl", arguments: argparse.Namespace) -> str:
    import msgspec

    from crawler.runtime.process import wall_s
    from crawler.views.figures import jobs_ahead
    from crawler.views.losses import losses_of, losses_table
    from crawler.views.overview import jobs_notes, totals_view
    from crawler.views.report import domain_table, over_budget, totals_text
    from crawler.views.ring import alive, waits_for

    counts, examples = await crawl.stats.totals_and_examples()
    losses = losses_of(counts, examples)
    if arguments.losses:
        return json.dumps({"losses": msgspec.to_builtins(losses)}) if arguments.json else losses_table(losses)
    found, listed = await totals_view(crawl, counts), await _listed(crawl, arguments)
    shown = listed.rows
    members = await alive(crawl)
    waiting, ahead = await waits_for(crawl, members), jobs_ahead(members)
    held = sum(m.held_pages for m in members), sum(m.held_links for m in members)
    is_paused, quota_reached = (await crawl.operator.overrides()).is_paused, await crawl.crawls.quota_reached()
    if arguments.json:
        counted = {"domains": found.domains, "in_flight": found.in_flight, "paused": is_paused}
        counted["jobs"] = msgspec.to_builtins(ahead)
        counted |= {"held_pages": held[0], "held_links": held[1]}
        counted |= {"memory_full": "memory" in waiting, "disk_full": "disk" in waiting}
        return json.dumps(
            {
                "crawl": crawl.settings.crawl.name,
                "ordering": msgspec.to_builtins(crawl.record.ordering),
                "totals": totals_json(counts) | counted | {"over_budget": over_budget(counts, quota_reached)},
                "losses": msgspec.to_builtins(losses),
                "domains": [msgspec.to_builtins(d) for d in shown],
            }
            | ({"next": listed.next} if arguments.by_name else {})
        )
    parts = [
        totals_text(
            counts,
            losses,
            domains=found.domains,
            in_flight=found.in_flight,
            ordering=crawl.record.ordering,
            is_paused=is_paused,
            waits_for=waiting,
            held=held,
            quota_reached=quota_reached,
            jobs=list(jobs_notes(ahead, wall_s(), is_idle=not found.pending)),
        )
    ]
    if shown:
        parts.append(domain_table(shown, is_running=bool(found.pending)))
    if arguments.by_name and listed.next:
        parts.append(f"next page: {_command_for(listed.next)}")
    elif not shown and arguments.sort != "pages" and arguments.top:
        parts.append(f"No domain to list by {arguments.sort} at this moment.")
    elif found.domains > len(shown) and arguments.top and not arguments.by_name and arguments.sort == "pages":
        parts.append(_hint_of_more(found.domains, len(shown)))
    return "\n\n".join(parts)


def _hint_of_more(count: int, shown: int) -> str:
    from crawler.terminal.text import counted

    how = f"--top {count}" if count <= TOP_OF_PARTITION else "--by-name"  # they may all be of one partition
    return f"... and {counted(count - shown, 'more domain')}: crawler stats {how}"


def totals_json(totals: "Totals") -> dict[str, Any]:
    from msgspec.structs import asdict

    return asdict(totals) | {"pending": totals.pending, "robots_denied": totals.refused.get("robots", 0)}


def _detail_json(detail: "DomainDetail") -> dict[str, Any]:
    """The domain with what else is known of it, in one object."""
    import msgspec

    found = msgspec.to_builtins(detail)
    return {**found.pop("domain"), **found}
