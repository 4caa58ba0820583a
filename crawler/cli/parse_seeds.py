"""Options of `crawler seeds`."""

import argparse

from crawler.cli.options import SHOWN, add_common, whole_type

SEEDS_EPILOG = """\
examples:
  crawler seeds                     the first 50, in the order in which they were given
  crawler seeds --waiting           those with URLs left to fetch
  crawler seeds --json | jq -r 'select(.waiting == 0) | .url'

A URL belongs to the seed from which it was found first. "waiting" are URLs that are queued,
being fetched, waiting for a retry or for their time, or deferred; "done" those that were
fetched or refused.
A seed that a page had led to before it was given is not listed: it belongs to that page's.

With --json, one object a line, and all of them unless --limit is given.

exit codes: 0 done, 2 no such crawl, 3 engine
"""


def add_seeds(p: argparse.ArgumentParser) -> None:
    p.description = "The seeds of a crawl, with counts of all URLs that descend from each."
    p.epilog = SEEDS_EPILOG
    p.add_argument("--waiting", action="store_true", help="only seeds with URLs left to fetch")
    p.add_argument("--limit", metavar="N", type=whole_type, help=f"at most N (default: all; {SHOWN} in a table)")
    p.add_argument("--json", action="store_true", help="for programs")
    add_common(p)
    p.set_defaults(run="crawler.cli.seeds:run_seeds")
