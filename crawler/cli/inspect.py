"""`crawler stats`, `explain`, `history`, `seeds` and `top`: looks at a crawl and changes nothing."""

import argparse
import asyncio
import json
import os
import shlex
import signal
import sys
from collections import Counter, deque
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
from msgspec.structs import asdict

from crawler.archive.folder import CrawlFolder, open_existing
from crawler.archive.history import Attempt, attempts, kept_since
from crawler.cli.crawl_options import KEYS
from crawler.cli.event_loop import heard, raise_file_limit, run_async, run_on
from crawler.cli.options import SHOWN, actor, settings_of
from crawler.cli.parse_inspect import HISTORY_SHOWN
from crawler.crawl.opening import OpenCrawl, open_crawl
from crawler.crawl.url_input import url_of, url_of_site
from crawler.errors import EngineError, UsageError
from crawler.frontier.seeds import SeedCounts
from crawler.frontier.stats import Totals
from crawler.redaction import redact
from crawler.rules.places import registrable_domain
from crawler.rules.urls import host_of
from crawler.runtime.process import wall_s
from crawler.settings import Settings
from crawler.terminal.text import counted, moment, out, out_json, program, repaint, table, warn
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
    overrides, quota_reached = await crawl.operator.overrides(), await crawl.crawls.quota_reached()
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
                | {"full_nodes": full_nodes(members), "over_budget": over_budget(counts, quota_reached)},
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
            quota_reached=quota_reached,
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


# `crawler explain`: why a URL is, is not or will be crawled.


def run_explain(arguments: argparse.Namespace) -> int:
    """Print the explanation; raises InvalidUrl for what is no URL."""
    arguments.canonical = url_of(arguments.url)  # said before an engine is started
    return run_async(_explain(arguments, settings_of(arguments, KEYS)))


async def _explain(arguments: argparse.Namespace, settings: Settings) -> int:
    async with open_crawl(settings, create=False) as crawl:
        from crawler.views.facts import explain
        from crawler.views.reasons import explanation, record_of

        given, url = arguments.url.strip(), arguments.canonical
        facts = await explain(crawl, url, given=given, run=arguments.of_run, fetch_robots=arguments.fetch_robots)
    if arguments.json:
        out_json(msgspec.to_builtins(record_of(facts)))
    else:
        out(explanation(facts))
    return 0


# `crawler history`: what became of each attempt at a URL, or at the URLs of a domain; from the crawl folder alone.


def run_history(arguments: argparse.Namespace) -> int:
    """Print it. Raises UsageError, InvalidUrl."""
    if len(arguments.urls) + bool(arguments.domain) != 1:
        raise UsageError("name one URL, or a domain: crawler history URL, crawler history --domain D")
    if arguments.limit is not None and arguments.limit < 1:
        raise UsageError(f"--limit {arguments.limit}: expected a number of attempts")
    url = url_of(arguments.urls[0]) if arguments.urls else ""
    domain = "" if url else registrable_domain(host_of(url_of_site(arguments.domain)))
    folders = arguments.dir or []
    arguments.dir = folders[0] if folders else None
    settings = settings_of(arguments, in_folder=True)
    raise_file_limit()  # a file for each session with attempts
    opened = [open_existing(folder) for folder in (settings.archive.dir, *folders[1:])]
    _print(opened, url, domain, limit=arguments.limit, as_json=arguments.json)
    return 0


def _print(folders: Sequence[CrawlFolder], url: str, domain: str, *, limit: int | None, as_json: bool) -> None:
    from crawler.views.explain import ShownAttempt, history_table

    damaged = Counter[str]()
    found = attempts(folders, url=url, domain=domain, damaged=damaged)
    if as_json:
        shown = found if limit is None else _in_order(deque(found, maxlen=limit))
        for one in shown:
            out_json(msgspec.to_builtins(ShownAttempt.of(one)))
        _say_damaged(damaged)
        return
    numbered = deque(enumerate(found, start=1), maxlen=limit or HISTORY_SHOWN)
    since = kept_since(folders)
    if numbered:
        out(history_table(_in_order(one for _, one in numbered), with_urls=bool(domain)))
        shown_count, total = len(numbered), numbered[-1][0]
        if total > shown_count:
            out(f"\nshown: the last {shown_count:,} of {total:,} (--limit N for more; --json has all)")
    else:
        out(f"No attempt at {url or f'a URL of {domain}'} is known.")
    where = counted(len(folders), "folder")
    kept = f"History in {where} begins at {moment(since)}" if since else f"{where} without history"
    out(f"\n{kept}. The present state of a URL: crawler explain URL")
    _say_damaged(damaged)


def _say_damaged(damaged: "Counter[str]") -> None:
    for file, lines in sorted(damaged.items()):
        warn(f"{file}: {counted(lines, 'damaged line')} left out")


def _in_order(found: Iterable[Attempt]) -> "list[Attempt]":
    return sorted(found, key=lambda one: one.last_at)


# `crawler seeds`: each seed of a crawl, and what became of all that descends from it.


def run_seeds(arguments: argparse.Namespace) -> int:
    """Print. Raises UsageError for a crawl that is not there."""
    if arguments.limit is not None and arguments.limit < 1:
        raise UsageError(f"--limit {arguments.limit}: expected a number of seeds")
    return run_on(arguments, _seeds)


async def _seeds(crawl: OpenCrawl, arguments: argparse.Namespace) -> None:
    shown: list[SeedCounts] = []
    limit = arguments.limit if arguments.json or arguments.limit else SHOWN
    total = finished = printed = 0
    async for some in crawl.seeds.read():
        total += len(some)
        finished += sum(not seed.waiting for seed in some)
        wanted = [seed for seed in some if seed.waiting or not arguments.waiting]
        wanted = wanted if limit is None else wanted[: limit - printed]
        printed += len(wanted)
        if arguments.json:
            for seed in wanted:
                out_json(asdict(seed) | {"waiting": seed.waiting})
        else:
            shown += wanted
    if not arguments.json:
        out(_seeds_text(shown, total=total, finished=finished))


def _seeds_text(shown: "list[SeedCounts]", *, total: int, finished: int) -> str:
    parts = [f"{counted(total, 'seed')}, {finished:,} finished"]
    if shown:
        rows = [(s.url, f"{s.waiting:,}", f"{s.done:,}", f"{s.dead:,}") for s in shown]
        parts.append(table(("seed", "waiting", "done", "dead"), rows))
    return "\n\n".join(parts)


# `crawler top`: a crawl in the terminal, live: domains, one domain, instances, dead letters; keys to steer it.


def run_top(arguments: argparse.Namespace) -> int:
    """Show it until it is left. Raises UsageError where there is no terminal."""
    is_terminal = sys.stdin.isatty() and sys.stdout.isatty() and sys.stderr.isatty()
    if not is_terminal or os.environ.get("TERM", "dumb") == "dumb":
        raise UsageError("top needs a terminal; use 'crawler stats --watch'")
    return run_on(arguments, _top, with_uvloop=False)  # Textual makes eager tasks: uvloop can't on Python 3.13


async def _top(crawl: OpenCrawl, _: argparse.Namespace) -> None:
    from crawler.tui.app import TopApp
    from crawler.tui.source import CrawlSource

    app = TopApp(CrawlSource(crawl, actor("top")))
    for number in heard((signal.SIGINT, signal.SIGTERM, signal.SIGHUP)):
        asyncio.get_running_loop().add_signal_handler(number, app.exit)
    await app.run_async()
    if app.bug is not None:
        raise app.bug
