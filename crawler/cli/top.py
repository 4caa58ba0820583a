"""`crawler top`: a crawl in the terminal, live: domains, one domain, instances, dead letters; keys to steer it."""

import argparse
import asyncio
import os
import signal
import sys

from crawler.cli.options import actor
from crawler.cli.run_async import heard, run_on
from crawler.crawl.opening import OpenCrawl
from crawler.errors import UsageError


def run_top(arguments: argparse.Namespace) -> int:
    """Show it until it is left. Raises UsageError where there is no terminal."""
    is_terminal = sys.stdin.isatty() and sys.stdout.isatty() and sys.stderr.isatty()
    if not is_terminal or os.environ.get("TERM", "dumb") == "dumb":
        raise UsageError("top needs a terminal; use 'crawler stats --watch'")
    return run_on(arguments, _top, with_uvloop=False)  # Textual makes eager tasks: uvloop can't on Python 3.13


async def _top(crawl: OpenCrawl, _: argparse.Namespace) -> None:
    from crawler.tui.app import TopApp
    from crawler.tui.source import CrawlSource

    app = TopApp(CrawlSource(crawl, actor("top")))
    for number in heard((signal.SIGINT, signal.SIGTERM, signal.SIGHUP)):
        asyncio.get_running_loop().add_signal_handler(number, app.exit)
    await app.run_async()
    if app.bug is not None:
        raise app.bug
