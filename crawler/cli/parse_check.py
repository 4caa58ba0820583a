"""Options of `crawler check`."""

import argparse

from crawler.cli.crawl_options import add_proxy
from crawler.cli.options import add_settings

CHECK_EPILOG = """\
examples:
  crawler check shop.toml                               is it valid, and do its variables and its app exist?
  crawler check shop.py:app                             does it load, and which handlers does it have?
  crawler check shop.toml shop.py https://shop.example/cart/1    which table each setting of this URL comes from,
                                                        and which handler gets the page

exit codes: 0 nothing is wrong; 2 something is wrong (a line each on standard error)
"""


def add_check(p: argparse.ArgumentParser) -> None:
    p.description = (
        "Check a settings file or an app without crawling: what is wrong, a line each with the file and "
        "the key. With URLs: which settings each gets, from which table of the file, and which handler gets its page."
    )
    p.epilog = CHECK_EPILOG
    p.add_argument(
        "targets", metavar="FILE.toml|APP|URL", nargs="*", help="what to check, in any order; an app as for --app"
    )
    add_proxy(p)
    add_settings(p)
    p.set_defaults(run="crawler.cli.check:run_check", takes_urls=False)
