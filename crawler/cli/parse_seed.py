"""Options of `crawler seed`."""

import argparse
from collections.abc import AsyncGenerator
from typing import TYPE_CHECKING

from crawler.cli.crawl_options import (
    add_fetching,
    add_order,
    add_sitemap,
)
from crawler.cli.options import (
    add_common,
    add_urls,
    moment_type,
    whole_type,
)

if TYPE_CHECKING:
    from crawler.crawl.url_input import GivenUrl

    Batches = AsyncGenerator[list[GivenUrl], None]


SEED_EPILOG = """\
examples:
  crawler seed https://docs.example/ https://blog.example/
  crawler seed -i hosts.txt --priority 5
  crawler seed -i sites.csv --column Website
  tail -f found.log | crawler seed -
  crawler seed --sitemap https://docs.example/sitemap.xml
  crawler seed --at 2027-01-31T12:00Z https://docs.example/release-notes

Each seed's domain (host, folder; see --scope of 'crawler crawl') joins the scope of the
crawl. A crawl does not end while a stream of seeds is being read.

With --at, the URLs are pending and no instance fetches them before that time; a crawl does
not end before. A URL that the crawl knows already stays as it is: one that waits for its time
waits on, also when it is given again or a page links to it.

exit codes: 0 done, 2 no valid seed URL, 3 engine, 6 the sitemap could not be fetched
"""


def add_seed(p: argparse.ArgumentParser) -> None:
    p.description = "Add URLs to a crawl, running or not yet started, and print how many were new."
    p.epilog = SEED_EPILOG
    add_urls(p)
    group = p.add_argument_group("seeds")
    add_sitemap(group)
    group.add_argument(
        "--priority", type=float, metavar="P", help="higher is fetched first (default: derived from --order)"
    )
    group.add_argument(
        "--depth", type=whole_type, default=0, metavar="N", help="the depth these URLs count as (default: 0)"
    )
    group.add_argument(
        "--at", type=moment_type, default=0.0, metavar="TIME",
        help="fetch these URLs at TIME or later, like 2027-01-31T12:00Z (ISO 8601; UTC unless it has an offset)",
    )  # fmt: skip
    group.add_argument("--json", action="store_true", help="the counts as one JSON object")
    add_order(group)
    add_fetching(p)
    add_common(p)
    p.set_defaults(run="crawler.cli.seed:run_seed")
