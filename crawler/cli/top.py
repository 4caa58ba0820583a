"""`crawler top`: a crawl in the terminal, live: domains, one domain, instances, dead letters; keys to steer it."""

import argparse
import os
import sys
from typing import TYPE_CHECKING, Any

from crawler.cli.options import add_common, settings_of
from crawler.errors import UsageError

if TYPE_CHECKING:
    from crawler.settings import Settings

EPILOG = """\
examples:
  crawler top                                  the crawl in crawl-data
  crawler top --redis redis://queue.example/   one on an engine elsewhere

keys: 1 to 6 sort, n all domains by name, / filter, Enter one domain, m members, d dead letters,
o operator log, h attempts, p pause, b block, + and - boost, D delay, P pause the whole crawl, ? help, q quit.
Whatever changes something asks first.

It shows what the engine has counted, whichever instances run, and keeps running when the crawl
ends or the engine is away. It needs a terminal; elsewhere use 'crawler stats --watch'.

exit codes: 0 quit, 2 no such crawl or not a terminal, 3 engine
"""


def add_parser(commands: "argparse._SubParsersAction[Any]") -> None:
    p = commands.add_parser(
        "top",
        help="watch and steer a crawl in the terminal, live",
        description="A crawl in the terminal, live: its domains, instances and dead letters, and keys to steer it.",
        epilog=EPILOG,
    )
    add_common(p)
    p.set_defaults(run=run, takes_urls=False)


def run(arguments: argparse.Namespace) -> int:
    """Show it until it is left. Raises UsageError where there is no terminal."""
    from crawler.cli.event_loop import run_async

    is_terminal = sys.stdin.isatty() and sys.stdout.isatty() and sys.stderr.isatty()
    if not is_terminal or os.environ.get("TERM", "dumb") == "dumb":
        raise UsageError("top needs a terminal; use 'crawler stats --watch'")
    return run_async(_run(settings_of(arguments)))


async def _run(settings: "Settings") -> int:
    import asyncio
    import signal

    from crawler.crawl.opening import open_crawl

    async with open_crawl(settings, create=False) as crawl:
        from crawler.cli.options import actor
        from crawler.tui.app import TopApp
        from crawler.tui.source import CrawlSource

        app = TopApp(CrawlSource(crawl, actor("top")))
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            asyncio.get_running_loop().add_signal_handler(number, app.exit)
        await app.run_async()
        if app.bug is not None:
            raise app.bug
    return 0
