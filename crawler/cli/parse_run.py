"""Options of `crawler run`."""

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
)
from crawler.cli.options import (
    add_common,
)
from crawler.cli.parse_export import add_output

if TYPE_CHECKING:
    from crawler.crawl.url_input import GivenUrl

    Batches = AsyncGenerator[list[GivenUrl], None]


RUN_EPILOG = """\
examples:
  crawler run --redis redis://queue.example/ --name news          on each machine
  crawler run -n 4 --contact https://example.com/bot              four on this one
  crawler run --app shop:app -n 4                                 pages go to your functions

Instances find each other on the engine and share the domains by a consistent-hash ring;
start and stop them at any time. They wait for work until a signal stops them. Add work
with 'crawler seed', look at it with 'crawler stats' and 'crawler ring'.

exit codes: 0 or 10 stopped by a signal, 1 an instance kept crashing, 3 engine, 4 node taken, 5 disk,
12 a database of -o is not available
"""


def add_run(p: argparse.ArgumentParser) -> None:
    p.description = "Run instances that share the domains of a crawl and wait for work until a signal stops them."
    p.epilog = RUN_EPILOG
    add_instances(p)
    add_output(p.add_argument_group("results"))
    p.add_argument("-q", "--quiet", action="store_true", help="print no progress, only warnings and errors")
    add_app(p)
    add_order(p)
    add_requisites(p)
    add_fetching(p)
    add_headers(p)
    add_common(p, verbose_help=VERBOSE_HELP)
    p.add_argument("--until-finished", action="store_true", help=argparse.SUPPRESS)
    p.add_argument("--child", action="store_true", help=argparse.SUPPRESS)  # end with standard input
    p.set_defaults(run="crawler.cli.run:run_run", takes_urls=False)
