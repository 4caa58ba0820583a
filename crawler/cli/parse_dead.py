"""Options of `crawler dead`."""

import argparse

from crawler.cli.options import SHOWN, add_common, whole_type

ACTIONS = ("list", "show", "retry", "purge")


DEAD_EPILOG = """\
examples:
  crawler dead list                                the newest, and how many for each reason
  crawler dead show https://docs.example/slow      everything about one, with each attempt
  crawler dead retry --domain docs.example         retry all of them when their site is back
  crawler dead retry https://docs.example/slow
  crawler dead purge --reason dns_not_found
  crawler dead list --run 0k3v9x2m7q.1.trvm5c      those of a run of a job

A retried URL counts as new and gets all its attempts again. A running crawl takes it up at
once; a finished one with 'crawler crawl'. URLs of a run of a job are put back while it goes on;
'crawler jobs retry' repeats one that has failed. A purged URL stays seen: it is not crawled again,
and counts as refused ("purged").

With --json, `list` prints one object a line, and all of them unless --limit is given.

exit codes: 0 done, 2 no such crawl, URL or reason, 3 engine
"""


def add_dead(p: argparse.ArgumentParser) -> None:
    p.usage = "crawler dead list|show|retry|purge [URL ...] [options]"
    p.description = "Dead letters: URLs whose last attempt failed, with the reason and each attempt."
    p.epilog = DEAD_EPILOG
    p.add_argument("action", choices=ACTIONS, metavar="ACTION", help="list, show, retry or purge")
    p.add_argument("urls", nargs="*", metavar="URL", help="of these URLs only")
    p.add_argument("--domain", metavar="D", help="only of this domain")
    p.add_argument("--reason", metavar="R", help="only those that failed for this reason, like timeout or dns_error")
    p.add_argument("--run", dest="of_run", metavar="RUN", help="only of this run of a job")
    p.add_argument("--limit", metavar="N", type=whole_type, help=f"at most N (default: all; {SHOWN} in a table)")
    p.add_argument("--all", action="store_true", help="retry or purge all there are")
    p.add_argument("--json", action="store_true", help="for programs; times in seconds")
    add_common(p)
    p.set_defaults(run="crawler.cli.dead:run_dead", takes_urls=True)
