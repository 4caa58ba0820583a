"""Options of `crawler explain`."""

import argparse

from crawler.cli.crawl_options import add_fetching
from crawler.cli.options import add_common

EXPLAIN_EPILOG = """\
examples:
  crawler explain https://docs.example/private/page
  crawler explain https://news.example/ --run 0k3v9x2m7q.1.trvm5c

exit codes: 0 answered, 2 no such crawl or run, or not a URL, 3 engine
"""


def add_explain(p: argparse.ArgumentParser) -> None:
    p.description = (
        "Why a URL is, is not or will be crawled: canonical form, scope, robots.txt and traps with the "
        "rule that decided, where it is now, whose it is, and when its queue is due."
    )
    p.epilog = EXPLAIN_EPILOG
    p.add_argument("url", metavar="URL")
    p.add_argument("--run", dest="of_run", default="", metavar="RUN", help="for this active run of a job")
    p.add_argument("--json", action="store_true", help="as one JSON object; times in ms")
    p.add_argument(
        "--fetch-robots", action="store_true", help="ask the site for robots.txt, politely, when nobody has read it yet"
    )
    add_fetching(p)
    add_common(p)
    p.set_defaults(run="crawler.cli.explain:run_explain", takes_urls=False)
