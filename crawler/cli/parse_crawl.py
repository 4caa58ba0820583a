"""Options of `crawler crawl`."""

import argparse
from collections.abc import AsyncGenerator
from typing import TYPE_CHECKING

from crawler.cli.crawl_options import (
    VERBOSE_HELP,
    add_app,
    add_fetching,
    add_headers,
    add_instances,
    add_order,
    add_requisites,
    add_sitemap,
)
from crawler.cli.options import (
    add_common,
    add_urls,
    count_type,
    limit_type,
)
from crawler.cli.parse_export import add_output

if TYPE_CHECKING:
    from crawler.crawl.url_input import GivenUrl

    Batches = AsyncGenerator[list[GivenUrl], None]


CRAWL_EPILOG = """\
examples:
  crawler crawl https://docs.example/
  crawler crawl https://docs.example/guide/ --scope prefix -o guide.jsonl
  crawler crawl -i seeds.txt --depth 1 --exclude '/(login|cart)' -n 2
  crawler crawl https://shop.example/ --app shop.py -n 4
  crawler crawl --app shop.py                   begins with the requests of its @app.start
  crawler crawl https://shop.example/ --cookie 'session=8f2c' --header 'X-Team: search'
  subdomains example.com | crawler crawl -i - --pages 10000 --time 2h

Ctrl-C stops in order: what is in flight is finished, the rest is kept. The same command
goes on where the crawl stopped, also after a crash. Scope, robots, limits and the like are
stored with the crawl and need not be given again; 'crawler settings' shows and changes them.

exit codes: 0 done or limit reached, 2 bad input, 3 engine, 4 folder or node taken, 5 disk,
6 not one seed could be fetched, 10 stopped by a signal, 11 forced by a second one, 12 a
database of -o is away, 13 a handler failed on each of its pages, 14 your network failed for long
"""


def add_crawl(p: argparse.ArgumentParser) -> None:
    p.description = "Crawl from seed URLs until nothing is left, then print what was found and where it is stored."
    p.epilog = CRAWL_EPILOG
    add_urls(p)
    group = p.add_argument_group("what to crawl")
    add_sitemap(group)
    group.add_argument(
        "--scope",
        choices=("domain", "host", "prefix", "any"),
        help="which links to follow: to the seeds' registrable domain (default), host, folder, or anywhere",
    )
    group.add_argument(
        "-np", "--no-parent", dest="scope", action="store_const", const="prefix", help="the same as --scope prefix"
    )
    group.add_argument(
        "-d",
        "--depth",
        type=count_type(0, 255, hint="; leave it out for no limit"),
        metavar="N",
        help="links away from a seed; 0: seeds only (default: no limit)",
    )
    group.add_argument(
        "--include",
        action="append",
        metavar="RE",
        help="only URLs that match this regular expression anywhere; may be repeated",
    )
    group.add_argument(
        "--exclude",
        action="append",
        metavar="RE",
        help="no URLs that match this regular expression anywhere; may be repeated",
    )
    add_requisites(group)
    add_app(group)
    add_order(group)
    group = p.add_argument_group("when to stop")
    group.add_argument(
        "--pages",
        type=count_type(1, hint="; leave it out for no limit"),
        metavar="N",
        help="when the crawl has N pages in total; several instances may fetch a few more, at most what they claim in "
        "half a second (measured with 2 and 4 instances: 0 or 1 more)",
    )
    group.add_argument("--time", type=limit_type, metavar="T", help="after this time: 90 (seconds), 10m, 2h, 1d")
    group = p.add_argument_group("results")
    add_output(group)
    group.add_argument(
        "-q", "--quiet", action="store_true", help="print no progress and no summary, only warnings and errors"
    )
    add_fetching(p)
    add_headers(p)
    add_instances(p)
    add_common(p, verbose_help=VERBOSE_HELP)
    p.set_defaults(run="crawler.cli.crawl:run_crawl")
