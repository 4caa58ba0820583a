"""`crawler stats`: totals, and statistics of domains."""

import argparse
import asyncio
import json
import shlex
import sys
from typing import Any

import msgspec
from msgspec.structs import asdict

from crawler.cli.options import settings_of
from crawler.cli.run_async import run_async
from crawler.crawl.opening import OpenCrawl, open_crawl
from crawler.errors import EngineError, UsageError
from crawler.frontier.stats import Totals
from crawler.redaction import redact
from crawler.runtime.clocks import wall_s
from crawler.settings import Settings
from crawler.terminal.output import out, repaint, warn
from crawler.terminal.words import counted, program
from crawler.views.domain_reads import domain_detail, domain_page, domain_rows
from crawler.views.domains import DomainDetail, detail_text
from crawler.views.headline import jobs_notes
from crawler.views.instances import alive, full_nodes, waits_for
from crawler.views.losses import losses_of, losses_table
from crawler.views.report import domain_table, logins_text, over_budget, totals_text
from crawler.views.snapshot import DomainRows, jobs_ahead
from crawler.views.whole import totals_view

TOP_OF_PARTITION = 128  # domains, which the engine keeps sorted by their pages


def run_stats(arguments: argparse.Namespace) -> int:
    """Print; raises UsageError for a crawl or domain that is not there."""
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
    return run_async(_stats(arguments, settings_of(arguments)))


async def _stats(arguments: argparse.Namespace, settings: Settings) -> int:
    async with open_crawl(settings, create=False) as crawl:
        if arguments.watch is None:
            out(await _stats_text(crawl, arguments))
            return 0
        text, said = await _stats_text(crawl, arguments), ""
        try:
            while True:
                if arguments.json:
                    out(text)
                else:
                    repaint(text)
                text = ""
                while not text:
                    await asyncio.sleep(arguments.watch)
                    try:
                        text, said = await _stats_text(crawl, arguments), ""
                    except EngineError as error:
                        if said != str(error):
                            said = str(error)
                            warn(f"{said}; trying again")
        except asyncio.CancelledError:  # Ctrl-C
            return 0


async def _stats_text(crawl: OpenCrawl, arguments: argparse.Namespace) -> str:
    if arguments.domain:
        return await _one(crawl, arguments.domain, as_json=arguments.json)
    return await _all(crawl, arguments)


async def _one(crawl: OpenCrawl, name: str, *, as_json: bool) -> str:
    found = await domain_detail(crawl, name)
    return json.dumps(_detail_json(found)) if as_json else detail_text(found)


async def _listed(crawl: OpenCrawl, arguments: argparse.Namespace) -> DomainRows:
    if arguments.by_name:
        return await domain_page(crawl, arguments.after or "", arguments.top)
    return await domain_rows(crawl, arguments.sort, arguments.top)


def _command_for(following: str) -> str:
    """The command as it was given, for the next page."""
    words = sys.argv[1:]
    if "--after" in words:
        at = words.index("--after")
        del words[at : at + 2]
    words = [word for word in words if not word.startswith("--after=")]
    return f"{program()} {shlex.join(map(redact, words))} {shlex.quote(f'--after={following}')}"


async def _all(crawl: OpenCrawl, arguments: argparse.Namespace) -> str:
    counts, examples = await crawl.stats.totals_and_examples()
    losses = losses_of(counts, examples)
    if arguments.losses:
        return json.dumps({"losses": msgspec.to_builtins(losses)}) if arguments.json else losses_table(losses)
    found, listed = await totals_view(crawl, counts), await _listed(crawl, arguments)
    shown = listed.rows
    members = await alive(crawl)
    waiting, ahead = await waits_for(crawl, members), jobs_ahead(members)
    held = sum(m.held_pages for m in members), sum(m.held_links for m in members)
    overrides, budget_reached = await crawl.operator.overrides(), await crawl.crawls.budget_reached()
    is_paused, logins = overrides.is_paused, overrides.logins
    if arguments.json:
        counted = {"domains": found.domains, "in_flight": found.in_flight, "paused": is_paused}
        counted |= {"jobs": msgspec.to_builtins(ahead), "logins": sum(one.logins for one in logins.values())}
        counted |= {"held_pages": held[0], "held_links": held[1]}
        counted |= {"memory_full": "memory" in waiting, "disk_full": "disk" in waiting}
        return json.dumps(
            {
                "crawl": crawl.settings.crawl.name,
                "ordering": msgspec.to_builtins(crawl.record.ordering),
                "totals": totals_json(counts)
                | counted
                | {"full_nodes": full_nodes(members), "over_budget": over_budget(counts, budget_reached)},
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
            full_nodes=full_nodes(members),
            held=held,
            budget_reached=budget_reached,
            logins=logins_text(logins) if logins else "",
            one_shape=", ".join(filter(None, (m.one_shape for m in members))),
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
    how = f"--top {count}" if count <= TOP_OF_PARTITION else "--by-name"  # they may all be of one partition
    return f"... and {counted(count - shown, 'more domain')}: crawler stats {how}"


def totals_json(totals: Totals) -> dict[str, Any]:
    return asdict(totals) | {"pending": totals.pending, "robots_denied": totals.refused.get("robots", 0)}


def _detail_json(detail: DomainDetail) -> dict[str, Any]:
    """The domain with what else is known of it, in one object."""
    found = msgspec.to_builtins(detail)
    return {**found.pop("domain"), **found}
