"""Options of `crawler rebuild`."""

import argparse

from crawler.cli.options import add_common, add_urls, whole_type

REBUILD_EPILOG = """\
examples:
  crawler rebuild
  crawler rebuild --redis redis://queue.example/ --dir crawl-data

For an engine that was wiped, or replaced by an empty one. Every page of the index counts as
done again and is not fetched again; every link of every archived page and every seed is
added again. Dead letters, and URLs that robots.txt forbade, are tried again.

Rebuild each folder of the crawl, on each of its machines, before anything crawls.
If a rebuild is interrupted, run the same command again.

exit codes: 0 done, 2 bad folder or URL, 3 engine, 4 instances are running, or the engine has
another crawl, 5 a part of index, archive or journals can't be read
"""


def partitions_type(text: str) -> int:
    """For argparse: how many a crawl may have."""
    number = whole_type(text)
    if not 1 <= number <= 16384:
        raise argparse.ArgumentTypeError(f"give a number from 1 to 16384, not {text}")
    return number


def add_rebuild(p: argparse.ArgumentParser) -> None:
    p.description = "Recreate a crawl in an engine that lost it, from the index, archive and seeds of its folder."
    p.epilog = REBUILD_EPILOG
    add_urls(p)
    p.add_argument(
        "--refetch", action="store_true",
        help="fetch pages again whose record or items are missing or damaged (without this, they end the rebuild), or "
        "were pruned",
    )  # fmt: skip
    p.add_argument(
        "--accept-loss", action="store_true",
        help="go on without the seeds and jobs that damaged or cut journals had (without this, these end the rebuild)",
    )  # fmt: skip
    p.add_argument(
        "--partitions", type=partitions_type, metavar="N", default=0,
        help="parts of the frontier, if the engine lacks the crawl (default: as many as it had)",
    )  # fmt: skip
    p.add_argument("-q", "--quiet", action="store_true", help="print only errors")
    add_common(p, many_folders=True)
    p.set_defaults(run="crawler.cli.rebuild:run_rebuild")
