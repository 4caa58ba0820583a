"""`crawler fetch`: one page as the crawler sees it. Needs no crawl and no engine; keeps nothing."""

import argparse

from crawler.cli.crawl_options import KEYS, add_fetching
from crawler.cli.options import add_settings, settings_of
from crawler.errors import NothingFetchedError

REDIRECTS_MAX = 10  # as in visiting.py, which is not loaded for a help text

EPILOG = """\
examples:
  crawler fetch https://docs.example/             status, headers, robots.txt, links, text
  crawler fetch https://docs.example/ --links     all links, one a line
  crawler fetch https://docs.example/ --text      what a reader sees
  crawler fetch http://docs.example/ --follow     where redirects lead

exit codes: 0 there was a response, whatever its status; 2 invalid URL; 6 no response, or robots.txt forbids it
"""


def add_parser(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    p = commands.add_parser(
        "fetch",
        help="fetch one page and show what the crawler sees",
        description="Fetch one page and show it as the crawler sees it: robots.txt and the rule that decided, status, "
        "headers, times, links and text. Its robots.txt is fetched first. Nothing is stored.",
        epilog=EPILOG,
    )
    p.add_argument("url", metavar="URL")
    p.add_argument("-L", "--follow", action="store_true", help=f"follow up to {REDIRECTS_MAX} redirects")
    shown = p.add_mutually_exclusive_group()
    shown.add_argument("--links", action="store_true", help="all links, canonical, one a line, and nothing else")
    shown.add_argument("--text", action="store_true", help="the visible text and nothing else")
    shown.add_argument("--json", action="store_true", help="all of it as one JSON object; times in ms")
    add_fetching(p)
    add_settings(p)
    p.set_defaults(run=run, takes_urls=False)


def run(arguments: argparse.Namespace) -> int:
    """Print what was found; raises InvalidUrl, and NothingFetchedError where there is no response."""
    from crawler.cli.event_loop import run_async
    from crawler.crawl.url_input import url_of
    from crawler.terminal.text import out, out_json
    from crawler.views.page import PageClient, as_json, as_text

    url = url_of(arguments.url)
    visit = run_async(PageClient(settings_of(arguments, KEYS)).visit(url, follow=arguments.follow))
    if arguments.json:
        out_json(as_json(visit))
    if visit.refusal:
        raise NothingFetchedError(visit.refusal)
    if arguments.links:
        out("\n".join(visit.page.links))
    elif arguments.text:
        out(visit.text)
    elif not arguments.json:
        out(as_text(visit))
    return 0
