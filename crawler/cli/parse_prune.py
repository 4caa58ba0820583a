"""Options of `crawler prune`."""

import argparse

from crawler.cli.options import add_common, count_type
from crawler.cli.parse_export import since_type

PRUNE_EPILOG = """\
examples:
  crawler prune --older-than 30d --dry-run          what would go
  crawler prune --older-than 30d                    pages that were fetched more than 30 days ago
  crawler prune --keep-runs 5                       of each job, all but the newest 5 runs
  crawler prune --domain docs.example               all pages of a domain
  crawler prune --older-than 90d --domain docs.example

With several conditions, pages go for which all hold. Records, items and attempts are removed;
of each page a short line of the index stays, so it is not fetched again while the engine, or a
rebuild, knows it. 'jobs history' keeps the rows of runs. Pages of active runs, what running
instances still write to, and what outputs (-o) have not read yet stay for now. The crawl may
be running. Where several machines crawl, prune the folder of each. A prune that was
interrupted is completed by the next one.

Files of which a part goes are copied: one after the other, so the disk needs about 1 GB.

exit codes: 0 done, 2 no such crawl, or no condition, 3 engine, 4 another prune, a rebuild, an
export or an audit is in the way: repeat it later, 5 the disk is full or fails
"""


def add_prune(p: argparse.ArgumentParser) -> None:
    p.description = "Remove pages from a crawl folder: by age, by domain, or all but the newest runs of jobs."
    p.epilog = PRUNE_EPILOG
    p.add_argument(
        "--older-than", type=age_type, metavar="WHEN", default=0.0,
        help="pages fetched before: a time ago (12h, 30d) or a date, 2026-11-01 or 2026-11-01T08:00 (UTC)",
    )  # fmt: skip
    p.add_argument(
        "--keep-runs", type=count_type(1), metavar="N", default=0,
        help="pages of the runs of jobs, but for the newest N of each job, and active ones",
    )  # fmt: skip
    p.add_argument("--domain", metavar="DOMAIN", default="", help="pages of a domain; or one of its hosts or URLs")
    p.add_argument("--dry-run", action="store_true", help="remove nothing, print what would be")
    p.add_argument("--json", action="store_true", help="as one JSON object")
    add_common(p)
    p.set_defaults(run="crawler.cli.prune:run_prune", takes_urls=False)


def age_type(text: str) -> float:
    """For argparse: like `since_type`, but a number needs its unit: nobody's 30 days are to become 30 seconds."""
    if text.strip().isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} has no unit (use 12h, 30d; or a date: 2026-11-01)")
    return since_type(text)
