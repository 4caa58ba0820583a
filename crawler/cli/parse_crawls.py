"""Options of `crawler crawls`."""

import argparse

from crawler.cli.options import add_common

CRAWLS_EPILOG = """\
examples:
  crawler crawls --redis redis://queue.example/              the crawls of an engine
  crawler crawls rm old-shop --redis redis://queue.example/  remove one, after a question
  crawler crawls rm old-shop --yes                           the same of the embedded engine, without one

A crawl that an earlier release created is listed once it was opened by this one. `rm` deletes
what the engine has of a crawl: queue, seen-set, counters, dead letters. The crawl folder stays,
with archive and results. 'crawler rebuild' brings the crawl back from it. While the crawl is
being removed, nobody can open it. A removal that was interrupted is finished by the same command.

exit codes: 0 done, 2 no such crawl, or not confirmed, 3 engine, 4 instances take part
"""


def add_crawls(p: argparse.ArgumentParser) -> None:
    p.description = "The crawls of an engine. Without an action: list."
    p.epilog = CRAWLS_EPILOG
    _add_crawls_options(p)
    p.set_defaults(run="crawler.cli.crawls:list_crawls")
    actions = p.add_subparsers(metavar="ACTION", title="actions")
    one = actions.add_parser("list", help="name, time of creation, pages, pending URLs, instances", description="List.")
    _add_crawls_options(one, is_action=True)
    one.set_defaults(parser=one)
    one = actions.add_parser(
        "rm", help="remove a crawl from the engine; its folder stays", description="Remove a crawl from the engine."
    )
    one.add_argument("removed", metavar="NAME", help="the crawl's name")
    one.add_argument("--yes", action="store_true", help="do not ask")
    _add_crawls_options(one, is_action=True)
    one.set_defaults(run="crawler.cli.crawls:remove_crawl", parser=one)


def _add_crawls_options(p: argparse.ArgumentParser, *, is_action: bool = False) -> None:
    known = len(p._actions)  # noqa: SLF001 - argparse has no list of its options
    p.add_argument("--json", action="store_true", help="for programs")
    add_common(p, has_name=False)
    if is_action:
        for option in p._actions[known:]:  # noqa: SLF001
            option.default = argparse.SUPPRESS  # options before the name of the action count as well
