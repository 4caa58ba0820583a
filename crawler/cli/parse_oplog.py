"""Options of `crawler oplog`."""

import argparse

from crawler.cli.options import SHOWN, add_common, count_type

OPLOG_EPILOG = """\
examples:
  crawler oplog
  crawler oplog --limit 1000 --json | jq 'select(.who == "ann")'

Commands that change a crawl are noted before they act, also those that then fail: pause, block,
delay, boost and their opposites, purge, release, dead retry and dead purge, ring pin, unpin and
evict, scale, users, seed, and prune. The engine keeps 1,000: the oldest
go of whoever has most. A command that the same person repeats is one entry.

With --json, one object a line, the newest last; all of them unless --limit is given.

exit codes: 0 done, 2 no such crawl, 3 engine
"""


def add_oplog(p: argparse.ArgumentParser) -> None:
    p.description = "The operator log: commands that changed a crawl, with who gave them and when."
    p.epilog = OPLOG_EPILOG
    p.add_argument(
        "--limit", metavar="N", type=count_type(1), help=f"the last N only (default: all; {SHOWN} in a table)"
    )
    p.add_argument("--json", action="store_true", help="for programs: an object a line; times in seconds")
    add_common(p)
    p.set_defaults(run="crawler.cli.oplog:run_oplog", takes_urls=False)
