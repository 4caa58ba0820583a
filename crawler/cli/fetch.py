"""`crawler fetch`: one page as the crawler sees it. Needs no crawl and no engine; keeps nothing."""

import argparse

from crawler.cli.crawl_options import KEYS
from crawler.cli.options import settings_of
from crawler.cli.request_options import request_given
from crawler.cli.run_async import run_async
from crawler.crawl.url_input import url_of
from crawler.errors import NothingFetchedError
from crawler.terminal.output import out, out_json
from crawler.views.page_fetch import PageClient


def run_fetch(arguments: argparse.Namespace) -> int:
    """Print what was found; raises InvalidUrl, and NothingFetchedError where there is no response."""
    from crawler.views.page import as_json, as_text

    url, settings = url_of(arguments.url), settings_of(arguments, KEYS)
    request = request_given(arguments)
    visit = run_async(PageClient(settings).visit(url, follow=arguments.follow, request=request))
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
