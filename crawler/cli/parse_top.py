"""Options of `crawler top`."""

import argparse

from crawler.cli.options import add_common

TOP_EPILOG = """\
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


def add_top(p: argparse.ArgumentParser) -> None:
    p.description = "A crawl in the terminal, live: its domains, instances and dead letters, and keys to steer it."
    p.epilog = TOP_EPILOG
    add_common(p)
    p.set_defaults(run="crawler.cli.top:run_top", takes_urls=False)
