"""`crawler explain`: why a URL is, is not or will be crawled."""

import argparse
from typing import TYPE_CHECKING, Any

from crawler.cli.crawl_options import KEYS, add_fetching
from crawler.cli.options import add_common, settings_of

if TYPE_CHECKING:
    from crawler.app.crawl import OpenCrawl
    from crawler.model import CommitEntry
    from crawler.reports.explanation import Facts
    from crawler.settings import Settings

EPILOG = """\
example:
  crawler explain https://docs.example/private/page

exit codes: 0 answered, 2 no such crawl or not a URL, 3 engine
"""


def add_parser(commands: "argparse._SubParsersAction[Any]") -> None:
    p = commands.add_parser(
        "explain",
        help="why a URL is, is not or will be crawled",
        description="Why a URL is, is not or will be crawled: canonical form, scope, robots.txt and traps with the "
        "rule that decided, where it is now, whose it is, and when its queue is due.",
        epilog=EPILOG,
    )
    p.add_argument("url", metavar="URL")
    p.add_argument("--json", action="store_true", help="as one JSON object; times in ms")
    p.add_argument(
        "--fetch-robots", action="store_true", help="ask the site for robots.txt, politely, when nobody has read it yet"
    )
    add_fetching(p)
    add_common(p)
    p.set_defaults(run=run, takes_urls=False)


def run(arguments: argparse.Namespace) -> int:
    """Print the explanation; raises InvalidUrl for what is no URL."""
    from crawler.cli.event_loop import run_async
    from crawler.seeding.url_input import url_of

    arguments.canonical = url_of(arguments.url)  # said before an engine is started
    return run_async(_run(arguments, settings_of(arguments, KEYS)))


async def _run(arguments: argparse.Namespace, settings: "Settings") -> int:
    from crawler.app.open_crawl import open_crawl
    from crawler.reports.explanation import as_json, explanation
    from crawler.terminal.printing import out, out_json

    async with open_crawl(settings, create=False) as crawl:
        facts = await _facts(crawl, arguments.url.strip(), arguments.canonical, fetch_robots=arguments.fetch_robots)
    if arguments.json:
        out_json(as_json(facts))
    else:
        out(explanation(facts))
    return 0


async def _facts(crawl: "OpenCrawl", given: str, url: str, *, fetch_robots: bool) -> "Facts":
    from crawler.app.crawl import make_router
    from crawler.app.polite_client import robots_fact
    from crawler.reports.explanation import Facts
    from crawler.rules.traps import NOTHING_LEARNED, PASSED, TrapRules
    from crawler.service.ring_view import ring_of, weights_of

    router = make_router(crawl)
    candidate = router.candidate(url, depth=0)
    where = await crawl.inspect.locate(candidate, run=crawl.record.run)
    owners = (await ring_of(crawl, weights_of(await crawl.members.read()))).owners
    overrides = await crawl.operator.overrides()
    is_seed = where.record is not None and where.record.seed
    depth, redirects = (where.record.depth, where.record.redirects) if where.record else (0, 0)
    return Facts(
        given=given,
        url=url,
        domain=candidate.domain,
        queue=candidate.queue,
        partition=candidate.partition,
        suggested=owners[candidate.partition] if owners else "",
        is_alone=not owners,
        is_paused=overrides.is_paused,
        quota_reached=await crawl.crawls.quota_reached(),
        boost=overrides.boosts.get(candidate.domain, 0),
        scope=router.verdict(url, depth, redirects),
        robots=await robots_fact(crawl, url, candidate.partition, fetch=fetch_robots),
        where=where,
        traps=PASSED if is_seed else TrapRules(crawl.settings.traps).judge(NOTHING_LEARNED, url),
        commits=_commits(crawl, url, where.entry),
        has_index=bool(crawl.settings.archive.dir),
    )


def _commits(crawl: "OpenCrawl", url: str, entry: "CommitEntry | None") -> "list[CommitEntry]":
    """From the index on this machine, and from the engine's log where it is not yet in an index."""
    from crawler.archive.index_reader import find_url

    found = find_url(crawl.folder, url)
    if entry is not None and not any(e.visit == entry.visit for e in found):
        found.append(entry)
    return found
