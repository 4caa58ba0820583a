"""Options of `crawler forget`."""

import argparse

from crawler.cli.options import add_common

FORGET_EPILOG = """\
examples:
  crawler forget shop.example --dry-run                       what would go
  crawler forget shop.example                                 in the crawl folder, and in the engine
  crawler forget shop.example -o pages.jsonl -o results.db    and in these outputs
  crawler forget shop.example --dir one --dir two             in several folders of one crawl

While instances run they only stop fetching the domain: stop them, and give the command again. All
goes that the crawl has of a registrable domain: URLs that wait, dead letters, pages, items,
cookies, history, seeds, lines of logs. URLs stay only where pages of other sites link to them. One
digest, under the crawl's secret key, keeps the domain out permanently: links, redirects, seeds,
sitemaps, imports and a rebuild can't bring it back, and nothing undoes it.

Each folder and output is listed as done, not reached or impossible. A command that was interrupted,
or that did not reach all, is given again. Files of which a part goes are copied: one after the
other, so the disk needs about 1 GB.

exit codes: 0 all is done, 2 no such crawl, or no domain, 3 engine, 4 a prune, a rebuild, an export
or an audit is in the way: repeat it later, 5 the disk is full or fails, 8 not all is done: the
lines tell what is left, and what to do
"""


def add_forget(p: argparse.ArgumentParser) -> None:
    p.description = "Remove all that a crawl has of a domain, and keep the domain out permanently."
    p.epilog = FORGET_EPILOG
    p.add_argument("domain", metavar="DOMAIN", help="a registrable domain, or an IP address")
    p.add_argument(
        "-o", "--output", metavar="TARGET", action="append", default=[],
        help="an output of the crawl, as it was given to 'crawler crawl'; may be repeated",
    )  # fmt: skip
    p.add_argument("--dry-run", action="store_true", help="remove nothing, print what would be")
    p.add_argument("--json", action="store_true", help="as one JSON object")
    add_common(p, many_folders=True)
    p.set_defaults(run="crawler.cli.forget:run_forget", takes_urls=False)
