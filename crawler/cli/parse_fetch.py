"""Options of `crawler fetch`."""

import argparse

from crawler.cli.crawl_options import add_body, add_fetching, add_headers
from crawler.cli.options import add_settings

REDIRECTS_MAX = 10  # as in visiting.py, which is not loaded for a help text

FETCH_EPILOG = """\
examples:
  crawler fetch https://docs.example/             status, headers, robots.txt, links, text
  crawler fetch https://docs.example/ --links     all links, one a line
  crawler fetch https://docs.example/ --text      what a reader sees
  crawler fetch http://docs.example/ --follow     where redirects lead
  crawler fetch https://docs.example/find --data q=tea                 by POST

exit codes: 0 there was a response, whatever its status; 2 invalid URL; 6 no response, or robots.txt forbids it
"""


def add_fetch(p: argparse.ArgumentParser) -> None:
    p.description = (
        "Fetch one page and show it as the crawler sees it: robots.txt and the rule that decided, status, "
        "headers, times, what is said about its use, links and text. Its robots.txt is fetched first. Nothing is "
        "stored."
    )
    p.epilog = FETCH_EPILOG
    p.add_argument("url", metavar="URL")
    p.add_argument("-L", "--follow", action="store_true", help=f"follow up to {REDIRECTS_MAX} redirects")
    shown = p.add_mutually_exclusive_group()
    shown.add_argument("--links", action="store_true", help="all links, canonical, one a line, and nothing else")
    shown.add_argument("--text", action="store_true", help="the visible text and nothing else")
    shown.add_argument("--json", action="store_true", help="all of it as one JSON object; times in ms")
    add_body(p)
    add_headers(p)
    add_fetching(p)
    add_settings(p)
    p.set_defaults(run="crawler.cli.fetch:run_fetch", takes_urls=False)
