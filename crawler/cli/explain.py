"""`crawler explain`: why a URL is, is not or will be crawled."""

import argparse

import msgspec

from crawler.cli.crawl_options import KEYS
from crawler.cli.options import settings_of
from crawler.cli.run_async import run_async
from crawler.crawl.opening import open_crawl
from crawler.crawl.url_input import url_of
from crawler.settings import Settings
from crawler.terminal.output import out, out_json


def run_explain(arguments: argparse.Namespace) -> int:
    """Print the explanation; raises InvalidUrl for what is no URL."""
    arguments.canonical = url_of(arguments.url)  # said before an engine is started
    return run_async(_explain(arguments, settings_of(arguments, KEYS)))


async def _explain(arguments: argparse.Namespace, settings: Settings) -> int:
    async with open_crawl(settings, create=False) as crawl:
        from crawler.views.facts import explain
        from crawler.views.reasons import explanation, record_of

        given, url = arguments.url.strip(), arguments.canonical
        facts = await explain(crawl, url, given=given, run=arguments.of_run, fetch_robots=arguments.fetch_robots)
    if arguments.json:
        out_json(msgspec.to_builtins(record_of(facts)))
    else:
        out(explanation(facts))
    return 0
