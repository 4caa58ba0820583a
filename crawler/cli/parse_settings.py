"""Options of `crawler settings`."""

import argparse

from crawler.cli.options import add_common

SETTINGS_EPILOG = """\
examples:
  crawler settings                          what is stored with the crawl, and what it needs
  crawler settings --all                    also what is as by default
  crawler settings scope.depth_max=3 robots.obey=no
  crawler settings handlers.app=shop2.py

What results depend on is stored with the crawl when it begins: scope, robots.txt or not, user
agent, limits, and how sites are treated. No other command needs to name it again, and one that
names other values is refused, but for [politeness], [retry], [hosts], [identity], fetch.contact
and the timeouts of [fetch]: those it changes, and says so.

A crawl that needs --allow-private, insecure TLS, a key or an app stores that it does. The permission
comes from a command on each machine, which notes it in its crawl folder.

A change of the scope holds for links that are found from now on, the rest for instances that
start from now on. What was fetched stays as it is.

exit codes: 0 done, 2 bad key or value, or one that can't change, 3 engine
"""


def add_settings(p: argparse.ArgumentParser) -> None:
    p.description = "Show the settings that are stored with the crawl, or change them for the whole crawl."
    p.epilog = SETTINGS_EPILOG
    p.add_argument(
        "changes", nargs="*", metavar="KEY[=VALUE]", help="a new value, as --set takes it; a key alone shows it"
    )
    p.add_argument("--all", action="store_true", help="show what is as by default, too")
    p.add_argument("--json", action="store_true", help="as one JSON object, with all settings")
    add_common(p)
    p.set_defaults(run="crawler.cli.settings:run_settings", takes_urls=False)
