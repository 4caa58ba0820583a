"""`crawler crawl`: seed, crawl until nothing is left, and print a summary."""

import argparse
import contextlib
import sys
from typing import IO, TYPE_CHECKING, Any

from crawler.cli.crawl_options import (
    ALL_KEYS,
    VERBOSE_HELP,
    add_app,
    add_fetching,
    add_instances,
    add_order,
    add_sitemap,
    check_instances,
    is_supervised,
)
from crawler.cli.export import add_output
from crawler.cli.options import add_common, count_type, limit_type, settings_of
from crawler.crawl.url_input import add_urls

if TYPE_CHECKING:
    from crawler.settings import Settings

EPILOG = """\
examples:
  crawler crawl https://docs.example/
  crawler crawl https://docs.example/guide/ --scope prefix -o guide.jsonl
  crawler crawl -i seeds.txt --depth 1 --exclude '/(login|cart)' -n 2
  crawler crawl https://shop.example/ --app shop.py -n 4
  subdomains example.com | crawler crawl -i - --pages 10000 --time 2h

Ctrl-C stops in order: what is in flight is finished, the rest is kept. The same command
goes on where the crawl stopped, also after a crash. Scope, robots, limits and the like are
stored with the crawl and need not be given again; 'crawler settings' shows and changes them.

exit codes: 0 done or limit reached, 2 bad input, 3 engine, 4 folder or node taken, 5 disk,
6 not one seed could be fetched, 10 stopped by a signal, 11 forced by a second one, 12 a
database of -o is away
"""


def add_parser(commands: "argparse._SubParsersAction[Any]") -> None:
    p = commands.add_parser(
        "crawl",
        help="crawl sites from seed URLs until nothing is left",
        description="Crawl from seed URLs until nothing is left, then print what was found and where it is stored.",
        epilog=EPILOG,
    )
    add_urls(p)
    group = p.add_argument_group("what to crawl")
    add_sitemap(group)
    group.add_argument(
        "--scope",
        choices=("domain", "host", "prefix", "any"),
        help="which links to follow: to the seeds' registrable domain (default), host, folder, or anywhere",
    )
    group.add_argument(
        "-np", "--no-parent", dest="scope", action="store_const", const="prefix", help="the same as --scope prefix"
    )
    group.add_argument(
        "-d",
        "--depth",
        type=count_type(0, 255, hint="; leave it out for no limit"),
        metavar="N",
        help="links away from a seed; 0: seeds only (default: no limit)",
    )
    group.add_argument(
        "--include",
        action="append",
        metavar="RE",
        help="only URLs that match this regular expression anywhere; may be repeated",
    )
    group.add_argument(
        "--exclude",
        action="append",
        metavar="RE",
        help="no URLs that match this regular expression anywhere; may be repeated",
    )
    add_app(group)
    add_order(group)
    group = p.add_argument_group("when to stop")
    group.add_argument(
        "--pages",
        type=count_type(1, hint="; leave it out for no limit"),
        metavar="N",
        help="when the crawl has N pages in total; several instances may fetch a few more, at most what they claim in "
        "half a second (measured with 2 and 4 instances: 0 or 1 more)",
    )
    group.add_argument("--time", type=limit_type, metavar="T", help="after this time: 90 (seconds), 10m, 2h, 1d")
    group = p.add_argument_group("results")
    add_output(group)
    group.add_argument(
        "-q", "--quiet", action="store_true", help="print no progress and no summary, only warnings and errors"
    )
    add_fetching(p)
    add_instances(p)
    add_common(p, verbose_help=VERBOSE_HELP)
    p.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Crawl; see EPILOG for the exit codes."""
    from crawler.cli.session import results_alone

    with results_alone(arguments.output) as stdout:
        return _crawl(arguments, stdout)


def _crawl(arguments: argparse.Namespace, stdout: IO[bytes] | None) -> int:
    from crawler.cli.checking import check_app
    from crawler.cli.event_loop import raise_file_limit, run_async
    from crawler.cli.export import checked_targets
    from crawler.cli.session import CrawlSession
    from crawler.crawl.terms import permitted
    from crawler.crawl.url_input import sources_of

    check_instances(arguments)
    settings = permitted(settings_of(arguments, ALL_KEYS, in_folder=True))
    _check_scope(settings)
    check_app(settings)
    targets = checked_targets(arguments, settings.archive.dir, items=bool(settings.handlers.app))
    plain, files = sources_of(arguments)
    raise_file_limit()
    session = CrawlSession(arguments, settings, plain=plain, files=files, targets=targets, stdout=stdout)

    def work() -> int:
        with contextlib.suppress(BrokenPipeError):
            return run_async(session.run(), has_users_code=bool(settings.handlers.app))
        sys.stderr.close()
        return 0

    if not arguments.is_program or is_supervised(arguments):
        return work()
    from crawler.cli.supervising import run_restarting

    return run_restarting(work)


def _check_scope(settings: "Settings") -> None:
    """Reports a bad regular expression before anything is created."""
    from crawler.rules.scope import ScopeRules

    ScopeRules.of(settings.scope)
