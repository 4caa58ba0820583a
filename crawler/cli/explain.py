"""`crawler explain`: why a URL is, is not or will be crawled."""

import argparse
from typing import TYPE_CHECKING, Any

from crawler.cli.crawl_options import KEYS, add_fetching
from crawler.cli.options import add_common, settings_of

if TYPE_CHECKING:
    from crawler.settings import Settings

EPILOG = """\
examples:
  crawler explain https://docs.example/private/page
  crawler explain https://news.example/ --run 0k3v9x2m7q.1.trvm5c

exit codes: 0 answered, 2 no such crawl or run, or not a URL, 3 engine
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
    p.add_argument("--run", dest="of_run", default="", metavar="RUN", help="for this active run of a job")
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
    from crawler.crawl.url_input import url_of

    arguments.canonical = url_of(arguments.url)  # said before an engine is started
    return run_async(_run(arguments, settings_of(arguments, KEYS)))


async def _run(arguments: argparse.Namespace, settings: "Settings") -> int:
    import msgspec

    from crawler.crawl.opening import open_crawl
    from crawler.terminal.text import out, out_json

    async with open_crawl(settings, create=False) as crawl:
        from crawler.views.explain import explain, explanation, record_of

        given, url = arguments.url.strip(), arguments.canonical
        facts = await explain(crawl, url, given=given, run=arguments.of_run, fetch_robots=arguments.fetch_robots)
    if arguments.json:
        out_json(msgspec.to_builtins(record_of(facts)))
    else:
        out(explanation(facts))
    return 0
