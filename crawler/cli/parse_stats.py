"""Options of `crawler stats`."""

import argparse

from crawler.cli.options import add_common, limit_type, whole_type

TOP = 20

WATCH_S = 2.0

SORTS = ("pages", "rate", "queue", "errors", "bytes", "due")

STATS_EPILOG = """\
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


def add_stats(p: argparse.ArgumentParser) -> None:
    p.description = "Totals of a crawl and statistics of its domains, while it runs and afterwards."
    p.epilog = STATS_EPILOG
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
    p.set_defaults(run="crawler.cli.stats:run_stats", takes_urls=False)
