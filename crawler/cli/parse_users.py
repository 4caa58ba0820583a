"""Options of `crawler users`."""

import argparse

from crawler.cli.options import add_common

USERS_EPILOG = """\
examples:
  crawler users                   users with waiting URLs, and their weights
  crawler users ann 3             ann gets three times the share of a user with weight 1
  crawler users ann 1             back to the default share
  crawler users --crawl 0.5       the weight of the crawl itself: URLs that belong to no job

Jobs belong to users ('crawler jobs add --user U'). While several users have URLs that are due,
they take turns by weight: in each domain, and in what an instance fetches. A user with nothing
to fetch leaves the share to the others. Running instances follow within two seconds.

exit codes: 0 done, 2 no such crawl, bad name or weight, 3 engine
"""


def add_users(p: argparse.ArgumentParser) -> None:
    p.description = "List users with waiting URLs, or set the weight of one."
    p.epilog = USERS_EPILOG
    p.add_argument("user", nargs="?", metavar="USER", help="whose weight to set (default: all users are listed)")
    p.add_argument("weight", nargs="?", metavar="WEIGHT", type=_number, help="from 0.01 to 1000; 1 is the default")
    p.add_argument("--crawl", metavar="WEIGHT", type=_number, help="the weight of URLs that belong to no job")
    p.add_argument("--json", action="store_true", help="as one JSON object")
    add_common(p)
    p.set_defaults(run="crawler.cli.users:run_users", takes_urls=False)


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number") from None
